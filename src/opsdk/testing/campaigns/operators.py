"""What a campaign runs: an operator, made anew for each cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias, final

from lightkube import AsyncClient

from opsdk.client import ApiClient, Transport
from opsdk.manager import Manager, ManagerOptions
from opsdk.testing.simulator import lightkube_client
from opsdk.types import Json

__all__ = ["MakeOperator", "Operator", "managed", "with_lightkube"]

_MANAGER: Final = "operator"


def _nothing() -> Json:
    return None


def _do_nothing() -> None:
    return


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """An operator that can be run, stopped and run again, as a process on one cluster.

    Args:
        run: Runs it until cancelled. It is called again for a restart, so what a process keeps in memory is made here.
        outside: What it keeps outside of the cluster, such as the rows of a database; compared like the cluster's
            objects. Default: nothing.
        close: Called at the end.
    """

    run: Callable[[], Awaitable[None]]
    outside: Callable[[], Json] = _nothing
    close: Callable[[], None] = _do_nothing


MakeOperator: TypeAlias = Callable[[Transport], Operator]
"""Makes an operator for the cluster behind a transport."""


def managed(register: Callable[[Manager], object], options: ManagerOptions | None = None) -> MakeOperator:
    """An operator that is a `Manager`.

    Args:
        register: Gives a new manager what it has to run; what your program calls as well.
        options: The manager's options. Default: no leader election and no servers.
    """
    chosen = options or ManagerOptions(leader_election=False, serve_metrics=False, serve_probes=False)

    def make(transport: Transport) -> Operator:
        async def run() -> None:
            manager = Manager(chosen, client=ApiClient(transport, field_manager=chosen.field_manager))
            register(manager)
            await manager.start()

        return Operator(run=run)

    return make


def with_lightkube(run: Callable[[AsyncClient], Awaitable[None]], *, namespace: str = "default") -> MakeOperator:
    """An operator that is a function of lightkube's own client.

    Args:
        run: Runs the operator until cancelled.
        namespace: The client's namespace.
    """

    def make(transport: Transport) -> Operator:
        async def start() -> None:
            client = lightkube_client(transport, namespace=namespace, field_manager=_MANAGER)
            try:
                await run(client)
            finally:
                await client.close()

        return Operator(run=start)

    return make
