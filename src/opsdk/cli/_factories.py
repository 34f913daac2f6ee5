"""From `MODULE:FACTORY` to the state machines and resource owners of a reconciler."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, cast, final

from opsdk.cli._errors import CommandError
from opsdk.cli._loading import imported, told
from opsdk.errors import OpsdkError
from opsdk.ownership import ResourceOwner
from opsdk.protocols import Client, KubeObject, MachineObject
from opsdk.statemachine import StateMachine

__all__ = ["TARGET", "TARGET_HELP", "Factory", "Parts", "load_factory", "parts_of"]

TARGET: Final = "MODULE:FACTORY"
TARGET_HELP: Final = (
    "what makes the reconciler from a client, its class for example; the module may be a path that ends in .py"
)
_WAY_OUT: Final = "give a callable that takes only a client, for example a function that makes the reconciler"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Factory:
    """What makes a reconciler.

    Args:
        target: How it was asked for.
        make: Takes a client; returns the reconciler, or something to await for it.
    """

    target: str
    make: Callable[[Client], object]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a reconciler is made of, by the names of its attributes, in their order."""

    machines: Mapping[str, StateMachine[MachineObject]]
    owners: Mapping[str, ResourceOwner[KubeObject]]


def load_factory(target: str) -> Factory:
    """The callable that a target names.

    Raises:
        CommandError: The module cannot be imported, has no such attribute, or it cannot be called.
    """
    name, _, path = target.partition(":")
    if not path:
        raise CommandError(f"{target!r} says no factory: {TARGET}, as in webapp:WebAppReconciler")
    value: object = imported(name)
    where = name
    for each in path.split("."):
        found: object = getattr(value, each, None)
        if found is None:
            near = difflib.get_close_matches(each, dir(value), n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise CommandError(f"{where} has no {each!r}{hint}")
        value, where = found, f"{where}{'.' if ':' in where else ':'}{each}"
    if not callable(value):
        raise CommandError(f"{where} cannot be called: it is a {type(value).__name__}, not what makes a reconciler")
    return Factory(target=target, make=cast("Callable[[Client], object]", value))


async def parts_of(factory: Factory, client: Client) -> Parts:
    """Make the reconciler, and find what it is made of.

    They are looked for among its attributes, and in the lists, tuples and dicts there. What a factory returns may be
    a `StateMachine` or a `ResourceOwner` itself.

    Raises:
        CommandError: The reconciler cannot be made.
    """
    try:
        made = factory.make(client)
        if inspect.isawaitable(made):
            made = cast("object", await made)
    except OpsdkError as error:
        raise CommandError(f"{factory.target} cannot be made: {error}") from error
    except (Exception, SystemExit) as error:
        why = told(error) if _takes_one(factory.make) else f"{type(error).__name__}: {error}; {_WAY_OUT}"
        raise CommandError(f"{factory.target} cannot be made: {why}") from error
    machines: dict[str, StateMachine[MachineObject]] = {}
    owners: dict[str, ResourceOwner[KubeObject]] = {}
    for name, value in _within(made):
        if isinstance(value, StateMachine):
            machine = cast("StateMachine[MachineObject]", value)
            if not any(machine is known for known in machines.values()):
                machines[name] = machine
        elif isinstance(value, ResourceOwner):
            owner = cast("ResourceOwner[KubeObject]", value)
            if not any(owner is known for known in owners.values()):
                owners[name] = owner
    return Parts(machines=machines, owners=owners)


def _takes_one(make: Callable[[Client], object]) -> bool:
    """Whether it can be called with a client and nothing else; True when it does not tell."""
    try:
        inspect.signature(make).bind(object())
    except TypeError:
        return False
    except ValueError:  # some that are written in C
        return True
    return True


def _within(made: object) -> Iterator[tuple[str, object]]:
    yield type(made).__name__, made
    for name, value in _attributes(made):
        yield name, value
        if isinstance(value, Mapping):
            for key, item in cast("Mapping[object, object]", value).items():
                yield f"{name}[{key!r}]", item
        elif isinstance(value, (list, tuple)):
            for index, item in enumerate(cast("list[object] | tuple[object, ...]", value)):
                yield f"{name}[{index}]", item


def _attributes(made: object) -> Iterator[tuple[str, object]]:
    """Those of the instance, of its slots, and of its classes; no property is asked."""
    if isinstance(made, (StateMachine, ResourceOwner)):
        return
    own = cast("Mapping[str, object]", getattr(made, "__dict__", {}))
    yield from own.items()
    for cls in type(made).__mro__:
        for name, value in cast("Mapping[str, object]", vars(cls)).items():
            if name in own or name.startswith("__"):
                continue
            yield name, getattr(made, name, None) if inspect.ismemberdescriptor(value) else value
