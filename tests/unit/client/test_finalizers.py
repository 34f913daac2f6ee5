"""One finalizer among others."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap

from opsdk.client import ApiClient
from opsdk.client.finalizers import add_finalizers, has_finalizer, remove_finalizers
from opsdk.errors import ConflictError, NotFoundError
from opsdk.models import view_of
from opsdk.testing import ApiServer
from opsdk.types import MergePatch

pytestmark = pytest.mark.anyio

OURS, THEIRS = "demo.example.com/ours", "demo.example.com/theirs"


@pytest.fixture
async def client() -> AsyncGenerator[ApiClient]:
    async with ApiServer() as server:
        client = server.client()
        await client.create(ConfigMap(metadata=ObjectMeta(name="c", namespace="default"), data={"a": "1"}))
        yield client


async def get(client: ApiClient) -> ConfigMap:
    return await client.get(ConfigMap, "c", namespace="default")


async def test_adding_and_removing_updates_the_object_in_hand(client: ApiClient) -> None:
    obj = await get(client)
    assert await add_finalizers(client, obj, OURS, THEIRS)
    assert has_finalizer(obj, OURS)
    assert obj == await get(client)
    assert await remove_finalizers(client, obj, OURS)
    assert not has_finalizer(obj, OURS)
    assert obj == await get(client)


async def test_what_is_there_already_is_not_written(client: ApiClient) -> None:
    obj = await get(client)
    await add_finalizers(client, obj, OURS)
    before = view_of(obj).resourceVersion
    assert not await add_finalizers(client, obj, OURS)
    assert not await remove_finalizers(client, obj, THEIRS)
    assert view_of(await get(client)).resourceVersion == before


async def test_other_changes_to_the_object_in_hand_are_not_written_along(client: ApiClient) -> None:
    obj = await get(client)
    obj.data = {"a": "not yet"}
    await add_finalizers(client, obj, OURS)
    stored = await get(client)
    assert (stored.data, view_of(stored).finalizers) == ({"a": "1"}, [OURS])  # pyright: ignore[reportUnknownMemberType] - lightkube's bare dict
    assert obj.data == {"a": "not yet"}  # pyright: ignore[reportUnknownMemberType] - lightkube's bare dict


async def test_o04_both_changes_stand_when_others_change_finalizers_at_the_same_time(client: ApiClient) -> None:
    first, second = await get(client), await get(client)
    await add_finalizers(client, first, OURS)
    await add_finalizers(client, second, THEIRS)
    assert view_of(await get(client)).finalizers == [OURS, THEIRS]
    third = await get(client)
    await remove_finalizers(client, third, THEIRS)
    await remove_finalizers(client, second, OURS)  # of a version long gone
    assert view_of(await get(client)).finalizers is None


async def test_the_version_moves_on_only_if_nobody_else_has_written(client: ApiClient) -> None:
    obj = await get(client)
    version = view_of(obj).resourceVersion
    await client.patch(ConfigMap, "c", MergePatch({"data": {"a": "2"}}), namespace="default")
    await add_finalizers(client, obj, OURS)
    assert (view_of(obj).resourceVersion, view_of(obj).finalizers) == (version, [OURS])
    base = client.snapshot(obj)
    obj.data = {"a": "3"}
    with pytest.raises(ConflictError):
        await client.patch_from(base, obj)


async def test_another_incarnation_is_a_conflict(client: ApiClient) -> None:
    obj = await get(client)
    await client.delete(ConfigMap, "c", namespace="default")
    await client.create(ConfigMap(metadata=ObjectMeta(name="c", namespace="default")))
    with pytest.raises(ConflictError, match="created again"):
        await add_finalizers(client, obj, OURS)
    assert view_of(obj).finalizers is None


async def test_an_object_that_is_being_deleted_by_now_is_a_conflict(client: ApiClient) -> None:
    obj = await get(client)
    await add_finalizers(client, await get(client), THEIRS)
    await client.delete(ConfigMap, "c", namespace="default")
    with pytest.raises(ConflictError, match="being deleted"):
        await add_finalizers(client, obj, OURS)
    assert view_of(await get(client)).finalizers == [THEIRS]


async def test_an_object_that_is_gone_has_no_finalizers_to_remove_and_takes_none(client: ApiClient) -> None:
    obj = await get(client)
    await add_finalizers(client, obj, OURS)
    await remove_finalizers(client, await get(client), OURS)
    await client.delete(ConfigMap, "c", namespace="default")
    assert not await remove_finalizers(client, obj, OURS)
    with pytest.raises(NotFoundError):
        await add_finalizers(client, obj, THEIRS)
