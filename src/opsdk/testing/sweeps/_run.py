"""One run: a cluster, an operator that is broken as the plan says, a scenario, and what is there at the end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Final, NoReturn, final

import anyio

from opsdk import clock
from opsdk._groups import unwrap
from opsdk.client import ApiClient
from opsdk.client.transport import HttpRequest, HttpResponse, HttpStream, Transport
from opsdk.errors import LeadershipLostError
from opsdk.manager import Manager
from opsdk.protocols import Reconciler
from opsdk.testing._logs import quiet_logs
from opsdk.testing.apiserver import ApiServer
from opsdk.testing.simulator import Target, parse_path
from opsdk.testing.sweeps._calls import ApiCall, as_object, is_dry_run, parse_json, text_at
from opsdk.testing.sweeps._determinism import limited, repeatable
from opsdk.testing.sweeps._driver import Primary, ReconcilerDriver
from opsdk.testing.sweeps._faults import Plan
from opsdk.testing.sweeps._injector import Hooks, Injector, ProcessState
from opsdk.testing.sweeps._settings import Outcome, Settings, Trouble
from opsdk.testing.sweeps._state import EndState, changed_lines, read_state
from opsdk.testing.sweeps._transport import ProcessTransport
from opsdk.testing.sweeps.errors import ScenarioError
from opsdk.testing.sweeps.world import World
from opsdk.testing.virtual_time import VirtualClock
from opsdk.types import JsonObject

__all__ = ["Run"]

RANDOM_NAMES_NONE: Final = frozenset[tuple[str, str, str]]()

_RESTART_SECONDS: Final = 1.0
_LATE_SECONDS: Final = 20.0
_CUT_SECONDS: Final = 20.0
_MOST_RESTARTS: Final = 5
_SHOWN_WRITES: Final = 3


@final
class _Failed(Exception):
    """The run has failed; what is wrong is kept in the run."""


@final
class Run(Hooks):
    """One run.

    Args:
        settings: What is the same in all runs.
        plan: What goes wrong.
        clean: How a run without a fault ended; None: this is one.
        burst: How many calls within a minute are a hot loop.
        random_names: Groups of objects whose names differ from run to run.
    """

    def __init__(
        self,
        settings: Settings,
        plan: Plan,
        *,
        clean: EndState | None = None,
        burst: int,
        random_names: frozenset[tuple[str, str, str]] = RANDOM_NAMES_NONE,
    ) -> None:
        self._settings = settings
        self._plan = plan
        self._clean = clean
        self._burst = burst
        self._random_names = random_names
        self._trouble: Trouble | None = None
        self._written: dict[tuple[str, str, str], Target] = {}
        self._known_uids: dict[str, str] = {}
        self._processes: list[ProcessState] = []
        self._drivers: dict[int, ReconcilerDriver] = {}
        self._ends: list[str] = []
        self._busy = 0
        self._active_at = 0.0
        self._resting = False
        self._rest_writes: list[tuple[ApiCall, list[str]]] = []

    async def execute(self) -> Outcome:
        """Run it to the end."""
        settings = self._settings
        wall = VirtualClock()
        state: EndState | None = None
        with repeatable(settings.seed), quiet_logs(wanted=settings.logs), clock.using(wall):
            if settings.outside is not None:
                await settings.outside.reset()
            async with ApiServer(clock=wall) as server:
                await server.install(*settings.install)
                self._server = server
                self._inner = server.transport()
                self._injector = Injector(self._plan, inner=self._inner, hooks=self, burst=self._burst)
                self._primary = Primary()
                self._user = ApiClient(_UserTransport(self), field_manager="user")
                self._world = World(self, server, self._user, namespace=settings.namespace, patience=settings.patience)
                began = anyio.current_time()
                self._scope = anyio.CancelScope()
                async with anyio.create_task_group() as tasks:
                    self._tasks = tasks
                    with limited(settings.real_seconds, self._overdue), self._scope:
                        self._active_at = anyio.current_time()
                        self._start()
                        try:
                            await self._play()
                            state = await self._finish()
                        except _Failed:
                            pass
                    for process in self._processes:
                        process.kill()
                    tasks.cancel_scope.cancel()
                ended = anyio.current_time()
        injector = self._injector
        return Outcome(
            plan=self._plan,
            trouble=self._trouble,
            hit=dict(injector.hit),
            writes=tuple(injector.writes),
            reads=tuple(injector.reads),
            events=tuple(injector.events),
            requests=injector.requests,
            longest_burst=injector.longest_burst,
            state=state,
            kinds=frozenset(kind.kind for kind in self._server.registry.kinds()),
            virtual_seconds=ended - began,
        )

    # -- from the beginning to the end

    async def _play(self) -> None:
        try:
            await self._settings.scenario(self._world)
        except ScenarioError as error:
            self._give_up(f"the scenario does not get on: {error}", self._last_writes())
        except Exception as error:  # noqa: BLE001 - whatever it is, this run has failed
            text = str(error).split("\n", 1)[0]
            self._give_up(f"the scenario failed with {type(error).__name__}: {text}", self._last_writes())

    async def _finish(self) -> EndState:
        state = await self._converge()
        await self._rest()
        again = await self._state()
        difference = state.difference(again, self._settings.ignored)
        if difference:
            self._give_up("it had come to rest, and changed again after a restart", tuple(difference))
        return again

    async def _converge(self) -> EndState:
        """Wait until the end state is what it should be."""
        end = anyio.current_time() + self._settings.patience.total_seconds()
        pause = 5.0
        while True:
            await self.settle()
            state = await self._state()
            trouble = self._trouble_with(state)
            if trouble is None:
                return state
            if self._clean is None or anyio.current_time() >= end:
                self._give_up(trouble.reason, trouble.details)
            await anyio.sleep(min(pause, max(end - anyio.current_time(), 0.1)))
            pause *= 2

    def _trouble_with(self, state: EndState) -> Trouble | None:
        for uid, (place, mark) in self._injector.foreign.items():
            if uid in state.uids and state.foreign.get(uid) != mark:
                return Trouble(
                    reason=f"the operator erased what somebody else wrote: an annotation of {place}",
                    details=(f"{place}: metadata.annotations: it has to keep what it does not know",),
                )
        before: frozenset[str] = frozenset() if self._clean is None else frozenset(self._clean.deleting)
        stuck = {key: held for key, held in state.deleting.items() if key not in before}
        if stuck:
            details = tuple(f"{key}: held by {held or 'nothing'}" for key, held in stuck.items())
            return Trouble(reason="a deletion does not complete", details=details)
        if self._clean is not None:
            difference = self._clean.difference(state, self._settings.ignored)
            if difference:
                return Trouble(reason="the end state is another one", details=tuple(difference))
        return None

    async def _rest(self) -> None:
        """At rest nothing is written: not for a while, not when all is reconciled again, not after a restart."""
        self._resting = True
        for step in ("at rest", "when everything was reconciled again", "after a restart"):
            if step == "when everything was reconciled again":
                for driver in self._drivers.values():
                    driver.enqueue_all()
            elif step == "after a restart":
                self.restart()
            await anyio.sleep(max(self._settings.rest, self._settings.quiet).total_seconds())
            if self._rest_writes:
                lines = [f"{call}: {line}" for call, changed in self._rest_writes for line in changed]
                self._give_up(f"it still writes {step}", tuple(lines))
        self._resting = False

    async def settle(self) -> None:
        """Wait until nothing has been written for a while."""
        quiet = self._settings.quiet.total_seconds()
        end = anyio.current_time() + self._settings.patience.total_seconds()
        while True:
            idle = anyio.current_time() - self._active_at
            if idle >= quiet and not self._busy:
                return
            if anyio.current_time() >= end:
                waited = self._settings.patience.total_seconds()
                self._give_up(f"it does not come to rest: after {waited:g} s it still writes", self._last_writes())
            await anyio.sleep(max(quiet - idle, 0.05))

    async def _state(self) -> EndState:
        outside = self._settings.outside
        try:
            return await read_state(
                self._inner,
                self._written.values(),
                outside=None if outside is None else await outside.state(),
                known_uids=self._known_uids,
                random_names=self._random_names,
            )
        except Exception as error:  # noqa: BLE001 - `outside` is the test's, and may raise what it likes
            self._give_up(f"the end state cannot be read: {type(error).__name__}: {error}".split("\n", 1)[0])

    # -- processes

    def _start(self) -> None:
        process = ProcessState(number=len(self._processes) + 1)
        self._processes.append(process)
        self._tasks.start_soon(self._run_process, process)

    async def _run_process(self, process: ProcessState) -> None:
        error: BaseException | None = None
        with process.scope:
            try:
                await self._operate(process)
            except Exception as raised:  # noqa: BLE001 - the process ends with it, and the next one begins
                error = unwrap(raised)
        killed, process.dead = process.dead, True
        self._drivers.pop(process.number, None)
        process.ended.set()
        if killed or process.replaced or self._tasks.cancel_scope.cancel_called:
            return
        if process.lost and isinstance(error, LeadershipLostError):
            return
        self._ends.append("it returned" if error is None else f"{type(error).__name__}: {error}".split("\n", 1)[0])
        if len(self._ends) > _MOST_RESTARTS:
            self.fail(f"the operator ended by itself {len(self._ends)} times: {self._ends[-1]}")
            return
        self._tasks.start_soon(self._start_later, _RESTART_SECONDS * 2.0 ** len(self._ends))
        self._active_at = anyio.current_time()

    async def _operate(self, process: ProcessState) -> None:
        injector = self._injector
        transport = ProcessTransport(injector, process, reads_lag=False, for_httpx2=self._settings.for_httpx2)
        operator = self._settings.make(transport)
        if isinstance(operator, Manager):
            process.elects = operator.options.leader_election
            await operator.start()
        elif isinstance(operator, Reconciler):
            transport.reads_lag = True
            driver = ReconcilerDriver(operator, injector, transport, self._primary)
            self._drivers[process.number] = driver
            await driver.run()
        else:
            await operator.run()

    async def _start_later(self, seconds: float) -> None:
        self._busy += 1
        try:
            await anyio.sleep(seconds)
            if all(process.dead or process.replaced for process in self._processes):
                self._start()  # else it has crashed just before it was restarted, and runs again already
        finally:
            self._busy -= 1
            self._active_at = anyio.current_time()

    def restart(self) -> None:
        """End what runs without warning and begin anew."""
        for process in self._processes:
            if not process.dead:
                process.replaced = True
                process.kill()
        self._tasks.start_soon(self._start_later, _RESTART_SECONDS)

    def beside(self, actor: Callable[[], Awaitable[object]]) -> None:
        """Run something beside the scenario."""

        async def run() -> None:
            try:
                await actor()
            except Exception as error:  # noqa: BLE001 - whatever it is, this run has failed
                self.fail(f"what runs beside the scenario failed with {type(error).__name__}: {error}")

        self._tasks.start_soon(run)

    # -- what the injector asks for

    def crash(self, process: ProcessState) -> None:
        """The process is gone; another one begins soon."""
        process.kill()
        self._tasks.start_soon(self._start_later, _RESTART_SECONDS)

    def replace(self, process: ProcessState, request: HttpRequest, call: Callable[[int], ApiCall]) -> None:
        """Another replica takes over while a write is on its way; the write arrives late."""
        process.cut = process.replaced = True
        if not process.elects:
            process.kill()
        self._busy += 1
        self._start()
        self._tasks.start_soon(self._take_over, process, request, call)

    async def _take_over(self, old: ProcessState, request: HttpRequest, call: Callable[[int], ApiCall]) -> None:
        if old.elects:
            await anyio.sleep(_CUT_SECONDS)
            old.lost = True
            old.cut = False
            old.healed.set()
        await anyio.sleep(_LATE_SECONDS)
        target = parse_path(request.path)
        before = None if target is None else await self._injector.read(target)
        # The bytes are on their way: no gate of the old process can call them back.
        response = await self._inner.request(replace(request, gate=None))
        after = None if target is None else await self._injector.read(target)
        late = call(response.status)
        self._injector.writes.append(late)
        await self.written(late, before, after)
        old.kill()
        self._busy -= 1

    def lagging(self, resource: tuple[str, str, str]) -> None:
        """Have the operator look at everything while one cache is behind."""
        for driver in self._drivers.values():
            driver.enqueue_all()
        if not self._drivers:
            self._tasks.start_soon(self._touch_others, resource)

    async def _touch_others(self, resource: tuple[str, str, str]) -> None:
        for other, target in list(self._written.items()):
            if other == resource or target.plural in {"namespaces", "customresourcedefinitions"}:
                continue
            response = await self._inner.request(HttpRequest(method="GET", path=target.collection_path))
            answer = as_object(parse_json(response.body)) or {}
            items = answer.get("items")
            for item in items if isinstance(items, Sequence) and not isinstance(items, str) else ():
                document = as_object(item)
                one = Target(
                    group=target.group,
                    version=target.version,
                    plural=target.plural,
                    namespace=text_at(document, "metadata", "namespace") or None,
                    name=text_at(document, "metadata", "name"),
                    subresource=None,
                )
                await self._injector.edit(one, "touched", kept=False)

    def touched(self, target: Target) -> None:
        """The operator looks at a resource."""
        for driver in self._drivers.values():
            driver.touched(target)

    async def written(self, call: ApiCall, before: JsonObject | None, after: JsonObject | None) -> None:
        """A write of the operator was answered."""
        changed = _version(before) != _version(after) or (before is None) != (after is None)
        self.note(_target_of(call), after or before)
        if changed or call.method == "DELETE":
            lines = changed_lines(before, after, self._settings.ignored)
            if lines:
                self._active_at = anyio.current_time()
                if self._resting:
                    self._rest_writes.append((call, lines))
        always = self._settings.always
        if always is None:
            return
        try:
            await always(self._world)
        except Exception as error:  # noqa: BLE001 - an invariant may raise what it likes
            text = str(error).split("\n", 1)[0] or "it says no more"
            self.fail(f"an invariant is broken after {call}: {type(error).__name__}: {text}")

    def note(self, target: Target, document: JsonObject | None) -> None:
        """Remember what was written, by whomever."""
        self._written.setdefault(target.resource, target)
        uid = text_at(document, "metadata", "uid")
        if uid:
            place = (text_at(document, "metadata", "namespace"), text_at(document, "metadata", "name"))
            self._known_uids[uid] = f"{text_at(document, 'kind')} {'/'.join(part for part in place if part)}"

    def user_wrote(self, request: HttpRequest, response: HttpResponse) -> None:
        """The scenario wrote something."""
        target = parse_path(request.path)
        if target is None or request.method == "GET" or response.status >= 400 or is_dry_run(request):
            return
        document = as_object(parse_json(response.body))
        self._active_at = anyio.current_time()
        self.note(target, document)
        if request.method == "POST" and target.plural not in {"namespaces", "customresourcedefinitions"}:
            self._primary.set(target, text_at(document, "kind"), namespaced=target.namespace is not None)

    @property
    def inner(self) -> Transport:
        """The API server."""
        return self._inner

    # -- failing

    def fail(self, reason: str, details: tuple[str, ...] = ()) -> None:
        """The run has failed, and ends."""
        if self._trouble is None:
            self._trouble = Trouble(reason=reason, details=details)
        self._scope.cancel()

    def _give_up(self, reason: str, details: tuple[str, ...] = ()) -> NoReturn:
        self.fail(reason, details)
        raise _Failed

    def _overdue(self) -> None:
        seconds = self._settings.real_seconds
        self.fail(f"the run did not end within {seconds:g} s of real time: does something run in circles?")

    def _last_writes(self) -> tuple[str, ...]:
        writes = self._injector.writes[-_SHOWN_WRITES:]
        if not writes:
            return ("the operator has written nothing",)
        how = {True: " (did not arrive)", False: ""}
        return (
            "the last writes:",
            *(f"  {call}{f' ({call.code})' if call.code >= 400 else how[not call.code]}" for call in writes),
        )


@final
class _UserTransport:
    """The scenario's way to the server."""

    def __init__(self, run: Run) -> None:
        self._run = run

    async def request(self, request: HttpRequest, /) -> HttpResponse:
        response = await self._run.inner.request(request)
        self._run.user_wrote(request, response)
        return response

    def stream(self, request: HttpRequest, /) -> AbstractAsyncContextManager[HttpStream]:
        return self._run.inner.stream(request)

    async def aclose(self) -> None:
        await self._run.inner.aclose()


def _version(document: JsonObject | None) -> str:
    return text_at(document, "metadata", "resourceVersion")


def _target_of(call: ApiCall) -> Target:
    return Target(
        group=call.group,
        version=call.version,
        plural=call.plural,
        namespace=call.namespace,
        name=call.name,
        subresource=None,
    )
