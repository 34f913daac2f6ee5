"""The `fieldPath` of a rule: where its failure is reported, `.spec.replicas` or `.labels['a.b']`."""

from __future__ import annotations

import re
from typing import Final

from opsdk.testing.apiserver._fields import Tree, child, is_object, members

__all__ = ["normalized_path"]

_TOKEN: Final = re.compile(r"\.([^.\[\]']+)|\['((?:[^'\\]|\\.)*)'\]")
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\"}


def normalized_path(text: str, schema: Tree) -> str | None:
    """The path as errors name it; None where it leads to no field of the schema."""
    path, at = "", 0
    here: object = schema
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or not is_object(here):
            return None
        at = found.end()
        quoted: str | None = found[2]
        name: str = found[1] if quoted is None else re.sub(r"\\(.)", lambda one: _ESCAPES.get(one[1], ""), quoted)
        if "properties" in here:
            if name not in members(here, "properties"):
                return None
            path, here = child(path, name), here["properties"][name]
        elif is_object(here.get("additionalProperties")):
            path, here = f"{path}[{name}]", here["additionalProperties"]
        else:
            return None
    return path
