"""Runs a scenario again and again, with one thing going wrong each time."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final, cast, final, overload

from lightkube import AsyncClient

from opsdk.client import ApiClient
from opsdk.client.transport import Transport
from opsdk.protocols import KubeObject
from opsdk.testing._ignored import Ignored, ignore_faults
from opsdk.testing._usage import duration_faults
from opsdk.testing.simulator import lightkube_client
from opsdk.testing.sweeps._calls import ApiCall, WatchEventSeen
from opsdk.testing.sweeps._determinism import require_virtual_time
from opsdk.testing.sweeps._faults import (
    EVENT_FAULTS,
    FAULT_KINDS,
    READ_FAULTS,
    Fault,
    FaultKind,
    Plan,
)
from opsdk.testing.sweeps._run import Run
from opsdk.testing.sweeps._settings import Invariant, Operator, Outcome, Outside, Scenario, Settings, Trouble
from opsdk.testing.sweeps._state import EndState
from opsdk.testing.sweeps.errors import SweepError, SweepUsageError
from opsdk.testing.sweeps.result import SweepFailure, SweepResult

__all__ = ["sweep"]

__tracebackhide__ = True  # pytest shows the test and the message, not how it came to be

_FIELD_MANAGER: Final = "operator"
_CLEAN_BURST: Final = 3_000
_LEAST_BURST: Final = 2_000
_REAL_SECONDS: Final = 60.0


@overload
async def sweep(
    make_operator: Callable[[ApiClient], Operator],
    scenario: Scenario,
    *,
    client_type: None = None,
    install: Sequence[type[KubeObject]] = (),
    faults: Sequence[FaultKind] = FAULT_KINDS,
    sample: int | None = None,
    pairs: int = 0,
    only: str | None = None,
    seed: int = 0,
    ignore: Sequence[str] = (),
    always: Invariant | None = None,
    outside: Outside | None = None,
    namespace: str = "default",
    quiet: timedelta = timedelta(seconds=30),
    rest: timedelta = timedelta(minutes=1),
    patience: timedelta = timedelta(minutes=10),
    most_failures: int = 20,
) -> SweepResult: ...
@overload
async def sweep(
    make_operator: Callable[[AsyncClient], Operator],
    scenario: Scenario,
    *,
    client_type: type[AsyncClient],
    install: Sequence[type[KubeObject]] = (),
    faults: Sequence[FaultKind] = FAULT_KINDS,
    sample: int | None = None,
    pairs: int = 0,
    only: str | None = None,
    seed: int = 0,
    ignore: Sequence[str] = (),
    always: Invariant | None = None,
    outside: Outside | None = None,
    namespace: str = "default",
    quiet: timedelta = timedelta(seconds=30),
    rest: timedelta = timedelta(minutes=1),
    patience: timedelta = timedelta(minutes=10),
    most_failures: int = 20,
) -> SweepResult: ...
async def sweep(
    make_operator: Callable[[ApiClient], Operator] | Callable[[AsyncClient], Operator],
    scenario: Scenario,
    *,
    client_type: type[AsyncClient] | None = None,
    install: Sequence[type[KubeObject]] = (),
    faults: Sequence[FaultKind] = FAULT_KINDS,
    sample: int | None = None,
    pairs: int = 0,
    only: str | None = None,
    seed: int = 0,
    ignore: Sequence[str] = (),
    always: Invariant | None = None,
    outside: Outside | None = None,
    namespace: str = "default",
    quiet: timedelta = timedelta(seconds=30),
    rest: timedelta = timedelta(minutes=1),
    patience: timedelta = timedelta(minutes=10),
    most_failures: int = 20,
) -> SweepResult:
    """Break an operator at every call that it makes, one run each, and see whether it still does its work.

    The scenario runs once without a fault, to learn the operator's calls and the state in which it ends; then once for
    each fault at each call. After each of these runs the cluster must be in the same state, no deletion may be stuck,
    and the operator must rest: it writes nothing more, not when everything is reconciled again and not after a
    restart. Every run has a cluster of its own, in memory, on virtual time.

    *Guarantees*: with the same seed the same runs, on either backend. A failure says which fault at which call, how
    to run just that, and what is different. Secret data is never shown.

    *Not promised*: that code which runs while a crashed process is being cancelled (`finally`, worker threads) has no
    effect outside of the cluster; that two runs of an operator with leader election repeat to the millisecond, because
    the jitter of an election comes from the replica's identity.

    Args:
        make_operator: Makes the operator anew for every process of every run, from a client: a reconciler, a
            `Manager`, or anything with `run()`. A reconciler is run as a controller of the first kind that the
            scenario creates, and its reads count as cached.
        scenario: Plays the user: creates, edits, deletes, and waits for what it needs.
        client_type: `lightkube.AsyncClient`, for an operator that takes lightkube's own client.
        install: Custom resources to define before the operator starts.
        faults: Which kinds of faults. Default: all.
        sample: Run only so many of the faults, chosen by the seed. Default: all.
        pairs: Also run so many pairs of faults, chosen by the seed.
        only: Run just this, as a failure prints it: `"crash-after:3"`; `"none"`: only the run without a fault. Without
            it, what the operator logs is dropped.
        seed: Chooses samples and pairs, and settles jitter and the order of tasks.
        ignore: Differences that do not count, each the beginning of a difference's line, with a kind before it or
            not: `"status.history"`, `"WebApp status.conditions[*].message"`; or a kind alone.
        always: An invariant: called after every write of the operator, raises when something does not hold.
        outside: What the operator keeps outside of the cluster.
        namespace: The namespace of objects that name none.
        quiet: The operator rests when it has changed nothing for so long.
        rest: For how long nothing may be written at the end.
        patience: How long waiting may take, for the scenario and for the end state.
        most_failures: After how many failures to stop.

    Returns:
        What was run: calls, plans, requests.

    Raises:
        SweepError: A run did not end as it should; `result` has all of them.
        SweepUsageError: There is no virtual time, an option makes no sense, `only` names no fault or one that does
            not happen, the operator makes no call at which one of `faults` can be put, or two runs without a fault
            differ.
    """
    _refuse_what_runs_nothing(faults, sample=sample, pairs=pairs, most_failures=most_failures)
    _refuse_what_compares_nothing(ignore=ignore, quiet=quiet, rest=rest, patience=patience)
    await require_virtual_time()
    settings = Settings(
        make=_maker(make_operator, client_type, namespace),
        scenario=scenario,
        install=tuple(install),
        namespace=namespace,
        always=always,
        outside=outside,
        ignored=Ignored(ignore),
        quiet=quiet,
        rest=rest,
        patience=patience,
        real_seconds=_REAL_SECONDS,
        seed=seed,
        for_httpx2=client_type is not None,
        logs=only is not None,
    )
    work = _Sweep(settings, most_failures=most_failures)
    wanted = None if only is None else Plan.parse(only)
    await work.learn()
    if not work.failures:
        if wanted is not None:
            await work.run_only(wanted)
        else:
            singles = _chosen(work.singles(faults), sample, seed)
            await work.run(singles)
            await work.run_pairs(singles, pairs, seed)
    result = work.result()
    if result.failures:
        raise SweepError(str(result), result)
    return result


@final
class _Sweep:
    """The runs of one sweep."""

    def __init__(self, settings: Settings, *, most_failures: int) -> None:
        self._settings = settings
        self._most_failures = most_failures
        self._clean: Outcome | None = None
        self._random_names = frozenset[tuple[str, str, str]]()
        self._plans: list[str] = []
        self._missed: list[str] = []
        self._requests = 0
        self._virtual_seconds = 0.0
        self.failures: list[SweepFailure] = []

    async def learn(self) -> None:
        """Run without a fault, twice: what differs then is no consequence of a fault."""
        first = await self._one(Plan())
        if first.trouble is not None or first.state is None:
            self._failed(first)
            return
        unknown = self._settings.ignored.unknown_kinds(first.kinds)
        if unknown:
            raise SweepUsageError(f"ignore names {', '.join(unknown)}, and the API server has no such kind")
        second = await self._one(Plan(), seed=self._settings.seed + 1)
        if second.trouble is not None or second.state is None:
            self._failed(second)
            return
        self._random_names = frozenset(
            group for group, names in first.state.names.items() if second.state.names.get(group) != names
        )
        if self._random_names:
            first = await self._one(Plan())
            second = await self._one(Plan(), seed=self._settings.seed + 1)
        if first.state is None or second.state is None:
            raise SweepUsageError("a run without a fault ends well only sometimes")
        difference = first.state.difference(second.state, self._settings.ignored)
        if difference:
            lines = "\n  ".join(difference[:10])
            raise SweepUsageError(
                "two runs without a fault ended in different states, so nothing can be said about faults; "
                f"name what may differ in ignore=[…]:\n  {lines}"
            )
        self._clean = first

    def singles(self, kinds: Sequence[FaultKind]) -> list[Plan]:
        """One fault at each call where it makes sense.

        Raises:
            SweepUsageError: There is no such call.
        """
        clean = self._clean
        if clean is None:
            return []
        plans: list[Plan] = []
        for kind in FAULT_KINDS:
            if kind not in kinds:
                continue
            if kind in EVENT_FAULTS:
                numbers = [event.number for event in clean.events]
            elif kind in READ_FAULTS:
                numbers = _worthwhile_reads(clean)
            elif kind == "conflict":
                numbers = [write.number for write in clean.writes if write.existed]
            else:
                numbers = [write.number for write in clean.writes]
            plans += [Plan.of([Fault(kind, number)]) for number in numbers]
        if not plans:
            made = f"{len(clean.writes)} writes and {len(clean.reads)} reads"
            raise SweepUsageError(
                f"there is nothing to break: the operator made {made}, its watches brought {len(clean.events)} events, "
                f"and none is one for {', '.join(kinds)}; does it use the client that it is given?"
            )
        return plans

    async def run_only(self, plan: Plan) -> None:
        """Run this plan alone.

        Raises:
            SweepUsageError: A fault of it did not happen, and nothing else went wrong.
        """
        if not plan.faults:
            return
        outcome = await self._run_and_judge(plan)
        never = [str(fault) for fault in plan.faults if fault not in outcome.hit]
        if never and not self.failures:
            raise SweepUsageError(
                f"{', '.join(never)} did not happen, so nothing was tried: the run made {len(outcome.writes)} writes "
                f"and {len(outcome.reads)} reads, and its watches brought {len(outcome.events)} events"
            )

    async def run(self, plans: Sequence[Plan]) -> None:
        """Run each plan, until there are too many failures."""
        for plan in plans:
            if len(self.failures) >= self._most_failures:
                return
            await self._run_and_judge(plan)

    async def run_pairs(self, singles: Sequence[Plan], count: int, seed: int) -> None:
        """Run pairs of faults that are survived alone; a pair that fails is cut down to what is needed for it."""
        failed = {failure.plan for failure in self.failures}
        good = [plan for plan in singles if str(plan) not in failed]
        source = random.Random(seed)  # noqa: S311 - repeats a sweep
        seen: set[str] = set()
        for _ in range(count if len(good) > 1 else 0):
            if len(self.failures) >= self._most_failures:
                return
            first, second = source.sample(good, 2)
            plan = Plan.of(sorted([*first.faults, *second.faults], key=lambda fault: (fault.at, str(fault))))
            if str(plan) in seen:
                continue
            seen.add(str(plan))
            await self._run_and_judge(plan)

    async def _run_and_judge(self, plan: Plan) -> Outcome:
        outcome = await self._one(plan)
        self._plans.append(str(plan))
        if len(outcome.hit) < len(plan.faults) or self._went_astray(outcome):
            self._missed.append(str(plan))
        if outcome.trouble is not None:
            self._failed(await self._shortest(outcome))
        return outcome

    def _went_astray(self, outcome: Outcome) -> bool:
        """Whether the first fault has hit another call than the one of that number in the run without a fault.

        Until then nothing is different, so that the runs of this operator do not repeat.
        """
        clean, fault = self._clean, outcome.plan.faults[0]
        if clean is None or len(outcome.plan.faults) > 1 or fault not in outcome.hit:
            return False
        calls: Sequence[ApiCall | WatchEventSeen] = clean.writes
        if fault.kind in EVENT_FAULTS:
            calls = clean.events
        elif fault.kind in READ_FAULTS:
            calls = clean.reads
        planned = next((str(call) for call in calls if call.number == fault.at), "")
        came = outcome.hit[fault]
        if self._random_names:  # from a source that no seed settles, they differ from run to run
            planned, came = planned.rpartition("/")[0], came.rpartition("/")[0]
        return planned != came

    async def _shortest(self, outcome: Outcome) -> Outcome:
        """The same failure with fewer faults, if there is one."""
        for fault in outcome.plan.faults:
            if len(outcome.plan.faults) == 1:
                break
            if fault not in outcome.hit:
                return await self._shortest(replace(outcome, plan=outcome.plan.without(fault)))
            smaller = await self._one(outcome.plan.without(fault))
            if smaller.trouble is not None:
                return await self._shortest(smaller)
        return outcome

    async def _one(self, plan: Plan, *, seed: int | None = None) -> Outcome:
        clean = self._clean
        burst = _CLEAN_BURST if clean is None else max(_LEAST_BURST, 3 * clean.longest_burst)
        state: EndState | None = None if clean is None else clean.state
        settings = self._settings if seed is None else replace(self._settings, seed=seed)
        run = Run(settings, plan, clean=state, burst=burst, random_names=self._random_names)
        outcome = await run.execute()
        self._requests += outcome.requests
        self._virtual_seconds += outcome.virtual_seconds
        return outcome

    def _failed(self, outcome: Outcome) -> None:
        trouble = outcome.trouble or Trouble(reason="the run did not end")
        hits = [fault.describe(call) for fault, call in outcome.hit.items()]
        self.failures.append(
            SweepFailure(
                plan=str(outcome.plan),
                what=", then ".join(hits) or "without any fault",
                seed=self._settings.seed,
                reason=trouble.reason,
                details=trouble.details,
            )
        )

    def result(self) -> SweepResult:
        """What was found."""
        clean = self._clean
        return SweepResult(
            writes=() if clean is None else clean.writes,
            reads=() if clean is None else clean.reads,
            events=() if clean is None else clean.events,
            runs=tuple(self._plans),
            missed=tuple(self._missed),
            failures=tuple(self.failures),
            requests=self._requests,
            virtual_seconds=self._virtual_seconds,
        )


def _refuse_what_runs_nothing(
    faults: Sequence[FaultKind], *, sample: int | None, pairs: int, most_failures: int
) -> None:
    if isinstance(faults, str):
        raise SweepUsageError(f"faults is {faults!r}; give a list: faults=[{faults!r}]")
    unknown = [repr(kind) for kind in faults if kind not in FAULT_KINDS]
    if unknown:
        raise SweepUsageError(f"{', '.join(unknown)} is no kind of fault; there are {', '.join(FAULT_KINDS)}")
    if not faults:
        raise SweepUsageError("faults=[] breaks nothing; for the run without a fault alone there is only='none'")
    if (sample is not None and sample < 1) or most_failures < 1 or pairs < 0:
        raise SweepUsageError("sample and most_failures have to be at least 1, and pairs at least 0")


def _refuse_what_compares_nothing(*, ignore: object, quiet: object, rest: object, patience: object) -> None:
    """A text as `ignore` would be taken for a list of letters, and leave out every field that is called so."""
    wrong = [
        *ignore_faults(ignore),
        *duration_faults("quiet", quiet),
        *duration_faults("rest", rest, zero=True),
        *duration_faults("patience", patience),
    ]
    if wrong:
        raise SweepUsageError("; ".join(wrong))


def _worthwhile_reads(clean: Outcome) -> list[int]:
    """The first read of each path: a failed read is tried again, whatever was written before it."""
    first: dict[str, int] = {}
    for read in clean.reads:
        first.setdefault(str(read), read.number)
    return list(first.values())


def _chosen(plans: list[Plan], sample: int | None, seed: int) -> list[Plan]:
    if sample is None or sample >= len(plans):
        return plans
    chosen = set(random.Random(seed).sample(range(len(plans)), sample))  # noqa: S311 - repeats a sweep
    return [plan for index, plan in enumerate(plans) if index in chosen]


def _maker(
    make: Callable[[ApiClient], Operator] | Callable[[AsyncClient], Operator],
    client_type: type[AsyncClient] | None,
    namespace: str,
) -> Callable[[Transport], Operator]:
    if client_type is None:
        ours = cast("Callable[[ApiClient], Operator]", make)
        return lambda transport: ours(ApiClient(transport, field_manager=_FIELD_MANAGER, namespace=namespace))
    theirs = cast("Callable[[AsyncClient], Operator]", make)
    return lambda transport: theirs(lightkube_client(transport, namespace=namespace, field_manager=_FIELD_MANAGER))
