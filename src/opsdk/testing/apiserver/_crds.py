"""CustomResourceDefinitions: a stored one is a kind that is served, a deleted one takes its objects along."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, final

from opsdk.testing.apiserver._cluster import Cluster
from opsdk.testing.apiserver._crd_names import AcceptedNames, accepted_names
from opsdk.testing.apiserver._deletion import CRD_CLEANUP, DeleteOptions, delete_object
from opsdk.testing.apiserver._json import Document, Value, as_list, as_object, as_text
from opsdk.testing.apiserver._kinds import KindInfo, PrintColumn, ScalePaths, find_builtin, version_rank
from opsdk.testing.apiserver._selectors import field_reader
from opsdk.testing.apiserver._store import Change

__all__ = ["CRD", "CrdController", "kinds_of", "selectable_fields"]

CRD: Final = find_builtin("CustomResourceDefinition")


def kinds_of(crd: Document) -> list[KindInfo]:
    """All versions of a CRD as kinds, served or not."""
    spec = as_object(crd.get("spec"))
    names = as_object(spec.get("names"))
    group = as_text(spec.get("group"))
    plural = as_text(names.get("plural"))
    versions = [as_object(entry) for entry in as_list(spec.get("versions"))]
    storage_version = next((as_text(entry.get("name")) for entry in versions if entry.get("storage") is True), "")
    storage_schema = next((_schema_of(entry) for entry in versions if entry.get("storage") is True), None)
    uid = as_text(as_object(crd.get("metadata")).get("uid"))
    found: list[KindInfo] = []
    for version in versions:
        subresources = as_object(version.get("subresources"))
        found.append(
            KindInfo(
                group=group,
                version=as_text(version.get("name")),
                kind=as_text(names.get("kind")),
                plural=plural,
                singular=as_text(names.get("singular")) or as_text(names.get("kind")).lower(),
                namespaced=spec.get("scope") == "Namespaced",
                storage=f"{plural}.{group}",
                storage_version=storage_version,
                short_names=_texts(names.get("shortNames")),
                subresources=frozenset(subresources),
                categories=_texts(names.get("categories")),
                list_kind=as_text(names.get("listKind")) or f"{as_text(names.get('kind'))}List",
                builtin=False,
                generation=True,
                conditional_update=True,
                schema=_schema_of(version),
                storage_schema=storage_schema,
                preserve_unknown=spec.get("preserveUnknownFields") is True,
                print_columns=_columns(version),
                scale=_scale(as_object(subresources.get("scale"))) if "scale" in subresources else None,
                served_uid=uid,
                deprecation=_deprecation(group, as_text(names.get("kind")), version, versions),
            )
        )
    return found


def _deprecation(group: str, kind: str, version: Document, versions: Sequence[Document]) -> str:
    """The warning that a version's users get: the CRD's own, else one that names the version to use instead."""
    if version.get("deprecated") is not True:
        return ""
    if said := as_text(version.get("deprecationWarning")):
        return said
    text = f"{group}/{as_text(version.get('name'))} {kind} is deprecated"
    good = [
        as_text(each.get("name"))
        for each in versions
        if each.get("served") is True and each.get("deprecated") is not True
    ]
    newer = [name for name in good if version_rank(name) > version_rank(as_text(version.get("name")))]
    return f"{text}; use {group}/{max(newer, key=version_rank)} {kind}" if newer else text


def _schema_of(version: Document) -> Document:
    return as_object(as_object(version.get("schema")).get("openAPIV3Schema"))


def selectable_fields(crd: Document) -> tuple[str, ...]:
    """The field paths that some version of a CRD makes selectable."""
    found: dict[str, None] = {}
    for version in as_list(as_object(crd.get("spec")).get("versions")):
        for entry in as_list(as_object(version).get("selectableFields")):
            found[as_text(as_object(entry).get("jsonPath")).lstrip(".")] = None
    return tuple(found)


def _texts(value: Value) -> tuple[str, ...]:
    return tuple(as_text(entry) for entry in as_list(value))


def _columns(version: Document) -> tuple[PrintColumn, ...]:
    columns: list[PrintColumn] = []
    for value in as_list(version.get("additionalPrinterColumns")):
        column = as_object(value)
        priority = column.get("priority")
        columns.append(
            PrintColumn(
                name=as_text(column.get("name")),
                type=as_text(column.get("type")),
                json_path=as_text(column.get("jsonPath")),
                description=as_text(column.get("description")),
                format=as_text(column.get("format")),
                priority=priority if isinstance(priority, int) else 0,
            )
        )
    return tuple(columns)


def _scale(scale: Document) -> ScalePaths:
    selector = as_text(scale.get("labelSelectorPath"))
    return ScalePaths(
        spec_replicas=_path(as_text(scale.get("specReplicasPath"))),
        status_replicas=_path(as_text(scale.get("statusReplicasPath"))),
        selector=_path(selector) if selector else None,
    )


def _path(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(".") if part)


def _transition(status: Document, condition_type: str, truth: str) -> Value:
    for value in as_list(status.get("conditions")):
        condition = as_object(value)
        if condition.get("type") == condition_type and condition.get("status") == truth:
            return condition.get("lastTransitionTime")
    return None


def _established(crd: Document) -> bool:
    return _transition(as_object(crd.get("status")), "Established", "True") is not None


@final
class CrdController:
    """Serves the kinds of stored CRDs and stops serving those of deleted ones."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._kinds: dict[str, list[KindInfo]] = {}
        self._served: dict[str, set[str]] = {}
        self._selectable: dict[str, Mapping[str, str]] = {}

    def selectable(self, info: KindInfo) -> Mapping[str, str]:
        """The field paths that objects of a custom kind can be selected by."""
        return self._selectable.get(info.storage, {})

    def react(self, storage: str, change: Change, /) -> None:
        """Follow a CRD; finish one that waited for its last object."""
        if storage == CRD.storage:
            if change.deleted:
                self._forget(change.after.name)
            elif change.after.deleting:
                self._clean_up(change.after.name)
            else:
                self._serve(change.after.name)
        elif change.deleted and storage in self._kinds:
            self._finish_if_empty(storage)

    def _serve(self, name: str) -> None:
        stored = self._cluster.store.get(CRD.storage, name)
        if stored is None or stored.deleting:
            return
        document = stored.document()
        kinds = kinds_of(document)
        if not kinds:
            return
        given = self._names_for(document)
        if given.reason and not _established(document):
            if self._accept(document, given):
                self._cluster.put(CRD, document)
            return
        served = {
            as_text(as_object(entry).get("name"))
            for entry in as_list(as_object(document.get("spec")).get("versions"))
            if as_object(entry).get("served") is True
        }
        storage = kinds[0].storage
        if self._kinds.get(storage) != kinds or self._served.get(storage) != served:
            for info in self._kinds.get(storage, ()):
                self._cluster.registry.remove(info)
            self._kinds[storage], self._served[storage] = kinds, served
            selectable = selectable_fields(document)
            self._selectable[storage] = dict.fromkeys(selectable, "")
            self._cluster.store.bucket(storage).fields_of = field_reader(storage, selectable)
            for info in kinds:
                if info.version == info.storage_version:
                    self._cluster.registry.keep(info)
                    self._read_with(info)
                if info.version in served:
                    self._cluster.registry.add(info)
        if self._accept(document, given):
            self._cluster.put(CRD, document)

    def _names_for(self, document: Document) -> AcceptedNames:
        """The names that a CRD gets beside the others of its group."""
        spec = as_object(document["spec"])
        own = as_text(as_object(document["metadata"]).get("name"))
        others = [
            as_object(as_object(each.document().get("status")).get("acceptedNames"))
            for each in self._cluster.store.listed(CRD.storage)
            if each.name != own and each.name.partition(".")[2] == spec.get("group")
        ]
        had = as_object(as_object(document.get("status")).get("acceptedNames"))
        return accepted_names(as_object(spec.get("names")), had, others)

    def _read_with(self, info: KindInfo) -> None:
        """Objects that are stored already are read in the version and by the schema as they are now.

        With the schema's defaults, without what it does not know. A real server keeps them in the version they were
        written in until the next write, but nobody can see that.
        """
        if not self._cluster.store.bucket(info.storage).objects:
            return
        schema = self._cluster.schema(info)

        def read(document: Document) -> None:
            document["apiVersion"] = info.storage_api_version
            if schema is not None:
                schema.prune(document)
                schema.default(document)

        self._cluster.store.reread(info.storage, read)

    def _accept(self, document: Document, given: AcceptedNames) -> bool:
        """Fill in the status of a CRD that has got its names, or not; whether anything changed."""
        spec = as_object(document["spec"])
        before = document.get("status")
        old = as_object(before)
        storage = next(
            (
                as_text(as_object(entry).get("name"))
                for entry in as_list(spec.get("versions"))
                if as_object(entry).get("storage") is True
            ),
            "",
        )
        versions = [*as_list(old.get("storedVersions"))]
        if storage and storage not in versions:
            versions.append(storage)
        now = self._cluster.now_text()
        conditions: list[Value] = []
        named = ("True", "NoConflicts", "no conflicts found")
        established = ("True", "InitialNamesAccepted", "the initial names have been accepted")
        if given.reason:
            named = ("False", given.reason, given.message)
            if not _established(document):
                established = ("False", "NotAccepted", "not all names are accepted")
        for condition_type, (truth, reason, message) in (("NamesAccepted", named), ("Established", established)):
            conditions.append(
                {
                    "type": condition_type,
                    "status": truth,
                    "lastTransitionTime": _transition(old, condition_type, truth) or now,
                    "reason": reason,
                    "message": message,
                }
            )
        document["status"] = {
            **old,
            "acceptedNames": given.names,
            "conditions": conditions,
            "storedVersions": versions,
        }
        return document["status"] != before

    def _clean_up(self, name: str) -> None:
        plural, _, group = name.partition(".")
        storage = f"{plural}.{group}"
        info = self._cluster.registry.stored_as(storage)
        if info is not None:
            for stored in list(self._cluster.store.listed(storage)):
                if not stored.deleting:
                    delete_object(self._cluster, info, stored, DeleteOptions(propagation_policy="Background"))
        self._finish_if_empty(storage)

    def _finish_if_empty(self, storage: str) -> None:
        if self._cluster.store.bucket(storage).objects:
            return
        found = self._cluster.store.get(CRD.storage, storage)
        if found is None or not found.deleting or CRD_CLEANUP not in found.finalizers:
            return
        document = found.document()
        metadata = as_object(document["metadata"])
        kept: list[Value] = [entry for entry in as_list(metadata.get("finalizers")) if entry != CRD_CLEANUP]
        if kept:
            metadata["finalizers"] = kept
        else:
            metadata.pop("finalizers", None)
        self._cluster.update(CRD, found, document)

    def _forget(self, storage: str) -> None:
        """Stop serving what a CRD defined; the names that it leaves go to those that wait for them."""
        self._served.pop(storage, None)
        for info in self._kinds.pop(storage, ()):
            self._cluster.registry.remove(info)
        self._cluster.registry.forget(storage)
        self._selectable.pop(storage, None)
        for listener in tuple(self._cluster.store.bucket(storage).listeners):
            listener()  # watches notice that the kind is gone
        for other in self._cluster.store.listed(CRD.storage):
            if other.name.partition(".")[2] == storage.partition(".")[2]:
                self._serve(other.name)
