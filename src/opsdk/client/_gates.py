"""How httpx2 is made to ask a gate of writes when it has a connection, and not before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

__all__ = ["gate_extension"]

Trace = Callable[[str, object], Awaitable[None]]

_BEFORE_THE_FIRST_BYTE: Final = ".send_request_headers.started"


def gate_extension(gate: Callable[[], None] | None) -> Mapping[str, Trace]:
    """The extensions of a request that asks `gate` right before its head is written, on every connection it is sent on.

    httpx2 tells its `trace` extension what its pool is about to do, in the task that sends. What the gate raises ends
    the request and its connection.
    """
    if gate is None:
        return {}
    ask = gate

    async def trace(event: str, _: object) -> None:
        # "http11." and "http2."; a proxy's CONNECT is such a request of its own, and asked for as well
        if event.endswith(_BEFORE_THE_FIRST_BYTE):
            ask()

    return {"trace": trace}
