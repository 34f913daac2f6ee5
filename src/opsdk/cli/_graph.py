"""`opsdk graph`: draw the state machine of a reconciler."""

from __future__ import annotations

import argparse
import sys
from contextlib import AbstractAsyncContextManager
from typing import Final, final

import anyio

from opsdk.cli._errors import CommandError
from opsdk.cli._factories import TARGET, TARGET_HELP, Factory, load_factory, parts_of
from opsdk.client import ApiClient, HttpRequest, HttpResponse, HttpStream
from opsdk.errors import OpsdkError

__all__ = ["HELP", "configure", "run"]

HELP: Final = "the state machine of a reconciler as a picture, in Mermaid or DOT"


def configure(parser: argparse.ArgumentParser, /) -> None:
    """Give a parser the arguments of this command."""
    parser.description = (
        "Draws the StateMachine among the attributes of a reconciler; several, if there are several, each below a "
        "comment with its name. Needs no cluster: what the factory gets is a client that refuses every request."
    )
    parser.add_argument("target", metavar=TARGET, help=TARGET_HELP)
    parser.add_argument("--dot", action="store_true", help="for Graphviz, instead of Mermaid")


def run(arguments: argparse.Namespace, /) -> int:
    """Run the command; the exit code.

    Raises:
        CommandError: There is nothing to draw.
    """
    dot: bool = arguments.dot
    sys.stdout.write(anyio.run(_drawn, load_factory(arguments.target), dot))
    return 0


async def _drawn(factory: Factory, dot: bool) -> str:  # noqa: FBT001 - anyio.run passes by position
    parts = await parts_of(factory, ApiClient(_NoTransport()))
    if not parts.machines:
        raise CommandError(f"what {factory.target} makes has no StateMachine among its attributes")
    pictures: list[str] = []
    for name, machine in parts.machines.items():
        graph = machine.graph()
        head = f"{'//' if dot else '%%'} {name}: {machine.kind.__name__}\n" if len(parts.machines) > 1 else ""
        pictures.append(f"{head}{(graph.dot if dot else graph.mermaid).rstrip()}\n")
    return "\n".join(pictures)


@final
class _NoClusterError(OpsdkError):
    """A request, where there is no cluster."""


@final
class _NoTransport:
    """Carries nothing. Its error is none of a connection, which would be tried again."""

    async def request(self, request: HttpRequest, /) -> HttpResponse:
        raise _refused(request)

    def stream(self, request: HttpRequest, /) -> AbstractAsyncContextManager[HttpStream]:
        raise _refused(request)

    async def aclose(self) -> None:
        """There is nothing to close."""


def _refused(request: HttpRequest) -> _NoClusterError:
    return _NoClusterError(
        f"{request.method} {request.path} was refused: `opsdk graph` has no cluster; a factory sends no requests"
    )
