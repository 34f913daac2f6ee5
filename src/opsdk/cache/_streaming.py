"""What a server does not give as a stream (WatchList), so that it is asked for pages."""

from __future__ import annotations

from typing import Final, final

import anyio

from opsdk.errors import ApiStatusError
from opsdk.models import ResourceInfo

__all__ = ["ENDS_INITIAL_EVENTS", "StreamingRefusals"]

ENDS_INITIAL_EVENTS: Final = "k8s.io/initial-events-end"
"""The annotation of the bookmark that ends a streamed list."""

_ABOUT_THE_REQUEST: Final = frozenset({400, 405, 406, 415, 422})
_ABOUT_THE_KIND: Final = frozenset({403, 404})

_REMEMBERED_SECONDS: Final = 3600.0
"""A server may be replaced by a newer one while this process runs."""


@final
class StreamingRefusals:
    """Which kinds one server has refused to stream lately."""

    def __init__(self) -> None:
        self._at: dict[ResourceInfo, float] = {}

    def asks_for_pages(self, resource: ResourceInfo, error: ApiStatusError) -> bool:
        """Whether a list in pages may be had after this answer to a streamed one; remembered if it will always be so.

        The server not having the kind, or not allowing it, says nothing of streams; but with pages the error is of the
        list.
        """
        if error.code in _ABOUT_THE_REQUEST:
            self._at[resource] = anyio.current_time()
        return error.code in _ABOUT_THE_REQUEST | _ABOUT_THE_KIND

    def has(self, resource: ResourceInfo) -> bool:
        """Whether it refused this one less than an hour ago."""
        at = self._at.get(resource)
        return at is not None and anyio.current_time() - at < _REMEMBERED_SECONDS
