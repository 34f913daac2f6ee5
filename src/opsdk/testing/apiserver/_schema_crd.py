"""What makes a CustomResourceDefinition unacceptable, in the server's words.

Covered: names, versions, printer columns, subresources, structural schemas with their defaults, list types and rules.
Not covered: conversion webhooks' addresses, the cost of CEL rules, selectable fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from opsdk.testing.apiserver._fields import (
    FieldError,
    Tree,
    entries,
    forbidden,
    invalid,
    is_object,
    members,
    not_supported,
    required,
    tree,
)
from opsdk.testing.apiserver._names import dns1035_faults, dns1123_subdomain_faults
from opsdk.testing.apiserver._schema_structure import structure_faults
from opsdk.testing.apiserver._schema_values import same
from opsdk.types import JsonObject

__all__ = ["default_crd", "validate_crd"]

_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS: Final = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")


def default_crd(crd: dict[str, Any]) -> None:
    """Fill in what the server fills in when a CRD is written, in place."""
    spec = crd.get("spec")
    if not is_object(spec):
        return
    names = spec.get("names")
    if is_object(names) and names.get("kind"):
        names.setdefault("singular", names["kind"].lower())
        names.setdefault("listKind", f"{names['kind']}List")
    spec.setdefault("conversion", {"strategy": "None"})


def validate_crd(crd: JsonObject, old: JsonObject | None = None, *, rules: bool = True) -> list[FieldError]:
    """Everything that keeps a CRD from being accepted.

    Args:
        crd: The `apiextensions.k8s.io/v1` CustomResourceDefinition as it would be stored.
        old: What is stored now, on an update: names that cannot change are held against it.
        rules: Whether CEL rules are compiled, which needs the extra `cel`.

    Raises:
        StatusError: There are rules, and the extra is not installed.
    """
    document = tree(crd)
    default_crd(document)
    spec: Tree = members(document, "spec")
    names: Tree = members(spec, "names")
    metadata: Tree = members(document, "metadata")
    plural, group = names.get("plural") or "", spec.get("group") or ""
    return [
        *(_name_faults(metadata.get("name") or "", f"{plural}.{group}") if old is None else ()),
        *_group_faults(group),
        *_scope_faults(spec.get("scope") or ""),
        *_version_faults(entries(spec, "versions"), rules=rules),
        *_names_faults(names),
        *_conversion_faults(members(spec, "conversion")),
        *(_change_faults(spec, tree(old)) if old is not None else ()),
        *_approval_faults(group, members(metadata, "annotations")),
        *_preserve_faults(spec),
    ]


def _change_faults(spec: Tree, old: Tree) -> Iterator[FieldError]:
    before = members(old, "spec")
    conditions = entries(members(old, "status"), "conditions")
    established = any(each.get("type") == "Established" and each.get("status") == "True" for each in conditions)
    for path, needs_established in (
        (("scope",), True),
        (("names", "kind"), True),
        (("group",), False),
        (("names", "plural"), False),
    ):
        *parents, key = path
        now, was = spec, before
        for parent in parents:
            now, was = members(now, parent), members(was, parent)
        if (established or not needs_established) and now.get(key) != was.get(key):
            yield invalid(".".join(("spec", *path)), now.get(key) or "", "field is immutable")
    names = {version.get("name") for version in entries(spec, "versions")}
    for index, name in enumerate(entries(members(old, "status"), "storedVersions")):
        if name not in names:
            text = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in "
                f"spec.versions until a storage migration ensures no data remains persisted in {name} and removes "
                f"{name} from status.storedVersions"
            )
            yield invalid(f"status.storedVersions[{index}]", name, text)


def _name_faults(name: str, wanted: str) -> Iterator[FieldError]:
    if not name:
        yield required("metadata.name", "name or generateName is required")
        return
    for fault in dns1123_subdomain_faults(name):
        yield invalid("metadata.name", name, fault)
    if name != wanted:
        yield invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')


def _group_faults(group: str) -> Iterator[FieldError]:
    if not group:
        yield required("spec.group")
    elif faults := dns1123_subdomain_faults(group):
        yield invalid("spec.group", group, ",".join(faults))
    elif "." not in group:
        yield invalid("spec.group", group, "should be a domain with at least one dot")


def _scope_faults(scope: str) -> Iterator[FieldError]:
    if not scope:
        yield required("spec.scope")
    elif scope not in {"Cluster", "Namespaced"}:
        yield not_supported("spec.scope", scope, ("Cluster", "Namespaced"))


def _preserve_faults(spec: Tree) -> Iterator[FieldError]:
    if spec.get("preserveUnknownFields"):
        yield invalid(
            "spec.preserveUnknownFields",
            True,
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        )


def _approval_faults(group: str, annotations: Tree) -> Iterator[FieldError]:
    if not group.endswith((".k8s.io", ".kubernetes.io")) and group not in {"k8s.io", "kubernetes.io"}:
        return
    key = "api-approved.kubernetes.io"
    where = f"metadata.annotations[{key}]"
    approval: str = annotations.get(key) or ""
    if not approval:
        text = "protected groups must have approval annotation"
        yield required(where, f'{text} "{key}", see https://github.com/kubernetes/enhancements/pull/1111')
    elif not approval.startswith(("unapproved", "http://", "https://")):
        text = "protected groups must have approval annotation"
        yield invalid(
            where,
            approval,
            f'{text} "{key}" with either a URL or a reason starting with "unapproved", see '
            "https://github.com/kubernetes/enhancements/pull/1111",
        )


def _conversion_faults(conversion: Tree) -> Iterator[FieldError]:
    strategy: str = conversion.get("strategy") or ""
    where = "spec.conversion"
    if strategy not in {"None", "Webhook"}:
        yield (
            not_supported(f"{where}.strategy", strategy, ("None", "Webhook"))
            if strategy
            else required(f"{where}.strategy")
        )
    webhook = conversion.get("webhook")
    if strategy == "Webhook":
        if not is_object(webhook) or not is_object(webhook.get("clientConfig")):
            yield required(f"{where}.webhookClientConfig", "required when strategy is set to Webhook")
        if not is_object(webhook) or not webhook.get("conversionReviewVersions"):
            yield required(f"{where}.conversionReviewVersions")
    elif is_object(webhook):
        text = "should not be set when strategy is not set to Webhook"
        if webhook.get("clientConfig") is not None:
            yield forbidden(f"{where}.webhookClientConfig", text)
        if webhook.get("conversionReviewVersions"):
            yield forbidden(f"{where}.conversionReviewVersions", text)


def _names_faults(names: Tree) -> Iterator[FieldError]:
    where = "spec.names"
    for key in ("plural", "singular", "kind", "listKind"):
        if not names.get(key):
            yield required(f"{where}.{key}")
    for key in ("plural", "singular"):
        if names.get(key) and (faults := dns1035_faults(names[key])):
            yield invalid(f"{where}.{key}", names[key], ",".join(faults))
    for key in ("kind", "listKind"):
        if names.get(key) and (faults := dns1035_faults(names[key].lower())):
            text = "may have mixed case, but should otherwise match: " + ",".join(faults)
            yield invalid(f"{where}.{key}", names[key], text)
    for key in ("shortNames", "categories"):
        for index, name in enumerate(entries(names, key)):
            if faults := dns1035_faults(name):
                yield invalid(f"{where}.{key}[{index}]", name, ",".join(faults))
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        yield invalid(f"{where}.listKind", names["listKind"], "kind and listKind may not be the same")


def _version_faults(versions: list[Tree], *, rules: bool) -> Iterator[FieldError]:
    """Faults of the versions. What is the same in all of them is reported once, under the spec, where it used to be."""
    where = "spec.versions"
    names: list[str] = [version.get("name") or "" for version in versions]
    for index, version in enumerate(versions):
        here = f"{where}[{index}]"
        if not is_object(members(version, "schema").get("openAPIV3Schema")):
            yield required(f"{here}.schema.openAPIV3Schema")
        if faults := dns1035_faults(names[index]):
            yield invalid(f"{here}.name", names[index], ",".join(faults))
        if version.get("deprecationWarning") is not None and not version.get("deprecated"):
            text = "can only be set for deprecated versions"
            yield invalid(f"{here}.deprecationWarning", version["deprecationWarning"], text)
    for key, spec_key, check in (
        ("schema", "validation", partial(_version_schema_faults, rules=rules)),
        ("subresources", "subresources", _subresource_faults),
        ("additionalPrinterColumns", "additionalPrinterColumns", _columns_faults),
    ):
        if versions and all(version.get(key) and same(version[key], versions[0].get(key)) for version in versions):
            yield from check(versions[0], f"spec.{spec_key}")
        else:
            for index, version in enumerate(versions):
                yield from check(version, f"{where}[{index}].{key}")
    if len(set(names)) != len(names):
        yield invalid(where, versions, "must contain unique version names")
    storage = [name for name, version in zip(names, versions, strict=True) if version.get("storage")]
    if len(storage) != 1:
        yield invalid(where, versions, "must have exactly one version marked as storage version")
    if names and (faults := dns1035_faults(names[0])):
        yield invalid("spec.version", names[0], ",".join(faults))
    # The storage version that comes first is the stored one.
    if not storage:
        yield invalid("status.storedVersions", None, "must have at least one stored version")
    for name in storage[1:]:
        yield invalid("status.storedVersions", storage[:1], f"must have the storage version {name}")


def _version_schema_faults(version: Tree, where: str, *, rules: bool) -> Iterator[FieldError]:
    schema = members(version, "schema").get("openAPIV3Schema")
    if is_object(schema):
        status = "status" in members(version, "subresources")
        yield from structure_faults(schema, f"{where}.openAPIV3Schema", status=status, rules=rules)


def _subresource_faults(version: Tree, where: str) -> Iterator[FieldError]:
    yield from _scale_faults(members(version, "subresources").get("scale"), f"{where}.scale")


def _columns_faults(version: Tree, where: str) -> Iterator[FieldError]:
    for index, column in enumerate(entries(version, "additionalPrinterColumns")):
        yield from _column_faults(column, f"{where}[{index}]")


def _scale_faults(scale: object, where: str) -> Iterator[FieldError]:
    if not is_object(scale):
        return
    for key, prefixes, text in (
        ("specReplicasPath", (".spec.",), "should be a json path under .spec"),
        ("statusReplicasPath", (".status.",), "should be a json path under .status"),
        ("labelSelectorPath", (".spec.", ".status."), "should be a json path under either .spec or .status"),
    ):
        path: str = scale.get(key) or ""
        if not path:
            if key != "labelSelectorPath":
                yield required(f"{where}.{key}")
        elif not path.startswith("."):
            yield invalid(f"{where}.{key}", path, "must be a simple json path starting with .")
        elif not path.startswith(prefixes):
            yield invalid(f"{where}.{key}", path, text)


def _column_faults(column: Tree, where: str) -> Iterator[FieldError]:
    if not column.get("name"):
        yield required(f"{where}.name")
    kind: str = column.get("type") or ""
    text = f"must be one of {','.join(_COLUMN_TYPES)}"
    if not kind:
        yield required(f"{where}.type", text)
    elif kind not in _COLUMN_TYPES:
        yield invalid(f"{where}.type", kind, text)
    if column.get("format") and column["format"] not in _COLUMN_FORMATS:
        yield invalid(f"{where}.format", column["format"], f"must be one of {','.join(_COLUMN_FORMATS)}")
    path: str = column.get("jsonPath") or ""
    if not path:
        yield required(f"{where}.JSONPath")
    elif not path.startswith("."):
        yield invalid(f"{where}.JSONPath", path, "must be a simple json path starting with .")
