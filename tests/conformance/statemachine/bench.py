"""One kind in both families of models, and a server with one object of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Literal, Protocol

import msgspec
from lightkube.core.resource import ApiInfo, NamespacedResourceG, ResourceDef
from lightkube.core.schema import DictMixin
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Event

from opsdk import clock
from opsdk.client import ApiClient, HttpRequest, HttpResponse, HttpStream, Transport
from opsdk.models import CustomResource, MachineStatus, MachineStatusStruct, Model
from opsdk.protocols import MachineObject, MachineStatusView
from opsdk.statemachine import StateMachine, States
from opsdk.types import MergePatch, Result

__all__ = [
    "AGAIN",
    "FAMILIES",
    "FINALIZER",
    "Bare",
    "Bench",
    "Crash",
    "Diary",
    "Family",
    "Part",
    "PartSpec",
    "Sized",
    "Tap",
    "is_big",
    "path_of",
]

AGAIN: Final = Result(requeue_after=timedelta(0))
GROUP: Final = "machines.example.com"
FINALIZER: Final = f"{GROUP}/machine"


class Sized(MachineObject, Protocol):
    """What hooks see of either family."""

    @property
    def size(self) -> int: ...
    @property
    def note(self) -> str: ...
    def take_note(self, text: str) -> None: ...


class PartSpec(Model):
    size: int = 1


class PartStatus(MachineStatus):
    note: str = ""


class Part(CustomResource[PartSpec, PartStatus], group=GROUP, version="v1"):
    """A thing with a life, as a model."""

    def get_machine_status(self) -> PartStatus:
        return self.status

    @property
    def size(self) -> int:
        return self.spec.size

    @property
    def note(self) -> str:
        return self.status.note

    def take_note(self, text: str) -> None:
        self.status.note = text


class PartStructSpec(DictMixin, kw_only=True):
    size: int = 1


class PartStructStatus(MachineStatusStruct, kw_only=True):
    note: str = ""


class PartStruct(NamespacedResourceG, DictMixin, kw_only=True):
    """The same thing, as an author of lightkube structs writes it."""

    _api_info = ApiInfo(resource=ResourceDef(GROUP, "v1", "Part"), plural="parts", verbs=[])

    apiVersion: str | None = None  # noqa: N815 - Kubernetes' spelling
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: PartStructSpec = msgspec.field(default_factory=PartStructSpec)
    status: PartStructStatus | None = None

    def get_machine_status(self) -> PartStructStatus:
        if self.status is None:
            self.status = PartStructStatus()
        return self.status

    @property
    def size(self) -> int:
        return self.spec.size

    @property
    def note(self) -> str:
        return self.get_machine_status().note

    def take_note(self, text: str) -> None:
        self.get_machine_status().note = text


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A class for the kind, and how to make one."""

    kind: type[Sized]
    make: Callable[[ObjectMeta], Sized]


def _model(metadata: ObjectMeta) -> Sized:
    return Part(metadata=metadata, spec=PartSpec())


def _struct(metadata: ObjectMeta) -> Sized:
    return PartStruct(metadata=metadata)


class Bare(CustomResource[PartSpec, PartStatus], group=GROUP, version="v1"):
    """A kind whose model has a status, and whose CRD on the server has no status subresource."""

    def get_machine_status(self) -> PartStatus:
        return self.status


FAMILIES: Final = {
    "model": Family(kind=Part, make=_model),
    "struct": Family(kind=PartStruct, make=_struct),
}


class Crash(BaseException):
    """The process is gone."""


class Tap:
    """A transport that keeps a list of what goes through: method and last part of the path.

    Attributes:
        crash: Whether the process dies at the next write, before or after the server has done it.
    """

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.seen: list[str] = []
        self.crash: Literal["before", "after"] | None = None

    async def request(self, request: HttpRequest, /) -> HttpResponse:
        self.seen.append(f"{request.method} {request.path.rpartition('/')[2]}")
        crash = self.crash if request.method != "GET" else None
        if crash == "before":
            raise Crash
        response = await self.inner.request(request)
        if crash == "after":
            raise Crash
        return response

    @asynccontextmanager
    async def stream(self, request: HttpRequest, /) -> AsyncGenerator[HttpStream]:
        self.seen.append(f"{request.method} {request.path.rpartition('/')[2]}")
        async with self.inner.stream(request) as stream:
            yield stream

    async def aclose(self) -> None:
        await self.inner.aclose()


@dataclass(kw_only=True)
class Bench:
    """A server, an object `p` on it, and everything that is sent.

    Attributes:
        client: What machines work with; recorded.
        aside: Somebody else's client, not recorded.
        time: The wall clock of the machines, on either server.
    """

    family: Family
    namespace: str
    tap: Tap
    client: ApiClient
    aside: ApiClient
    time: clock.ManualClock = field(default_factory=clock.ManualClock)

    def machine(
        self,
        states: States[Sized],
        initial: str = "a",
        *,
        max_history: int = 10,
        deletion_state: str | None = None,
    ) -> StateMachine[Sized]:
        return StateMachine(
            self.family.kind,
            self.client,
            initial,
            states,
            max_history=max_history,
            finalizer=None if deletion_state is None else FINALIZER,
            deletion_state=deletion_state,
        )

    async def create(self, name: str = "p") -> Sized:
        return await self.aside.create(self.family.make(ObjectMeta(name=name, namespace=self.namespace)))

    async def get(self) -> Sized:
        return await self.aside.get(self.family.kind, "p", namespace=self.namespace)

    async def find(self) -> Sized | None:
        return await self.aside.find(self.family.kind, "p", namespace=self.namespace)

    async def status(self) -> MachineStatusView:
        return (await self.get()).get_machine_status()

    async def one_pass(self, machine: StateMachine[Sized], *, advance: timedelta = timedelta(0)) -> Result:
        """Read the object as a controller does and run one pass; `tap.seen` has what the pass sent."""
        self.time.advance(advance)
        part = await self.client.get(self.family.kind, "p", namespace=self.namespace)
        self.tap.seen.clear()
        return await machine.reconcile(part)

    async def resize(self, size: int) -> None:
        patch = MergePatch({"spec": {"size": size}})
        await self.aside.patch(self.family.kind, "p", patch, namespace=self.namespace)

    async def put_in_state(self, state: str) -> None:
        patch = MergePatch({"status": {"state": state}})
        await self.aside.status.patch(self.family.kind, "p", patch, namespace=self.namespace)

    async def delete(self) -> None:
        await self.aside.delete(self.family.kind, "p", namespace=self.namespace)

    async def events(self) -> list[tuple[str, str, str]]:
        """Type, reason and message of the events about the object, sorted."""
        events = await self.aside.list(Event, namespace=self.namespace)
        about = [event for event in events if event.involvedObject.name == "p"]
        return sorted((event.type or "", event.reason or "", event.message or "") for event in about)


class Diary:
    """Hooks that write down when they are called, and fail while they are told to."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.error: Exception | None = None

    async def enter(self, part: Sized) -> None:
        self._write("enter", part)

    async def reconcile(self, part: Sized) -> None:
        self._write("reconcile", part)

    def _write(self, phase: str, part: Sized) -> None:
        self.calls.append(f"{phase} {part.get_machine_status().state}")
        if self.error is not None:
            raise self.error


def is_big(part: Sized) -> bool:
    return part.size > 1


def path_of(status: MachineStatusView) -> list[tuple[str, str, str]]:
    return [(entry.from_, entry.to, entry.reason) for entry in status.state_history]
