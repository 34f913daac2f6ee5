"""The rules of `metadata`: what the server fills in, what clients may not touch, what a name looks like."""

from __future__ import annotations

import random
import uuid
from typing import Final

from opsdk.testing.apiserver._fields import FieldError, forbidden, go_quote, invalid, required
from opsdk.testing.apiserver._json import Document, Value, as_list, as_object, as_text
from opsdk.testing.apiserver._kinds import KindInfo
from opsdk.testing.apiserver._names import (
    dns1123_label_faults,
    dns1123_subdomain_faults,
    label_value_faults,
    qualified_name_faults,
)
from opsdk.testing.apiserver._status import StatusError, bad_request

__all__ = ["clean_metadata", "fill_in", "generate_name", "kept_on_update", "validate_metadata", "validate_update"]

_SUFFIX_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH: Final = 5
_LONGEST_BASE: Final = 58
_ANNOTATIONS_LIMIT_BYTES: Final = 256 * 1024
_PATH_SEGMENT_NAMES: Final = frozenset(
    {
        "roles.rbac.authorization.k8s.io",
        "rolebindings.rbac.authorization.k8s.io",
        "clusterroles.rbac.authorization.k8s.io",
        "clusterrolebindings.rbac.authorization.k8s.io",
    }
)
_SYSTEM_FIELDS: Final = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "generation",
)
_STANDARD_FINALIZERS: Final = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
# Kinds that are served by other servers inside kube-apiserver, which do not ask finalizers for a domain.
_LOOSE_GROUPS: Final = frozenset({"apiextensions.k8s.io", "apiregistration.k8s.io"})
_GARBAGE_FINALIZERS: Final = frozenset({"orphan", "foregroundDeletion"})


def clean_metadata(document: Document, info: KindInfo) -> Document:
    """The document's metadata as the server understands it: known fields only, nothing that is empty.

    Raises:
        StatusError: 400, a field is of the wrong type.
    """
    found = document.get("metadata")
    if found is not None and not isinstance(found, dict):
        raise _wrong_type(info, found, "metadata", "v1.ObjectMeta")
    metadata: Document = {}
    for name, value in as_object(found).items():
        wanted = _METADATA_FIELDS.get(name)
        if wanted is None or value is None or value in ({}, [], ""):
            continue
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            raise _wrong_type(info, value, f"metadata.{name}", _GO_NAMES[wanted])
        if name in {"labels", "annotations"}:
            wrong = [entry for entry in as_object(value).values() if not isinstance(entry, str)]
            if wrong:
                raise _wrong_type(info, wrong[0], f"metadata.{name}", "string")
        metadata[name] = value
    document["metadata"] = metadata
    return metadata


_METADATA_FIELDS: Final[dict[str, type]] = {
    "name": str,
    "generateName": str,
    "namespace": str,
    "selfLink": str,
    "uid": str,
    "resourceVersion": str,
    "generation": int,
    "creationTimestamp": str,
    "deletionTimestamp": str,
    "deletionGracePeriodSeconds": int,
    "labels": dict,
    "annotations": dict,
    "ownerReferences": list,
    "finalizers": list,
    "managedFields": list,
}
_GO_NAMES: Final[dict[type, str]] = {
    str: "string",
    int: "int64",
    dict: "map[string]string",
    list: "[]v1.OwnerReference",
}


def _wrong_type(info: KindInfo, value: Value, field: str, wanted: str) -> StatusError:
    match value:
        case bool():
            found = "bool"
        case str():
            found = "string"
        case dict():
            found = "object"
        case list():
            found = "array"
        case _:
            found = "number"
    return bad_request(
        f'{info.kind} in version "{info.version}" cannot be handled as a {info.kind}: json: cannot unmarshal {found} '
        f"into Go struct field ObjectMeta.{field} of type {wanted}"
    )


def generate_name(prefix: str) -> str:
    """A name from a `generateName`."""
    suffix = "".join(random.choices(_SUFFIX_ALPHABET, k=_SUFFIX_LENGTH))  # noqa: S311 - not a secret
    return prefix[:_LONGEST_BASE] + suffix


def fill_in(metadata: Document, info: KindInfo, *, now: str) -> None:
    """What the server sets in a new object, whatever the client sent for it."""
    for name in _SYSTEM_FIELDS:
        metadata.pop(name, None)
    metadata["uid"] = str(uuid.uuid4())
    metadata["creationTimestamp"] = now
    if info.generation:
        metadata["generation"] = 1


def kept_on_update(metadata: Document, old: Document) -> None:
    """Take over from the old metadata what an update may leave out or may not change."""
    for name in ("uid", "name", "namespace"):
        if not metadata.get(name) and old.get(name):
            metadata[name] = old[name]
    for name in ("generation", "creationTimestamp", "selfLink"):
        if old.get(name) is not None:
            metadata[name] = old[name]
        else:
            metadata.pop(name, None)
    if old.get("deletionTimestamp") is not None:
        metadata["deletionTimestamp"] = old["deletionTimestamp"]
    if old.get("deletionGracePeriodSeconds") is not None and metadata.get("deletionGracePeriodSeconds") is None:
        metadata["deletionGracePeriodSeconds"] = old["deletionGracePeriodSeconds"]


def validate_metadata(metadata: Document, info: KindInfo) -> list[FieldError]:
    """The faults of a new object's metadata."""
    errors: list[FieldError] = []
    name = metadata.get("name")
    prefix = as_text(metadata.get("generateName"))
    if prefix and not name:
        errors += [invalid("metadata.generateName", prefix, fault) for fault in _name_faults(info, prefix + "a")]
    if not isinstance(name, str) or not name:
        errors.append(required("metadata.name", "name or generateName is required"))
    else:
        errors += [invalid("metadata.name", name, fault) for fault in _name_faults(info, name)]
    errors += _validate_common(metadata, info)
    return errors


def validate_update(metadata: Document, old: Document, info: KindInfo) -> list[FieldError]:
    """The faults of a changed object's metadata."""
    errors: list[FieldError] = []
    if old.get("deletionTimestamp") is not None:
        before = {as_text(entry) for entry in as_list(old.get("finalizers"))}
        new = sorted({as_text(entry) for entry in as_list(metadata.get("finalizers"))} - before)
        if new:
            shown = ", ".join(go_quote(entry) for entry in new)
            text = "no new finalizers can be added if the object is being deleted, found new finalizers "
            errors.append(forbidden("metadata.finalizers", f"{text}[]string{{{shown}}}"))
    errors += [
        invalid(f"metadata.{name}", metadata.get(name), "field is immutable")
        for name in ("name", "namespace", "uid", "deletionTimestamp", "deletionGracePeriodSeconds")
        if metadata.get(name) != old.get(name) and (metadata.get(name) or old.get(name))
    ]
    errors += _validate_common(metadata, info)
    return errors


def _name_faults(info: KindInfo, name: str) -> list[str]:
    if info.resource in _PATH_SEGMENT_NAMES:
        return _path_segment_faults(name)
    if info.resource == "services":
        return dns1123_label_faults(name)
    if info.resource == "namespaces":
        return ["must not contain dots"] if "." in name else dns1123_label_faults(name)
    return dns1123_subdomain_faults(name)


def _path_segment_faults(name: str) -> list[str]:
    if name in {".", ".."}:
        return [f"may not be '{name}'"]
    return [f"may not contain '{part}'" for part in ("/", "%") if part in name]


def _validate_common(metadata: Document, info: KindInfo) -> list[FieldError]:
    errors: list[FieldError] = []
    errors += _validate_labels(as_object(metadata.get("labels")))
    errors += _validate_annotations(as_object(metadata.get("annotations")))
    errors += _validate_owners(as_list(metadata.get("ownerReferences")))
    errors += _validate_finalizers(as_list(metadata.get("finalizers")), info)
    return errors


def _validate_labels(labels: Document) -> list[FieldError]:
    errors: list[FieldError] = []
    for key, value in labels.items():
        errors.extend(invalid("metadata.labels", key, fault) for fault in qualified_name_faults(key))
        text = as_text(value)
        errors.extend(invalid("metadata.labels", text, fault) for fault in label_value_faults(text))
    return errors


def _validate_annotations(annotations: Document) -> list[FieldError]:
    errors: list[FieldError] = []
    size = 0
    for key, value in annotations.items():
        errors += [invalid("metadata.annotations", key, fault) for fault in qualified_name_faults(key.lower())]
        size += len(key.encode()) + len(as_text(value).encode())
    if size > _ANNOTATIONS_LIMIT_BYTES:
        message = f"Too long: may not be more than {_ANNOTATIONS_LIMIT_BYTES} bytes"
        errors.append(FieldError("metadata.annotations", "FieldValueTooLong", message))
    return errors


def _validate_owners(owners: list[Value]) -> list[FieldError]:
    errors: list[FieldError] = []
    controller = ""
    for index, value in enumerate(owners):
        owner = as_object(value)
        errors += [
            required(f"metadata.ownerReferences[{index}].{name}", "must not be empty")
            for name in ("apiVersion", "kind", "name", "uid")
            if not owner.get(name)
        ]
        if owner.get("controller") is True:
            current = f"{as_text(owner.get('kind'))}/{as_text(owner.get('name'))}"
            if controller:
                text = (
                    'Only one reference can have Controller set to true. Found "true" in references for '
                    f"{controller} and {current}"
                )
                errors.append(invalid("metadata.ownerReferences", owners, text))
            else:
                controller = current
    return errors


def _validate_finalizers(finalizers: list[Value], info: KindInfo) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, entry in enumerate(finalizers):
        name = as_text(entry)
        errors += [invalid("metadata.finalizers", name, fault) for fault in qualified_name_faults(name)]
        if info.builtin and info.group not in _LOOSE_GROUPS and "/" not in name and name not in _STANDARD_FINALIZERS:
            text = "name is neither a standard finalizer name nor is it fully qualified"
            errors.append(invalid(f"metadata.finalizers[{index}]", name, text))
    if {as_text(entry) for entry in finalizers} >= _GARBAGE_FINALIZERS:
        text = "finalizer orphan and foregroundDeletion cannot be both set"
        errors.append(invalid("metadata.finalizers", finalizers, text))
    return errors
