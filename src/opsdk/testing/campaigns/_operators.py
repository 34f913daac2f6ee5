"""An operator's process: made from whichever client it takes, and run until it is stopped."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, TypeAlias, final

from lightkube import AsyncClient

from opsdk.client import ApiClient, Transport
from opsdk.manager import Manager
from opsdk.protocols import Runnable
from opsdk.testing.apiserver import ApiServer
from opsdk.testing.simulator import lightkube_client

__all__ = ["Process", "process_with_lightkube", "process_with_our_client"]

_FIELD_MANAGER: Final = "operator"

_Make: TypeAlias = Callable[[Transport], AbstractAsyncContextManager[Runnable]]


@final
class Process:
    """Makes an operator for the cluster behind a transport, and runs it until cancelled."""

    def __init__(self, make: _Make) -> None:
        self._make = make

    async def run(self, transport: Transport) -> None:
        """Make and run it."""
        async with self._make(transport) as operator:
            if isinstance(operator, Manager):
                await operator.start()  # `run` is for programs: it listens to signals
            else:
                await operator.run()

    async def complaint(self) -> str | None:
        """Why what is made cannot be run. Whatever else is wrong with making it, its first life will tell."""
        try:
            async with ApiServer() as server, self._make(server.transport()) as operator:
                made = operator
        except Exception:  # noqa: BLE001 - whatever it is, it is told as the operator's end
            return None
        name = type(made).__name__
        if isinstance(made, Manager) or callable(getattr(made, "run", None)):
            return None
        if callable(getattr(made, "reconcile", None)):
            return (
                f"make_operator makes a reconciler, {name}, and nothing says what it watches; make a Manager that runs "
                f"it: manager = Manager(…, client=client); manager.controller(Kind).owns(…)"
                f".complete({name}(manager.client))"
            )
        return f"make_operator makes {name}, which has no run(); make a Manager, or something with run()"


def process_with_our_client(make: Callable[[ApiClient], Runnable]) -> Process:
    """A process of an operator that takes our client."""

    @asynccontextmanager
    async def made(transport: Transport) -> AsyncGenerator[Runnable]:
        yield make(ApiClient(transport, field_manager=_FIELD_MANAGER))

    return Process(made)


def process_with_lightkube(make: Callable[[AsyncClient], Runnable], namespace: str) -> Process:
    """A process of an operator that takes lightkube's own client."""

    @asynccontextmanager
    async def made(transport: Transport) -> AsyncGenerator[Runnable]:
        client = lightkube_client(transport, namespace=namespace, field_manager=_FIELD_MANAGER)
        try:
            yield make(client)
        finally:
            await client.close()

    return Process(made)
