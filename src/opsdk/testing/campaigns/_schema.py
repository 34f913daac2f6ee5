"""Reading a CRD: which schema a spec has, and what a schema's parts are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from opsdk.errors import ObjectError
from opsdk.models import crd_manifest
from opsdk.protocols import KubeObject
from opsdk.types import Json, JsonObject

__all__ = ["Definition", "definition_of", "number_at", "object_at", "objects_at", "texts_at"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """What a campaign has to know of the resource.

    Args:
        manifest: The CustomResourceDefinition.
        group: Its API group.
        version: The version that is stored.
        kind: Its kind.
        plural: Its plural name.
        namespaced: Whether its objects live in namespaces.
        spec: The structural schema of `spec`.
    """

    manifest: JsonObject
    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    spec: JsonObject

    @property
    def api_version(self) -> str:
        """As objects have it."""
        return f"{self.group}/{self.version}"

    @property
    def resource(self) -> tuple[str, str, str]:
        """Group, version and plural."""
        return self.group, self.version, self.plural

    def path(self, namespace: str, name: str | None = None) -> str:
        """The path of a collection or of an object."""
        place = f"namespaces/{namespace}/" if self.namespaced else ""
        tail = f"/{name}" if name is not None else ""
        return f"/apis/{self.group}/{self.version}/{place}{self.plural}{tail}"


def definition_of(kind: type[KubeObject] | JsonObject) -> Definition:
    """Read a model class, or the manifest of a CRD.

    Raises:
        ObjectError: It is no CustomResourceDefinition, stores no version, or its objects have no spec with fields.
    """
    manifest = kind if isinstance(kind, Mapping) else crd_manifest(kind)
    spec = object_at(manifest, "spec")
    names = object_at(spec, "names")
    stored = next((one for one in objects_at(spec, "versions") if one.get("storage") is True), None)
    if stored is None:
        raise ObjectError("a campaign needs a class, or a CustomResourceDefinition with a stored version")
    schema = object_at(object_at(object_at(object_at(stored, "schema"), "openAPIV3Schema"), "properties"), "spec")
    if not schema:
        raise ObjectError(f"{names.get('kind')} has no schema of a spec that could be changed")
    if schema.get("type") != "object":
        what = f"has the type {schema['type']}" if "type" in schema else "says no type"
        raise ObjectError(f"{names.get('kind')}: the schema of the spec {what}; a campaign changes fields of an object")
    return Definition(
        manifest=manifest,
        group=str(spec.get("group")),
        version=str(stored.get("name")),
        kind=str(names.get("kind")),
        plural=str(names.get("plural")),
        namespaced=spec.get("scope") == "Namespaced",
        spec=schema,
    )


def object_at(schema: JsonObject, name: str) -> JsonObject:
    """The object at a name, else an empty one."""
    value = schema.get(name)
    return value if isinstance(value, Mapping) else {}


def objects_at(schema: JsonObject, name: str) -> list[JsonObject]:
    """The objects in the list at a name."""
    return [item for item in _items(schema.get(name)) if isinstance(item, Mapping)]


def texts_at(schema: JsonObject, name: str) -> list[str]:
    """The strings in the list at a name."""
    return [item for item in _items(schema.get(name)) if isinstance(item, str)]


def number_at(schema: JsonObject, name: str) -> int | float | None:
    """The number at a name; None when there is none."""
    value = schema.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _items(value: Json) -> Sequence[Json]:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()
