"""Lists, selectors, pages, watches."""

from __future__ import annotations

import base64
import json

import anyio
import pytest

from conformance.harness import Api, Body, config_map, eventually, widget

pytestmark = pytest.mark.anyio


async def _labelled(api: Api) -> None:
    for name, labels in (
        ("a", {"tier": "web", "env": "prod"}),
        ("b", {"tier": "api", "env": "test"}),
        ("c", {"tier": "web"}),
        ("d", {}),
    ):
        await api.created("configmaps", config_map(name, labels={**labels, "mine": "yes"}))


# --- label selectors of every operator ---


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("tier=web", ["a", "c"]),
        ("tier==web", ["a", "c"]),
        ("tier!=web", ["b", "d"]),
        ("tier in (web,api)", ["a", "b", "c"]),
        ("tier notin (web)", ["b", "d"]),
        ("tier", ["a", "b", "c"]),
        ("!tier", ["d"]),
        ("tier=web,env", ["a"]),
        ("tier in (web), !env", ["c"]),
        ("env notin (prod,test),tier", ["c"]),
        ("tier in (web,)", ["a", "c"]),
        ("tier in (,x)", []),
    ],
)
async def test_label_selectors(api: Api, selector: str, names: list[str]) -> None:
    await _labelled(api)
    answer = await api.get("configmaps", labelSelector=f"{selector},mine=yes")
    assert answer.names == names


@pytest.mark.parametrize("selector", ["tier in web", "tier=(", "bad key=x", "=x", "tier>x"])
async def test_a_bad_label_selector_is_a_bad_request(api: Api, selector: str) -> None:
    answer = await api.get("configmaps", labelSelector=selector)
    assert (answer.status, answer.reason) == (400, "BadRequest")


async def test_numbers_can_be_compared(api: Api) -> None:
    await api.created("configmaps", config_map("a", labels={"n": "5"}))
    assert (await api.get("configmaps", labelSelector="n>4")).names == ["a"]
    assert (await api.get("configmaps", labelSelector="n<5")).names == []


# --- field selectors, and a 400 for those that are not supported ---


async def test_field_selectors(api: Api) -> None:
    await api.created("configmaps", config_map("a"))
    await api.created("configmaps", config_map("b"))
    assert (await api.get("configmaps", fieldSelector="metadata.name=a")).names == ["a"]
    selector = f"metadata.name!=a,metadata.namespace={api.namespace},metadata.name!=kube-root-ca.crt"
    assert (await api.get("configmaps", fieldSelector=selector)).names == ["b"]
    everywhere = await api.call(
        "GET", api.path("configmaps", namespace=""), query={"fieldSelector": f"metadata.namespace={api.namespace}"}
    )
    assert {"a", "b"} <= set(everywhere.names)


async def test_field_selectors_of_built_in_kinds(api: Api) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "type": "example.com/x"}
    await api.created("secrets", secret)
    assert (await api.get("secrets", fieldSelector="type=example.com/x")).names == ["a"]
    assert (await api.get("secrets", fieldSelector="type!=example.com/x")).names == []
    phases = await api.get("namespaces", fieldSelector=f"status.phase=Active,metadata.name={api.namespace}")
    assert phases.names == [api.namespace]


async def test_selectable_fields_of_custom_resources(api: Api) -> None:
    await api.created("widgets", widget("a", {"color": "green"}))
    await api.created("widgets", widget("b"))
    assert (await api.get("widgets", fieldSelector="spec.color=green")).names == ["a"]
    assert (await api.get("widgets", fieldSelector="metadata.name=b")).names == ["b"]


@pytest.mark.parametrize("resource", ["configmaps", "widgets"])
async def test_a_field_that_is_not_selectable_is_a_bad_request(api: Api, resource: str) -> None:
    answer = await api.get(resource, fieldSelector="spec.size=1")
    assert (answer.status, answer.reason) == (400, "BadRequest")


async def test_a_watch_with_a_field_that_is_not_selectable_is_a_bad_request(api: Api) -> None:
    async with api.watch("configmaps", fieldSelector="data.a=1") as watch:
        assert watch.status == 400


# --- limit/continue with a stable snapshot, an expired token is a 410 ---


async def test_pages_show_the_state_of_the_first(api: Api) -> None:
    for name in "abcde":
        await api.created("widgets", widget(name))
    first = await api.get("widgets", limit=2)
    assert first.names == ["a", "b"]
    assert first.body["metadata"]["remainingItemCount"] == 3
    await api.created("widgets", widget("bb"))
    await api.delete("widgets", "d")
    await api.patch("widgets", "c", {"spec": {"size": 9}})
    token = first.body["metadata"]["continue"]
    second = await api.get("widgets", limit=2, **{"continue": token})
    assert second.names == ["c", "d"]
    assert second.body["items"][0]["spec"]["size"] == 1
    assert second.version == first.version
    third = await api.get("widgets", limit=2, **{"continue": second.body["metadata"]["continue"]})
    assert third.names == ["e"]
    assert not third.body["metadata"].get("continue")
    assert (await api.get("widgets")).names == ["a", "b", "bb", "c", "e"]


async def test_a_broken_continue_token_is_a_bad_request(api: Api) -> None:
    answer = await api.get("widgets", limit=2, **{"continue": "nonsense"})
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert answer.message.startswith("invalid continue token: continue key is not valid: ")


def _aged(token: str) -> str:
    """The same place in a list of long ago, of which the real server's cache has no snapshot."""
    content = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    return base64.urlsafe_b64encode(json.dumps({**content, "rv": 3}).encode()).decode().rstrip("=")


async def test_an_expired_continue_token_is_gone_and_says_how_to_go_on(api: Api) -> None:
    for name in "abc":
        await api.created("widgets", widget(name))
    token = (await api.get("widgets", limit=1)).body["metadata"]["continue"]
    await api.patch("widgets", "b", {"spec": {"size": 9}})
    api.forget()
    answer = await api.get("widgets", limit=1, **{"continue": _aged(token)})
    assert (answer.status, answer.reason) == (410, "Expired")
    assert answer.message.startswith("The provided continue parameter is too old to display a consistent list result.")
    second = await api.get("widgets", limit=1, **{"continue": answer.body["metadata"]["continue"]})
    assert (second.names, second.body["items"][0]["spec"]["size"]) == (["b"], 9)


async def test_a_page_cannot_ask_for_a_version(api: Api) -> None:
    await api.created("widgets", widget("a"))
    await api.created("widgets", widget("b"))
    first = await api.get("widgets", limit=1)
    token = first.body["metadata"]["continue"]
    answer = await api.get("widgets", resourceVersion=first.version, **{"continue": token})
    assert answer.status in {400, 422}
    assert "specifying resource version is not allowed when using continue" in answer.message or answer.causes


async def test_a_list_of_a_version_from_the_future_is_too_large(api: Api) -> None:
    answer = await api.get("widgets", resourceVersion="999999999")
    assert (answer.status, answer.reason) == (504, "Timeout")
    assert answer.message.startswith("Timeout: Too large resource version: 999999999, current: ")
    assert [(reason, message) for _, reason, message in answer.causes] == [
        ("ResourceVersionTooLarge", "Too large resource version")
    ]


async def test_a_list_of_an_exact_version_shows_what_was(api: Api) -> None:
    await api.created("widgets", widget("a"))
    before = await api.get("widgets")
    await api.created("widgets", widget("b"))
    answer = await api.get("widgets", resourceVersion=before.version, resourceVersionMatch="Exact")
    assert answer.names == ["a"]

    async def is_newer() -> bool:  # the real server's cache, which answers, may still lack the last write
        newer = await api.get("widgets", resourceVersion=before.version, resourceVersionMatch="NotOlderThan")
        assert newer.names in (["a"], ["a", "b"])
        return newer.names == ["a", "b"]

    await eventually(is_newer)


async def test_an_old_exact_version_is_gone(api: Api) -> None:
    answer = await api.get("widgets", resourceVersion="1", resourceVersionMatch="Exact")
    assert answer.status in {200, 410}  # the real one compacts every five minutes
    match = await api.get("widgets", resourceVersionMatch="Exact")
    assert (match.status, match.reason) == (422, "Invalid")


async def test_lists_are_ordered_by_namespace_and_name(api: Api) -> None:
    for name in ("b", "a", "c-1", "c.1"):
        await api.created("widgets", widget(name))
    assert (await api.get("widgets")).names == ["a", "b", "c-1", "c.1"]


async def test_an_empty_list_has_items(api: Api) -> None:
    answer = await api.get("widgets")
    assert answer.body["items"] == []
    assert answer.body["kind"] == "WidgetList"
    assert answer.body["apiVersion"] == "conformance.example.com/v1"


async def test_items_of_custom_resources_say_their_kind(api: Api) -> None:
    await api.created("widgets", widget("a"))
    await api.created("configmaps", config_map("a"))
    (item,) = (await api.get("widgets")).body["items"]
    assert (item["kind"], item["apiVersion"]) == ("Widget", "conformance.example.com/v1")
    item = (await api.get("configmaps")).body["items"][0]
    assert "kind" not in item


async def test_only_metadata_is_sent_where_only_metadata_is_wanted(api: Api) -> None:
    await api.created("widgets", widget("a"))
    accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    answer = await api.call("GET", api.path("widgets"), accept=accept)
    assert answer.body["kind"] == "PartialObjectMetadataList"
    (item,) = answer.body["items"]
    assert item["kind"] == "PartialObjectMetadata"
    assert "spec" not in item
    accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    answer = await api.call("GET", api.path("widgets", "a"), accept=accept)
    assert answer.body["kind"] == "PartialObjectMetadata"
    assert answer.body["metadata"]["name"] == "a"


PARTIAL = "application/json;as={};v=v1;g=meta.k8s.io"


async def test_metadata_is_asked_for_as_a_lists_or_as_an_objects(api: Api) -> None:
    await api.created("widgets", widget("a"))
    await api.created("configmaps", config_map("a"))
    of_list, of_object = PARTIAL.format("PartialObjectMetadataList"), PARTIAL.format("PartialObjectMetadata")
    for path, accept, why in (
        (api.path("widgets"), of_object, "is a list (*unstructured.UnstructuredList)"),
        (api.path("configmaps"), of_object, "is a list (*core.ConfigMapList)"),
        (api.path("configmaps", "a"), of_list, "is not a list (*core.ConfigMap)"),
    ):
        answer = await api.call("GET", path, accept=accept)
        assert (answer.status, answer.body["reason"]) == (406, "NotAcceptable")
        assert answer.body["message"].endswith(f", but the requested object {why}")
    async with api.watch("configmaps", accept=of_list, timeoutSeconds=1) as watch:
        assert watch.status == 200


@pytest.mark.parametrize("resource", ["widgets", "configmaps"])
async def test_a_watch_of_metadata_shows_every_change_and_nothing_but_metadata(api: Api, resource: str) -> None:
    make = {"widgets": widget, "configmaps": config_map}[resource]
    await api.created(resource, make("a"))
    options = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    async with api.watch(resource, accept=PARTIAL.format("PartialObjectMetadata"), **options) as watch:
        events = [await watch.next()]
        while events[-1]["type"] != "BOOKMARK":
            events.append(await watch.next())
        assert events[-1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        await api.patch(resource, "a", {"metadata": {"labels": {"x": "y"}}})
        await api.delete(resource, "a")
        while not any(event["type"] == "DELETED" for event in events):  # a bookmark may come in between
            events.append(await watch.next())
    assert [event["type"] for event in events if event["object"]["metadata"].get("name") == "a"] == [
        "ADDED",
        "MODIFIED",
        "DELETED",
    ]
    for event in events:
        assert set(event["object"]) == {"kind", "apiVersion", "metadata"}
        assert (event["object"]["kind"], event["object"]["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")


# --- watch from a resourceVersion replays adds and deletes ---


async def test_a_watch_from_a_version_replays_what_happened_since(api: Api) -> None:
    created = await api.created("configmaps", config_map("before"))
    await api.created("configmaps", config_map("a"))
    await api.patch("configmaps", "a", {"data": {"a": "2"}})
    await api.delete("configmaps", "a")
    await api.delete("configmaps", "before")
    async with api.watch("configmaps", resourceVersion=created.version) as watch:
        assert watch.status == 200
        events = [await watch.next() for _ in range(4)]
    seen = [(event["type"], event["object"]["metadata"]["name"]) for event in events if "root" not in str(event)]
    assert seen[:3] == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))
    deleted = next(event["object"] for event in events if event["type"] == "DELETED")
    assert deleted["data"] == {"a": "2"}
    assert deleted["kind"] == "ConfigMap"


async def test_a_watch_without_a_version_starts_with_what_is_there(api: Api) -> None:
    await api.created("widgets", widget("a"))
    for version in ("", "0"):
        async with api.watch("widgets", resourceVersion=version) as watch:
            kind, found = await watch.next_of("a")
            assert kind == "ADDED"
            assert found["spec"]["size"] == 1


async def test_a_watch_sees_what_happens_while_it_is_open(api: Api) -> None:
    version = (await api.get("widgets")).version
    async with api.watch("widgets", resourceVersion=version) as watch:
        await api.created("widgets", widget("a"))
        assert (await watch.next_of("a"))[0] == "ADDED"
        await api.patch("widgets", "a", {"status": {"phase": "x"}}, "status")
        kind, found = await watch.next_of("a")
        assert (kind, found["status"]) == ("MODIFIED", {"phase": "x"})
        await api.delete("widgets", "a")
        assert (await watch.next_of("a"))[0] == "DELETED"


async def test_a_watch_by_selector_adds_and_deletes_what_comes_and_goes(api: Api) -> None:
    version = (await api.get("configmaps")).version
    async with api.watch("configmaps", resourceVersion=version, labelSelector="x=1") as watch:
        await api.created("configmaps", config_map("other"))
        await api.created("configmaps", config_map("a"))
        await api.patch("configmaps", "a", {"metadata": {"labels": {"x": "1"}}})
        kind, found = await watch.next_of("a")
        assert (kind, found["metadata"]["labels"]) == ("ADDED", {"x": "1"})
        await api.patch("configmaps", "a", {"data": {"b": "2"}})
        assert (await watch.next_of("a"))[0] == "MODIFIED"
        left = await api.patch("configmaps", "a", {"metadata": {"labels": {"x": "2"}}})
        kind, found = await watch.next_of("a")
        assert kind == "DELETED"
        assert found["metadata"]["resourceVersion"] == left.version
        assert found["metadata"]["labels"] == {"x": "1"}


async def test_a_watch_of_one_object_is_by_field_selector(api: Api) -> None:
    version = (await api.get("configmaps")).version
    async with api.watch("configmaps", resourceVersion=version, fieldSelector="metadata.name=b") as watch:
        await api.created("configmaps", config_map("a"))
        await api.created("configmaps", config_map("b"))
        event = await watch.next()
        assert event["object"]["metadata"]["name"] == "b"


async def test_a_watch_of_all_namespaces_sees_this_one(api: Api) -> None:
    version = (await api.get("widgets")).version
    request_path = api.path("widgets", namespace="")
    assert request_path == "/apis/conformance.example.com/v1/widgets"
    answer = await api.call(
        "GET", request_path, query={"watch": "true", "resourceVersion": version, "timeoutSeconds": 1}
    )
    assert answer.status == 200


async def test_a_watch_from_the_future_waits(api: Api) -> None:
    async with api.watch("widgets", resourceVersion="999999999", timeoutSeconds=1) as watch:
        assert watch.status == 200


async def test_a_bad_version_is_refused(api: Api) -> None:
    answer = await api.get("widgets", resourceVersion="abc")
    assert (answer.status, answer.reason) == (400, "BadRequest")
    fault = 'Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax'
    assert answer.message == f"invalid resource version: resourceVersion: {fault}"
    async with api.watch("widgets", resourceVersion="abc") as watch:
        assert watch.status >= 400


# --- bookmarks, sendInitialEvents, timeoutSeconds ---


async def test_a_watch_ends_after_its_timeout(api: Api) -> None:
    version = (await api.get("widgets")).version
    started = anyio.current_time()
    async with api.watch("widgets", resourceVersion=version, timeoutSeconds=2) as watch:
        assert await watch.rest() == []
    assert 1.5 <= anyio.current_time() - started <= 60  # unasked it would end after half an hour or more


async def test_bookmarks_are_sent_before_a_watch_ends(api: Api) -> None:
    created = await api.created("widgets", widget("a"))
    bookmarks: list[Body] = []

    async def one_came() -> bool:  # the real server sends it two seconds before the end, or never, if it stood still
        async with api.watch(
            "widgets", resourceVersion=created.version, timeoutSeconds=4, allowWatchBookmarks="true"
        ) as watch:
            bookmarks.extend(event for event in await watch.rest() if event["type"] == "BOOKMARK")
        return bool(bookmarks)

    await eventually(one_came)
    found = bookmarks[-1]["object"]
    assert (found["kind"], found["apiVersion"]) == ("Widget", "conformance.example.com/v1")
    assert int(found["metadata"]["resourceVersion"]) >= int(created.version)
    assert "name" not in found["metadata"]


async def test_no_bookmarks_unless_asked_for(api: Api) -> None:
    created = await api.created("widgets", widget("a"))
    async with api.watch("widgets", resourceVersion=created.version, timeoutSeconds=3) as watch:
        assert await watch.rest() == []


async def test_initial_events_end_with_a_bookmark(api: Api) -> None:
    await api.created("widgets", widget("a"))
    await api.created("widgets", widget("b"))
    async with api.watch(
        "widgets", sendInitialEvents="true", resourceVersionMatch="NotOlderThan", allowWatchBookmarks="true"
    ) as watch:
        events = [await watch.next() for _ in range(3)]
        names = sorted(event["object"]["metadata"]["name"] for event in events[:2])
        assert names == ["a", "b"]
        assert {event["type"] for event in events[:2]} == {"ADDED"}
        assert events[2]["type"] == "BOOKMARK"
        metadata = events[2]["object"]["metadata"]
        assert metadata["annotations"] == {"k8s.io/initial-events-end": "true"}
        await api.created("widgets", widget("c"))
        assert (await watch.next_of("c"))[0] == "ADDED"


async def test_initial_events_need_the_match(api: Api) -> None:
    async with api.watch("widgets", sendInitialEvents="true") as watch:
        assert watch.status == 422


async def test_a_single_object_cannot_be_listed_and_watched_by_name(api: Api) -> None:
    await api.created("widgets", widget("a"))
    answer = await api.call("GET", api.path("widgets", "a"), query={"watch": "false"})
    assert answer.body["kind"] == "Widget"
