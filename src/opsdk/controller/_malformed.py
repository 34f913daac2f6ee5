"""Which objects a controller gave up on because they do not fit their model."""

from __future__ import annotations

from typing import final

from opsdk.types import Request

__all__ = ["MalformedObjects"]


@final
class MalformedObjects:
    """The objects whose latest reconcile found them malformed; there are no more of them than there are objects.

    Nothing but another version of such an object can help, and a predicate that looks at the generation or at labels
    does not let every one through: a status that does not fit is mended by a change of status. So while an object is
    in here, each change of it is worth a reconcile.
    """

    def __init__(self) -> None:
        self._requests: set[Request] = set()

    def __len__(self) -> int:
        return len(self._requests)

    def __contains__(self, request: Request, /) -> bool:
        return request in self._requests

    def add(self, request: Request, /) -> None:
        """A reconcile could not read it."""
        self._requests.add(request)

    def discard(self, request: Request, /) -> None:
        """It is gone, or being reconciled again. Harmless when it was not in here."""
        self._requests.discard(request)
