"""What the typed client sends and what it makes of the answers, over a transport that follows a script."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from typing import Any, Generic, Self, TypeVar, cast

import anyio
import anyio.lowlevel
import pytest
from lightkube.core.resource import ApiInfo, NamespacedResourceG, ResourceDef
from lightkube.generic_resource import GenericNamespacedResource, create_namespaced_resource  # pyright: ignore[reportUnknownVariableType] - lightkube's own
from lightkube.models.apps_v1 import DeploymentSpec
from lightkube.models.core_v1 import Container, PodSpec, PodTemplateSpec
from lightkube.models.meta_v1 import LabelSelector, ManagedFieldsEntry, ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap, Namespace, Node
from pydantic import Field

from opsdk.client import ApiClient, HttpRequest, HttpResponse, HttpStream, refresh_metadata
from opsdk.client._documents import Documents
from opsdk.errors import (
    ApiStatusError,
    ConflictError,
    DecodeError,
    ForbiddenError,
    GoneError,
    LeadershipLostError,
    NotFoundError,
    ObjectError,
    ResourceDefinitionError,
)
from opsdk.models import CustomResource, Model, metadata_of, view_of
from opsdk.protocols import Added, Bookmark, Client, Deleted, KubeObject, Modified, ObjectList, Undecodable
from opsdk.types import Json, JsonObject, JsonPatch, MergePatch, Patch, Preconditions, StrategicMergePatch

pytestmark = pytest.mark.anyio


class PartSpec(Model):
    name: str
    size: int = 1


class WidgetSpec(Model):
    size: int = 1
    parts: list[PartSpec] = Field(default_factory=list[PartSpec])


class WidgetStatus(Model):
    ready: int = 0


class Widget(CustomResource[WidgetSpec, WidgetStatus], group="demo.example.com", version="v1"):
    pass


class Script:
    """Answers in order and remembers what it was asked."""

    def __init__(self, *answers: HttpResponse) -> None:
        self.answers = list(answers)
        self.requests: list[HttpRequest] = []
        self.lines: Sequence[JsonObject] = ()
        self.closed = False

    async def request(self, request: HttpRequest, /) -> HttpResponse:
        await anyio.lowlevel.checkpoint()
        self.requests.append(request)
        return self.answers.pop(0)

    @asynccontextmanager
    async def stream(self, request: HttpRequest, /) -> AsyncGenerator[HttpStream]:
        self.requests.append(request)
        async with aclosing(self._chunks()) as chunks:
            yield HttpStream(status=200, headers={}, chunks=chunks)

    async def _chunks(self) -> AsyncGenerator[bytes]:
        for line in self.lines:
            yield json.dumps(line).encode() + b"\n"

    async def aclose(self) -> None:
        self.closed = True

    @property
    def body(self) -> Mapping[str, Json]:
        """The body of the last request."""
        body = self.requests[-1].body
        assert body is not None
        decoded: Json = json.loads(body)
        assert isinstance(decoded, Mapping)
        return decoded

    @property
    def query(self) -> dict[str, str]:
        """The parameters of the last request."""
        return dict(self.requests[-1].query)

    @property
    def line(self) -> str:
        """Method and path of the last request."""
        return f"{self.requests[-1].method} {self.requests[-1].path}"


def ok(document: Json) -> HttpResponse:
    return HttpResponse(status=200, headers={"content-type": "application/json"}, body=json.dumps(document).encode())


def failed(code: int, reason: str, **details: Json) -> HttpResponse:
    status: JsonObject = {"kind": "Status", "code": code, "reason": reason, "message": "no", "details": details}
    return HttpResponse(status=code, headers={}, body=json.dumps(status).encode())


def widget(version: str = "5", *, uid: str = "u1", spec: JsonObject | None = None, **more: Json) -> dict[str, Json]:
    """A widget as the server stores it: with what the model does not know, in list items and metadata too."""
    return {
        "apiVersion": "demo.example.com/v1",
        "kind": "Widget",
        "metadata": {
            "name": "w",
            "namespace": "n",
            "uid": uid,
            "resourceVersion": version,
            "generation": 2,
            "newInMetadata": {"x": 1},
        },
        "spec": spec
        or {"size": 1, "new": True, "parts": [{"name": "a", "new": 1}, {"name": "b", "size": 2, "new": 2}]},
        "status": {"ready": 0, "new": [1]},
        **more,
    }


async def read(script: Script, client: ApiClient, document: JsonObject | None = None) -> Widget:
    script.answers.insert(0, ok(document or widget()))
    return await client.get(Widget, "w", namespace="n")


def a_widget(
    name: str | None = "w",
    namespace: str | None = "n",
    *,
    version: str | None = None,
    uid: str | None = None,
    generate_name: str | None = None,
) -> Widget:
    metadata = ObjectMeta(name=name, namespace=namespace, resourceVersion=version, uid=uid, generateName=generate_name)
    return Widget(metadata=metadata, spec=WidgetSpec())


# Where


NO_PLACE: list[tuple[str, Callable[[ApiClient], Awaitable[object]]]] = [
    ("get", lambda client: client.get(Widget, "w")),
    ("find", lambda client: client.find(Widget, "w")),
    ("create", lambda client: client.create(a_widget(namespace=None))),
    ("replace", lambda client: client.replace(a_widget(namespace=None, version="1"))),
    ("patch", lambda client: client.patch(Widget, "w", MergePatch({}))),
    ("apply", lambda client: client.apply(a_widget(namespace=None))),
    ("delete", lambda client: client.delete(Widget, "w")),
    ("delete_collection", lambda client: client.delete_collection(Widget)),
    ("status.patch", lambda client: client.status.patch(Widget, "w", MergePatch({}))),
    ("status.apply", lambda client: client.status.apply(a_widget(namespace=None))),
]


@pytest.mark.parametrize(("verb", "call"), NO_PLACE, ids=[name for name, _ in NO_PLACE])
async def test_a_namespace_is_never_guessed(verb: str, call: Callable[[ApiClient], Awaitable[object]]) -> None:
    client = ApiClient(Script(), namespace="of-the-context")
    with pytest.raises(ObjectError, match=r"Widget.* no namespace was given; pass namespace=…"):
        await call(client)


async def test_a_namespace_for_a_cluster_scoped_kind_is_refused() -> None:
    client = ApiClient(Script())
    with pytest.raises(ObjectError, match="Node n1: the kind is cluster-scoped"):
        await client.get(Node, "n1", namespace="n")
    with pytest.raises(ObjectError, match="cluster-scoped"):
        await client.list(Node, namespace="n")
    with pytest.raises(ObjectError, match="cluster-scoped"):
        client.stream(Node, namespace="n")
    with pytest.raises(ObjectError, match="cluster-scoped"):
        async with client.watch(Node, namespace="n"):
            pass


async def test_two_namespaces_that_differ_are_refused() -> None:
    with pytest.raises(ObjectError, match=r"metadata.namespace is 'n' and the call says namespace='m'"):
        await ApiClient(Script()).create(a_widget(), namespace="m")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a%2Fb"])
async def test_a_name_that_would_mean_another_path_is_refused(name: str) -> None:
    client = ApiClient(Script())
    with pytest.raises(ObjectError):
        await client.get(Widget, name, namespace="n")
    with pytest.raises(ObjectError):
        await client.delete(Widget, name, namespace="n")
    with pytest.raises(ObjectError):
        await client.get(Widget, "w", namespace=name)
    with pytest.raises(ObjectError):
        await client.apply(a_widget(name))


async def test_an_object_without_a_name_can_only_be_created_with_generate_name() -> None:
    script = Script(ok(widget()))
    client = ApiClient(script)
    with pytest.raises(ObjectError, match=r"metadata.name or metadata.generateName"):
        await client.create(a_widget(None))
    with pytest.raises(ObjectError, match=r"no metadata.name"):
        await client.apply(a_widget(None))
    created = await client.create(a_widget(None, generate_name="w-"))
    assert created.metadata.name == "w"
    assert script.line == "POST /apis/demo.example.com/v1/namespaces/n/widgets"


async def test_b6_a_bare_patch_or_the_name_of_a_kind_is_refused_with_the_way_out() -> None:
    client, bare, kind = ApiClient(script := Script()), cast("Any", {"spec": {}}), cast("Any", "Widget")
    for verbs in (client, client.status):
        with pytest.raises(TypeError, match=r"a bare dict .* wrap it: MergePatch\(\{...\}\), JsonPatch"):
            await verbs.patch(Widget, "w", bare, namespace="n")
    with pytest.raises(ResourceDefinitionError, match=r"named by its class.*'Widget' is a str"):
        await client.get(kind, "w", namespace="n")
    assert script.requests == []


# Reads


async def test_find_is_none_only_when_the_server_says_that_there_is_no_such_object() -> None:
    script = Script(failed(404, "NotFound", name="w", kind="widgets"), failed(404, "NotFound"))
    client = ApiClient(script)
    assert await client.find(Widget, "w", namespace="n") is None
    with pytest.raises(NotFoundError):
        await client.find(Widget, "w", namespace="n")  # the kind itself is unknown
    script.answers = [HttpResponse(status=404, headers={}, body=b"<html>default backend</html>")]
    with pytest.raises(NotFoundError):
        await client.find(Widget, "w", namespace="n")
    script.answers = [failed(403, "Forbidden", name="w")]
    with pytest.raises(ForbiddenError):
        await client.find(Widget, "w", namespace="n")


async def test_a_document_that_does_not_fit_its_model_is_an_error_that_names_the_field() -> None:
    with pytest.raises(DecodeError, match=r"Widget n/w: spec.size"):
        await read(script := Script(), ApiClient(script), widget(spec={"size": "large"}))


def page(version: str, names: Sequence[str], token: str = "") -> HttpResponse:
    return ok(
        {
            "metadata": {"resourceVersion": version, "continue": token},
            "items": [
                {"metadata": {"name": name, "namespace": "n", "uid": f"u-{name}", "resourceVersion": name[1:] or "900"}}
                for name in names
            ],
        }
    )


def names(objects: Sequence[KubeObject]) -> list[str | None]:
    return [metadata_of(one).name for one in objects]


async def test_a_list_is_read_in_pages_and_w08_has_its_own_version() -> None:
    script = Script(page("50", ["c1", "a99"], "t1"), page("50", ["b2"], "t2"), page("50", ["d"]))
    found = await ApiClient(script).list(ConfigMap, labels={"app": "x"}, fields={"metadata.namespace": "n"})
    assert isinstance(found, ObjectList)
    assert names(found) == ["c1", "a99", "b2", "d"]
    assert found.resource_version == "50"
    assert [dict(one.query).get("continue") for one in script.requests] == [None, "t1", "t2"]
    for request in script.requests:
        assert dict(request.query)["limit"] == "500"
        assert dict(request.query)["labelSelector"] == "app=x"
        assert dict(request.query)["fieldSelector"] == "metadata.namespace=n"
        assert request.path == "/api/v1/configmaps"


async def test_w07_a_list_whose_token_expires_is_started_over_and_nothing_is_served_half() -> None:
    script = Script(
        page("50", ["a1", "b2"], "t1"),
        failed(410, "Expired"),
        page("60", ["a1", "c3"], "t2"),
        failed(410, "Expired"),
        page("70", ["c3", "d4", "e5"]),
    )
    found = await ApiClient(script).list(ConfigMap, namespace="n")
    assert (names(found), found.resource_version) == (["c3", "d4", "e5"], "70")
    limits = [(dict(one.query).get("limit"), dict(one.query).get("continue")) for one in script.requests]
    assert limits == [("500", None), ("500", "t1"), ("500", None), ("500", "t2"), (None, None)]


async def test_a_list_that_is_gone_at_once_is_an_error() -> None:
    with pytest.raises(GoneError):
        await ApiClient(Script(failed(410, "Expired"))).list(ConfigMap)


async def test_one_bad_object_fails_a_list_and_is_reported_by_a_stream() -> None:
    good, bad = widget(), widget(spec={"size": "large"}, uid="u2")
    items: JsonObject = {"metadata": {"resourceVersion": "9"}, "items": [bad, good]}
    script = Script(ok(items), ok(items))
    client = ApiClient(script)
    with pytest.raises(DecodeError):
        await client.list(Widget)
    first, second = [one async for one in client.stream(Widget)]
    assert isinstance(first, Undecodable)
    assert (first.error.field, first.metadata and first.metadata.uid) == ("spec.size", "u2")
    assert isinstance(second, Widget)


async def test_a_stream_reads_the_next_page_only_when_it_is_needed() -> None:
    script = Script(page("50", ["a1", "b2"], "t1"), page("50", ["c3"]))
    stream = ApiClient(script).stream(ConfigMap, page_size=2)
    seen: list[tuple[object, int]] = []
    async for one in stream:
        assert isinstance(one, ConfigMap)
        seen.append((metadata_of(one).name, len(script.requests)))
    assert seen == [("a1", 1), ("b2", 1), ("c3", 2)]
    assert dict(script.requests[0].query)["limit"] == "2"


async def test_w07_a_stream_whose_token_expires_starts_over_without_repeating_what_has_not_changed() -> None:
    script = Script(
        page("50", ["a1", "b2"], "t1"),
        failed(410, "Expired"),
        page("60", ["a1"], "t2"),
        page("60", ["b2", "c3"]),
    )
    found = [one async for one in ApiClient(script).stream(ConfigMap)]
    assert names([one for one in found if isinstance(one, ConfigMap)]) == ["a1", "b2", "c3"]


@pytest.mark.parametrize("size", [0, -1])
async def test_a_page_has_at_least_one_object(size: int) -> None:
    with pytest.raises(ValueError, match="page_size"):
        ApiClient(Script()).stream(ConfigMap, page_size=size)


async def test_a_watch_delivers_typed_events() -> None:
    script = Script()
    bookmark: JsonObject = {
        "kind": "Widget",
        "metadata": {"resourceVersion": "77", "annotations": {"k8s.io/initial-events-end": "true"}},
        "spec": None,
    }
    script.lines = [
        {"type": "ADDED", "object": widget("1")},
        {"type": "MODIFIED", "object": widget("2")},
        {"type": "MODIFIED", "object": widget("3", spec={"size": "large"})},
        {"type": "MODIFIED", "object": {"metadata": {"name": 7, "uid": "u9", "labels": {"a": 1}}}},
        {"type": "DELETED", "object": widget("4")},
        {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "76"}}},
        {"type": "BOOKMARK", "object": bookmark},
    ]
    client = ApiClient(script)
    async with client.watch(Widget, namespace="n", resource_version="0", timeout=timedelta(minutes=5)) as events:
        added, modified, bad, worse, deleted, quiet, end = [event async for event in events]
    assert isinstance(added, Added)
    assert isinstance(modified, Modified)
    assert isinstance(bad, Undecodable)
    assert isinstance(worse, Undecodable)
    assert isinstance(deleted, Deleted)
    assert modified.object.metadata.resourceVersion == "2"
    assert (bad.event, bad.error.field, bad.metadata and bad.metadata.resourceVersion) == ("MODIFIED", "spec.size", "3")
    assert (worse.metadata and worse.metadata.uid) == "u9"
    assert (quiet, end) == (Bookmark("76"), Bookmark("77", initial_events_end=True))
    assert script.line == "GET /apis/demo.example.com/v1/namespaces/n/widgets"
    assert script.query["timeoutSeconds"] == "300"
    assert client.document(modified.object) is not None, "what a watch delivered can be the base of a difference"
    assert client.document(deleted.object) is None


# Writes


async def test_create_sends_the_object_and_returns_what_was_stored() -> None:
    script = Script(ok(widget("9")))
    created = await ApiClient(script, field_manager="me").create(a_widget(namespace=None), namespace="n")
    assert script.line == "POST /apis/demo.example.com/v1/namespaces/n/widgets"
    assert script.query == {"fieldManager": "me"}
    assert (script.body["kind"], script.body["apiVersion"]) == ("Widget", "demo.example.com/v1")
    assert created.metadata.resourceVersion == "9"


WRITES: list[tuple[str, Callable[[ApiClient, bool | None, str | None], Awaitable[object]]]] = [
    ("create", lambda c, dry, fm: c.create(a_widget(), dry_run=dry, field_manager=fm)),
    ("patch", lambda c, dry, fm: c.patch(Widget, "w", MergePatch({}), namespace="n", dry_run=dry, field_manager=fm)),
    ("apply", lambda c, dry, fm: c.apply(a_widget(), dry_run=dry, field_manager=fm)),
    (
        "status.patch",
        lambda c, dry, fm: c.status.patch(Widget, "w", MergePatch({}), namespace="n", dry_run=dry, field_manager=fm),
    ),
    ("status.apply", lambda c, dry, fm: c.status.apply(a_widget(), dry_run=dry, field_manager=fm)),
]


@pytest.mark.parametrize(("verb", "call"), WRITES, ids=[name for name, _ in WRITES])
@pytest.mark.parametrize(
    ("of_client", "of_call", "is_dry"),
    [(False, None, False), (False, True, True), (True, None, True), (True, False, False)],
)
async def test_dry_run_and_field_manager_are_options_of_the_client_and_of_the_call(
    verb: str,
    call: Callable[[ApiClient, bool | None, str | None], Awaitable[object]],
    of_client: bool,  # noqa: FBT001 - a parameter of the test
    of_call: bool | None,  # noqa: FBT001 - a parameter of the test
    is_dry: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    script = Script(ok(widget()), ok(widget()))
    client = ApiClient(script, field_manager="mine", dry_run=of_client)
    await call(client, of_call, None)
    assert script.query["fieldManager"] == "mine"
    assert script.query.get("dryRun") == ("All" if is_dry else None)
    await call(client, of_call, "theirs")
    assert script.query["fieldManager"] == "theirs"


@pytest.mark.parametrize(
    ("patch", "content_type", "body"),
    [
        (MergePatch({"spec": {"size": None}}), "application/merge-patch+json", b'{"spec":{"size":null}}'),
        (StrategicMergePatch({"a": 1}), "application/strategic-merge-patch+json", b'{"a":1}'),
        (
            JsonPatch([{"op": "test", "path": "/a", "value": 1}]),
            "application/json-patch+json",
            b'[{"op":"test","path":"/a","value":1}]',
        ),
    ],
)
async def test_a_patch_names_its_own_content_type(patch: Patch, content_type: str, body: bytes) -> None:
    script = Script(ok(widget()), ok(widget()))
    client = ApiClient(script)
    await client.patch(Widget, "w", patch, namespace="n")
    assert script.line == "PATCH /apis/demo.example.com/v1/namespaces/n/widgets/w"
    assert (script.requests[-1].headers["content-type"], script.requests[-1].body) == (content_type, body)
    await client.status.patch(Widget, "w", patch, namespace="n")
    assert script.line == "PATCH /apis/demo.example.com/v1/namespaces/n/widgets/w/status"


async def test_m03_o03_a_difference_is_sent_alone_and_keeps_unknown_fields_of_list_items() -> None:
    script = Script()
    client = ApiClient(script)
    obj = await read(script, client)
    base = client.snapshot(obj)
    obj.spec.parts[1].size = 3
    obj.metadata.labels = {"l": "1"}
    script.answers = [ok(widget("6"))]
    stored = await client.patch_from(base, obj)
    assert stored is not None
    assert stored.metadata.resourceVersion == "6"
    assert obj.metadata.resourceVersion == "5", "the object in hand is left to its owner"
    assert script.line == "PATCH /apis/demo.example.com/v1/namespaces/n/widgets/w"
    assert script.requests[-1].headers["content-type"] == "application/merge-patch+json"
    assert script.body == {
        "metadata": {"labels": {"l": "1"}, "resourceVersion": "5", "uid": "u1"},
        "spec": {"parts": [{"name": "a", "new": 1}, {"name": "b", "size": 3, "new": 2}]},
    }
    assert len(script.requests) == 2


async def test_m02_no_difference_is_no_request_even_where_the_model_has_defaults_of_its_own() -> None:
    script = Script()
    client = ApiClient(script)
    obj = await read(script, client, widget(spec={"new": 1}))
    base = client.snapshot(obj)
    obj.spec = WidgetSpec.model_validate(obj.spec.model_dump())
    assert await client.patch_from(base, obj) is None
    assert await client.status.patch_from(base, obj) is None
    assert len(script.requests) == 1


async def test_the_status_difference_goes_to_status_and_the_rest_stays_behind() -> None:
    script = Script()
    client = ApiClient(script)
    obj = await read(script, client)
    base = client.snapshot(obj)
    obj.status.ready = 3
    obj.spec.size = 7
    script.answers = [ok(widget("6")), ok(widget("6"))]
    await client.status.patch_from(base, obj)
    assert script.line == "PATCH /apis/demo.example.com/v1/namespaces/n/widgets/w/status"
    assert script.body == {"metadata": {"resourceVersion": "5", "uid": "u1"}, "status": {"ready": 3}}
    await client.patch_from(base, obj)
    assert script.line == "PATCH /apis/demo.example.com/v1/namespaces/n/widgets/w"
    assert script.body == {"metadata": {"resourceVersion": "5", "uid": "u1"}, "spec": {"size": 7}}


async def test_removing_a_field_is_a_null_in_the_patch() -> None:
    script = Script()
    client = ApiClient(script)
    document = widget()
    document["metadata"] = {**as_object(document["metadata"]), "labels": {"a": "1", "b": "2"}}
    obj = await read(script, client, document)
    base = client.snapshot(obj)
    obj.metadata.labels = {"b": "2"}
    script.answers = [ok(widget("6"))]
    await client.patch_from(base, obj)
    assert script.body == {"metadata": {"labels": {"a": None}, "resourceVersion": "5", "uid": "u1"}}


def as_object(value: Json) -> Mapping[str, Json]:
    assert isinstance(value, Mapping)
    return value


async def test_an_object_that_was_never_read_here_is_fetched_for_what_its_model_does_not_know() -> None:
    there = Script()
    obj = await read(there, ApiClient(there))
    script = Script(ok(widget()), ok(widget("6")))
    client = ApiClient(script)
    base = client.snapshot(obj)
    assert base.document is None
    obj.spec.parts[0].size = 9
    await client.patch_from(base, obj)
    assert [one.method for one in script.requests] == ["GET", "PATCH"]
    assert as_object(script.body["spec"]) == {
        "parts": [{"name": "a", "size": 9, "new": 1}, {"name": "b", "size": 2, "new": 2}]
    }


@pytest.mark.parametrize(
    ("now", "text"),
    [
        (widget("6"), r"was written since it was read \(resourceVersion 5, now 6\)"),
        (widget(uid="u2"), "deleted and created again"),
    ],
)
async def test_when_the_fetched_object_is_another_one_it_is_a_conflict_and_nothing_is_written(
    now: JsonObject, text: str
) -> None:
    there = Script()
    obj = await read(there, ApiClient(there))
    script = Script(ok(now), ok(now), ok(now))
    client = ApiClient(script)
    base = client.snapshot(obj)
    obj.spec.size = 9
    obj.status.ready = 9
    for write in (client.patch_from(base, obj), client.status.patch_from(base, obj), client.replace(obj)):
        with pytest.raises(ConflictError, match=text) as caught:
            await write
        assert (caught.value.code, caught.value.kind, caught.value.name) == (409, "Widget", "w")
    assert {one.method for one in script.requests} == {"GET"}


async def test_a_difference_needs_an_object_that_was_read() -> None:
    client = ApiClient(Script())
    obj = a_widget()
    base = client.snapshot(obj)
    obj.spec.size = 2
    with pytest.raises(ObjectError, match=r"n/w has no metadata.resourceVersion"):
        await client.patch_from(base, obj)
    with pytest.raises(ObjectError, match=r"n/w has no metadata.resourceVersion, so it was never read"):
        await client.replace(obj)


async def test_a_snapshot_of_one_object_is_no_base_for_another() -> None:
    client = ApiClient(Script())
    obj = a_widget()
    base = client.snapshot(obj)
    obj.metadata.name = "v"
    with pytest.raises(ObjectError, match=r"metadata.name was 'w' in the snapshot"):
        await client.patch_from(base, obj)


async def test_a_write_of_ours_that_was_noted_in_the_object_does_not_stand_in_the_way() -> None:
    script = Script()
    client = ApiClient(script)
    obj = await read(script, client)
    base = client.snapshot(obj)
    obj.status.ready = 1

    # What a hook does meanwhile: a finalizer, written and noted in the object in hand.
    again = client.snapshot(obj)
    obj.metadata.finalizers = ["x/y"]
    stored = widget("6")
    stored["metadata"] = {**as_object(stored["metadata"]), "finalizers": ["x/y"], "generation": 3}
    script.answers = [ok(stored)]
    written = await client.patch_from(again, obj)
    assert written is not None
    refresh_metadata(obj, written)
    assert (obj.metadata.resourceVersion, obj.metadata.generation) == ("6", 3)

    script.answers = [ok(widget("7"))]
    await client.status.patch_from(base, obj)
    assert script.body == {"metadata": {"resourceVersion": "6", "uid": "u1"}, "status": {"ready": 1}}
    assert [one.method for one in script.requests] == ["GET", "PATCH", "PATCH"]
    assert await client.patch_from(base, obj) is None, "the finalizer is there already"


async def test_refreshing_keeps_what_may_not_be_written_yet() -> None:
    mine, theirs = a_widget(None, None, generate_name="w-"), a_widget("w-1", "n", version="8", uid="u")
    mine.metadata.labels = {"mine": "1"}
    theirs.metadata.labels = {"theirs": "1"}
    theirs.metadata.finalizers = ["f"]
    metadata = mine.metadata
    ApiClient.refresh_metadata(mine, theirs)
    assert mine.metadata is metadata, "in place"
    assert (metadata.name, metadata.namespace, metadata.uid, metadata.resourceVersion) == ("w-1", "n", "u", "8")
    assert view_of(mine).labels == {"mine": "1"}
    theirs.metadata.finalizers.append("later")
    assert metadata.finalizers == ["f"]


async def test_m03_o03_replace_sends_the_servers_document_with_the_difference_laid_over() -> None:
    script = Script()
    client = ApiClient(script)
    obj = await read(script, client)
    obj.spec.parts.insert(0, PartSpec(name="c"))
    obj.spec.parts[1].size = 5
    script.answers = [ok(widget("6"))]
    await client.replace(obj)
    assert script.line == "PUT /apis/demo.example.com/v1/namespaces/n/widgets/w"
    expected = widget()
    expected["spec"] = {
        "size": 1,
        "new": True,
        "parts": [{"name": "c", "size": 1}, {"name": "a", "size": 5, "new": 1}, {"name": "b", "size": 2, "new": 2}],
    }
    assert script.body == expected
    assert len(script.requests) == 2


async def test_what_came_from_a_list_of_a_built_in_kind_is_replaced_with_its_kind_named() -> None:
    script = Script(page("50", ["a1"]), page("50", ["a1"]))
    client = ApiClient(script)
    (found,) = await client.list(ConfigMap)
    found.data = {"k": "v"}
    script.answers = [ok({"metadata": {"name": "a1"}})]
    await client.replace(found)
    assert script.body == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a1", "namespace": "n", "uid": "u-a1", "resourceVersion": "1"},
        "data": {"k": "v"},
    }


async def test_replace_of_status_goes_to_status() -> None:
    script = Script()
    client = ApiClient(script)
    obj = await read(script, client)
    obj.status.ready = 4
    script.answers = [ok(widget("6"))]
    await client.status.replace(obj)
    assert script.line == "PUT /apis/demo.example.com/v1/namespaces/n/widgets/w/status"
    assert script.body["status"] == {"ready": 4, "new": [1]}


async def test_what_was_only_tried_is_not_taken_for_what_is_stored() -> None:
    script = Script()
    client = ApiClient(script)
    obj = await read(script, client)
    base = client.snapshot(obj)
    obj.spec.size = 9
    tried = widget(spec={"size": 9})
    script.answers = [ok(tried)]
    answer = await client.patch_from(base, obj, dry_run=True)
    assert answer is not None
    kept = client.document(obj)
    assert kept is not None
    assert json.loads(kept) == widget()


async def test_apply_sends_what_was_set_under_the_field_manager() -> None:
    script = Script(ok(widget()), ok(widget()))
    client = ApiClient(script, field_manager="me")
    obj = Widget(
        metadata=ObjectMeta(name="w", namespace="n", managedFields=[ManagedFieldsEntry(manager="kubectl")]),
        spec=WidgetSpec(size=1),
    )
    await client.apply(obj, force=True)
    assert script.line == "PATCH /apis/demo.example.com/v1/namespaces/n/widgets/w"
    assert script.requests[-1].headers["content-type"] == "application/apply-patch+yaml"
    assert script.query == {"fieldManager": "me", "force": "true"}
    assert script.body == {
        "apiVersion": "demo.example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "w", "namespace": "n"},
        "spec": {"size": 1},
    }
    await client.apply(obj)
    assert script.query == {"fieldManager": "me"}


async def test_apply_of_status_sends_status_and_the_name_only() -> None:
    script = Script(ok(widget()))
    obj = a_widget()
    obj.status = WidgetStatus(ready=2)
    await ApiClient(script).status.apply(obj)
    assert script.line == "PATCH /apis/demo.example.com/v1/namespaces/n/widgets/w/status"
    assert script.body == {
        "apiVersion": "demo.example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "w", "namespace": "n"},
        "status": {"ready": 2},
    }


async def test_delete_sends_its_options() -> None:
    script = Script(ok({}), ok({}))
    client = ApiClient(script)
    await client.delete(Namespace, "n")
    assert script.line == "DELETE /api/v1/namespaces/n"
    assert script.body == {"apiVersion": "v1", "kind": "DeleteOptions"}
    await client.delete(
        Widget,
        "w",
        namespace="n",
        preconditions=Preconditions(uid="u", resource_version="5"),
        propagation="Foreground",
        grace_period=timedelta(seconds=1.2),
        dry_run=True,
    )
    assert script.body == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u", "resourceVersion": "5"},
        "propagationPolicy": "Foreground",
        "gracePeriodSeconds": 2,
        "dryRun": ["All"],
    }


async def test_a_client_for_dry_runs_deletes_nothing() -> None:
    script = Script(ok({}), ok({}))
    client = ApiClient(script, dry_run=True)
    await client.delete(Widget, "w", namespace="n")
    assert script.body["dryRun"] == ["All"]
    await client.delete_collection(Widget, namespace="n")
    assert script.body["dryRun"] == ["All"]


async def test_delete_collection_selects() -> None:
    script = Script(ok({}))
    await ApiClient(script).delete_collection(
        Widget, namespace="n", labels="a!=b", fields={"metadata.name": "w"}, propagation="Orphan"
    )
    assert script.line == "DELETE /apis/demo.example.com/v1/namespaces/n/widgets"
    assert script.query == {"labelSelector": "a!=b", "fieldSelector": "metadata.name=w"}
    assert script.body["propagationPolicy"] == "Orphan"


async def test_writes_with_a_precondition_wait_for_a_busy_server_and_others_do_not() -> None:
    def busy() -> HttpResponse:
        return HttpResponse(status=429, headers={"retry-after": "1"}, body=b"")

    script = Script()
    client = ApiClient(script)
    obj = await read(script, client)
    base = client.snapshot(obj)
    obj.spec.size = 2
    preconditioned: Sequence[Callable[[], Awaitable[object]]] = (
        lambda: client.patch_from(base, obj),
        lambda: client.replace(obj),
        lambda: client.delete(Widget, "w", namespace="n", preconditions=Preconditions(uid="u")),
    )
    others: Sequence[Callable[[], Awaitable[object]]] = (
        lambda: client.create(a_widget()),
        lambda: client.patch(Widget, "w", MergePatch({}), namespace="n"),
        lambda: client.delete(Widget, "w", namespace="n"),
    )
    for write in preconditioned:
        script.answers = [busy(), ok(widget("6"))]
        await write()
        assert script.answers == []
    for other in others:
        script.answers = [busy(), ok(widget("6"))]
        with pytest.raises(ApiStatusError):
            await other()


# Documents


async def test_a_document_that_was_read_past_the_client_can_be_remembered() -> None:
    there = Script()
    obj = await read(there, ApiClient(there))
    client = ApiClient(Script())
    client.remember(json.dumps(widget()).encode())
    assert client.snapshot(obj).document is not None
    other = ApiClient(Script())
    other.remember(b'{"cut": true}', uid="u1", resource_version="5")
    assert other.document(obj) == b'{"cut": true}'
    other.remember(b"not JSON")


async def test_documents_are_kept_within_bounds_the_latest_used_longest() -> None:
    documents = Documents(max_bytes=100)
    documents.put("a", "1", b"x" * 40)
    documents.put("b", "1", b"x" * 40)
    assert documents.get("a", "1") is not None
    documents.put("c", "1", b"x" * 40)
    assert documents.get("b", "1") is None
    assert documents.get("a", "1") is not None
    documents.put("a", "1", b"y" * 50)
    documents.put("d", "1", b"x" * 101)
    documents.put(None, "1", b"x")
    assert documents.get("a", "1") == b"y" * 50
    assert documents.get("c", "1") is not None
    assert documents.get("d", "1") is None
    assert documents.get("a", None) is None


# The client itself


async def test_a_derived_client_has_its_own_gate_and_observer_and_the_same_transport() -> None:
    seen: list[str] = []

    class Observer:
        def observe(self, *, verb: str, host: str, code: str, seconds: float) -> None:
            seen.append(f"{verb} {host} {code}")

    def closed() -> None:
        raise LeadershipLostError("ns/lease", "me", "over")

    script = Script()
    client = ApiClient(script, host="api:1", namespace="n", field_manager="me", dry_run=True)
    derived = client.with_observer(Observer()).with_gate(closed)
    assert (derived.namespace, derived.field_manager) == ("n", "me")
    obj = await read(script, derived)
    assert client.document(obj) is not None, "what one of them has read the other knows"
    assert seen == ["GET api:1 200"]
    for write in (derived.create(a_widget()), derived.status.apply(a_widget())):
        with pytest.raises(LeadershipLostError):
            await write
    script.answers = [ok(widget())]
    await client.create(a_widget())
    assert script.query["dryRun"] == "All"
    assert seen == ["GET api:1 200"]
    async with derived.with_gate(None) as again:
        script.answers = [ok(widget())]
        await again.create(a_widget())
    assert script.closed


# Every family of classes


GenericWidget: type[GenericNamespacedResource] = create_namespaced_resource(
    "demo.example.com", "v1", "Widget", "widgets"
)


class Handmade(NamespacedResourceG):
    """A class of the user's own, with its own codec."""

    _api_info = ApiInfo(
        resource=ResourceDef("demo.example.com", "v1", "Widget"),
        plural="widgets",
        verbs=["delete", "deletecollection", "get", "global_list", "list", "patch", "post", "put", "watch"],
    )

    def __init__(self, metadata: ObjectMeta, size: int, ready: int = 0) -> None:
        self.metadata = metadata
        self.size = size
        self.ready = ready

    @classmethod
    def from_wire(cls, document: JsonObject, /) -> Self:
        metadata = as_object(document["metadata"])
        spec, status = as_object(document["spec"]), as_object(document.get("status") or {})
        size, ready = spec["size"], status.get("ready", 0)
        assert isinstance(size, int)
        assert isinstance(ready, int)
        texts = {key: value for key, value in metadata.items() if isinstance(value, str)}
        return cls(
            ObjectMeta(
                name=texts["name"],
                namespace=texts["namespace"],
                uid=texts["uid"],
                resourceVersion=texts["resourceVersion"],
            ),
            size,
            ready,
        )

    def to_wire(self) -> JsonObject:
        metadata = {
            name: value
            for name in ("name", "namespace", "uid", "resourceVersion")
            if (value := getattr(self.metadata, name)) is not None
        }
        return {"metadata": metadata, "spec": {"size": self.size}, "status": {"ready": self.ready}}


class Versionless(Handmade):
    """A class that does not write the version of what it was read from."""

    def to_wire(self) -> JsonObject:
        document = dict(super().to_wire())
        metadata = dict(as_object(document["metadata"]))
        del metadata["resourceVersion"]
        return {**document, "metadata": metadata}


async def test_a_change_is_laid_over_the_version_in_hand_though_its_class_does_not_write_it() -> None:
    script = Script(ok(widget()))
    client = ApiClient(script)
    obj = await client.get(Versionless, "w", namespace="n")
    base = client.snapshot(obj)
    obj.metadata.resourceVersion = "6"  # another write of this program went through
    obj.size = 9
    script.answers = [ok(widget("6")), ok(widget("7"))]
    await client.patch_from(base, obj)
    assert [one.method for one in script.requests] == ["GET", "GET", "PATCH"]
    assert as_object(script.body["metadata"])["resourceVersion"] == "6"


T = TypeVar("T", bound=KubeObject)


class Family(Generic[T]):
    """One way to write a class, and how to change the same two fields of it."""

    def __init__(self, kind: type[T], grow: Callable[[T], None], report: Callable[[T], None]) -> None:
        self.kind = kind
        self.grow = grow
        self.report = report

    async def run(self) -> None:
        script = Script(ok(self.document()))
        client: Client = (api := ApiClient(script))
        obj = await client.get(self.kind, "w", namespace="n")
        base = client.snapshot(obj)
        assert await client.patch_from(base, obj) is None

        self.grow(obj)
        script.answers = [ok(self.document(size=9))]
        stored = await client.patch_from(base, obj)
        assert isinstance(stored, self.kind)
        assert script.body == {"metadata": {"resourceVersion": "5", "uid": "u1"}, "spec": {self.size_field: 9}}

        base = client.snapshot(stored)
        self.report(stored)
        script.answers = [ok(self.document(size=9))]
        await client.status.patch_from(base, stored)
        assert script.body == {
            "metadata": {"resourceVersion": "5", "uid": "u1"},
            "status": {"readyReplicas" if self.kind is Deployment else "ready": 7},
        }

        script.answers = [ok(self.document(size=9))]
        await client.replace(obj)
        assert as_object(script.body["spec"])[self.size_field] == 9
        assert as_object(script.body["spec"])["new"] is True
        assert as_object(script.body["metadata"])["newInMetadata"] == {"x": 1}

        script.answers = [ok(self.document())]
        await client.apply(obj)
        assert (script.body["apiVersion"], script.body["kind"]) == (self.api_version, self.kind_name)

        script.answers = [ok({"metadata": {"resourceVersion": "8"}, "items": [self.document()]})]
        found = await client.list(self.kind)
        assert [type(one) for one in found] == [self.kind]
        assert api.document(found[0]) is not None

    @property
    def size_field(self) -> str:
        return "replicas" if self.kind is Deployment else "size"

    @property
    def api_version(self) -> str:
        return "apps/v1" if self.kind is Deployment else "demo.example.com/v1"

    @property
    def kind_name(self) -> str:
        return "Deployment" if self.kind is Deployment else "Widget"

    def document(self, size: int = 1) -> JsonObject:
        spec: dict[str, Json] = {self.size_field: size, "new": True}
        if self.kind is Deployment:
            spec |= {"selector": {}, "template": {"spec": {"containers": [{"name": "a", "new": 1}]}}}
        return {**widget(spec=spec), "apiVersion": self.api_version, "kind": self.kind_name}


def grow_widget(obj: Widget) -> None:
    obj.spec.size = 9


def report_widget(obj: Widget) -> None:
    obj.status.ready = 7


def grow_deployment(obj: Deployment) -> None:
    assert obj.spec is not None
    obj.spec.replicas = 9


def report_deployment(obj: Deployment) -> None:
    assert obj.status is not None
    obj.status.readyReplicas = 7


def grow_handmade(obj: Handmade) -> None:
    obj.size = 9


def report_handmade(obj: Handmade) -> None:
    obj.ready = 7


async def test_a_custom_resource_goes_through_every_verb() -> None:
    await Family(Widget, grow_widget, report_widget).run()


async def test_a_struct_of_lightkube_goes_through_every_verb() -> None:
    await Family(Deployment, grow_deployment, report_deployment).run()


async def test_a_class_with_a_codec_of_its_own_goes_through_every_verb() -> None:
    await Family(Handmade, grow_handmade, report_handmade).run()


async def test_a_generic_resource_goes_through_every_verb() -> None:
    def grow(obj: KubeObject) -> None:
        assert isinstance(obj, GenericWidget)
        obj["spec"]["size"] = 9

    def report(obj: KubeObject) -> None:
        assert isinstance(obj, GenericWidget)
        obj["status"]["ready"] = 7

    await Family(GenericWidget, grow, report).run()


async def test_o03_a_deployment_keeps_what_its_struct_does_not_know() -> None:
    document: JsonObject = {
        **widget(
            spec={
                "replicas": 1,
                "selector": {"matchLabels": {"a": "b"}},
                "template": {
                    "spec": {
                        "containers": [{"name": "web", "image": "x", "quantum": True}, {"name": "log", "image": "y"}]
                    }
                },
            }
        ),
        "kind": "Deployment",
        "apiVersion": "apps/v1",
    }
    script = Script(ok(document))
    client = ApiClient(script)
    obj = await client.get(Deployment, "w", namespace="n")
    base = client.snapshot(obj)
    assert obj.spec is not None
    assert obj.spec.template.spec is not None
    obj.spec.template.spec.containers[1].image = "z"
    script.answers = [ok(document)]
    await client.patch_from(base, obj)
    assert script.body["spec"] == {
        "template": {
            "spec": {"containers": [{"name": "web", "image": "x", "quantum": True}, {"name": "log", "image": "z"}]}
        }
    }


async def test_a_new_deployment_is_created_as_it_was_built() -> None:
    script = Script(ok({"metadata": {"name": "d"}, "spec": {"selector": {}, "template": {}}}))
    await ApiClient(script).create(
        Deployment(
            metadata=ObjectMeta(name="d", namespace="n"),
            spec=DeploymentSpec(
                selector=LabelSelector(matchLabels={"a": "b"}),
                template=PodTemplateSpec(spec=PodSpec(containers=[Container(name="c", image="i")])),
            ),
        )
    )
    assert script.body == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "n"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    }
