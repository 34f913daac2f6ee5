"""Makes `structures.json` from Kubernetes' OpenAPI document: which lists merge, by which keys, and what is atomic.

Run as `python -m opsdk.testing.apiserver._structures_from_openapi swagger.json` when the Kubernetes version moves; the
document is `api/openapi-spec/swagger.json` of the Kubernetes sources. Only what differs from the default (objects
merge by field, lists are replaced whole) is kept, so the file stays small.
"""

from __future__ import annotations

import sys
from pathlib import Path

from opsdk.testing.apiserver._json import Document, Value, as_list, as_object, as_text, decode, dig, encode

__all__ = ["main", "structures"]

_REF = "#/definitions/"


def structures(openapi: Document) -> Document:
    """The table: `types` by name, and `kinds` from `group/version/Kind` to a type's name."""
    definitions = as_object(openapi.get("definitions"))
    types: dict[str, Document] = {}
    for name, definition in definitions.items():
        fields: Document = {}
        for field, schema in as_object(as_object(definition).get("properties")).items():
            spec = _field(as_object(schema), definitions)
            if spec:
                fields[field] = spec
        types[name] = fields
    _drop_plain(types)
    kinds: Document = {}
    for name, definition in definitions.items():
        for entry in as_list(as_object(definition).get("x-kubernetes-group-version-kind")):
            gvk = as_object(entry)
            if name in types:
                kinds["/".join(as_text(gvk.get(part)) for part in ("group", "version", "kind"))] = name
    short = {name: f"{number:x}" for number, name in enumerate(sorted(types))}
    renamed: Document = {short[name]: _renamed(fields, short) for name, fields in sorted(types.items())}
    named: Document = {kind: short[as_text(name)] for kind, name in sorted(kinds.items())}
    return {"kinds": named, "types": renamed}


def _field(schema: Document, definitions: Document) -> Document:
    spec: Document = {}
    target = _ref(schema)
    if target:
        spec["ref"] = target
        if dig(definitions, target, "x-kubernetes-map-type") == "atomic":
            spec["atomic"] = True
    if schema.get("x-kubernetes-map-type") == "atomic":
        spec["atomic"] = True
    list_type = schema.get("x-kubernetes-list-type")
    if list_type in {"map", "set"}:
        spec["list"] = list_type
    if list_type == "map":
        spec["keys"] = schema.get("x-kubernetes-list-map-keys")
    for item in (as_object(schema.get("items")), as_object(schema.get("additionalProperties"))):
        if _ref(item):
            spec["item"] = _ref(item)
    strategy = as_text(schema.get("x-kubernetes-patch-strategy"))
    if strategy:
        spec["strategy"] = strategy
        if schema.get("x-kubernetes-patch-merge-key"):
            spec["mergeKey"] = schema.get("x-kubernetes-patch-merge-key")
    return spec


def _ref(schema: Document) -> str:
    return as_text(schema.get("$ref")).removeprefix(_REF)


def _drop_plain(types: dict[str, Document]) -> None:
    # A type is plain when all it has is references to plain types; repeated until nothing more falls away.
    while True:
        plain = {name for name, fields in types.items() if not fields}
        if not plain:
            return
        for name in plain:
            del types[name]
        for fields in types.values():
            for field in list(fields):
                spec = as_object(fields[field])
                for link in ("ref", "item"):
                    if as_text(spec.get(link)) and spec.get(link) not in types:
                        del spec[link]
                if not spec:
                    del fields[field]


def _renamed(fields: Document, short: dict[str, str]) -> Value:
    renamed: Document = {}
    for field, value in fields.items():
        spec = as_object(value)
        renamed[field] = {
            key: short[as_text(entry)] if key in {"ref", "item"} else entry for key, entry in spec.items()
        }
    return renamed


def main(arguments: list[str]) -> None:
    """Read the document named by the first argument and write the table beside this module."""
    table = structures(as_object(decode(Path(arguments[0]).read_bytes())))
    Path(__file__).with_name("structures.json").write_bytes(encode(table) + b"\n")


if __name__ == "__main__":
    main(sys.argv[1:])
