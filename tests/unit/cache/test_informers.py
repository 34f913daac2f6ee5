"""Which informers there are: shared by kind, namespace and selector, for good or while somebody follows."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Namespace, Secret

from failing_network import Network, status
from opsdk.cache import CachedClient, Informers
from opsdk.client import ApiClient
from opsdk.errors import CacheNotSyncedError, ManagerError, ObjectError
from opsdk.models import metadata_only, name_of
from opsdk.testing import ApiServer

pytestmark = pytest.mark.anyio


class World:
    def __init__(self, server: ApiServer, namespaces: Sequence[str]) -> None:
        self.server = server
        self.network = Network(server.transport())
        self.other = server.client(field_manager="someone-else")
        self.informers = Informers(ApiClient(self.network), namespaces=namespaces)
        self.client = CachedClient(ApiClient(self.network), self.informers)

    async def create(self, name: str, namespace: str = "default", **labels: str) -> None:
        metadata = ObjectMeta(name=name, namespace=namespace, labels=labels)
        await self.other.create(ConfigMap(metadata=metadata))

    async def open_watches(self) -> int:
        await anyio.sleep(1)
        return self.server.open_watches


@asynccontextmanager
async def world(*namespaces: str) -> AsyncGenerator[World]:
    """Informers at work, concerned with these namespaces, or all."""
    async with ApiServer() as server:
        this = World(server, namespaces)
        for name in ("one", "two", "three"):
            await this.other.create(Namespace(metadata=ObjectMeta(name=name)))
            await this.create("a", name, app="web")
            await this.create("b", name, app="db")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(this.informers.run)
            await anyio.sleep(0.1)
            yield this
            tasks.cancel_scope.cancel()


async def test_a_set_of_namespaces_is_an_informer_for_each_and_reads_go_over_all_of_them() -> None:
    async with world("one", "two") as this:
        informers = this.informers.everywhere(ConfigMap)
        await this.informers.wait_synced()
        assert [informer.namespace for informer in informers] == ["one", "two"]
        found = await this.client.list(ConfigMap)
        assert [(obj.metadata.namespace, obj.metadata.name) for obj in found if obj.metadata] == [
            ("one", "a"),
            ("one", "b"),
            ("two", "a"),
            ("two", "b"),
        ]
        assert name_of(await this.client.get(ConfigMap, "a", namespace="two")) == "a"
        lists = len(this.network.lists)
        await this.client.list(ConfigMap, namespace="three")  # not among them: the server's to answer
        assert len(this.network.lists) == lists + 1


async def test_without_a_set_one_informer_follows_all_namespaces() -> None:
    async with world() as this:
        (informer,) = this.informers.everywhere(ConfigMap)
        await this.informers.wait_synced()
        assert informer.namespace is None
        assert len(informer.store) == 6


async def test_kinds_without_namespaces_have_one_informer_whatever_the_set() -> None:
    async with world("one", "two") as this:
        (informer,) = this.informers.everywhere(Namespace)
        await this.informers.wait_synced()
        assert informer.namespace is None


async def test_a_set_of_namespaces_with_a_selector_is_listed_from_the_caches() -> None:
    async with world("one", "two") as this:
        this.informers.everywhere(ConfigMap, {"app": "web"})
        await this.informers.wait_synced()
        lists = len(this.network.lists)
        found = await this.client.list(ConfigMap, labels="app in (web)")
        assert [(obj.metadata.namespace, obj.metadata.name) for obj in found if obj.metadata] == [
            ("one", "a"),
            ("two", "a"),
        ]
        assert len(this.network.lists) == lists
        await this.client.list(ConfigMap)  # all of them are in no cache
        assert len(this.network.lists) > lists


async def test_who_asks_for_the_same_objects_shares_one_list_and_one_watch() -> None:
    async with world() as this:
        first = this.informers.informer(ConfigMap, "one", "app=web")
        same = [
            this.informers.informer(ConfigMap, "one", {"app": "web"}),
            this.informers.informer(ConfigMap, "one", "app in (web)"),
            this.informers.informer(ConfigMap, "one", " app == web"),
        ]
        assert all(informer is first for informer in same)
        others = [
            this.informers.informer(ConfigMap, "one"),
            this.informers.informer(ConfigMap, None, "app=web"),
            this.informers.informer(ConfigMap, "two", "app=web"),
            this.informers.informer(metadata_only(ConfigMap), "one", "app=web"),
            this.informers.informer(Secret, "one", "app=web"),
        ]
        assert len({id(informer) for informer in [first, *others]}) == 6
        await this.informers.wait_synced()
        assert len(this.network.lists) == 6
        assert await this.open_watches() == 6


async def test_what_is_followed_for_a_while_ends_when_the_last_follower_has_left() -> None:
    async with world() as this:
        async with this.informers.following(ConfigMap, "one") as first:
            assert len(first.store) == 2
            async with this.informers.following(ConfigMap, "one") as second:
                assert second is first
                assert await this.open_watches() == 1
            await this.create("c", "one")
            await anyio.sleep(1)
            assert len(first.store) == 3
        assert await this.open_watches() == 0
        assert len(this.network.lists) == 1
        async with this.informers.following(ConfigMap, "one") as again:
            assert again is not first
            assert len(again.store) == 3


async def test_what_was_also_asked_for_for_good_goes_on_without_followers() -> None:
    async with world() as this:
        async with this.informers.following(ConfigMap, "one") as followed:
            assert this.informers.all() == ()
            lasting = this.informers.informer(ConfigMap, "one")
            assert lasting is followed
        assert await this.open_watches() == 1
        async with this.informers.following(ConfigMap, "one") as followed:
            assert followed is lasting
        assert await this.open_watches() == 1
        assert this.informers.all() == (lasting,)


async def test_one_who_gives_up_waiting_leaves_nothing_behind() -> None:
    async with world() as this:
        this.network.on_list = lambda _: status(403, "Forbidden")
        with anyio.move_on_after(30) as scope:
            async with this.informers.following(ConfigMap):
                raise AssertionError("it cannot have synced")
        assert scope.cancelled_caught
        assert this.informers.synced
        lists = len(this.network.lists)
        await anyio.sleep(600)
        assert len(this.network.lists) == lists


async def test_reads_are_not_held_up_by_what_somebody_has_just_begun_to_follow() -> None:
    async with world() as this:
        refused = [status(503, "ServiceUnavailable")]
        this.network.on_list = lambda request: refused[0] if refused and "limit=500" in _text(request.query) else None
        async with anyio.create_task_group() as tasks:

            async def follow() -> None:
                async with this.informers.following(ConfigMap):
                    await anyio.sleep(100)

            tasks.start_soon(follow)
            await anyio.sleep(5)
            found = await this.client.find(ConfigMap, "a", namespace="one")  # the server's, for now
            assert found is not None
            refused.clear()
            await anyio.sleep(40)
            lists = len(this.network.lists)
            assert await this.client.find(ConfigMap, "a", namespace="one") is not None
            assert len(this.network.lists) == lists  # the cache's
            tasks.cancel_scope.cancel()
        this.informers.informer(Secret)
        with pytest.raises(CacheNotSyncedError):
            await this.client.list(Secret)


def _text(query: Sequence[tuple[str, str]]) -> str:
    return "&".join(f"{name}={value}" for name, value in query)


async def test_nothing_can_be_followed_while_informers_do_not_run_and_no_text_is_a_selector_by_chance() -> None:
    async with ApiServer() as server:
        informers = Informers(server.client())
        with pytest.raises(ManagerError, match="do not run"):
            async with informers.following(ConfigMap):
                pass
        with pytest.raises(ObjectError):
            informers.informer(ConfigMap, labels="a in b")
        assert informers.all() == ()


async def test_informers_may_run_again_after_they_were_stopped() -> None:
    async with ApiServer() as server:
        client = server.client()
        informers = Informers(client)
        informer = informers.informer(ConfigMap)
        for name in ("a", "b"):
            await client.create(ConfigMap(metadata=ObjectMeta(name=name, namespace="default")))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(informers.run)
                await informers.wait_synced()
                await anyio.sleep(1)
                assert name in {cached.header.name for cached in informer.store.select()}
                tasks.cancel_scope.cancel()
