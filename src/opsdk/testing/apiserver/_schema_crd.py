"""What makes a CustomResourceDefinition unacceptable, in the server's words.

Covered: names, versions, printer columns, subresources, structural schemas with their defaults and list types.
Not covered: conversion webhooks' addresses, the cost of CEL rules and the rules' own syntax, selectable fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, final

from opsdk.testing.apiserver._fields import (
    FieldError,
    Tree,
    entries,
    forbidden,
    invalid,
    is_array,
    is_object,
    members,
    not_supported,
    required,
    tree,
)
from opsdk.testing.apiserver._formats import pattern_fault
from opsdk.testing.apiserver._json import clone
from opsdk.testing.apiserver._names import dns1035_faults, dns1123_subdomain_faults
from opsdk.testing.apiserver._schema_values import same, validate_value
from opsdk.testing.apiserver._structural import StructuralSchema
from opsdk.types import JsonObject

__all__ = ["default_crd", "validate_crd"]

_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS: Final = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_RULE_REASONS: Final = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_META_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata"})
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED: Final = "x-kubernetes-embedded-resource"
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_INT_OR_STRING_ANY_OF: Final = [{"type": "integer"}, {"type": "string"}]

# Fields of the root schema, by their names in Go, that may stand beside a status subresource.
_ROOT_FIELDS: Final = (
    "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern "
    "MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields "
    "XValidations"
)
_NOT_AT_ROOT: Final = frozenset(
    {
        "$ref",
        "$schema",
        "additionalItems",
        "additionalProperties",
        "allOf",
        "anyOf",
        "default",
        "definitions",
        "dependencies",
        "enum",
        "id",
        "maxProperties",
        "minProperties",
        "not",
        "nullable",
        "oneOf",
        "patternProperties",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
    }
)


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


def validate_crd(crd: JsonObject, old: JsonObject | None = None) -> list[FieldError]:
    """Everything that keeps a CRD from being accepted.

    Args:
        crd: The `apiextensions.k8s.io/v1` CustomResourceDefinition as it would be stored.
        old: What is stored now, on an update: names that cannot change are held against it.
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
        *_version_faults(entries(spec, "versions")),
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


def _version_faults(versions: list[Tree]) -> Iterator[FieldError]:
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
        ("schema", "validation", _version_schema_faults),
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


def _version_schema_faults(version: Tree, where: str) -> Iterator[FieldError]:
    schema = members(version, "schema").get("openAPIV3Schema")
    if is_object(schema):
        status = "status" in members(version, "subresources")
        yield from _schema_faults(schema, f"{where}.openAPIV3Schema", status=status)


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


def _schema_faults(schema: Tree, where: str, *, status: bool) -> Iterator[FieldError]:
    if status:
        if schema.get("type", "object") != "object":
            text = 'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
            yield invalid(f"{where}.type", schema["type"], text)
        elif any(schema.get(key) for key in _NOT_AT_ROOT):
            fields = f"only [{_ROOT_FIELDS}] fields"
            text = f"{fields} are allowed at the root of the schema if the status subresource is enabled"
            yield invalid(where, schema, text)
    if schema.get("nullable"):
        yield forbidden(f"{where}.nullable", "nullable cannot be true at the root")
    if not any(_unsupported(schema)):
        structural = list(_structure_faults(schema, where, "root"))
        yield from structural or _default_faults(schema, where, embedded_root=True)
    yield from _openapi_faults(schema, where, _Place())


def _unsupported(schema: Tree) -> Iterator[bool]:
    """Whether a schema has keywords that no structural schema can be made of (reported as such)."""
    yield any(
        schema.get(key)
        for key in ("id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions")
    ) or is_array(schema.get("items"))
    for _, below in _children(schema):
        yield from _unsupported(below)


def _children(schema: Tree) -> Iterator[tuple[str, Tree]]:
    """All schemas directly inside a schema, with the path from there."""
    properties: Tree = members(schema, "properties")
    for name, below in properties.items():
        yield f".properties[{name}]", below
    for key in ("items", "additionalProperties", "not"):
        if is_object(schema.get(key)):
            yield f".{key}", schema[key]
    for key in ("allOf", "anyOf", "oneOf"):
        for index, below in enumerate(entries(schema, key)):
            yield f".{key}[{index}]", below


def _structure_faults(schema: Tree, where: str, level: str) -> Iterator[FieldError]:
    """The rules of structural schemas, outside of value validation."""
    kind: str = schema.get("type") or ""
    embedded, preserve = bool(schema.get(_EMBEDDED)), bool(schema.get(_PRESERVE))
    int_or_string = bool(schema.get(_INT_OR_STRING))
    properties: Tree = members(schema, "properties")
    additional = schema.get("additionalProperties")
    if kind == "array" and not is_object(schema.get("items")):
        yield required(f"{where}.items", "must be specified")
    if is_object(schema.get("items")):
        yield from _structure_faults(schema["items"], f"{where}.items", "item")
    for name, below in properties.items():
        yield from _structure_faults(below, f"{where}.properties[{name}]", "field")
    if additional is not None:
        if level == "root":
            yield forbidden(f"{where}.additionalProperties", "must not be used at the root")
        if is_object(additional):
            yield from _structure_faults(additional, f"{where}.additionalProperties", "field")
    if int_or_string and preserve:
        yield invalid(f"{where}.{_PRESERVE}", True, f"must be false if {_INT_OR_STRING} is true")
    if int_or_string and embedded:
        yield invalid(f"{where}.{_EMBEDDED}", True, f"must be false if {_INT_OR_STRING} is true")
    yield from _value_faults(schema, where, int_or_string=True)
    if embedded and kind != "object":
        text = f"must be object if {_EMBEDDED} is true"
        yield invalid(f"{where}.type", kind, text) if kind else required(f"{where}.type", text)
    elif not kind and not int_or_string and not preserve:
        places = {"root": "at the root", "item": "for specified array items", "field": "for specified object fields"}
        yield required(f"{where}.type", f"must not be empty {places[level]}")
    if embedded and additional is not None:
        yield forbidden(f"{where}.additionalProperties", f"must not be used if {_EMBEDDED} is set")
    if level == "root" and kind and kind != "object":
        yield invalid(f"{where}.type", kind, "must be object at the root")
    if level == "root" or embedded:
        yield from _meta_faults(properties, where, root=level == "root")
    if embedded and not preserve and not properties:
        text = f"must not be empty if {_EMBEDDED} is true without {_PRESERVE}"
        yield required(f"{where}.properties", text)


def _meta_faults(properties: Tree, where: str, *, root: bool) -> Iterator[FieldError]:
    for key, wanted in (("kind", "string"), ("apiVersion", "string"), ("metadata", "object")):
        below = properties.get(key)
        if is_object(below) and below.get("type") != wanted:
            yield invalid(f"{where}.properties[{key}].type", below.get("type") or "", f"must be {wanted}")
    metadata = properties.get("metadata")
    if root and is_object(metadata):
        rest = {key for key, value in metadata.items() if value and key not in {"type", "default"}}
        names = set(members(metadata, "properties"))
        if rest - {"properties"} or not names <= {"name", "generateName"}:
            text = "must not specify anything other than name and generateName, but metadata is implicitly specified"
            yield forbidden(f"{where}.properties[metadata]", text)


def _value_faults(schema: Tree, where: str, *, int_or_string: bool = False) -> Iterator[FieldError]:
    """The junctors of a schema and its pattern."""
    any_of: list[Tree] = entries(schema, "anyOf")
    all_of: list[Tree] = entries(schema, "allOf")
    if not (int_or_string and same(any_of, _INT_OR_STRING_ANY_OF)):
        for index, below in enumerate(any_of):
            yield from _nested_faults(below, f"{where}.anyOf[{index}]")
    for index, below in enumerate(all_of):
        skip = int_or_string and index == 0 and same(below.get("anyOf"), _INT_OR_STRING_ANY_OF)
        yield from _nested_faults(below, f"{where}.allOf[{index}]", skip_any_of=skip)
    for index, below in enumerate(entries(schema, "oneOf")):
        yield from _nested_faults(below, f"{where}.oneOf[{index}]")
    if is_object(schema.get("not")):
        yield from _nested_faults(schema["not"], f"{where}.not")
    pattern: str = schema.get("pattern") or ""
    if pattern and (fault := pattern_fault(pattern)) is not None:
        yield invalid(f"{where}.pattern", pattern, f"must be a valid regular expression, but isn't: {fault}")


def _nested_faults(schema: Tree, where: str, *, skip_any_of: bool = False) -> Iterator[FieldError]:
    """What must not stand inside allOf, anyOf, oneOf and not."""
    yield from _value_faults(schema, where, int_or_string=skip_any_of)
    if is_object(schema.get("items")):
        yield from _nested_faults(schema["items"], f"{where}.items")
    properties: Tree = members(schema, "properties")
    for name, below in properties.items():
        yield from _nested_faults(below, f"{where}.properties[{name}]")
    for key, word in (
        ("type", "empty"),
        ("additionalProperties", "undefined"),
        ("default", "undefined"),
        ("title", "empty"),
        ("description", "empty"),
        ("nullable", "false"),
        (_PRESERVE, "false"),
        (_EMBEDDED, "false"),
        (_INT_OR_STRING, "false"),
        ("x-kubernetes-list-map-keys", "empty"),
        ("x-kubernetes-list-type", "undefined"),
        ("x-kubernetes-map-type", "undefined"),
        ("x-kubernetes-validations", "empty"),
    ):
        value = schema.get(key)
        if value if word in {"empty", "false"} else value is not None:
            yield forbidden(f"{where}.{key}", f"must be {word} to be structural")
    if "metadata" in properties:
        yield forbidden(f"{where}.properties[metadata]", "must not be specified in a nested context")


def _default_faults(schema: Tree, where: str, *, embedded_root: bool = False) -> Iterator[FieldError]:
    """Defaults have to be valid themselves and must hold nothing that would be pruned."""
    default = schema.get("default")
    if default is not None and embedded_root:  # a whole object, which no default can be
        yield required(f"{where}.default.apiVersion")
        yield required(f"{where}.default.kind")
    elif default is not None:
        if is_object(default) or is_array(default):
            pruned = clone(default)
            StructuralSchema({"type": "object", "properties": {"default": schema}}).prune({"default": pruned})
            if not same(pruned, default):
                yield invalid(f"{where}.default", default, "must not have unknown fields")
        yield from validate_value(schema, default, base=f"{where}.default")
    if is_object(schema.get("items")):
        yield from _default_faults(schema["items"], f"{where}.items")
    properties: Tree = members(schema, "properties")
    for name, below in properties.items():
        if not (embedded_root and name in _META_FIELDS):
            yield from _default_faults(below, f"{where}.properties[{name}]")


@final
@dataclass(frozen=True, slots=True)
class _Place:
    """Where a schema stands, for rules that depend on it."""

    root: bool = True
    inside_meta: bool = False
    defaults_forbidden: str | None = None


def _openapi_faults(schema: Tree, where: str, place: _Place) -> Iterator[FieldError]:
    """Keywords and extensions that are refused wherever they stand."""
    yield from _keyword_faults(schema, where, place)
    properties: Tree = members(schema, "properties")
    additional = schema.get("additionalProperties")
    inner = replace(place, root=False)
    if schema.get("uniqueItems"):
        text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield forbidden(f"{where}.uniqueItems", text)
    if additional is not None and additional is not True and properties:
        text = "additionalProperties and properties are mutual exclusive"
        yield forbidden(f"{where}.additionalProperties", text)
    for path, below in _children(schema):
        here = inner
        if path == ".additionalProperties" and place.inside_meta:
            here = replace(inner, defaults_forbidden="inside additionalProperties applying to object metadata")
        name = path.removeprefix(".properties[").removesuffix("]")
        if path.startswith(".properties[") and (place.root or schema.get(_EMBEDDED)) and name in _META_FIELDS:
            forbids = f"in top-level {name}" if place.root else inner.defaults_forbidden
            here = replace(inner, inside_meta=True, defaults_forbidden=forbids)
        yield from _openapi_faults(below, f"{where}{path}", here)
    yield from _list_type_faults(schema, where)
    for index, rule in enumerate(entries(schema, "x-kubernetes-validations")):
        yield from _rule_faults(rule, f"{where}.x-kubernetes-validations[{index}]")


def _keyword_faults(schema: Tree, where: str, place: _Place) -> Iterator[FieldError]:
    kind: str = schema.get("type") or ""
    if kind and kind not in _TYPES:
        yield not_supported(f"{where}.type", kind, _TYPES)
    if schema.get("default") is not None and place.defaults_forbidden is not None:
        yield forbidden(f"{where}.default", f"must not be set {place.defaults_forbidden}".strip())
    for key in ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"):
        if schema.get(key):
            yield forbidden(f"{where}.{key}", f"{key} is not supported")
    if kind == "null":
        yield forbidden(f"{where}.type", "type cannot be set to null, use nullable as an alternative")
    if is_array(schema.get("items")):
        yield forbidden(f"{where}.items", "items must be a schema object and not an array")
    if place.inside_meta and schema.get(_EMBEDDED):
        yield forbidden(f"{where}.{_EMBEDDED}", "must not be used inside of resource meta")
    if schema.get(_PRESERVE) is False:
        yield invalid(f"{where}.{_PRESERVE}", False, "must be true or undefined")


def _list_type_faults(schema: Tree, where: str) -> Iterator[FieldError]:
    kind: str = schema.get("type") or ""
    list_type, map_type = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-map-type")
    keys: list[str] = entries(schema, "x-kubernetes-list-map-keys")
    items: Tree = schema["items"] if is_object(schema.get("items")) else {}
    if map_type is not None:
        if kind != "object":
            text = "must be object if x-kubernetes-map-type is specified"
            yield invalid(f"{where}.type", kind, text) if kind else required(f"{where}.type", text)
        if map_type not in {"atomic", "granular"}:
            yield not_supported(f"{where}.x-kubernetes-map-type", map_type, ("atomic", "granular"))
    if list_type is not None:
        if kind != "array":
            text = "must be array if x-kubernetes-list-type is specified"
            yield invalid(f"{where}.type", kind, text) if kind else required(f"{where}.type", text)
        elif list_type == "set":
            text = "must be atomic as item of a list with x-kubernetes-list-type=set"
            if items.get("type") == "array" and items.get("x-kubernetes-list-type", "atomic") != "atomic":
                yield invalid(f"{where}.items.x-kubernetes-list-type", items["x-kubernetes-list-type"], text)
            if items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
                yield invalid(f"{where}.items.x-kubernetes-map-type", items.get("x-kubernetes-list-type"), text)
        if list_type not in {"atomic", "set", "map"}:
            yield not_supported(f"{where}.x-kubernetes-list-type", list_type, ("atomic", "set", "map"))
    if keys and list_type != "map":
        text = "must be map if x-kubernetes-list-map-keys is non-empty"
        here = f"{where}.x-kubernetes-list-type"
        yield required(here, text) if list_type is None else invalid(here, list_type, text)
    if list_type == "map":
        yield from _map_key_faults(schema, where, keys, items)
    if list_type in {"set", "map"} and items.get("nullable"):
        yield forbidden(f"{where}.items.nullable", f"cannot be nullable when x-kubernetes-list-type is {list_type}")


def _map_key_faults(schema: Tree, where: str, keys: list[str], items: Tree) -> Iterator[FieldError]:
    here = f"{where}.x-kubernetes-list-map-keys"
    if not keys:
        yield required(here, "must not be empty if x-kubernetes-list-type is map")
    if "items" not in schema:
        yield required(f"{where}.items", "must have a schema if x-kubernetes-list-type is map")
        return
    if items.get("type") != "object":
        text = "must be object if parent array's x-kubernetes-list-type is map"
        yield invalid(f"{where}.items.type", items.get("type") or "", text)
        return
    properties: Tree = members(items, "properties")
    in_keys = "this property is in x-kubernetes-list-map-keys"
    for index, key in enumerate(keys):
        below = properties.get(key)
        at = f"{where}.items.properties[{key}]"
        if not is_object(below):
            yield invalid(here, keys, "entries must all be names of item properties")
        else:
            if below.get("type") in {"array", "object"}:
                text = "must be a scalar type if parent array's x-kubernetes-list-type is map"
                yield invalid(f"{at}.type", items.get("type"), text)
            if key not in entries(items, "required") and below.get("default") is None:
                text = f"{in_keys}, so it must have a default or be a required property"
                yield required(f"{at}.default", text)
            if below.get("nullable"):
                text = f"{in_keys}, so it cannot be nullable"
                yield forbidden(f"{at}.nullable", text)
        if key in keys[:index]:
            yield invalid(here, keys, "must not contain duplicate entries")


def _rule_faults(rule: Tree, where: str) -> Iterator[FieldError]:
    expression, message = (rule.get("rule") or "").strip(), rule.get("message") or ""
    if not expression:
        yield required(f"{where}.rule", "rule is not specified")
    elif message and not message.strip():
        yield invalid(f"{where}.message", message, "must be non-empty if specified")
    elif "\n" in message.strip() or "\r" in message.strip():
        yield invalid(f"{where}.message", message, "must not contain line breaks")
    elif ("\n" in expression or "\r" in expression) and not message.strip():
        yield required(f"{where}.message", "message must be specified if rule contains line breaks")
    reason = rule.get("reason")
    if reason is not None and reason not in _RULE_REASONS:
        yield not_supported(f"{where}.reason", reason, _RULE_REASONS)
