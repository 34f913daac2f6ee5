"""What every write has in common, for an object and for its status."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, Generic, Literal, assert_never, final

import msgspec
from lightkube.models.meta_v1 import ObjectMeta
from typing_extensions import TypeVar

from opsdk.client._apply_body import apply_body
from opsdk.client._documents import Documents, head_of
from opsdk.client._places import name_of_object, namespace_of_call, namespace_of_object
from opsdk.client._status import conflict
from opsdk.client.raw import RawClient
from opsdk.errors import ApiProtocolError, ObjectError
from opsdk.models import Codec, ResourceInfo, codec_of, is_metadata_only, metadata_of, resource_of
from opsdk.models.families import is_custom_resource
from opsdk.patches import Members, decoded, differing, members_of, overlay, overlay_difference, same
from opsdk.protocols import KubeObject, Snapshot
from opsdk.types import Json, JsonObject, JsonPatch, MergePatch, Patch, StrategicMergePatch

__all__ = ["Writes", "document_of"]

T = TypeVar("T", bound=KubeObject)

Subresource = Literal["status"]

_TYPE: Final = frozenset({"apiVersion", "kind"})
_TYPE_AND_STATUS: Final = _TYPE | {"status"}

# What the server decides. It is no part of a difference: a write of ours to the object in hand has moved it.
_SERVER_OWNED: Final = frozenset(
    {
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "generation",
        "managedFields",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)


def document_of(raw: bytes, what: str) -> dict[str, Json]:
    """A JSON object from bytes.

    Raises:
        ApiProtocolError: They are something else.
    """
    try:
        document: Json = msgspec.json.decode(raw)
    except msgspec.MsgspecError as error:
        raise ApiProtocolError(f"{what}: the document is not JSON: {error}") from error
    if not isinstance(document, Mapping):
        raise ApiProtocolError(f"{what}: the document is no JSON object")
    return dict(document)


def _members_of_answer(raw: bytes, what: str) -> Members:
    try:
        return members_of(raw)
    except msgspec.ValidationError as error:
        raise ApiProtocolError(f"{what}: the document is no JSON object") from error
    except msgspec.MsgspecError as error:
        raise ApiProtocolError(f"{what}: the document is not JSON: {error}") from error


def _check_patch(patch: object) -> None:
    if not isinstance(patch, MergePatch | StrategicMergePatch | JsonPatch):
        raise TypeError(
            f"a bare {type(patch).__name__} does not say which kind of patch it is; wrap it: MergePatch({{...}}), "
            "JsonPatch([...]) or StrategicMergePatch({...})"
        )


def _encoded(patch: Patch) -> tuple[str, bytes]:
    _check_patch(patch)
    match patch:
        case MergePatch(body):
            return "application/merge-patch+json", msgspec.json.encode(body)
        case StrategicMergePatch(body):
            return "application/strategic-merge-patch+json", msgspec.json.encode(body)
        case JsonPatch(operations):
            return "application/json-patch+json", msgspec.json.encode(operations)
        case _ as never:
            assert_never(never)


@lru_cache(maxsize=1024)
def _main_endpoint_ignores_status(kind: type[KubeObject]) -> bool:
    """Whether the kind certainly has a status subresource, or no status at all."""
    if is_custom_resource(kind):
        return True
    return issubclass(kind, msgspec.Struct) and isinstance(getattr(kind, "Status", None), type)


def _refuse_metadata_only(kind: type[KubeObject], verb: str) -> None:
    if is_metadata_only(kind):
        raise ObjectError(
            f"{verb}: of this {resource_of(kind).kind} there is nothing but metadata, and the rest would be lost; use "
            "patch, patch_from or apply, or the class of the whole object"
        )


def _members(value: Json) -> JsonObject:
    return value if isinstance(value, Mapping) else {}


def _part(members: Members, names: Iterable[str]) -> JsonObject:
    """Some members of a document, without what the server decides."""
    part = decoded(members, names)
    if "metadata" in part:
        metadata = _members(part["metadata"])
        part["metadata"] = {name: value for name, value in metadata.items() if name not in _SERVER_OWNED}
    return part


@final
class _Target(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """The object that a write is about."""

    info: ResourceInfo
    codec: Codec[T]
    metadata: ObjectMeta
    name: str
    namespace: str | None
    main_endpoint_ignores_status: bool

    @property
    def what(self) -> str:
        place = self.name if self.namespace is None else f"{self.namespace}/{self.name}"
        return f"{self.info.kind} {place}"


@final
class Writes(msgspec.Struct, frozen=True, kw_only=True):
    """Sends writes to objects, or to their subresource.

    Args:
        raw: Sends the requests.
        documents: Where what was read is remembered.
        field_manager: The client's own.
        dry_run: The client's own.
        subresource: Which part of the object is written; None: all but status.
    """

    raw: RawClient
    documents: Documents
    field_manager: str
    dry_run: bool
    subresource: Subresource | None = None

    def read(self, codec: Codec[T], raw: bytes, *, keep: bool = True) -> T:
        """Decode an answer and remember its document."""
        obj = codec.decode(raw)
        if keep and obj.metadata is not None:
            self.documents.put(obj.metadata.uid, obj.metadata.resourceVersion, raw)
        return obj

    def document(self, obj: KubeObject) -> bytes | None:
        """The document of the version that `obj` is of, if it is remembered."""
        metadata = obj.metadata
        return None if metadata is None else self.documents.get(metadata.uid, metadata.resourceVersion)

    @staticmethod
    def typed(codec: Codec[T], obj: T) -> bytes:
        """The object as its model writes it, the same whether or not its metadata has been looked at.

        A generic resource holds its metadata as a plain dict until then, which knows fields that the struct does not.
        """
        if obj.metadata is not None:
            metadata_of(obj)
        return codec.encode(obj)

    def query(self, dry_run: bool | None, field_manager: str | None) -> list[tuple[str, str]]:  # noqa: FBT001 - passed on
        """The parameters of a write."""
        query = [("fieldManager", field_manager or self.field_manager)]
        if self.is_dry(dry_run):
            query.append(("dryRun", "All"))
        return query

    def is_dry(self, dry_run: bool | None) -> bool:  # noqa: FBT001 - passed on
        """Whether nothing is to be stored."""
        return self.dry_run if dry_run is None else dry_run

    def target(self, kind: type[T], obj: T, namespace: str | None = None) -> _Target[T]:
        """Which object is written."""
        info = resource_of(kind)
        metadata = metadata_of(obj)
        return _Target(
            info=info,
            codec=codec_of(kind),
            metadata=metadata,
            name=name_of_object(info, metadata),
            namespace=namespace_of_object(info, metadata, namespace),
            main_endpoint_ignores_status=_main_endpoint_ignores_status(kind),
        )

    async def create(self, obj: T, *, namespace: str | None, dry_run: bool | None, field_manager: str | None) -> T:
        """See `opsdk.protocols.Writer.create`."""
        kind = type(obj)
        info = resource_of(kind)
        metadata = metadata_of(obj)
        _refuse_metadata_only(kind, "create")
        if not metadata.name and not metadata.generateName:
            raise ObjectError(f"{info.kind}: to be created, an object needs metadata.name or metadata.generateName")
        path = info.path(namespace=namespace_of_object(info, metadata, namespace))
        codec = codec_of(kind)
        answer = await self.raw.request("POST", path, query=self.query(dry_run, field_manager), body=codec.encode(obj))
        return self.read(codec, answer, keep=not self.is_dry(dry_run))

    async def replace(self, obj: T, *, namespace: str | None, dry_run: bool | None, field_manager: str | None) -> T:
        """See `opsdk.protocols.Writer.replace`."""
        _refuse_metadata_only(type(obj), "replace")
        target = self.target(type(obj), obj, namespace)
        if not target.metadata.resourceVersion:
            raise ObjectError(
                f"{target.what} has no metadata.resourceVersion, so it was never read; read it and change that, or "
                f"use patch or apply"
            )
        raw = self.document(obj) or await self._fetch(target)
        document = document_of(raw, target.what)
        # Read again, so that both sides of the difference are in the model's own spelling.
        before = document_of(self.typed(target.codec, target.codec.decode(raw)), target.what)
        after = document_of(self.typed(target.codec, obj), target.what)
        body = {
            **overlay(document, before, after),
            "apiVersion": target.info.api_version,
            "kind": target.info.kind,
        }
        answer = await self.raw.request(
            "PUT",
            self._path(target),
            query=self.query(dry_run, field_manager),
            body=msgspec.json.encode(body),
            preconditioned=True,
        )
        return self.read(target.codec, answer, keep=not self.is_dry(dry_run))

    async def patch(
        self,
        kind: type[T],
        name: str,
        patch: Patch,
        *,
        namespace: str | None,
        dry_run: bool | None,
        field_manager: str | None,
    ) -> T:
        """See `opsdk.protocols.Writer.patch`."""
        info = resource_of(kind)
        path = info.path(
            namespace=namespace_of_call(info, namespace, name=name),
            name=name,
            subresource=self.subresource,
        )
        content_type, content = _encoded(patch)
        codec = codec_of(kind)
        answer = await self.raw.request(
            "PATCH", path, query=self.query(dry_run, field_manager), body=content, content_type=content_type
        )
        return self.read(codec, answer, keep=not self.is_dry(dry_run))

    async def patch_from(
        self, base: Snapshot[T], obj: T, *, dry_run: bool | None, field_manager: str | None
    ) -> T | None:
        """See `opsdk.protocols.Writer.patch_from`."""
        target = self.target(base.kind, obj)
        typed = self.typed(target.codec, obj)
        if typed == base.typed:
            return None
        first, last = members_of(base.typed), members_of(typed)
        differ = differing(first, last)
        if "metadata" in differ:
            self._refuse_another_object(target, first)
        names = self._written(target, differ)
        before, after = _part(first, names), _part(last, names)
        if same(before, after):
            return None
        version = target.metadata.resourceVersion
        if not version:
            raise ObjectError(
                f"{target.what} has no metadata.resourceVersion, so nothing tells whether somebody else wrote it; "
                f"read it first"
            )
        raw = self._document_of(base, obj, version) or await self._fetch(target)
        document = _part(_members_of_answer(raw, target.what), names)
        difference = overlay_difference(document, before, after)
        if not difference:
            return None
        precondition: dict[str, Json] = {"resourceVersion": version}
        if target.metadata.uid:
            precondition["uid"] = target.metadata.uid
        body = {**difference, "metadata": {**_members(difference.get("metadata")), **precondition}}
        answer = await self.raw.request(
            "PATCH",
            self._path(target),
            query=self.query(dry_run, field_manager),
            body=msgspec.json.encode(body),
            content_type="application/merge-patch+json",
            preconditioned=True,
        )
        return self.read(target.codec, answer, keep=not self.is_dry(dry_run))

    async def apply(
        self, obj: T, *, namespace: str | None, force: bool, dry_run: bool | None, field_manager: str | None
    ) -> T:
        """See `opsdk.protocols.Writer.apply`."""
        target = self.target(type(obj), obj, namespace)
        if is_metadata_only(type(obj)) and (field_manager or self.field_manager) == self.field_manager:
            raise ObjectError(
                f"apply: of this {target.info.kind} there is nothing but metadata, and what its field manager "
                f"{self.field_manager!r} has applied besides would be removed; give another field_manager"
            )
        body = document_of(target.codec.encode(obj, only_set=True), target.what)
        metadata = {name: value for name, value in _members(body.get("metadata")).items() if name != "managedFields"}
        if self.subresource is None:
            body["metadata"] = metadata
        else:
            kept = ("name", "namespace", "resourceVersion", "uid")
            body = {
                "metadata": {name: metadata[name] for name in kept if name in metadata},
                "status": body.get("status") or {},
            }
        body |= {"apiVersion": target.info.api_version, "kind": target.info.kind}
        query = self.query(dry_run, field_manager)
        if force:
            query.append(("force", "true"))
        answer = await self.raw.request(
            "PATCH",
            self._path(target),
            query=query,
            body=apply_body(body),
            content_type="application/apply-patch+yaml",
        )
        return self.read(target.codec, answer, keep=not self.is_dry(dry_run))

    def _document_of(self, base: Snapshot[T], obj: T, version: str) -> bytes | None:
        """The server's document of that version of the object, if it is remembered, by the snapshot or here."""
        if base.document is not None and head_of(base.document)[1] == version:
            return base.document
        return self.document(obj)

    def _path(self, target: _Target[T]) -> str:
        return target.info.path(namespace=target.namespace, name=target.name, subresource=self.subresource)

    async def _fetch(self, target: _Target[T]) -> bytes:
        """The server's document, if it is still of the version that the object in hand is of.

        Raises:
            ConflictError: It is not.
        """
        raw = await self.raw.request("GET", target.info.path(namespace=target.namespace, name=target.name))
        uid, version = head_of(raw)
        metadata = target.metadata
        if version != metadata.resourceVersion or (metadata.uid and uid != metadata.uid):
            again = "deleted and created again" if metadata.uid and uid != metadata.uid else "written"
            raise conflict(
                target.info.kind,
                target.name,
                f"{target.what} was {again} since it was read (resourceVersion {metadata.resourceVersion}, now "
                f"{version}); read it again and repeat the change",
            )
        self.documents.put(uid, version, raw)
        return raw

    def _written(self, target: _Target[T], names: Iterable[str]) -> list[str]:
        """Which of these members this writer writes."""
        if self.subresource is not None:
            return [name for name in names if name == self.subresource]
        left_out = _TYPE_AND_STATUS if target.main_endpoint_ignores_status else _TYPE
        return [name for name in names if name not in left_out]

    @staticmethod
    def _refuse_another_object(target: _Target[T], first: Members) -> None:
        metadata = _members(decoded(first, ["metadata"]).get("metadata"))
        for field, now in (("name", target.metadata.name), ("namespace", target.metadata.namespace)):
            then = metadata.get(field)
            if then is not None and then != now:
                raise ObjectError(f"{target.what}: metadata.{field} was {then!r} in the snapshot; it cannot change")
