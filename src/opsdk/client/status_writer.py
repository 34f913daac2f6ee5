"""Writes to the status subresource."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from typing_extensions import TypeVar

from opsdk.client._writes import Writes
from opsdk.protocols import KubeObject, Snapshot, StatusWriter
from opsdk.types import Patch

__all__ = ["ApiStatusWriter"]

T = TypeVar("T", bound=KubeObject)


@final
class ApiStatusWriter:
    """Writes the status subresource; implements `opsdk.protocols.StatusWriter`. Reached as `client.status`."""

    def __init__(self, writes: Writes) -> None:
        self._writes = writes

    async def replace(
        self, obj: T, /, *, namespace: str | None = None, dry_run: bool | None = None, field_manager: str | None = None
    ) -> T:
        """Like `ApiClient.replace`, for status."""
        return await self._writes.replace(obj, namespace=namespace, dry_run=dry_run, field_manager=field_manager)

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
        """Like `ApiClient.patch`, for status."""
        return await self._writes.patch(
            kind, name, patch, namespace=namespace, dry_run=dry_run, field_manager=field_manager
        )

    async def patch_from(
        self, base: Snapshot[T], obj: T, /, *, dry_run: bool | None = None, field_manager: str | None = None
    ) -> T | None:
        """Like `ApiClient.patch_from`, for status."""
        return await self._writes.patch_from(base, obj, dry_run=dry_run, field_manager=field_manager)

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
        """Like `ApiClient.apply`, for status: only status, and what names the object, is sent."""
        return await self._writes.apply(
            obj, namespace=namespace, force=force, dry_run=dry_run, field_manager=field_manager
        )


if TYPE_CHECKING:
    _writer: type[StatusWriter] = ApiStatusWriter
