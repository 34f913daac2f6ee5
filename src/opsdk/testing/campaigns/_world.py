"""One cluster, with an operator and a user who changes one resource."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, cast, final

import anyio
import anyio.abc
import anyio.lowlevel
import msgspec

from opsdk import clock
from opsdk.client import ApiClient
from opsdk.client.transport import HttpRequest, HttpResponse
from opsdk.protocols import KubeObject
from opsdk.testing._ignored import Ignored
from opsdk.testing._logs import quiet_logs
from opsdk.testing.apiserver import ApiServer
from opsdk.testing.campaigns._brake import Brake
from opsdk.testing.campaigns._operators import Process
from opsdk.testing.campaigns._plan import Plan
from opsdk.testing.campaigns._schema import Definition
from opsdk.testing.campaigns._state import State, read_state
from opsdk.testing.campaigns.errors import Law
from opsdk.testing.simulator import Action, ActionLog, RecordingTransport, Target
from opsdk.testing.sweeps import Outside
from opsdk.testing.virtual_time import VirtualClock
from opsdk.types import Json, JsonObject

__all__ = ["BrokenLawError", "Outcome", "SpecRefusedError", "Terms", "live"]

_NAMESPACE: Final = "default"
_NAME: Final = "subject"
_CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_LAST_SHOWN: Final = 4
_LONGEST: Final = 200
_MOST_WRITES: Final = 300
_JSON: Final = "application/json"
_PATCH: Final = "application/json-patch+json"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How a campaign runs an operator; see `campaign`."""

    definition: Definition
    process: Process
    outside: Outside | None
    install: tuple[type[KubeObject], ...]
    prepare: Callable[[ApiClient], Awaitable[None]] | None
    cluster: Callable[[ApiClient], Awaitable[None]] | None
    settle: timedelta
    patience: timedelta
    laws: frozenset[Law]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a life ended.

    Args:
        spec: The last spec that was accepted.
        rest: What was there at rest; None: it was deleted before.
        changes: How many changes of the spec were accepted.
        refusals: How many specs had to be refused, and were.
        kinds: Which kinds there were.
    """

    spec: JsonObject
    rest: State | None
    changes: int
    refusals: int
    kinds: frozenset[str]


class BrokenLawError(Exception):
    """A law does not hold.

    Args:
        law: Which one.
        what: What happened instead.
        lines: The details.
    """

    def __init__(self, law: Law, what: str, lines: Sequence[str] = ()) -> None:
        self.law = law
        self.what = what
        self.lines = tuple(lines)
        super().__init__(what)


class SpecRefusedError(Exception):
    """The API server does not take the first spec: a rule forbids it that the schema cannot say."""


async def live(terms: Terms, plan: Plan) -> Outcome:
    """Lead a resource through its life.

    Raises:
        BrokenLawError: A law of `terms` does not hold.
        SpecRefusedError: The API server refuses the first spec.
    """
    verdict: Outcome | BrokenLawError | SpecRefusedError
    with clock.using(VirtualClock()):
        async with _world(terms) as world:
            try:
                verdict = await world.lead(plan)
            except (BrokenLawError, SpecRefusedError) as error:
                verdict = error  # a task group would wrap it
    if isinstance(verdict, Outcome):
        return verdict
    raise verdict


@asynccontextmanager
async def _world(terms: Terms) -> AsyncGenerator[_World]:
    server = ApiServer(clock=clock.current_clock())
    async with server, anyio.create_task_group() as tasks:
        world = _World(terms, server, tasks)
        try:
            await world.open()
            yield world
        finally:
            await world.stop()
            tasks.cancel_scope.cancel()


@final
class _World:
    def __init__(self, terms: Terms, server: ApiServer, tasks: anyio.abc.TaskGroup) -> None:
        self._terms = terms
        self._server = server
        self._tasks = tasks
        self._log = ActionLog()
        self._brake = Brake(RecordingTransport(server.transport(), self._log), limit=_MOST_WRITES)
        self._scope = anyio.CancelScope()
        self._ended = anyio.Event()
        self._ended.set()
        self._failure: str | None = None

    async def open(self) -> None:
        """Everything that is there before the resource."""
        definition = self._terms.definition
        if self._terms.outside is not None:
            await self._terms.outside.reset()
        _expect(self._send("POST", _CRDS, definition.manifest), "the CustomResourceDefinition")
        if self._terms.install:
            await self._server.install(*self._terms.install)
        client = self._server.client(field_manager="campaign")
        if self._terms.prepare is not None:
            await self._terms.prepare(client)
        if self._terms.cluster is not None:
            self._tasks.start_soon(self._beside, self._terms.cluster, client)

    async def lead(self, plan: Plan) -> Outcome:
        """See `live`."""
        await self._start()
        await self._rest(Law.REST)  # what it does by itself, before there is any resource
        before = await self._everything()
        spec, changes = await self._steps(plan)
        refusals = 0
        if plan.deleted_at_work:
            rest = None
        else:
            await self._rest(Law.REST)
            rest = await self._state()
            if Law.REST in self._terms.laws:
                await self._restart()
            if Law.REFUSAL in self._terms.laws and plan.invalid:
                await self._refusals(plan)
                refusals = len(plan.invalid)
        if Law.DELETION in self._terms.laws:
            await self._deletion(before)
        kinds = frozenset(kind.kind for kind in self._server.registry.kinds())
        return Outcome(spec=spec, rest=rest, changes=changes, refusals=refusals, kinds=kinds)

    async def stop(self) -> None:
        """End the operator's process."""
        with anyio.CancelScope(shield=True), quiet_logs():  # it would complain of what it has to leave undone
            self._scope.cancel()
            await self._ended.wait()

    # -- the user

    async def _steps(self, plan: Plan) -> tuple[JsonObject, int]:
        spec = plan.steps[0].spec
        created = self._send("POST", self._collection, self._object(_NAME, spec))
        if created.status >= 400:
            raise SpecRefusedError(_message(created))
        changes = 0
        for number, step in enumerate(plan.steps):
            if number:
                changed = self._change(step.spec)
                if changed.status == 422:
                    continue  # a rule about changes
                if changed.status >= 400:
                    what = f"the resource can no longer be changed ({changed.status})"
                    raise BrokenLawError(Law.HISTORY, what, [_message(changed), *_last(self._writes())])
                changes += step.spec != spec  # back to what was there, after a refusal, is none
                spec = step.spec
            if step.pause_seconds is None:
                await self._rest(Law.REST)
            else:
                await anyio.sleep(step.pause_seconds)
        return spec, changes

    async def _refusals(self, plan: Plan) -> None:
        count, before = len(self._writes()), await self._state()
        for one in plan.invalid:
            answers = (self._change(one.spec), self._send("POST", self._collection, self._object("invalid", one.spec)))
            if any(answer.status < 400 for answer in answers):
                what = f"the API server takes a spec that its schema forbids ({one.why})"
                raise BrokenLawError(Law.REFUSAL, what)
        await anyio.sleep(self._terms.settle.total_seconds())
        self._check_alive()
        if len(self._writes()) != count or before.difference(await self._state(), Ignored(())):
            what = f"it acts on a spec that was refused ({plan.invalid[-1].why})"
            raise BrokenLawError(Law.REFUSAL, what, _last(self._writes()[count:]))

    async def _deletion(self, before: State) -> None:
        self._send("DELETE", f"{self._collection}/{_NAME}")
        await self._rest(Law.DELETION)
        left = (await self._state()).beyond(before)
        if left:
            what = "after the resource was deleted, something is left behind"
            raise BrokenLawError(Law.DELETION, what, left)

    # -- the operator

    async def _start(self) -> None:
        self._scope, self._ended = anyio.CancelScope(), anyio.Event()
        self._tasks.start_soon(self._process, self._scope, self._ended)
        await anyio.lowlevel.checkpoint()

    async def _process(self, scope: anyio.CancelScope, ended: anyio.Event) -> None:
        try:
            with scope:
                await self._terms.process.run(self._brake)
                self._failure = "the operator ended by itself"
        except Exception as error:  # noqa: BLE001 - whatever it is, it ended the operator
            self._failure = f"the operator ended with {_cause(error)!r}"
        finally:
            ended.set()

    async def _beside(self, cluster: Callable[[ApiClient], Awaitable[None]], client: ApiClient) -> None:
        await cluster(client)

    def _check_alive(self) -> None:
        if self._failure is not None:
            raise BrokenLawError(Law.REST, self._failure, _last(self._writes()))

    async def _rest(self, law: Law) -> None:
        """Wait until nothing was written for a while."""
        settle, patience = self._terms.settle.total_seconds(), self._terms.patience.total_seconds()
        end = anyio.current_time() + patience
        while True:
            self._brake.release()
            count = len(self._writes())
            await anyio.sleep(settle)
            self._check_alive()
            writes = self._writes()
            if self._brake.pulled:
                what = f"it writes without end: {_MOST_WRITES} times in less than {settle:g} s"
                raise BrokenLawError(law, what, _last(writes))
            if len(writes) == count:
                return
            if anyio.current_time() >= end:
                what = f"{patience:g} s later it still writes, {len(writes) - count} times in the last {settle:g} s"
                raise BrokenLawError(law, what, _last(writes))

    async def _restart(self) -> None:
        count = len(self._writes())
        await self.stop()
        await self._start()
        await anyio.sleep(self._terms.settle.total_seconds())
        self._check_alive()
        more = self._writes()[count:]
        if more:
            raise BrokenLawError(Law.REST, "it was at rest, was started again, and writes", _last(more))

    def _writes(self) -> list[Action]:
        """What the operator has tried to write so far, Leases aside; the log keeps events apart."""
        return [
            action
            for action in (*self._log.actions, *self._log.refused)
            if action.plural not in {"leases", "events"} and action.group != "events.k8s.io"
        ]

    # -- the API server

    @property
    def _collection(self) -> str:
        return self._terms.definition.path(_NAMESPACE)

    def _object(self, name: str, spec: JsonObject) -> JsonObject:
        definition = self._terms.definition
        metadata: JsonObject = {"name": name, **({"namespace": _NAMESPACE} if definition.namespaced else {})}
        return {"apiVersion": definition.api_version, "kind": definition.kind, "metadata": metadata, "spec": spec}

    def _change(self, spec: JsonObject) -> HttpResponse:
        patch: list[Json] = [{"op": "add", "path": "/spec", "value": spec}]
        return self._send("PATCH", f"{self._collection}/{_NAME}", patch, content_type=_PATCH)

    def _send(self, method: str, path: str, body: Json = None, *, content_type: str = _JSON) -> HttpResponse:
        raw = None if body is None else msgspec.json.encode(body)
        headers = {"content-type": content_type, "accept": _JSON, "user-agent": "campaign"}
        return self._server.handle(HttpRequest(method=method, path=path, headers=headers, body=raw))

    async def _state(self) -> State:
        definition = self._terms.definition
        group, version, plural = definition.resource
        own = Target(group=group, version=version, plural=plural, namespace=None, name=None, subresource=None)
        return read_state(self._server, {own.resource: own, **self._log.touched}.values(), await self._outside())

    async def _everything(self) -> State:
        """All objects, also of kinds that the operator has not looked at yet."""
        targets = {
            kind.storage: Target(
                group=kind.group, version=kind.version, plural=kind.plural, namespace=None, name=None, subresource=None
            )
            for kind in self._server.registry.kinds()
        }
        return read_state(self._server, targets.values(), await self._outside())

    async def _outside(self) -> Json:
        return None if self._terms.outside is None else await self._terms.outside.state()


def _last(writes: Sequence[Action]) -> list[str]:
    """The last writes and what they changed; what was repeated, once."""
    blocks: list[tuple[str, ...]] = []
    counts: list[int] = []
    for action in writes:
        what = str(action) if len(str(action)) <= _LONGEST else f"{str(action)[:_LONGEST]}…"
        block = (what, *(() if action.refused else (f"  {line}" for line in action.difference())))
        if blocks and blocks[-1] == block:
            counts[-1] += 1
        else:
            blocks.append(block)
            counts.append(1)
    lines: list[str] = []
    for (what, *changes), count in [*zip(blocks, counts, strict=True)][-_LAST_SHOWN:]:
        lines += [f"{what}{f', {count} times' if count > 1 else ''}", *changes]
    return lines


def _cause(error: BaseException) -> BaseException:
    if not isinstance(error, BaseExceptionGroup):
        return error
    return _cause(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])


def _message(response: HttpResponse) -> str:
    """What the server says, in its words."""
    text = response.body.decode("utf-8", "replace")
    try:
        status = cast("Json", msgspec.json.decode(response.body))
    except msgspec.DecodeError:
        return text
    return str(status["message"]) if isinstance(status, Mapping) and "message" in status else text


def _expect(response: HttpResponse, what: str) -> None:
    if response.status >= 400:
        raise ValueError(f"the API server refuses {what}: {_message(response)}")
