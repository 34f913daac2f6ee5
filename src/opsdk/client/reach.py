"""What a client may offer beyond the `Client` protocol, asked for by capability."""

from __future__ import annotations

from typing import Final, Protocol, TypeVar, runtime_checkable

from opsdk.protocols import Client, Reader

__all__ = ["field_manager_of", "uncached"]

R = TypeVar("R", bound=Reader)

_DEFAULT_FIELD_MANAGER: Final = "opsdk"


@runtime_checkable
class _Cached(Protocol):
    @property
    def uncached(self) -> Client: ...


@runtime_checkable
class _Managed(Protocol):
    @property
    def field_manager(self) -> str: ...


def uncached(client: R, /) -> R | Client:
    """A client that reads past the caches of `client`, if it has any; else `client` itself."""
    return client.uncached if isinstance(client, _Cached) else client


def field_manager_of(client: Reader, /) -> str:
    """The name under which the client's writes are recorded; `opsdk` where it does not say."""
    below = uncached(client)
    return below.field_manager if isinstance(below, _Managed) else _DEFAULT_FIELD_MANAGER
