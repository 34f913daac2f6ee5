"""The client, cut by capability. Ask for the least: a function that only reads takes a `Reader`.

Every verb is generic over the class of the object. Which kind a class stands for is the class's own knowledge:
lightkube's resources, `CustomResource` and any class with lightkube's `_api_info`.

Namespaces are never guessed: an object of a namespaced kind needs one, in its metadata or in the call; `list` and
`watch` without one mean all namespaces.
"""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Generic, Literal, Protocol, TypeAlias, final

import msgspec
from lightkube.models.meta_v1 import ObjectMeta
from typing_extensions import TypeVar

from opsdk.errors import DecodeError
from opsdk.protocols.objects import KubeObject
from opsdk.types import LabelSelector, Patch, Preconditions, PropagationPolicy

__all__ = [
    "Added",
    "Bookmark",
    "Client",
    "Deleted",
    "Modified",
    "ObjectList",
    "Reader",
    "Snapshot",
    "StatusWriter",
    "Undecodable",
    "WatchEvent",
    "Watcher",
    "Writer",
]

T = TypeVar("T", bound=KubeObject)


@final
class ObjectList(builtins.list[T]):
    """The objects of one list request, and the version the list is of.

    Attributes:
        resource_version: The list's own resourceVersion: where a watch goes on from.
    """

    def __init__(self, items: builtins.list[T], resource_version: str) -> None:
        super().__init__(items)
        self.resource_version = resource_version


@final
class Added(msgspec.Struct, Generic[T], frozen=True):
    """An object is there that was not before."""

    object: T


@final
class Modified(msgspec.Struct, Generic[T], frozen=True):
    """An object changed."""

    object: T


@final
class Deleted(msgspec.Struct, Generic[T], frozen=True):
    """An object is gone; this is its last state."""

    object: T


@final
class Bookmark(msgspec.Struct, frozen=True):
    """Everything up to this version has been seen."""

    resource_version: str
    initial_events_end: bool = False


@final
class Undecodable(msgspec.Struct, frozen=True):
    """An object that does not fit its model; the stream goes on.

    Args:
        event: What happened to it.
        metadata: As much of its metadata as could be read.
        error: Which field, and why.
    """

    event: Literal["ADDED", "MODIFIED", "DELETED"]
    metadata: ObjectMeta | None
    error: DecodeError


WatchEvent: TypeAlias = Added[T] | Modified[T] | Deleted[T] | Bookmark | Undecodable
"""What a watch delivers, as a sum: `match` on it."""


@final
class Snapshot(msgspec.Struct, Generic[T], frozen=True):
    """What an object looked like at one moment: the base of a difference.

    Args:
        kind: The object's class.
        typed: The object as its model writes it.
        document: The server's document of the same resourceVersion, with what the model does not know; None when
            the object was never read through the client that took the snapshot.
    """

    kind: type[T]
    typed: bytes
    document: bytes | None


class Reader(Protocol):
    """Reads objects."""

    async def get(self, kind: type[T], name: str, *, namespace: str | None = None) -> T:
        """Read one object.

        Raises:
            NotFoundError: There is none of that name.
            DecodeError: It does not fit its model.
            ObjectError: The kind is namespaced and no namespace was given.
        """
        ...

    async def find(self, kind: type[T], name: str, *, namespace: str | None = None) -> T | None:
        """Read one object; None when there is none. Otherwise like `get`."""
        ...

    async def list(
        self,
        kind: type[T],
        *,
        namespace: str | None = None,
        labels: LabelSelector | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> ObjectList[T]:
        """Read all objects that match, in pages of 500; `namespace=None` means all namespaces.

        Raises:
            DecodeError: One of them does not fit its model; `stream` can skip it.
        """
        ...

    def stream(
        self,
        kind: type[T],
        *,
        namespace: str | None = None,
        labels: LabelSelector | None = None,
        fields: Mapping[str, str] | None = None,
        page_size: int = 500,
    ) -> AsyncIterator[T | Undecodable]:
        """Like `list`, one object at a time, with at most one page in memory. What does not decode is reported."""
        ...


class Watcher(Protocol):
    """Watches objects."""

    def watch(
        self,
        kind: type[T],
        *,
        namespace: str | None = None,
        labels: LabelSelector | None = None,
        fields: Mapping[str, str] | None = None,
        resource_version: str | None = None,
        timeout: timedelta | None = None,
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent[T]]]:
        """One watch request: no retry and no relist, which is a reflector's work.

        Args:
            kind: The class to watch.
            namespace: None means all namespaces.
            labels: Label selector.
            fields: Field selector.
            resource_version: Events after this version; None: first an Added for each object there is.
            timeout: The server ends the watch after this long; None leaves it to the server.

        Raises:
            GoneError: The version is too old, as an answer or within the stream.
        """
        ...


class StatusWriter(Protocol):
    """Writes the status subresource. Everything but status is ignored by the server."""

    async def replace(
        self, obj: T, /, *, namespace: str | None = None, dry_run: bool | None = None, field_manager: str | None = None
    ) -> T:
        """Like `Writer.replace`, for status."""
        ...

    async def patch(
        self,
        kind: type[T],
        name: str,
        patch: Patch,
        *,
        namespace: str | None = None,
        dry_run: bool | None = None,
        field_manager: str | None = None,
    ) -> T:
        """Like `Writer.patch`, for status."""
        ...

    async def patch_from(
        self, base: Snapshot[T], obj: T, /, *, dry_run: bool | None = None, field_manager: str | None = None
    ) -> T | None:
        """Like `Writer.patch_from`, for status."""
        ...

    async def apply(
        self,
        obj: T,
        /,
        *,
        namespace: str | None = None,
        force: bool = False,
        dry_run: bool | None = None,
        field_manager: str | None = None,
    ) -> T:
        """Like `Writer.apply`, for status."""
        ...


class Writer(Protocol):
    """Writes objects. `dry_run` and `field_manager` default to the client's own."""

    async def create(
        self, obj: T, /, *, namespace: str | None = None, dry_run: bool | None = None, field_manager: str | None = None
    ) -> T:
        """Create the object and return it as stored.

        Raises:
            AlreadyExistsError: The name is taken.
            InvalidError: The server refuses it; `causes` name the fields.
            ObjectError: It has neither name nor generateName, or no namespace where one is needed.
        """
        ...

    async def replace(
        self, obj: T, /, *, namespace: str | None = None, dry_run: bool | None = None, field_manager: str | None = None
    ) -> T:
        """Write an object that was read and changed, and return it as stored.

        What the model does not know is kept: the server's document of the object's resourceVersion is sent, with the
        difference laid over it.

        Raises:
            ConflictError: It was written since it was read.
            ObjectError: It has no resourceVersion: it was never read.
        """
        ...

    async def patch(
        self,
        kind: type[T],
        name: str,
        patch: Patch,
        *,
        namespace: str | None = None,
        dry_run: bool | None = None,
        field_manager: str | None = None,
    ) -> T:
        """Change what the patch says and return the object as stored."""
        ...

    async def patch_from(
        self, base: Snapshot[T], obj: T, /, *, dry_run: bool | None = None, field_manager: str | None = None
    ) -> T | None:
        """Write the difference from `base` to `obj`, if there is one, on the condition that nobody else wrote since.

        What the model does not know survives, in list items too.

        Returns:
            The object as stored; None when there was no difference, and so no request.

        Raises:
            ConflictError: It was written since `base` was taken.
        """
        ...

    async def apply(
        self,
        obj: T,
        /,
        *,
        namespace: str | None = None,
        force: bool = False,
        dry_run: bool | None = None,
        field_manager: str | None = None,
    ) -> T:
        """Server-side apply: own the fields that `obj` sets, under the field manager.

        Raises:
            ConflictError: Another manager owns one of them, and `force` is not set.
        """
        ...

    async def delete(
        self,
        kind: type[T],
        name: str,
        *,
        namespace: str | None = None,
        preconditions: Preconditions | None = None,
        propagation: PropagationPolicy | None = None,
        grace_period: timedelta | None = None,
        dry_run: bool | None = None,
    ) -> None:
        """Ask for the object to be deleted; with finalizers on it, it stays until they are gone.

        Raises:
            NotFoundError: There is none of that name.
            ConflictError: A precondition does not hold.
        """
        ...

    async def delete_collection(
        self,
        kind: type[T],
        *,
        namespace: str | None = None,
        labels: LabelSelector | None = None,
        fields: Mapping[str, str] | None = None,
        propagation: PropagationPolicy | None = None,
        dry_run: bool | None = None,
    ) -> None:
        """Ask for all objects that match to be deleted, in one namespace.

        Raises:
            ObjectError: The kind is namespaced and no namespace was given.
        """
        ...

    def snapshot(self, obj: T, /) -> Snapshot[T]:
        """Remember what `obj` looks like now, as the base of a later `patch_from`."""
        ...


class Client(Reader, Writer, Watcher, Protocol):
    """All verbs."""

    @property
    def status(self) -> StatusWriter:
        """The same for the status subresource."""
        ...
