"""What a client may offer beyond the `Client` protocol."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from opsdk.protocols import Client

__all__ = ["field_manager_of", "uncached"]

_DEFAULT_FIELD_MANAGER = "opsdk"


@runtime_checkable
class _Cached(Protocol):
    @property
    def uncached(self) -> Client: ...


@runtime_checkable
class _Managed(Protocol):
    @property
    def field_manager(self) -> str: ...


def uncached(client: Client) -> Client:
    """A client that reads past the caches of `client`, if it has any."""
    return client.uncached if isinstance(client, _Cached) else client


def field_manager_of(client: Client) -> str:
    """The name under which the client's writes are recorded."""
    below = uncached(client)
    return below.field_manager if isinstance(below, _Managed) else _DEFAULT_FIELD_MANAGER
