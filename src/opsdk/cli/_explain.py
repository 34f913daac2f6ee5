"""`opsdk explain`: why an object is where it is, and what a reconcile would do to its children now."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable
from textwrap import indent
from typing import Final, TypeVar, final

import anyio

from opsdk.cli._errors import CommandError
from opsdk.cli._factories import TARGET, TARGET_HELP, Factory, Parts, load_factory, parts_of
from opsdk.cli._loading import told
from opsdk.client import ApiClient
from opsdk.errors import ApiError, ConfigurationError, DecodeError, NotFoundError, ObjectError, OpsdkError
from opsdk.models import ResourceInfo, resource_of
from opsdk.protocols import KubeObject
from opsdk.types import Request

__all__ = ["HELP", "configure", "perform", "run"]

HELP: Final = "why an object is where it is, and what a reconcile would do now"

_EPILOG: Final = """\
exit codes:
  0  told, whatever there is to do
  1  the object is not there, the cluster refused something, something could not be told, or tried to write
  2  it could not be tried: usage, module, factory, configuration
"""


def configure(parser: argparse.ArgumentParser, /) -> None:
    """Give a parser the arguments of this command."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = """\
Reads an object and tells what each StateMachine among the attributes of its
reconciler waits for, and what each ResourceOwner there would do to its children.
Writes nothing: of the operator's code only conditions, and what builds children
and judges them, are run, and what they try to write is refused.

  opsdk explain webapp:WebAppReconciler default/shop
"""
    parser.epilog = _EPILOG
    parser.add_argument("target", metavar=TARGET, help=TARGET_HELP)
    parser.add_argument(
        "object", metavar="[NAMESPACE/]NAME", help="the object (default: in the context's namespace, or in default)"
    )
    parser.add_argument("--context", metavar="NAME", help="the kubeconfig's context (default: its current one)")
    parser.add_argument(
        "--field-manager", default="opsdk", metavar="NAME", help="the operator's, for what it applies (default: opsdk)"
    )


def run(arguments: argparse.Namespace, /) -> int:
    """Run the command against the cluster that the environment names; the exit code.

    Raises:
        CommandError: It could not be carried out.
    """
    factory = load_factory(arguments.target)
    name: str = arguments.object

    async def against_the_cluster() -> int:
        try:
            client = ApiClient.from_env(context=arguments.context, field_manager=arguments.field_manager)
        except ConfigurationError as error:
            raise CommandError(str(error)) from error
        async with client:
            return await perform(client, factory, name)

    return anyio.run(against_the_cluster)


async def perform(client: ApiClient, factory: Factory, name: str, /) -> int:
    """Run the command through a client; the exit code.

    Args:
        client: Reads. It is given to the factory behind a gate that refuses writes.
        factory: Makes the reconciler.
        name: The object, as `NAMESPACE/NAME` or `NAME`.

    Raises:
        CommandError: It could not be carried out.
    """
    gate = _Gate()
    guarded = client.with_gate(gate)
    parts = await parts_of(factory, guarded)
    info = _kind_of(parts, factory.target)
    request = _request(name, info, guarded.namespace)
    complete = True
    sections = [f"{info.kind} {request}\n"]
    # Read anew for each, so that a condition that changes the object in hand does not change what the next one says.
    for attribute, machine in parts.machines.items():
        found = await _read(guarded, machine.kind, request)
        text, said = await _said(machine.explain(found))
        sections.append(f"{attribute} (StateMachine):\n{indent(text, '  ')}\n")
        complete &= said
    for attribute, owner in parts.owners.items():
        text, said = await _said(owner.plan(await _read(guarded, owner.kind, request)))
        sections.append(f"{attribute} (ResourceOwner):\n{indent(text, '  ')}\n")
        complete &= said
    sys.stdout.write("".join(sections))
    if gate.refused:
        sys.stderr.write(
            f"opsdk explain: {gate.refused} request(s) that would have written were refused: what is asked here, "
            "conditions for example, should only look\n"
        )
    return 0 if complete and not gate.refused else 1


def _kind_of(parts: Parts, target: str) -> ResourceInfo:
    """The kind that all of them are of."""
    named = {
        **{name: resource_of(machine.kind) for name, machine in parts.machines.items()},
        **{name: resource_of(owner.kind) for name, owner in parts.owners.items()},
    }
    if not named:
        raise CommandError(f"what {target} makes has neither a StateMachine nor a ResourceOwner among its attributes")
    infos = list(named.values())
    if len({(info.group, info.kind) for info in infos}) > 1:
        differing = ", ".join(f"{name} of {info}" for name, info in named.items())
        raise CommandError(f"what {target} makes is of several kinds, so no one object fits: {differing}")
    return infos[0]


def _request(given: str, info: ResourceInfo, default: str | None) -> Request:
    before, slash, name = given.rpartition("/")
    namespace = before if slash else (default or "default") if info.namespaced else None
    try:
        info.path(namespace=namespace, name=name)
    except ObjectError as error:
        raise CommandError(f"{given!r} names no object: {error}") from error
    return Request(namespace=namespace, name=name)


T = TypeVar("T", bound=KubeObject)


async def _read(client: ApiClient, kind: type[T], request: Request) -> T:
    try:
        return await client.get(kind, request.name, namespace=request.namespace)
    except NotFoundError as error:
        raise CommandError(f"there is no {resource_of(kind).kind} {request}: {error}", code=1) from error
    except (ApiError, DecodeError) as error:
        raise CommandError(str(error), code=1) from error


async def _said(asked: Awaitable[object]) -> tuple[str, bool]:
    """What there is to tell, and whether it is what was asked for: one part that fails hides no other."""
    try:
        return str(await asked), True
    except OpsdkError as error:
        return f"cannot be told: {error}", False
    except Exception as error:  # noqa: BLE001 - the operator's code may raise anything, and that is what there is to tell
        return f"cannot be told: {told(error)}", False


@final
class _WriteRefusedError(OpsdkError):
    """A write, where there is only reading."""


@final
class _Gate:
    """Refuses writes.

    Attributes:
        refused: How many, so that they are told even where somebody catches the error.
    """

    def __init__(self) -> None:
        self.refused = 0

    def __call__(self) -> None:
        self.refused += 1
        raise _WriteRefusedError("a write was refused: `opsdk explain` only reads")
