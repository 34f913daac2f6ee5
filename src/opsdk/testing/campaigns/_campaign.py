"""Runs lives of a resource until a law is broken, then looks for the shortest such life."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, cast, final, overload

import anyio
import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity
from hypothesis.errors import Flaky, Unsatisfiable
from hypothesis.strategies import SearchStrategy
from lightkube import AsyncClient

from opsdk.client import ApiClient
from opsdk.errors import ConfigurationError, ObjectError
from opsdk.protocols import KubeObject, Runnable
from opsdk.testing._ignored import Ignored, ignore_faults
from opsdk.testing._usage import count_faults, duration_faults
from opsdk.testing.campaigns._operators import process_with_lightkube, process_with_our_client
from opsdk.testing.campaigns._plan import Plan, Step, plans
from opsdk.testing.campaigns._schema import definition_of
from opsdk.testing.campaigns._state import State
from opsdk.testing.campaigns._strategies import canonical, values_of
from opsdk.testing.campaigns._world import BrokenLawError, Outcome, SpecRefusedError, Terms, live
from opsdk.testing.campaigns.errors import CampaignError, Law
from opsdk.testing.sweeps import Outside
from opsdk.testing.virtual_time import BackendOptions, virtual_asyncio_options
from opsdk.types import Json, JsonObject

__all__ = ["CampaignReport", "campaign"]

__tracebackhide__ = True  # pytest shows the test and the message, not how it came to be

_SHRINKING_LIVES: Final = 80
"""How many lives may be tried to make a failure shorter: each costs as much as a test of the whole operator."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignReport:
    """What a campaign without a failure has tried.

    Args:
        lives: Lives of the resource, each on a cluster of its own.
        changes: Changes of a spec in them that the API server took.
        invalid: Specs that had to be refused, and were.
        unsuitable: Lives that could not begin, because a rule refused a spec that the schema allows: never more than
            half of those that were to be tried.
    """

    lives: int
    changes: int
    invalid: int
    unsuitable: int


@overload
def campaign(
    make_operator: Callable[[ApiClient], Runnable],
    kind: type[KubeObject] | JsonObject,
    *,
    client_type: None = None,
    settle: timedelta = timedelta(minutes=2),
    patience: timedelta = timedelta(hours=1),
    fields: Mapping[str, SearchStrategy[Json]] | None = None,
    install: Sequence[type[KubeObject]] = (),
    prepare: Callable[[ApiClient], Awaitable[None]] | None = None,
    cluster: Callable[[ApiClient], Awaitable[None]] | None = None,
    outside: Outside | None = None,
    laws: Collection[Law] = tuple(Law),
    ignore: Sequence[str] = (),
    examples: int = 20,
    changes: int = 3,
    seed: int = 0,
    backend: Callable[[], BackendOptions] = virtual_asyncio_options,
) -> CampaignReport: ...
@overload
def campaign(
    make_operator: Callable[[AsyncClient], Runnable],
    kind: type[KubeObject] | JsonObject,
    *,
    client_type: type[AsyncClient],
    settle: timedelta = timedelta(minutes=2),
    patience: timedelta = timedelta(hours=1),
    fields: Mapping[str, SearchStrategy[Json]] | None = None,
    install: Sequence[type[KubeObject]] = (),
    prepare: Callable[[ApiClient], Awaitable[None]] | None = None,
    cluster: Callable[[ApiClient], Awaitable[None]] | None = None,
    outside: Outside | None = None,
    laws: Collection[Law] = tuple(Law),
    ignore: Sequence[str] = (),
    examples: int = 20,
    changes: int = 3,
    seed: int = 0,
    backend: Callable[[], BackendOptions] = virtual_asyncio_options,
) -> CampaignReport: ...
def campaign(
    make_operator: Callable[[ApiClient], Runnable] | Callable[[AsyncClient], Runnable],
    kind: type[KubeObject] | JsonObject,
    *,
    client_type: type[AsyncClient] | None = None,
    settle: timedelta = timedelta(minutes=2),
    patience: timedelta = timedelta(hours=1),
    fields: Mapping[str, SearchStrategy[Json]] | None = None,
    install: Sequence[type[KubeObject]] = (),
    prepare: Callable[[ApiClient], Awaitable[None]] | None = None,
    cluster: Callable[[ApiClient], Awaitable[None]] | None = None,
    outside: Outside | None = None,
    laws: Collection[Law] = tuple(Law),
    ignore: Sequence[str] = (),
    examples: int = 20,
    changes: int = 3,
    seed: int = 0,
    backend: Callable[[], BackendOptions] = virtual_asyncio_options,
) -> CampaignReport:
    """Change a resource's spec in all ways that its schema allows, and see whether the operator follows.

    Each life of the resource runs on an in-memory API server of its own, on virtual time, with the whole operator.
    Specs come from the CRD's schema (see `specs_of`). What must hold stands in `Law`. Of the states, all objects are
    compared that the operator has ever looked at, without times, uids, versions, allocated addresses, `stateHistory`
    and events.

    *Guarantees*: the same seed tries the same lives, with the same hypothesis and the same literals in the project's
    imported modules, which hypothesis reads and tries. A failure is shortened.
    *Not promised*: that what is not found is not there.

    Call it from a test that is not async: it runs event loops itself.

    Args:
        make_operator: Makes the operator anew for every process of every life, from a client: a `Manager`, or
            anything with `run()`. The same as a sweep takes, except for plain reconcilers: give a `Manager` that runs
            them, which knows what to watch.
        kind: The resource: its class, or the manifest of its CRD.
        client_type: `lightkube.AsyncClient`, for an operator that takes lightkube's own client.
        settle: For how long, on virtual time, nothing must be written for the operator to be at rest. Longer than its
            longest timer.
        patience: How long it may take to come to rest.
        fields: Strategies for fields of the spec, by path (`image`, `ports[].name`): also for whole objects, lists and
            unions, and at the empty path for the whole spec.
        install: Other custom resources that must be there.
        prepare: Makes the objects that must be there before the resource.
        cluster: Runs beside the operator in the place of a cluster's controllers: `DeploymentActor(client).run`.
        outside: What the operator keeps outside of the cluster, such as a database; compared like objects.
        laws: What is checked.
        ignore: Differences that do not count, as a sweep takes them: each the beginning of a line of a difference,
            with a kind before it or not (`status.attempts`, `Deployment metadata.annotations`), or a kind alone.
        examples: How many lives are tried.
        changes: How often a spec changes in one life, at most.
        seed: Where the search begins.
        backend: Makes the options of the event loop, for each life anew.

    Raises:
        CampaignError: A law does not hold.
        ObjectError: `kind` has no schema of a spec, or one of which no values can be made; `fields` has a path that is
            not in it; or the API server refused most specs, so that hardly anything was tried.
        ConfigurationError: An option makes no sense, or leaves nothing to check; or `make_operator` makes no operator.
    """
    _check_options(
        laws=laws, ignore=ignore, settle=settle, patience=patience, examples=examples, changes=changes, seed=seed
    )
    definition = definition_of(kind)
    if client_type is None:
        process = process_with_our_client(cast("Callable[[ApiClient], Runnable]", make_operator))
    else:
        process = process_with_lightkube(cast("Callable[[AsyncClient], Runnable]", make_operator), "default")
    terms = Terms(
        definition=definition,
        process=process,
        outside=outside,
        install=tuple(install),
        prepare=prepare,
        cluster=cluster,
        settle=settle,
        patience=patience,
        laws=frozenset(laws),
    )
    name, loop = backend()
    complaint = anyio.run(process.complaint, backend=name, backend_options=loop)
    if complaint is not None:
        raise ConfigurationError(f"campaign: {complaint}")
    search = _Search(terms, ignore=Ignored(ignore), seed=seed, backend=backend)
    lives = plans(values_of(definition.spec, fields=fields), definition.spec, changes=changes)

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=(HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large),
        verbosity=Verbosity.quiet,
    )
    @hypothesis.given(plan=lives)
    def run(plan: Plan) -> None:
        search.check(plan)

    try:
        run()
    except (CampaignError, Flaky):
        if search.failure is None:
            raise
        raise search.failure.with_traceback(None) from None  # it was raised as often as it was tried
    except Unsatisfiable:
        pass  # the report says why, without hypothesis' own words above it
    return search.report()


def _check_options(
    *,
    laws: object,
    ignore: object,
    settle: object,
    patience: object,
    examples: object,
    changes: object,
    seed: object,
) -> None:
    """Refuse what would check nothing, also where there is no type checker."""
    chosen = list(cast("Collection[object]", laws)) if isinstance(laws, Collection) else []
    faults = [
        *([] if chosen and not isinstance(laws, str) else [f"laws is {laws!r}; give a list, such as [Law.REST]"]),
        *(
            f"laws has {law!r}; there are {', '.join(f'Law.{each.name}' for each in Law)}"
            for law in (() if isinstance(laws, str) else chosen)
            if law not in set(Law)
        ),
        *ignore_faults(ignore),
        *duration_faults("settle", settle),
        *duration_faults("patience", patience),
        *count_faults("examples", examples, least=1),
        *count_faults("changes", changes, least=0),
        *([] if isinstance(seed, int) else [f"seed is {seed!r}; give an int"]),
    ]
    if faults:
        raise ConfigurationError("campaign: " + "; ".join(faults))


@final
class _Search:
    """What was tried, and what came of it."""

    def __init__(self, terms: Terms, *, ignore: Ignored, seed: int, backend: Callable[[], BackendOptions]) -> None:
        self._terms = terms
        self._ignore = ignore
        self._seed = seed
        self._backend = backend
        self._broken: dict[str, CampaignError] = {}
        self._sound: set[str] = set()
        self._fresh: dict[str, State] = {}
        self._shrinking = 0
        self._refused: set[str] = set()
        self._kinds: set[str] = set()
        self._lives = self._changes = self._invalid = self._begun = 0
        self._refusal = ""
        self.failure: CampaignError | None = None

    def check(self, plan: Plan) -> None:
        """Lead one life; the second time, only its verdict is repeated.

        Raises:
            CampaignError: A law does not hold.
        """
        name = str(plan)
        known = name in self._broken
        if not known:
            if name in self._sound:
                return
            if name in self._refused:
                hypothesis.reject()
            if self.failure is not None:
                self._shrinking += 1
                if self._shrinking > _SHRINKING_LIVES:
                    return
            try:
                self._try(plan)
            except BrokenLawError as broken:
                self._broken[name] = self._error(plan, broken)
            else:
                self._sound.add(name)
                return
        self.failure = self._broken[name]
        raise self.failure

    def report(self) -> CampaignReport:
        """What was tried.

        Raises:
            ObjectError: Most specs were not accepted.
            ConfigurationError: `ignore` names a kind that there is not.
        """
        kind, refused = self._terms.definition.kind, len(self._refused)
        if not self._begun and not refused:
            raise ObjectError(f"no spec of {kind} could be made: a strategy in fields= has no values")
        if refused > self._begun:
            which = f"{refused} of {refused + self._begun} specs" if self._begun else "every spec"
            raise ObjectError(
                f"the API server refused {which} of {kind}, so that {'hardly anything' if self._begun else 'nothing'} "
                f"was tried; give strategies (fields=) for the fields that its rules are about, or one for the whole "
                f"spec: fields={{'': …}}. What it said last: {self._refusal}"
            )
        unknown = self._ignore.unknown_kinds(self._kinds)
        if unknown:
            raise ConfigurationError(
                f"campaign: ignore names {', '.join(unknown)}, and the API server has no such kind"
            )
        return CampaignReport(lives=self._lives, changes=self._changes, invalid=self._invalid, unsuitable=refused)

    def _try(self, plan: Plan) -> None:
        try:
            outcome = self._live(plan)
        except SpecRefusedError as refused:
            self._refused.add(str(plan))
            self._refusal = str(refused)
            hypothesis.reject()
        self._begun += 1
        self._kinds |= outcome.kinds
        self._changes += outcome.changes
        self._invalid += outcome.refusals
        if outcome.rest is None or Law.HISTORY not in self._terms.laws:
            return
        name = canonical(outcome.spec)
        if len(plan.steps) == 1 and plan.steps[0].pause_seconds is None:
            self._fresh[name] = outcome.rest
        fresh = self._fresh.get(name)
        if fresh is None:
            straight = Plan(steps=(Step(spec=outcome.spec),))
            try:
                fresh = self._fresh[name] = self._rest_of(straight)
            except SpecRefusedError:
                return  # a rule allows this spec as a change alone: there is nothing to compare with
        lines = fresh.difference(outcome.rest, self._ignore)
        if lines:
            raise BrokenLawError(
                Law.HISTORY, "a resource created with the last spec right away ends otherwise (right away -> so)", lines
            )

    def _rest_of(self, plan: Plan) -> State:
        rest = self._live(plan).rest
        assert rest is not None
        return rest

    def _live(self, plan: Plan) -> Outcome:
        self._lives += 1
        name, options = self._backend()
        return anyio.run(live, self._terms, plan, backend=name, backend_options=options)

    def _error(self, plan: Plan, broken: BrokenLawError) -> CampaignError:
        return CampaignError(
            self._terms.definition.kind,
            broken.law,
            recipe=plan.recipe(self._terms.definition.kind),
            what=broken.what,
            found=broken.lines,
            seed=self._seed,
        )
