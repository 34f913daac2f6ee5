"""Whatever happens between any two API calls, ownership ends with exactly the desired children, and touches no others.

The world is an in-memory API server with one widget, whose spec says which children it is to have: ConfigMaps beside
it, and after them Secrets in another namespace. People create, edit, delete and disown objects of those names, also
while a pass is under way, and the operator crashes before or after any of its API calls and starts anew.

Invariants, once nothing happens any more:
- every name that is wanted and not taken by somebody else's object is a child as built, and there is no other child;
- every object that is somebody else's is of the very version in which its owner left it;
- another pass writes nothing;
- and when the widget is deleted, it and its children go, and everybody else's objects stay.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Namespace, Secret
from pydantic import Field

from opsdk.client import ApiClient, HttpRequest, HttpResponse, HttpStream, Transport
from opsdk.errors import ApiError, ChildConflictError
from opsdk.models import CustomResource, Model, view_of
from opsdk.ownership import OWNER_SET_LABEL, For, OwnedResources, ResourceOwner
from opsdk.protocols import Client
from opsdk.testing import ApiServer
from opsdk.testing.virtual_time import virtual_asyncio_options
from opsdk.types import MergePatch, Request

FINALIZER = "demo.example.com/elsewhere"
PASSES = 5


class Spec(Model):
    configs: dict[str, str] = Field(default={})
    secrets: list[str] = Field(default=[])


class Widget(CustomResource[Spec], group="demo.example.com", version="v1"):
    pass


Mode: TypeAlias = Literal["kept", "update", "apply"]
Kind: TypeAlias = type[ConfigMap] | type[Secret]


class HasData(Protocol):
    """`ConfigMap`, typed: lightkube declares its maps as bare `dict`."""

    @property
    def data(self) -> Mapping[str, str] | None: ...


def data_of(child: HasData) -> Mapping[str, str]:
    return child.data or {}


@dataclass(frozen=True)
class Wish:
    """The widget's spec changes."""

    configs: Mapping[str, str]
    secrets: tuple[str, ...]


@dataclass(frozen=True)
class Deed:
    """What somebody does to the object of a name."""

    what: Literal["create", "edit", "delete", "disown"]
    name: str
    secret: bool


@dataclass(frozen=True)
class Round:
    """A pass, in which something may happen at one of its API calls."""

    at: int
    happening: Wish | Deed | Literal["crash before", "crash after"] | None


Action: TypeAlias = Wish | Deed | Round

names = st.sampled_from(["a", "b", "c"])
wishes = st.builds(
    Wish,
    configs=st.dictionaries(names, st.sampled_from(["1", "2"])),
    secrets=st.lists(names, unique=True).map(tuple),
)
deeds = st.builds(
    Deed,
    what=st.sampled_from(["create", "edit", "delete", "disown"]),
    name=names,
    secret=st.booleans(),
)
rounds = st.builds(
    Round,
    at=st.integers(min_value=0, max_value=8),
    happening=st.one_of(st.none(), st.sampled_from(["crash before", "crash after"]), wishes, deeds),
)
actions = st.lists(st.one_of(wishes, deeds, rounds, rounds), min_size=3, max_size=12)


class CrashError(Exception):
    """The operator is no more."""


class Hazard:
    """A transport in which something happens at one of the requests."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.writes = 0
        self._countdown = -1
        self._before: Callable[[HttpRequest], Awaitable[None]] | None = None
        self._dies_after = False

    def arm(self, at: int, before: Callable[[HttpRequest], Awaitable[None]] | None, *, dies_after: bool) -> None:
        self._countdown, self._before, self._dies_after = at, before, dies_after

    def disarm(self) -> None:
        self._countdown = -1

    async def request(self, request: HttpRequest, /) -> HttpResponse:
        now = self._countdown == 0
        self._countdown -= 1
        if now and self._before is not None:
            await self._before(request)
        self.writes += request.method != "GET"
        response = await self.inner.request(request)
        if now and self._dies_after:
            raise CrashError
        return response

    @asynccontextmanager
    async def stream(self, request: HttpRequest, /) -> AsyncGenerator[HttpStream]:
        async with self.inner.stream(request) as stream:
            yield stream

    async def aclose(self) -> None:
        await self.inner.aclose()


def owned(mode: Mode) -> OwnedResources[Widget]:
    def build_configs(widget: Widget) -> list[ConfigMap]:
        return [ConfigMap(metadata=ObjectMeta(name=name), data={"v": v}) for name, v in widget.spec.configs.items()]

    def update_config(widget: Widget, existing: ConfigMap) -> ConfigMap:
        existing.data = {"v": widget.spec.configs[view_of(existing).name or ""]}
        return existing

    def build_secrets(widget: Widget) -> list[Secret]:
        return [Secret(metadata=ObjectMeta(name=name, namespace="elsewhere")) for name in widget.spec.secrets]

    match mode:
        case "kept":
            configs = For(ConfigMap, build_configs)
        case "update":
            configs = For(ConfigMap, build_configs, update=update_config)
        case _:
            configs = For(ConfigMap, build_configs, apply=True)
    return [For(Secret, build_secrets, finalizer=FINALIZER, after=(ConfigMap,)), configs]


@dataclass
class World:
    server: ApiServer
    hazard: Hazard
    people: ApiClient
    mode: Mode
    # Somebody else's objects, by the version in which they were left.
    foreign: dict[tuple[Kind, Request], str] = field(default_factory=dict[tuple[Kind, Request], str])

    def operator(self) -> ResourceOwner[Widget]:
        client: Client = ApiClient(self.hazard, field_manager="operator")
        return ResourceOwner(Widget, client, owned(self.mode))

    async def wish(self, wish: Wish) -> None:
        current = (await self.people.get(Widget, "w", namespace="default")).spec.configs
        configs = {**dict.fromkeys(current), **wish.configs}
        body = MergePatch({"spec": {"configs": configs, "secrets": list(wish.secrets)}})
        await self.people.patch(Widget, "w", body, namespace="default")

    async def do(self, deed: Deed) -> None:
        kind: Kind = Secret if deed.secret else ConfigMap
        request = Request(deed.name, "elsewhere" if deed.secret else "default")
        key = (kind, request)
        current = await self.people.find(kind, request.name, namespace=request.namespace)
        match deed.what:
            case "create" if current is None:
                made = await self.people.create(
                    kind(metadata=ObjectMeta(name=request.name, namespace=request.namespace), data={"dGhlaXJz": "dA=="})
                )
                self.foreign[key] = view_of(made).resourceVersion or ""
            case "edit" if current is not None:
                body = MergePatch({"data": {"v": "ZHJpZnQ=", "more": "eA=="}})
                edited = await self.people.patch(kind, request.name, body, namespace=request.namespace)
                if key in self.foreign:
                    self.foreign[key] = view_of(edited).resourceVersion or ""
            case "delete" if current is not None:
                self.foreign.pop(key, None)
                await self.people.delete(kind, request.name, namespace=request.namespace)
            case "disown" if current is not None and key not in self.foreign:
                body = MergePatch({"metadata": {"labels": {OWNER_SET_LABEL: None}, "ownerReferences": None}})
                disowned = await self.people.patch(kind, request.name, body, namespace=request.namespace)
                self.foreign[key] = view_of(disowned).resourceVersion or ""
            case _:
                pass

    async def one_pass(self, owner: ResourceOwner[Widget]) -> None:
        widget = await self.people.find(Widget, "w", namespace="default")
        if widget is None:
            return
        try:
            await owner.reconcile(widget)
        except* ChildConflictError:
            pass
        except* ApiError:  # it would be retried
            pass

    async def round(self, owner: ResourceOwner[Widget], this: Round) -> ResourceOwner[Widget]:
        async def before(request: HttpRequest) -> None:
            match this.happening:
                case "crash before":
                    raise CrashError
                case Wish() as wish:
                    await self.wish(wish)
                case Deed() as deed if deed.what == "create" and request.method == "PATCH":
                    pass  # the one moment that is not promised: between the last look and the apply that creates
                case Deed() as deed:
                    await self.do(deed)
                case _:
                    pass

        self.hazard.arm(this.at, before, dies_after=this.happening == "crash after")
        try:
            await self.one_pass(owner)
        except* CrashError:
            owner = self.operator()
        finally:
            self.hazard.disarm()
        return owner

    async def check(self) -> None:
        widget = await self.people.get(Widget, "w", namespace="default")
        configs = {view_of(c).name or "": c for c in await self.people.list(ConfigMap, namespace="default")}
        secrets = {view_of(s).name or "": s for s in await self.people.list(Secret, namespace="elsewhere")}
        await self.check_foreign()
        theirs = {request.name for kind, request in self.foreign if kind is ConfigMap}
        assert set(configs) == theirs | set(widget.spec.configs)
        for name, value in widget.spec.configs.items():
            if name in theirs or self.mode == "kept":
                continue
            data = data_of(configs[name])
            assert (data == {"v": value}) if self.mode == "update" else (data["v"] == value)
        theirs_too = {request.name for kind, request in self.foreign if kind is Secret}
        # Secrets wait while a ConfigMap that they come after cannot be had.
        wanted = set(widget.spec.secrets)
        assert set(secrets) <= theirs_too | wanted
        if not theirs & set(widget.spec.configs):
            assert set(secrets) == theirs_too | wanted

    async def check_foreign(self) -> None:
        for (kind, request), version in self.foreign.items():
            current = await self.people.get(kind, request.name, namespace=request.namespace)
            assert view_of(current).resourceVersion == version, f"{kind.__name__} {request} was touched"


async def story(mode: Mode, plot: list[Action]) -> None:
    async with ApiServer() as server:
        await server.install(Widget)
        people = server.client(field_manager="people")
        await people.create(Namespace(metadata=ObjectMeta(name="elsewhere")))
        await people.create(Widget(metadata=ObjectMeta(name="w", namespace="default"), spec=Spec()))
        world = World(server, Hazard(server.transport()), people, mode)
        owner = world.operator()
        for action in plot:
            match action:
                case Wish():
                    await world.wish(action)
                case Deed():
                    await world.do(action)
                case Round():
                    owner = await world.round(owner, action)
            await world.check_foreign()

        for _ in range(PASSES):
            await world.one_pass(owner)
        await world.check()
        world.hazard.writes = 0
        await world.one_pass(world.operator())
        # A name that is taken is told about, once in each process.
        events = 1 if world.foreign else 0
        assert world.hazard.writes <= events

        await people.delete(Widget, "w", namespace="default")
        for _ in range(PASSES):
            await world.one_pass(owner)
        assert await people.find(Widget, "w", namespace="default") is None
        await world.check_foreign()
        left = {
            Request(view_of(each).name or "", "default") for each in await people.list(ConfigMap, namespace="default")
        }
        left |= {
            Request(view_of(each).name or "", "elsewhere") for each in await people.list(Secret, namespace="elsewhere")
        }
        assert left == {request for _, request in world.foreign}


@pytest.mark.parametrize("mode", ["kept", "update", "apply"])
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plot=actions)
def test_exactly_the_desired_children_are_there_in_the_end(mode: Mode, plot: list[Action]) -> None:
    backend, options = virtual_asyncio_options()
    anyio.run(story, mode, plot, backend=backend, backend_options=options)
