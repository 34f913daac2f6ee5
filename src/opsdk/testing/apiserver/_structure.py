"""How values of a kind merge: which lists merge by key, which are sets, what is replaced whole.

For built-in kinds from a table made of Kubernetes' OpenAPI document, for custom resources from their schema. Both give
the same picture, so that server-side apply, managed fields and strategic merge need to know only one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Protocol, final

from opsdk.testing.apiserver._json import Document, Value, as_list, as_object, as_text, clone, decode
from opsdk.testing.apiserver._kinds import KindInfo

__all__ = ["BuiltinStructure", "SchemaStructure", "Structure", "structure_of"]


class Structure(Protocol):
    """How one value merges."""

    @property
    def atomic(self) -> bool:
        """The value is replaced whole, whatever is in it (for lists: unless `keys` or `is_set` say otherwise)."""
        ...

    @property
    def keys(self) -> tuple[str, ...]:
        """A list that merges by these fields of its items; empty when it does not."""
        ...

    @property
    def is_set(self) -> bool:
        """A list of distinct scalars."""
        ...

    @property
    def item(self) -> Structure:
        """A list's items, or a map's values."""
        ...

    @property
    def always_there(self) -> bool:
        """A value that exists even when nothing is in it, as Go's value fields do."""
        ...

    def field(self, name: str, /) -> Structure:
        """A field of an object."""
        ...

    def is_map_key(self, name: str, /) -> bool:
        """Whether `name` is a free key of a map, as opposed to a field of a type."""
        ...

    def key_default(self, key: str, /) -> Value:
        """What a key field is when an item does not have it; None for nothing."""
        ...


_VALUE_FIELDS = frozenset(
    {
        "metadata",
        "spec",
        "status",
        "template",
        "strategy",
        "updateStrategy",
        "jobTemplate",
        "loadBalancer",
        "podSelector",
        "resources",
        "scaleTargetRef",
        "source",
        "containers",
    }
)


@final
class BuiltinStructure:
    """How a value of a built-in kind merges."""

    __slots__ = ("_fields", "_spec", "_types", "always_there", "atomic", "is_set", "keys", "merge_key", "strategy")

    def __init__(self, types: Mapping[str, Value], spec: Document, *, always_there: bool = False) -> None:
        self._types = types
        self._spec = spec
        self._fields: dict[str, BuiltinStructure] = {}
        self.atomic = spec.get("atomic") is True
        self.keys = tuple(as_text(key) for key in as_list(spec.get("keys")))
        self.is_set = spec.get("list") == "set"
        self.strategy = as_text(spec.get("strategy"))
        self.merge_key = as_text(spec.get("mergeKey"))
        self.always_there = always_there

    @property
    def item(self) -> BuiltinStructure:
        """A list's items, or a map's values."""
        found = self._fields.get("")
        if found is None:
            found = self._fields[""] = BuiltinStructure(self._types, {"ref": self._spec.get("item")})
        return found

    def field(self, name: str, /) -> BuiltinStructure:
        """A field of an object."""
        found = self._fields.get(name)
        if found is None:
            fields = as_object(self._types.get(as_text(self._spec.get("ref"))))
            spec = as_object(fields.get(name))
            found = self._fields[name] = BuiltinStructure(self._types, spec, always_there=name in _VALUE_FIELDS)
        return found

    def is_map_key(self, name: str, /) -> bool:
        """Always False: the table does not tell them apart, and only maps of objects would differ."""
        return False

    def key_default(self, key: str, /) -> Value:
        """Protocols default to TCP."""
        return "TCP" if key == "protocol" else None


@final
class SchemaStructure:
    """How a value of a custom resource merges, by its structural schema."""

    __slots__ = ("_children", "_schema", "always_there", "atomic", "is_set", "keys")

    def __init__(self, schema: Document) -> None:
        self._schema = schema
        self._children: dict[str, Structure] = {}
        self.atomic = schema.get("x-kubernetes-map-type") == "atomic"
        is_map = schema.get("x-kubernetes-list-type") == "map"
        keys = as_list(schema.get("x-kubernetes-list-map-keys")) if is_map else []
        self.keys = tuple(as_text(key) for key in keys)
        self.is_set = schema.get("x-kubernetes-list-type") == "set"
        self.always_there = False

    @property
    def item(self) -> Structure:
        """A list's items, or a map's values."""
        found = self._children.get("")
        if found is None:
            inner = self._schema.get("items") or self._schema.get("additionalProperties")
            found = self._children[""] = SchemaStructure(as_object(inner))
        return found

    def field(self, name: str, /) -> Structure:
        """A field of an object."""
        found = self._children.get(f".{name}")
        if found is None:
            properties = as_object(self._schema.get("properties"))
            found = SchemaStructure(as_object(properties[name])) if name in properties else self.item
            self._children[f".{name}"] = found
        return found

    def is_map_key(self, name: str, /) -> bool:
        """Whether the schema does not name the property."""
        return name not in as_object(self._schema.get("properties"))

    def key_default(self, key: str, /) -> Value:
        """The default that the schema gives the key field of an item."""
        items = as_object(self._schema.get("items"))
        return as_object(as_object(items.get("properties")).get(key)).get("default")


@final
class _CustomResourceStructure:
    """The root of a custom resource: metadata as built-in kinds have it, the rest by schema."""

    __slots__ = ("_metadata", "_rest")

    atomic = False
    keys: tuple[str, ...] = ()
    is_set = False
    always_there = True

    def __init__(self, metadata: Structure, rest: SchemaStructure) -> None:
        self._metadata = metadata
        self._rest = rest

    @property
    def item(self) -> Structure:
        return self._rest.item

    def field(self, name: str, /) -> Structure:
        return self._metadata if name == "metadata" else self._rest.field(name)

    def is_map_key(self, name: str, /) -> bool:
        return False

    def key_default(self, key: str, /) -> Value:
        return None


@cache
def _table() -> Document:
    raw = files("opsdk.testing.apiserver").joinpath("structures.json").read_bytes()
    return as_object(decode(raw))


@cache
def _builtin(api: str) -> BuiltinStructure:
    table = _table()
    kinds = as_object(table["kinds"])
    return BuiltinStructure(as_object(table["types"]), {"ref": kinds.get(api)}, always_there=True)


def builtin_structure(info: KindInfo) -> BuiltinStructure:
    """How objects of a built-in kind merge; of a kind that the table lacks, by field."""
    return _builtin(f"{info.group}/{info.version}/{info.kind}")


def structure_of(info: KindInfo) -> Structure:
    """How objects of a kind merge."""
    if info.builtin:
        return builtin_structure(info)
    metadata = _builtin("/v1/ConfigMap").field("metadata")
    return _CustomResourceStructure(metadata, SchemaStructure(as_object(clone(info.schema or {}))))
