"""Differences between JSON documents, and how to lay them over a third one. Pure functions; nothing here does I/O.

A document is what a JSON decoder gives. Nothing that is passed in is changed, and what comes back may share parts with
it. `True` and `1` are different values, `1` and `1.0` are the same.
"""

from opsdk.patches._describe import describe_difference, redacted
from opsdk.patches._json import JsonPatchError, apply_json_patch, json_difference
from opsdk.patches._members import Members, decoded, differing, members_of
from opsdk.patches._merge import apply_merge_patch, merge_difference
from opsdk.patches._overlay import overlay, overlay_difference
from opsdk.patches._values import Identity, identities, is_array, is_object, same

__all__ = [
    "Identity",
    "JsonPatchError",
    "Members",
    "apply_json_patch",
    "apply_merge_patch",
    "decoded",
    "describe_difference",
    "differing",
    "identities",
    "is_array",
    "is_object",
    "json_difference",
    "members_of",
    "merge_difference",
    "overlay",
    "overlay_difference",
    "redacted",
    "same",
]
