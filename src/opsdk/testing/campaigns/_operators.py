"""An operator's process: made from whichever client it takes, and run until it is stopped."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from lightkube import AsyncClient

from opsdk.client import ApiClient, Transport
from opsdk.manager import Manager
from opsdk.protocols import Runnable
from opsdk.testing.simulator import lightkube_client

__all__ = ["RunProcess", "process_with_lightkube", "process_with_our_client"]

_FIELD_MANAGER: Final = "operator"

RunProcess: TypeAlias = Callable[[Transport], Awaitable[None]]
"""Makes an operator for the cluster behind a transport, and runs it until cancelled."""


def process_with_our_client(make: Callable[[ApiClient], Runnable]) -> RunProcess:
    """A process of an operator that takes our client."""

    async def run(transport: Transport) -> None:
        await _run(make(ApiClient(transport, field_manager=_FIELD_MANAGER)))

    return run


def process_with_lightkube(make: Callable[[AsyncClient], Runnable], namespace: str) -> RunProcess:
    """A process of an operator that takes lightkube's own client."""

    async def run(transport: Transport) -> None:
        client = lightkube_client(transport, namespace=namespace, field_manager=_FIELD_MANAGER)
        try:
            await _run(make(client))
        finally:
            await client.close()

    return run


async def _run(operator: Runnable) -> None:
    if isinstance(operator, Manager):
        await operator.start()  # `run` is for programs: it listens to signals
    else:
        await operator.run()
