"""CustomResourceDefinitions from the models."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence

import msgspec
import yaml
from pydantic import BaseModel

from opsdk.errors import CrdSchemaError, ResourceDefinitionError
from opsdk.models._struct_schema import Schema, struct_schema
from opsdk.models._structural import structural_schema
from opsdk.models.base import NoStatus
from opsdk.models.custom_resource import Definition, definition_of
from opsdk.models.families import is_custom_resource
from opsdk.models.machine_status import MachineStatus
from opsdk.models.machine_status_struct import MachineStatusStruct
from opsdk.models.markers import PrintColumn
from opsdk.models.resources import ResourceInfo, resource_of
from opsdk.protocols import KubeObject
from opsdk.types import Json, JsonObject

__all__ = ["crd_manifest", "crd_manifests", "crd_yaml", "manifests_yaml"]

_MACHINE_COLUMNS = (
    PrintColumn(name="State", json_path=".status.state", description="The state of its state machine."),
    PrintColumn(
        name="Ready",
        json_path='.status.conditions[?(@.type=="Ready")].status',
        description="Whether it is ready.",
    ),
    PrintColumn(name="Age", json_path=".metadata.creationTimestamp", type="date"),
)


def crd_manifest(
    *kinds: type[KubeObject],
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Json]:
    """The CustomResourceDefinition of a kind, as JSON values in a stable order.

    Args:
        kinds: One class; or several, as versions of one kind. Names and scope come from the storage version.
        labels: Labels of the manifest.
        annotations: Its annotations (a group below `k8s.io` needs `api-approved.kubernetes.io`).

    Raises:
        CrdSchemaError: A model has no structural schema; names the field and the way out.
        ResourceDefinitionError: The classes do not make one kind with one storage version.
    """
    if not kinds:
        raise ResourceDefinitionError("crd_manifest() needs at least one class")
    entries = [(kind, resource_of(kind), _definition(kind)) for kind in kinds]
    storage = _storage(entries)
    _, resource, definition = storage
    for _, other, other_definition in entries:
        same = (other.group, other.kind, other.plural, other.scope)
        if same != (resource.group, resource.kind, resource.plural, resource.scope):
            raise ResourceDefinitionError(
                f"{other} and {resource} are not versions of one kind: group, kind, plural and scope must be the same"
            )
        if other_definition.singular not in {None, definition.singular}:
            raise ResourceDefinitionError(f"{other} and {resource} have different singular names")
    versions = [other.version for _, other, _ in entries]
    if len(set(versions)) != len(versions):
        raise ResourceDefinitionError(f"{resource.kind}: a version is given twice: {', '.join(versions)}")
    ordered = sorted(entries, key=lambda entry: _priority(entry[1].version))
    names: dict[str, Json] = {
        "kind": resource.kind,
        "listKind": f"{resource.kind}List",
        "plural": resource.plural,
        "singular": definition.singular or resource.kind.lower(),
    }
    if definition.short_names:
        names["shortNames"] = list(definition.short_names)
    if definition.categories:
        names["categories"] = list(definition.categories)
    metadata: dict[str, Json] = {"name": f"{resource.plural}.{resource.group}"}
    if labels:
        metadata["labels"] = dict(labels)
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": resource.group,
            "names": names,
            "scope": resource.scope,
            "versions": [_version(*entry, stored=entry is storage) for entry in ordered],
        },
    }


_Entry = tuple[type[KubeObject], ResourceInfo, Definition]


def _definition(kind: type[KubeObject]) -> Definition:
    return definition_of(kind) if is_custom_resource(kind) else Definition()


def _storage(entries: Sequence[_Entry]) -> _Entry:
    said = [entry for entry in entries if entry[2].storage]
    if len(said) == 1:
        return said[0]
    if len(said) > 1:
        raise ResourceDefinitionError(
            f"{entries[0][1].kind}: {', '.join(entry[1].version for entry in said)} all say storage=True; one version "
            "is stored"
        )
    undecided = [entry for entry in entries if entry[2].storage is None]
    if len(undecided) == 1:
        return undecided[0]
    raise ResourceDefinitionError(
        f"{entries[0][1].kind}: which of {', '.join(entry[1].version for entry in entries)} is stored? Say "
        "storage=True in its class"
    )


_KUBE_VERSION = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")


def _priority(version: str) -> tuple[int, int, int, str]:
    """Kubernetes' own order: stable before beta before alpha, newest first, other names last."""
    found = _KUBE_VERSION.fullmatch(version)
    if found is None:
        return (3, 0, 0, version)
    stage = {None: 0, "beta": 1, "alpha": 2}[found[2]]
    return (stage, -int(found[1]), -int(found[3] or 0), version)


def _version(
    kind: type[KubeObject], resource: ResourceInfo, definition: Definition, *, stored: bool
) -> dict[str, Json]:
    schema, status = _root(kind, definition)
    out: dict[str, Json] = {"name": resource.version, "served": definition.served, "storage": stored}
    if definition.deprecated:
        out["deprecated"] = True
        if isinstance(definition.deprecated, str):
            out["deprecationWarning"] = definition.deprecated
    columns = definition.print_columns
    if columns is None and status is not None and issubclass(status, MachineStatus | MachineStatusStruct):
        columns = _MACHINE_COLUMNS
    _check_paths(kind, schema, definition, columns or ())
    if columns:
        out["additionalPrinterColumns"] = [column.document() for column in columns]
    out["schema"] = {"openAPIV3Schema": schema}
    if definition.selectable_fields:
        out["selectableFields"] = [{"jsonPath": path} for path in definition.selectable_fields]
    subresources: dict[str, Json] = {}
    if status is not None:
        subresources["status"] = {}
    if definition.scale is not None:
        subresources["scale"] = definition.scale.document()
    if subresources:
        out["subresources"] = subresources
    return out


_STEP = re.compile(r"\.([A-Za-z0-9_-]+)|(\[)")


def _check_paths(
    kind: type[KubeObject], schema: Schema, definition: Definition, columns: Sequence[PrintColumn]
) -> None:
    """Refuse paths that lead nowhere: the server takes them, and shows an empty column."""
    paths = [(f"print column {column.name}", column.json_path) for column in columns]
    paths += [("selectable field", path) for path in definition.selectable_fields]
    if definition.scale is not None:
        scale = definition.scale
        paths += [("scale", scale.spec_replicas), ("scale", scale.status_replicas)]
        paths += [("scale", path) for path in (scale.label_selector,) if path is not None]
    for what, path in paths:
        missing = _missing_step(schema, path)
        if missing is not None:
            raise CrdSchemaError(
                f"{kind.__qualname__}: {what}: {path} leads nowhere: there is no {missing}; use the names on the wire"
            )


def _missing_step(schema: Schema, path: str) -> str | None:
    """The first field of a path that the schema does not have; steps into lists and open objects are not followed."""
    place = ""
    for step in _STEP.finditer(path):
        properties: dict[str, Schema] | None = schema.get("properties")
        name: str | None = step[1]
        if name is None or properties is None or (not place and name == "metadata"):
            return None
        place += f".{name}"
        if name not in properties:
            return None if schema.get("x-kubernetes-preserve-unknown-fields") else place
        schema = properties[name]
    return None if place else path


def _root(kind: type[KubeObject], definition: Definition) -> tuple[Schema, type | None]:
    """The root schema, and the class of the status."""
    status: object
    if issubclass(kind, BaseModel):
        schema = structural_schema(kind, status="status")
        status_field = kind.model_fields.get("status")
        status = None if status_field is None else status_field.annotation
    elif issubclass(kind, msgspec.Struct):
        schema = struct_schema(kind)
        hints = {field.name: field.type for field in msgspec.structs.fields(kind)}
        status = next((tp for tp in _alternatives(hints.get("status")) if tp is not type(None)), None)
        if kind.__doc__:
            schema["description"] = inspect.cleandoc(kind.__doc__)
    else:
        raise CrdSchemaError(
            f"{kind.__qualname__} is neither a CustomResource nor a struct, so its schema is not known"
        )
    has_status = inspect.isclass(status) and not issubclass(status, NoStatus)
    properties: dict[str, Schema] = schema.get("properties", {})
    if not has_status:
        properties.pop("status", None)
    own = {name: inner for name, inner in properties.items() if name not in {"apiVersion", "kind", "metadata"}}
    out: Schema = {}
    if "description" in schema:
        out["description"] = schema["description"]
    out["type"] = "object"
    out["properties"] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        **own,
    }
    required = [name for name in schema.get("required", ()) if name in own and name != "status"]
    if required:
        out["required"] = required
    if has_status:
        out["properties"]["status"].pop("default", None)
    rules = [rule.document() for rule in definition.rules]
    if rules:
        out["x-kubernetes-validations"] = rules
    return out, status if has_status and inspect.isclass(status) else None


def _alternatives(tp: object) -> tuple[object, ...]:
    return getattr(tp, "__args__", (tp,))


class _Dumper(yaml.SafeDumper):
    """Long texts as blocks, nothing as an alias."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)  # pyright: ignore[reportUnknownMemberType] - the stubs leave `value` open


_Dumper.add_representer(str, _text)


def crd_manifests(*kinds: type[KubeObject]) -> list[dict[str, Json]]:
    """The CustomResourceDefinitions of the classes, one for each kind, by group and kind.

    Classes of one group and kind are taken as its versions.

    Raises:
        CrdSchemaError: As for `crd_manifest`.
        ResourceDefinitionError: As for `crd_manifest`.
    """
    together: dict[tuple[str, str], list[type[KubeObject]]] = {}
    for kind in kinds:
        resource = resource_of(kind)
        together.setdefault((resource.group, resource.kind), []).append(kind)
    return [crd_manifest(*versions) for _, versions in sorted(together.items(), key=lambda item: item[0])]


def crd_yaml(*kinds: type[KubeObject]) -> str:
    """What `crd_manifests` gives, as YAML in a stable order.

    Raises:
        CrdSchemaError: As for `crd_manifest`.
        ResourceDefinitionError: As for `crd_manifest`.
    """
    return manifests_yaml(crd_manifests(*kinds))


def manifests_yaml(manifests: Sequence[JsonObject]) -> str:
    """Documents as YAML, in the order that they are in."""
    return yaml.dump_all(manifests, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)  # pyright: ignore[reportUnknownMemberType] - the stubs leave `width` open
