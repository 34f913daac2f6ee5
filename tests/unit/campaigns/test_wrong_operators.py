"""A campaign finds each of these operators, whose fault is one that other tests overlook, and passes the right one."""

from __future__ import annotations

import itertools
import re
from base64 import b64encode
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Annotated, Protocol, cast

import anyio
import pytest
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Secret
from pydantic import Field

from opsdk import Client, CustomResource, For, Manager, ManagerOptions, Model, Request, ResourceOwner, Result, clock
from opsdk.client import ApiClient
from opsdk.models import Cel
from opsdk.ownership import OwnedKind
from opsdk.protocols import KubeObject
from opsdk.testing.campaigns import CampaignError, Law, campaign
from opsdk.testing.virtual_time import BackendOptions, virtual_asyncio_options, virtual_trio_options
from opsdk.types import MergePatch


class GadgetSpec(Model):
    size: int = Field(default=1, ge=0, le=9)
    colour: str = Field(default="", max_length=8)
    secret: bool = False
    labels: dict[str, str] = Field(default={})


class GadgetStatus(Model):
    size: int = 0
    seen: int = 0


class Gadget(CustomResource[GadgetSpec, GadgetStatus], group="campaigns.example.com", version="v1"):
    """Something of a size and a colour."""


OPTIONS = ManagerOptions(leader_election=False, serve_metrics=False, serve_probes=False)
Reconcile = Callable[[Client, Gadget], Awaitable[Result | None]]


def operator(make: Callable[[], Reconcile]) -> Callable[[ApiClient], Manager]:
    """A manager of a reconcile function that is made anew for each process."""

    def make_manager(client: ApiClient) -> Manager:
        manager = Manager(OPTIONS, client=client)
        reconcile = make()

        class Reconciler:
            async def reconcile(self, request: Request) -> Result:
                gadget = await manager.client.find(Gadget, request.name, namespace=request.namespace)
                if gadget is None:
                    return Result()
                return await reconcile(manager.client, gadget) or Result()

        manager.controller(Gadget).owns(ConfigMap).owns(Secret).complete(Reconciler())
        return manager

    return make_manager


def config_of(gadget: Gadget) -> ConfigMap:
    return ConfigMap(
        metadata=ObjectMeta(name=gadget.metadata.name, labels=dict(gadget.spec.labels)), data=data_of(gadget)
    )


def data_of(gadget: Gadget) -> dict[str, str]:
    return {"size": str(gadget.spec.size), "colour": gadget.spec.colour}


def secret_of(gadget: Gadget) -> Secret:
    return Secret(metadata=ObjectMeta(name=gadget.metadata.name), data=secret_data_of(gadget))


def secret_data_of(gadget: Gadget) -> dict[str, str]:
    return {"colour": b64encode(gadget.spec.colour.encode()).decode()}


def update_config(gadget: Gadget, existing: ConfigMap) -> ConfigMap:
    existing.data = data_of(gadget)
    labels = labels_of(existing)
    for name in list(labels):
        if "/" not in name:  # those are not this operator's
            del labels[name]
    labels.update(gadget.spec.labels)
    return existing


def labels_of(config: ConfigMap) -> dict[str, str]:
    return cast("_Labelled", config.metadata).labels


class _Labelled(Protocol):
    labels: dict[str, str]


class _WithData(Protocol):
    data: dict[str, str]


async def tell(client: Client, gadget: Gadget) -> None:
    """A status that follows the spec."""
    before = client.snapshot(gadget)
    gadget.status.size = gadget.spec.size
    await client.status.patch_from(before, gadget)


def owned(*children: OwnedKind[Gadget]) -> Callable[[], Reconcile]:
    def make() -> Reconcile:
        async def reconcile(client: Client, gadget: Gadget) -> Result:
            result = await ResourceOwner(Gadget, client, list(children)).reconcile(gadget)
            await tell(client, gadget)
            return result

        return reconcile

    return make


def build_config(gadget: Gadget) -> list[ConfigMap]:
    return [config_of(gadget)]


def build_secret(gadget: Gadget) -> list[Secret]:
    return [secret_of(gadget)] if gadget.spec.secret else []


def update_secret(gadget: Gadget, existing: Secret) -> Secret:
    existing.data = secret_data_of(gadget)
    return existing


CONFIG = For(ConfigMap, build_config, update=update_config)
SECRET = For(Secret, build_secret, update=update_secret)


def right() -> Reconcile:
    """Has no fault."""
    return owned(CONFIG, SECRET)()


def leftover_child() -> Reconcile:
    """Makes the Secret when it is asked for, and forgets it when it is not."""

    async def reconcile(client: Client, gadget: Gadget) -> Result:
        children: list[OwnedKind[Gadget]] = [CONFIG]
        if gadget.spec.secret:
            children.append(SECRET)
        return await ResourceOwner(Gadget, client, children).reconcile(gadget)

    return reconcile


def never_unset() -> Reconcile:
    """Copies the colour into the child if there is one, and leaves it there when there no longer is."""

    def update(gadget: Gadget, existing: ConfigMap) -> ConfigMap:
        colour = cast("_WithData", existing).data["colour"]
        update_config(gadget, existing)
        data = data_of(gadget)
        data["colour"] = data["colour"] or colour
        existing.data = data
        return existing

    return owned(For(ConfigMap, build_config, update=update))()


def accumulates() -> Reconcile:
    """Adds the spec's labels to the child's, and never takes one away."""

    def update(gadget: Gadget, existing: ConfigMap) -> ConfigMap:
        existing.data = data_of(gadget)
        labels_of(existing).update(gadget.spec.labels)
        return existing

    return owned(For(ConfigMap, build_config, update=update))()


def reads_old_spec() -> Reconcile:
    """Keeps the first spec that it has seen."""
    seen: dict[str, Gadget] = {}

    async def reconcile(client: Client, gadget: Gadget) -> Result:
        first = seen.setdefault(str(gadget.metadata.uid), gadget)

        def build(_: Gadget) -> list[ConfigMap]:
            return [config_of(first)]

        def update(_: Gadget, existing: ConfigMap) -> ConfigMap:
            return update_config(first, existing)

        return await ResourceOwner(Gadget, client, [For(ConfigMap, build, update=update)]).reconcile(gadget)

    return reconcile


def never_rests() -> Reconcile:
    """Counts its own passes in the status."""

    async def reconcile(client: Client, gadget: Gadget) -> None:
        before = client.snapshot(gadget)
        gadget.status.seen += 1
        await client.status.patch_from(before, gadget)

    return reconcile


def writes_when_started() -> Reconcile:
    """Tells the cluster that it was started."""
    started = itertools.count()

    async def reconcile(client: Client, gadget: Gadget) -> None:
        if next(started) == 0:
            await client.patch(
                Gadget,
                str(gadget.metadata.name),
                MergePatch({"metadata": {"annotations": {"started": "yes"}}}),
                namespace=gadget.metadata.namespace,
            )

    return reconcile


def leaves_child_without_owner() -> Reconcile:
    """Makes a child that nobody owns."""

    async def reconcile(client: Client, gadget: Gadget) -> None:
        name, namespace = str(gadget.metadata.name), gadget.metadata.namespace
        if (
            gadget.metadata.deletionTimestamp is None
            and await client.find(ConfigMap, name, namespace=namespace) is None
        ):
            await client.create(ConfigMap(metadata=ObjectMeta(name=name)), namespace=namespace)

    return reconcile


def keeps_finalizer() -> Reconcile:
    """Adds a finalizer, and takes it away only if the gadget has a colour."""

    async def reconcile(client: Client, gadget: Gadget) -> None:
        finalizers = list(gadget.metadata.finalizers or [])
        before = client.snapshot(gadget)
        if gadget.metadata.deletionTimestamp is None and not finalizers:
            gadget.metadata.finalizers = ["campaigns.example.com/colour"]
        elif gadget.metadata.deletionTimestamp is not None and gadget.spec.colour:
            gadget.metadata.finalizers = []
        await client.patch_from(before, gadget)

    return reconcile


def cannot_do_large() -> Reconcile:
    """Fails for ever on a size that its schema allows."""

    async def reconcile(client: Client, gadget: Gadget) -> None:
        if gadget.spec.size > 5:
            config = config_of(gadget)
            config.data = {"no such/key": "x"}
            await client.create(config, namespace=gadget.metadata.namespace)
        await tell(client, gadget)

    return reconcile


def polls_and_writes() -> Reconcile:
    """Writes a time into its status, every ten seconds."""

    async def reconcile(client: Client, gadget: Gadget) -> Result:
        before = client.snapshot(gadget)
        gadget.status.seen = int(clock.now().timestamp()) // 10
        await client.status.patch_from(before, gadget)
        return Result(requeue_after=timedelta(seconds=10))

    return reconcile


FAULTS: list[tuple[Callable[[], Reconcile], Law, str]] = [
    (leftover_child, Law.HISTORY, "Secret default/subject: there is one"),
    (never_unset, Law.HISTORY, "data.colour:"),
    (accumulates, Law.HISTORY, "metadata.labels."),
    (reads_old_spec, Law.REST, "started again"),
    (never_rests, Law.REST, "it writes without end"),
    (polls_and_writes, Law.REST, "it still writes"),
    (writes_when_started, Law.REST, "(it changed nothing)"),
    (cannot_do_large, Law.REST, "refused with 422"),
    (leaves_child_without_owner, Law.DELETION, "ConfigMap default/subject"),
    (keeps_finalizer, Law.DELETION, "waits for campaigns.example.com/colour"),
]


@pytest.mark.parametrize(("make", "law", "text"), FAULTS, ids=[make.__name__ for make, _, _ in FAULTS])
def test_a_wrong_operator_is_found_with_a_short_life(
    make: Callable[[], Reconcile], law: Law, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(CampaignError, match=re.escape(text)) as caught:
        campaign(operator(make), Gadget)
    assert caught.value.law == law
    assert len(caught.value.recipe) <= 3
    assert len(str(caught.value).splitlines()) <= 20


@pytest.mark.parametrize("backend", [virtual_asyncio_options, virtual_trio_options], ids=["asyncio", "trio"])
def test_a_right_operator_is_passed_and_the_report_says_what_was_tried(
    backend: Callable[[], BackendOptions],
) -> None:
    report = campaign(operator(right), Gadget, examples=15, backend=backend)
    assert report.lives > 15
    assert report.changes > 10
    assert report.invalid > 3
    assert report.unsuitable == 0


def test_what_was_prepared_is_not_left_behind_by_an_operator_that_looks_at_it_late() -> None:
    async def prepare(client: ApiClient) -> None:
        await client.create(Secret(metadata=ObjectMeta(name="shared")), namespace="default")

    def make_manager(client: ApiClient) -> Manager:
        manager = Manager(OPTIONS, client=client)

        class Reconciler:
            async def reconcile(self, request: Request) -> Result:
                gadget = await client.find(Gadget, request.name, namespace=request.namespace)
                if gadget is not None:
                    await client.get(Secret, "shared", namespace="default")
                    await tell(client, gadget)
                return Result()

        manager.controller(Gadget).complete(Reconciler())
        return manager

    assert campaign(make_manager, Gadget, prepare=prepare, examples=3).lives


class FrozenSpec(Model):
    size: Annotated[int, Cel("self == oldSelf", message="a size is for ever")] = Field(ge=0, le=9)


class Frozen(CustomResource[FrozenSpec, GadgetStatus], group="campaigns.example.com", version="v1"):
    """Something that never changes."""


def idle(kind: type[KubeObject]) -> Callable[[ApiClient], Manager]:
    """An operator that does nothing."""

    class Reconciler:
        async def reconcile(self, request: Request) -> Result:
            return Result()

    def make_manager(client: ApiClient) -> Manager:
        manager = Manager(OPTIONS, client=client)
        manager.controller(kind).complete(Reconciler())
        return manager

    return make_manager


def test_only_changes_that_the_server_took_are_told() -> None:
    report = campaign(idle(Frozen), Frozen, examples=6)
    assert (report.changes, report.unsuitable) == (0, 0)
    assert report.lives > 1


class GrownSpec(Model):
    size: Annotated[int, Cel("oldSelf.hasValue() || self == 0", optional_old_self=True)] = Field(ge=0, le=1)


class Grown(CustomResource[GrownSpec, GadgetStatus], group="campaigns.example.com", version="v1"):
    """Something that has to begin small."""


def test_a_spec_that_is_allowed_as_a_change_alone_is_no_failure() -> None:
    report = campaign(idle(Grown), Grown, examples=8)
    assert report.changes > 0
    assert report.unsuitable > 0


def test_only_specs_that_were_tried_are_told_as_refused() -> None:
    report = campaign(operator(right), Gadget, examples=6, laws=[Law.HISTORY, Law.DELETION])
    assert report.invalid == 0


class Hanging:
    """Waits for something outside that does not come, in the middle of a reconcile."""

    async def reconcile(self, request: Request) -> Result:
        await anyio.sleep(3600 * 24)
        return Result()


def test_that_an_operator_is_stopped_is_not_logged_as_its_failure(caplog: pytest.LogCaptureFixture) -> None:
    def make(client: ApiClient) -> Manager:
        manager = Manager(OPTIONS, client=client)
        manager.controller(Gadget).complete(Hanging())
        return manager

    campaign(make, Gadget, examples=2, laws=[Law.REST, Law.HISTORY])
    assert [record.getMessage() for record in caplog.records if "cancelled" in record.getMessage()] == []
