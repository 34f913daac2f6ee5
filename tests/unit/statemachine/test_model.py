"""A machine against a world that does its worst: any graph, failing hooks, crashes, stale reads, another replica.

Invariants, after every write that the server accepts:

- The history only grows, by one entry a write. The new entry leaves the state that was in status, enters the one that
  is there now, and is a transition of the graph, the first entry, or the way to the deletion state.
- A pending entry is left only by its own `enter` succeeding, or towards the deletion state.
- There are at least as many successful `enter`s of a state as entries of it that neither are pending nor were when the
  object was deleted.
- A pass calls at most one hook: `enter` while the entry is pending, `reconcile` otherwise.
- Nobody is told of a transition that did not happen, or twice of one that happened once.

And once the world lets go: the entry that was pending has succeeded; an object that was deleted is gone, through the
deletion state, entered and reconciled; and a pass over one that was not sends nothing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, repeat
from typing import Literal, TypeAlias

import anyio
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from lightkube.models.meta_v1 import ObjectMeta

from opsdk.client import ApiClient, HttpRequest, HttpResponse, HttpStream, Transport
from opsdk.models import CustomResource, MachineStatus, Model
from opsdk.statemachine import Coverage, StateEvent, StateHandler, StateMachine, States, Transition
from opsdk.testing import ApiServer
from opsdk.testing.virtual_time import virtual_asyncio_options, virtual_trio_options
from opsdk.types import MergePatch, Result

FINALIZER = "demo.example.com/machine"
NAMES = ("a", "b", "c")
BYE = "bye"


class Spec(Model):
    size: int = 1


class Status(MachineStatus):
    note: str = ""


class Widget(CustomResource[Spec, Status], group="demo.example.com", version="v1"):
    def get_machine_status(self) -> Status:
        return self.status


class Crash(BaseException):
    """The process is gone."""


class HookError(Exception):
    """What hooks raise here."""


Edges: TypeAlias = "dict[str, list[tuple[str, int]]]"
Fault: TypeAlias = Literal["before", "after"]


@dataclass(frozen=True)
class Course:
    """Everything that chance decides.

    Attributes:
        edges: For each state, where to, at which size.
        deletable: Whether the machine has a deletion state.
        delays: How long each request waits, before and after it is served.
        faults: At which requests the process crashes: before it is served, or after.
        failures: Which calls of hooks fail.
        late: How many fail after that, once the world has let go.
        stale: Which passes work with what the pass before read.
        passes: How many passes each replica makes.
        sizes: What somebody else sets the size to, meanwhile.
        delete: After how many of those the object is deleted, if it is.
    """

    edges: Edges
    deletable: bool
    delays: Sequence[int]
    faults: dict[int, Fault]
    failures: Sequence[bool]
    late: int
    stale: Sequence[bool]
    passes: Sequence[int]
    sizes: Sequence[int]
    delete: int | None


SIZES = st.integers(1, 3)
COURSES = st.builds(
    Course,
    edges=st.fixed_dictionaries(
        {name: st.lists(st.tuples(st.sampled_from(NAMES), SIZES), min_size=1, max_size=3) for name in NAMES}
    ),
    deletable=st.booleans(),
    delays=st.lists(st.integers(0, 3), max_size=80),
    faults=st.dictionaries(st.integers(0, 60), st.sampled_from(("before", "after")), max_size=5),
    failures=st.lists(st.booleans(), max_size=20),
    late=st.integers(0, 2),
    stale=st.lists(st.booleans(), max_size=20),
    passes=st.lists(st.integers(4, 12), min_size=1, max_size=2),
    sizes=st.lists(SIZES, min_size=1, max_size=6),
    delete=st.none() | st.integers(0, 6),
)


@dataclass
class World:
    """The server, what it stored, and what the hooks did."""

    course: Course
    server: ApiServer
    delays: Iterator[int]
    failures: Iterator[bool]
    stale: Iterator[bool]
    requests: int = 0
    succeeded: Counter[str] = field(default_factory=Counter[str])
    reconciled: Counter[str] = field(default_factory=Counter[str])
    abandoned: Counter[str] = field(default_factory=Counter[str])
    told: Coverage = field(default_factory=Coverage)
    crashes: int = 0
    last: Status = field(default_factory=Status)
    """The status as it was stored last; also when the object is gone."""

    def look(self) -> None:
        """Compare what is stored now with what was before."""
        answer = self.server.handle(
            HttpRequest(method="GET", path="/apis/demo.example.com/v1/namespaces/default/widgets/w")
        )
        if answer.status == 404:
            return
        before, now = self.last, Status.model_validate(json.loads(answer.body).get("status", {}))
        self.last = now
        grown = len(now.state_history) - len(before.state_history)
        assert now.state_history[: len(before.state_history)] == before.state_history
        assert grown in {0, 1}
        if not grown:
            assert now.state == before.state
            assert before.pending_entry or not now.pending_entry
        else:
            entry = now.state_history[-1]
            assert (entry.from_, entry.to) == (before.state, now.state)
            assert entry.to in self.ways_out(before)
            self.abandoned[before.state] += before.pending_entry
        entries = Counter(entry.to for entry in now.state_history) - self.abandoned
        entries[now.state] -= now.pending_entry
        assert all(self.succeeded[state] >= count for state, count in entries.items() if state)

    def ways_out(self, status: Status) -> set[str]:
        deletion = {BYE} if self.course.deletable and status.state != BYE else set[str]()
        if status.pending_entry:
            return deletion
        if not status.state:
            return {"a"} | deletion
        return {target for target, _ in self.course.edges.get(status.state, ())} | deletion


class Network:
    """One process's way to the server."""

    def __init__(self, world: World, inner: Transport) -> None:
        self.world = world
        self.inner = inner
        self.sent: list[str] = []

    async def request(self, request: HttpRequest, /) -> HttpResponse:
        world = self.world
        fault = world.course.faults.get(world.requests)
        world.requests += 1
        self.sent.append(f"{request.method} {request.path}")
        await anyio.sleep(next(world.delays))
        if fault == "before":
            raise Crash
        response = await self.inner.request(request)
        if request.method != "GET":
            world.look()
        await anyio.sleep(next(world.delays))
        if fault == "after":
            raise Crash
        return response

    @asynccontextmanager
    async def stream(self, request: HttpRequest, /) -> AsyncGenerator[HttpStream]:
        async with self.inner.stream(request) as stream:
            yield stream

    async def aclose(self) -> None:
        await self.inner.aclose()


def has_size(size: int) -> Callable[[Widget], bool]:
    return lambda widget: widget.spec.size == size


class Replica:
    """One process: it can crash, and then starts again knowing nothing."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.calls: list[str] = []
        self.read: Widget | None = None
        self.start()

    def start(self) -> None:
        self.network = Network(self.world, self.world.server.transport())
        self.client = ApiClient(self.network)
        course = self.world.course
        entered = StateEvent(reason="Entered")
        states: States[Widget] = {
            name: StateHandler(
                enter=partial(self.enter, name),
                reconcile=partial(self.reconcile, name),
                event=entered,
                transitions=[Transition(to=target, when=has_size(size)) for target, size in course.edges.get(name, ())],
            )
            for name in (*NAMES, BYE)
        }
        self.machine = StateMachine(
            Widget,
            self.client,
            "a",
            states,
            max_history=1000,
            finalizer=FINALIZER if course.deletable else None,
            deletion_state=BYE if course.deletable else None,
        )
        self.machine.observe(self.world.told)

    async def enter(self, state: str, widget: Widget) -> None:
        assert (widget.status.state, widget.status.pending_entry) == (state, True)
        await self._hook("enter", widget)
        self.world.succeeded[state] += 1

    async def reconcile(self, state: str, widget: Widget) -> None:
        assert (widget.status.state, widget.status.pending_entry) == (state, False)
        await self._hook("reconcile", widget)
        self.world.reconciled[state] += 1

    async def _hook(self, phase: str, widget: Widget) -> None:
        self.calls.append(phase)
        widget.status.note = f"size {widget.spec.size}"
        await anyio.sleep(next(self.world.delays))
        if next(self.world.failures):
            raise HookError(phase)

    async def one_pass(self) -> Result | None:
        """None: it failed, crashed, or there is nothing left."""
        self.calls.clear()
        try:
            if self.read is None or not next(self.world.stale):
                self.read = await self.client.find(Widget, "w", namespace="default")
            if self.read is None:
                return None
            self.network.sent.clear()
            return await self.machine.reconcile(self.read.model_copy(deep=True))
        except HookError:
            return None
        except Crash:
            self.world.crashes += 1
            self.start()
            return None
        finally:
            assert len(self.calls) <= 1


async def somebody_else(world: World, client: ApiClient) -> None:
    for step, size in enumerate((*world.course.sizes, 0)):
        if step == world.course.delete:
            await client.delete(Widget, "w", namespace="default")
            return
        if await client.find(Widget, "w", namespace="default") is None:
            return
        await client.patch(Widget, "w", MergePatch({"spec": {"size": size}}), namespace="default")
        await anyio.sleep(5)


async def live(course: Course) -> World:
    async with ApiServer() as server:
        await server.install(Widget)
        client = server.client()
        await client.create(Widget(metadata=ObjectMeta(name="w", namespace="default"), spec=Spec()))
        world = World(
            course=course,
            server=server,
            delays=chain(course.delays, repeat(0)),
            failures=chain(course.failures, repeat(False)),
            stale=chain(course.stale, repeat(False)),
        )

        async def drive(passes: int) -> None:
            replica = Replica(world)
            for _ in range(passes):
                await replica.one_pass()
                await anyio.sleep(2)

        async with anyio.create_task_group() as tasks:
            for passes in course.passes:
                tasks.start_soon(drive, passes)
            tasks.start_soon(somebody_else, world, client)
        await let_go(world, client)
    return world


async def let_go(world: World, client: ApiClient) -> None:
    """No more faults, no more failures, no condition holds: where does it end?"""
    world.delays, world.failures, world.stale = repeat(0), repeat(False), repeat(False)
    world.course.faults.clear()
    deleted = world.course.delete is not None and world.course.delete <= len(world.course.sizes)
    replica = Replica(world)
    for _ in range(4 + world.course.late):
        await replica.one_pass()
    left = await client.find(Widget, "w", namespace="default")
    if deleted:
        assert left is None
        if world.course.deletable and world.last.state_history:
            assert (world.last.state, world.last.pending_entry) == (BYE, False)
            assert world.reconciled[BYE]
    else:
        assert left is not None
        assert (left.status.pending_entry, left.status.observed_generation) == (False, left.metadata.generation)
        assert left.status.state_history
        assert await replica.one_pass() == Result()
        assert replica.network.sent == []
    entries = Counter((entry.from_, entry.to, entry.reason) for entry in world.last.state_history)
    told = Counter({tuple(firing): count for firing, count in world.told.fired.items()})
    assert told <= entries
    if not world.crashes:
        assert told == entries


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(course=COURSES, backend=st.sampled_from(["asyncio", "trio"]))
def test_whatever_happens_the_history_is_a_path_and_nothing_is_lost_or_doubled(course: Course, backend: str) -> None:
    name, options = virtual_asyncio_options() if backend == "asyncio" else virtual_trio_options()
    world = anyio.run(live, course, backend=name, backend_options=options)
    event(f"crashes: {world.crashes}")
    event(f"transitions: {min(len(world.last.state_history), 5)}")
    event(f"deleted: {course.delete is not None}")
