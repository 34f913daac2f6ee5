"""OpenAPI documents, as kubectl reads them: to explain fields, and to learn that the server validates itself.

Built-in kinds are described from lightkube's models (their docstrings hold every field's text), custom resources by
their own schemas. kubectl looks into a kind's PATCH operation for `fieldValidation` and `dryRun`, so each kind has one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Final
from urllib.parse import unquote

import msgspec
import msgspec.inspect
from lightkube.core.resource import api_info
from lightkube.models import meta_v1

from opsdk.testing.apiserver._builtin_fields import model_of, resource_classes
from opsdk.testing.apiserver._fields import Tree, entries, is_array, is_object, members, tree
from opsdk.testing.apiserver._json import encode
from opsdk.testing.apiserver._kinds import KindInfo, KindRegistry, builtin_kinds
from opsdk.testing.apiserver._structure import BuiltinStructure, builtin_structure

__all__ = ["openapi_response"]

_JSON: Final = "application/json"
_V2_PROTOBUF: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
# kubectl asks for this document when it sends a `List`, to validate it, and skips what the document does not describe.
# So it may be empty: a gnostic `Document` with `swagger` (field 1), `info` (2: title, version) and `paths` (8).
_V2_PROTOBUF_DOCUMENT: Final = b"\x0a\x032.0\x12\x13\x0a\x0aKubernetes\x12\x05opsdk\x42\x00"
_FIELD: Final = re.compile(r"^\* \*\*(\w+)\*\* ``.*?`` - ", re.MULTILINE)
_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"
_PACKAGES: Final = {
    "apiextensions": "apiextensions-apiserver.pkg.apis.apiextensions",
    "apiregistration": "kube-aggregator.pkg.apis.apiregistration",
}
_INT_OR_STRING: Final = {
    "format": "int-or-string",
    "oneOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
}
_QUERY: Final = (
    ("dryRun", "When present, indicates that modifications should not be persisted."),
    ("fieldManager", "The name of the actor that makes these changes."),
    ("fieldValidation", "What the server does with unknown and duplicate fields: Ignore, Warn or Strict."),
)
_STRATEGIC: Final = "application/strategic-merge-patch+json"
_PATCH_TYPES: Final = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
)


def openapi_response(registry: KindRegistry, path: str, accept: str = "") -> tuple[str, bytes] | None:
    """The document at an OpenAPI path.

    Args:
        registry: The kinds at the moment.
        path: `/openapi/v2`, `/openapi/v3`, or `/openapi/v3/apis/<group>/<version>`.
        accept: The request's Accept header.

    Returns:
        Content type and body; None where there is no such document. JSON, but for a client that takes version 2 in
        protobuf alone, as kubectl does: it gets a document without any definitions.
    """
    match unquote(path).strip("/").split("/"):
        case ["openapi", "v2"] if "protobuf" in accept and _JSON not in accept:
            return _V2_PROTOBUF, _V2_PROTOBUF_DOCUMENT
        case ["openapi", "v2"]:
            return _JSON, encode(_swagger(registry))
        case ["openapi", "v3"]:
            return _JSON, encode(_index(registry))
        case ["openapi", "v3", "api", version] if registry.has_version("", version):
            return _JSON, encode(_document(registry, "", version))
        case ["openapi", "v3", "apis", group, version] if registry.has_version(group, version):
            return _JSON, encode(_document(registry, group, version))
        case _:
            return None


def _kinds_of(registry: KindRegistry, group: str, version: str) -> list[KindInfo]:
    return [info for info in registry.kinds() if (info.group, info.version) == (group, version)]


def _index(registry: KindRegistry) -> Tree:
    paths: Tree = {}
    for group, versions in registry.groups().items():
        for version in versions:
            path = f"apis/{group}/{version}" if group else f"api/{version}"
            schemas: Tree = {}
            for info in _kinds_of(registry, group, version):
                schemas[info.kind] = None if info.schema is None else tree(info.schema)
            digest = hashlib.sha256(encode(dict(sorted(schemas.items())))).hexdigest().upper()
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
    return {"paths": paths}


def _document(registry: KindRegistry, group: str, version: str) -> Tree:
    kinds = _kinds_of(registry, group, version)
    paths: Tree = {}
    for info in kinds:
        paths |= _paths(info, v3=True)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "opsdk"},
        "paths": paths,
        "components": {"schemas": _schemas(kinds, "#/components/schemas/")},
    }


def _swagger(registry: KindRegistry) -> Tree:
    kinds = registry.kinds()
    paths: Tree = {}
    for info in kinds:
        paths |= _paths(info, v3=False)
    return {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "opsdk"},
        "paths": paths,
        "definitions": _schemas(kinds, "#/definitions/"),
    }


def _kind_document(info: KindInfo) -> Tree:
    return {"group": info.group, "kind": info.kind, "version": info.version}


def _paths(info: KindInfo, *, v3: bool) -> Tree:
    """The one path of a kind that matters to clients: that of an object, with GET and PATCH."""
    root = f"/apis/{info.group}/{info.version}" if info.group else f"/api/{info.version}"
    scope = "/namespaces/{namespace}" if info.namespaced else ""
    path = f"{root}{scope}/{info.plural}/{{name}}"
    parameters = [
        {
            "name": name,
            "in": "query",
            "description": text,
            **({"schema": {"type": "string", "uniqueItems": True}} if v3 else {"type": "string", "uniqueItems": True}),
        }
        for name, text in _QUERY
    ]
    types = [*_PATCH_TYPES, *([_STRATEGIC] if info.builtin else [])]
    patch: Tree = {
        "description": f"partially update the specified {info.kind}",
        "operationId": f"patch{info.group.title().replace('.', '')}{info.version.title()}{info.kind}",
        "parameters": parameters,
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": _kind_document(info),
    }
    if v3:
        body = {"schema": {"type": "object"}}
        patch["requestBody"] = {"content": dict.fromkeys(types, body), "required": True}
    else:
        patch["consumes"] = types
    return {path: {"patch": patch}}


def _schemas(kinds: Iterable[KindInfo], prefix: str) -> Tree:
    kinds = tuple(kinds)
    builtin = [info for info in kinds if info.builtin]
    wanted = {f"{_META}.ObjectMeta", f"{_META}.ListMeta", *(_builtin_name(info) for info in builtin)}
    found = _reachable(_builtin_schemas(), wanted, prefix)
    for info in kinds:
        name = _builtin_name(info) if info.builtin else _custom_name(info)
        if not info.builtin:
            found[name] = _custom_schema(info, prefix)
        if name in found:
            found[name]["x-kubernetes-group-version-kind"] = [_kind_document(info)]
            list_kind = {**_kind_document(info), "kind": info.list_kind or f"{info.kind}List"}
            found[f"{name}List"] = _list_schema(info, name, prefix, list_kind)
    return found


def _list_schema(info: KindInfo, item: str, prefix: str, list_kind: Tree) -> Tree:
    return {
        "description": f"{list_kind['kind']} is a list of {info.kind}",
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string", "description": "The version of the schema of this object."},
            "kind": {"type": "string", "description": "The kind of this object."},
            "metadata": {"allOf": [{"$ref": f"{prefix}{_META}.ListMeta"}], "description": "Standard list metadata."},
            "items": {"type": "array", "items": {"$ref": f"{prefix}{item}"}, "description": f"List of {info.plural}."},
        },
        "x-kubernetes-group-version-kind": [list_kind],
    }


# --- custom resources ---


def _custom_name(info: KindInfo) -> str:
    return ".".join([*reversed(info.group.split(".")), info.version, info.kind])


def _custom_schema(info: KindInfo, prefix: str) -> Tree:
    schema: Tree = tree(info.schema) if info.schema is not None else {"type": "object"}
    if not info.preserve_unknown or members(schema, "properties"):
        properties = members(schema, "properties")
        standard: Tree = {
            "apiVersion": {"type": "string", "description": "The version of the schema of this object."},
            "kind": {"type": "string", "description": "The kind of this object."},
        }
        metadata = {"allOf": [{"$ref": f"{prefix}{_META}.ObjectMeta"}], "description": "Standard object's metadata."}
        schema["properties"] = {**standard, **properties, "metadata": metadata}
    if prefix == "#/definitions/":
        _simplify(schema)
    return schema


def _simplify(schema: Tree) -> None:
    """What Swagger 2 cannot say is left out, as the server does."""
    for keyword in ("anyOf", "oneOf", "not", "nullable"):
        schema.pop(keyword, None)
    if schema.get("x-kubernetes-int-or-string"):
        schema.pop("type", None)
    for below in (*members(schema, "properties").values(), schema.get("items"), schema.get("additionalProperties")):
        if is_object(below):
            _simplify(below)


# --- built-in kinds ---


def _builtin_name(info: KindInfo) -> str:
    return _builtin_names().get((info.group, info.version, info.kind), "")


@cache
def _builtin_names() -> dict[tuple[str, str, str], str]:
    names: dict[tuple[str, str, str], str] = {}
    for cls in resource_classes():
        definition = api_info(cls).resource
        names[definition.group, definition.version, definition.kind] = _type_name(model_of(cls))
    return names


def _type_name(model: type[object]) -> str:
    """`io.k8s.api.apps.v1.Deployment` for the class in `…models.apps_v1`."""
    package, _, version = model.__module__.rpartition(".")[2].rpartition("_")
    if package == "meta":
        return f"{_META}.{model.__name__}"
    package = _PACKAGES.get(package, f"api.{package}")
    return f"io.k8s.{package}.{version}.{model.__name__}"


@cache
def _builtin_schemas() -> Tree:
    """The schemas of all models that built-in kinds are made of, with `$ref`s to bare names."""
    found: Tree = {}
    pending: list[type[object]] = [meta_v1.ListMeta, meta_v1.ObjectMeta, *map(model_of, resource_classes())]
    while pending:
        cls = pending.pop()
        name = _type_name(cls)
        if name not in found:
            found[name], used = _struct_schema(cls)
            pending += used
    done: set[str] = set()
    for info in builtin_kinds():
        _annotate(found, _builtin_name(info), builtin_structure(info), done)
    return found


def _annotate(schemas: Tree, name: str, structure: BuiltinStructure, done: set[str]) -> None:
    """Say of each list and map how it merges: kubectl makes its patches by that."""
    if name in done or name not in schemas:
        return
    done.add(name)
    for field, schema in members(schemas[name], "properties").items():
        below = structure.field(field)
        if below.keys:
            schema["x-kubernetes-list-map-keys"] = list(below.keys)
        if schema.get("type") == "array":
            list_type = "map" if below.keys else "set" if below.is_set else "atomic" if below.atomic else ""
            if list_type:
                schema["x-kubernetes-list-type"] = list_type
        elif below.atomic:
            schema["x-kubernetes-map-type"] = "atomic"
        if below.merge_key:
            schema["x-kubernetes-patch-merge-key"] = below.merge_key
        if below.strategy:
            schema["x-kubernetes-patch-strategy"] = below.strategy
        inner = below.item if schema.get("type") == "array" or "additionalProperties" in schema else below
        for reference in _references(schema):
            _annotate(schemas, reference, inner, done)


def _struct_schema(cls: type[object]) -> tuple[Tree, list[type[object]]]:
    """The schema of one struct, and the structs that it refers to."""
    about, texts = _docs(cls)
    info = msgspec.inspect.type_info(cls)
    if not isinstance(info, msgspec.inspect.StructType):
        return {"description": about, "type": "string"}, []
    used: list[type[object]] = []
    properties: Tree = {}
    required: list[str] = []
    for each in info.fields:
        schema = _field_schema(each.type, used)
        text = texts.get(each.encode_name)
        if text:
            schema = {"allOf": [schema], "description": text} if "$ref" in schema else {"description": text, **schema}
        properties[each.encode_name] = schema
        if each.required:
            required.append(each.encode_name)
    result: Tree = {"description": about, "type": "object", "properties": properties}
    if required:
        result["required"] = required
    return result, used


def _field_schema(kind: msgspec.inspect.Type, used: list[type[object]]) -> Tree:
    match kind:
        case msgspec.inspect.UnionType(types=types):
            rest = [each for each in types if not isinstance(each, msgspec.inspect.NoneType)]
            if len(rest) == 1:
                return _field_schema(rest[0], used)
            return dict(_INT_OR_STRING) if _int_or_string(rest) else {}
        case msgspec.inspect.StructType(cls=cls):
            used.append(cls)
            return {"$ref": _type_name(cls)}
        case msgspec.inspect.ListType(item_type=item):
            return {"type": "array", "items": _field_schema(item, used)}
        case msgspec.inspect.DictType(value_type=value):
            below = _field_schema(value, used)
            return {"type": "object", "additionalProperties": below or {"type": "string"}}
        case msgspec.inspect.BoolType():
            return {"type": "boolean"}
        case msgspec.inspect.IntType():
            return {"type": "integer"}
        case msgspec.inspect.FloatType():
            return {"type": "number"}
        case msgspec.inspect.StrType():
            return {"type": "string"}
        case msgspec.inspect.DateTimeType():
            return {"type": "string", "format": "date-time"}
        case _:
            return {}


def _int_or_string(types: Iterable[msgspec.inspect.Type]) -> bool:
    return {type(each) for each in types} == {msgspec.inspect.IntType, msgspec.inspect.StrType}


def _docs(cls: type[object]) -> tuple[str, dict[str, str]]:
    """What a model's docstring says about it and about its fields."""
    lines = (cls.__doc__ or "").splitlines()
    text = "\n".join(line.strip() for line in lines)
    about, _, parameters = text.partition("**parameters**")
    marks = list(_FIELD.finditer(parameters))
    ends = [*(mark.start() for mark in marks[1:]), len(parameters)] if marks else []
    texts = {mark[1]: " ".join(parameters[mark.end() : end].split()) for mark, end in zip(marks, ends, strict=True)}
    return " ".join(about.split()), texts


def _reachable(schemas: Tree, wanted: Iterable[str], prefix: str) -> Tree:
    """The schemas that are wanted and those they refer to, copied, with references of this document."""
    found: Tree = {}
    pending = [name for name in wanted if name in schemas]
    while pending:
        name = pending.pop()
        if name in found:
            continue
        found[name] = _with_prefix(schemas[name], prefix)
        pending += _references(schemas[name])
    return dict(sorted(found.items()))


def _references(schema: Tree) -> Iterator[str]:
    if "$ref" in schema:
        yield schema["$ref"]
    for below in (*members(schema, "properties").values(), *entries(schema, "allOf")):
        yield from _references(below)
    for key in ("items", "additionalProperties"):
        if is_object(schema.get(key)):
            yield from _references(schema[key])


def _with_prefix(schema: Any, prefix: str) -> Any:
    if is_object(schema):
        return {
            key: f"{prefix}{value}" if key == "$ref" and isinstance(value, str) else _with_prefix(value, prefix)
            for key, value in schema.items()
        }
    if is_array(schema):
        return [_with_prefix(each, prefix) for each in schema]
    return schema
