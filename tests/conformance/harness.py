"""Plain HTTP against an API server, in memory or real: what the conformance tests speak."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias, final

import anyio

from opsdk.client.transport import HttpRequest, Transport

__all__ = [
    "APPLY",
    "CRDS",
    "GROUP",
    "JSON_PATCH",
    "MERGE_PATCH",
    "PATIENCE_SECONDS",
    "STRATEGIC_PATCH",
    "Answer",
    "Api",
    "Body",
    "Watch",
    "config_map",
    "eventually",
    "furnished",
    "gadget",
    "is_served",
    "new_name",
    "plain",
    "prepare",
    "widget",
]

Body: TypeAlias = dict[str, Any]

GROUP: Final = "conformance.example.com"
PATIENCE_SECONDS: Final = 120.0
"""For what comes in a moment: only where it never comes, or a machine stands still, is anybody to wait so long."""
_POLL_SECONDS: Final = 0.1
_TOO_MANY_REQUESTS: Final = 429
JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"

_ROOTS: Final = {
    "configmaps": ("/api/v1", True),
    "customresourcedefinitions": ("/apis/apiextensions.k8s.io/v1", False),
    "deployments": ("/apis/apps/v1", True),
    "gadgets": (f"/apis/{GROUP}/v1", False),
    "leases": ("/apis/coordination.k8s.io/v1", True),
    "namespaces": ("/api/v1", False),
    "plains": (f"/apis/{GROUP}/v1", True),
    "pods": ("/api/v1", True),
    "secrets": ("/api/v1", True),
    "services": ("/api/v1", True),
    "widgets": (f"/apis/{GROUP}/v1", True),
}


def _crd(plural: str, kind: str, version: Body, *, scope: str = "Namespaced", **names: Any) -> Body:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {"plural": plural, "kind": kind, **names},
            "versions": [{"name": "v1", "served": True, "storage": True, **version}],
        },
    }


_WIDGET_SPEC: Final[Body] = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 100},
        "replicas": {"type": "integer", "default": 1},
        "color": {"type": "string", "enum": ["red", "green"], "default": "red"},
        "code": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5},
        "note": {"type": "string", "nullable": True},
        "port": {"x-kubernetes-int-or-string": True},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "parts": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "count": {"type": "integer", "default": 1}},
            },
        },
        "nested": {"type": "object", "properties": {"depth": {"type": "integer", "default": 3}}},
        "due": {"type": "string", "format": "date-time"},
    },
}
_WIDGET_STATUS: Final[Body] = {
    "type": "object",
    "properties": {
        "replicas": {"type": "integer"},
        "phase": {"type": "string"},
        "conditions": {
            "type": "array",
            "items": {"type": "object", "properties": {"type": {"type": "string"}, "status": {"type": "string"}}},
        },
    },
}
CRDS: Final = (
    _crd(
        "widgets",
        "Widget",
        {
            "schema": {
                "openAPIV3Schema": {"type": "object", "properties": {"spec": _WIDGET_SPEC, "status": _WIDGET_STATUS}}
            },
            "subresources": {
                "status": {},
                "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
            },
            "additionalPrinterColumns": [
                {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
                {"name": "Due", "type": "date", "jsonPath": ".spec.due"},
                {"name": "Tags", "type": "string", "jsonPath": ".spec.tags", "priority": 1},
            ],
            "selectableFields": [{"jsonPath": ".spec.color"}],
        },
        shortNames=["wdg"],
    ),
    _crd(
        "gadgets",
        "Gadget",
        {"schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}},
        scope="Cluster",
    ),
    _crd(
        "plains",
        "Plain",
        {
            "schema": {
                "openAPIV3Schema": {
                    "type": "object",
                    "properties": {"spec": {"type": "object"}, "status": {"type": "object"}},
                }
            }
        },
    ),
)
"""Widget has everything; Gadget is cluster-scoped and open; Plain has no status subresource."""


def new_name(prefix: str = "x") -> str:
    """A name that nobody has."""
    return f"{prefix}-{uuid.uuid4().hex[:10]}"


def _object(api_version: str, kind: str, name: str | None, metadata: Body, rest: Body) -> Body:
    named = {"name": name} if name else {}
    return {"apiVersion": api_version, "kind": kind, "metadata": {**named, **metadata}, **rest}


def config_map(name: str | None = None, data: Mapping[str, str] | None = None, **metadata: Any) -> Body:
    return _object("v1", "ConfigMap", name, metadata, {"data": dict(data or {"a": "1"})})


def widget(name: str | None = None, spec: Mapping[str, Any] | None = None, **metadata: Any) -> Body:
    return _object(f"{GROUP}/v1", "Widget", name, metadata, {"spec": {"size": 1, **(spec or {})}})


def gadget(name: str | None = None, **metadata: Any) -> Body:
    return _object(f"{GROUP}/v1", "Gadget", name, metadata, {"spec": {"any": {"thing": [1]}}})


def plain(name: str | None = None, **metadata: Any) -> Body:
    return _object(f"{GROUP}/v1", "Plain", name, metadata, {"spec": {}})


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole answer; `body` is the decoded document, `text` what came."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def body(self) -> Body:
        document: Body = json.loads(self.text)
        return document

    @property
    def reason(self) -> str:
        return str(self.body.get("reason", ""))

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))

    @property
    def causes(self) -> list[tuple[str, str, str]]:
        """Field, reason and message of each cause, sorted."""
        causes = self.body.get("details", {}).get("causes", [])
        return sorted((each.get("field", ""), each["reason"], each["message"]) for each in causes)

    @property
    def version(self) -> str:
        return str(self.body["metadata"]["resourceVersion"])

    @property
    def uid(self) -> str:
        return str(self.body["metadata"]["uid"])

    @property
    def names(self) -> list[str]:
        return [each["metadata"]["name"] for each in self.body["items"]]


@final
class Watch:
    """An open watch."""

    def __init__(self, status: int, chunks: AsyncIterator[bytes]) -> None:
        self.status = status
        self._chunks = chunks
        self._buffer = b""

    async def next(self, *, timeout_seconds: float = PATIENCE_SECONDS) -> Body:
        """The next event.

        Raises:
            EOFError: The server has ended the watch.
            TimeoutError: Nothing came.
        """
        with anyio.fail_after(timeout_seconds):
            while b"\n" not in self._buffer:
                try:
                    self._buffer += await anext(self._chunks)
                except StopAsyncIteration:
                    raise EOFError from None
        line, _, self._buffer = self._buffer.partition(b"\n")
        event: Body = json.loads(line)
        return event

    async def next_of(self, name: str) -> tuple[str, Body]:
        """Type and object of the next event about the object of that name; bookmarks have none."""
        while True:
            event = await self.next()
            if event["object"].get("metadata", {}).get("name") == name:
                return event["type"], event["object"]

    async def rest(self) -> list[Body]:
        """All events until the server ends the watch."""
        events: list[Body] = []
        while True:
            try:
                events.append(await self.next())
            except EOFError:
                return events

    async def is_quiet(self, seconds: float) -> bool:
        """Whether nothing comes for so long."""
        try:
            await self.next(timeout_seconds=seconds)
        except TimeoutError:
            return True
        return False


@final
class Api:
    """One server, and a namespace of the test's own.

    Args:
        server: `real` or `memory`.
        forget: Has the server forget all history.
    """

    def __init__(
        self, transport: Transport, namespace: str, *, server: str, forget: Callable[[], None] | None = None
    ) -> None:
        self.transport = transport
        self.namespace = namespace
        self.server = server
        self._forget = forget

    def forget(self) -> None:
        """Have the server forget what was: versions, and where pages went on."""
        assert self._forget is not None
        self._forget()

    def path(self, resource: str, name: str = "", sub: str = "", *, namespace: str | None = None) -> str:
        root, namespaced = _ROOTS[resource]
        if namespaced and namespace != "":
            root = f"{root}/namespaces/{namespace or self.namespace}"
        return "/".join(part for part in (f"{root}/{resource}", name, sub) if part)

    async def call(
        self,
        method: str,
        path: str,
        body: Body | list[Body] | None = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        query: Mapping[str, str | int] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a document as JSON."""
        content = None if body is None else json.dumps(body).encode()
        return await self.send(
            method, path, content, content_type=content_type, accept=accept, query=query, headers=headers
        )

    async def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        query: Mapping[str, str | int] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a body as it is."""
        headers = {"accept": accept, **(headers or {})}
        if body is not None:
            headers["content-type"] = content_type
        response = await self.transport.request(
            HttpRequest(
                method=method,
                path=path,
                query=tuple((name, str(value)) for name, value in (query or {}).items()),
                headers=headers,
                body=body,
            )
        )
        return Answer(status=response.status, headers=response.headers, text=response.body.decode(errors="replace"))

    async def get(self, resource: str, name: str = "", sub: str = "", **query: str | int) -> Answer:
        return await self.call("GET", self.path(resource, name, sub), query=query)

    async def create(self, resource: str, body: Body, **query: str | int) -> Answer:
        return await self.call("POST", self.path(resource), body, query=query)

    async def created(self, resource: str, body: Body) -> Answer:
        """Create, and insist that it worked."""
        answer = await self.create(resource, body)
        assert answer.status == 201, answer.text
        return answer

    async def replace(self, resource: str, body: Body, sub: str = "", **query: str | int) -> Answer:
        return await self.call("PUT", self.path(resource, body["metadata"]["name"], sub), body, query=query)

    async def patch(
        self,
        resource: str,
        name: str,
        body: Body | list[Body],
        sub: str = "",
        *,
        content_type: str = MERGE_PATCH,
        **query: str | int,
    ) -> Answer:
        return await self.call("PATCH", self.path(resource, name, sub), body, content_type=content_type, query=query)

    async def apply(
        self, resource: str, body: Body, sub: str = "", *, manager: str = "applier", **query: str | int
    ) -> Answer:
        return await self.patch(
            resource, body["metadata"]["name"], body, sub, content_type=APPLY, fieldManager=manager, **query
        )

    async def delete(self, resource: str, name: str = "", body: Body | None = None, **query: str | int) -> Answer:
        return await self.call("DELETE", self.path(resource, name), body, query=query)

    @asynccontextmanager
    async def watch(
        self, resource: str, *, accept: str = "application/json", **query: str | int
    ) -> AsyncGenerator[Watch]:
        request = HttpRequest(
            method="GET",
            path=self.path(resource),
            query=(("watch", "true"), *((name, str(value)) for name, value in query.items())),
            headers={"accept": accept},
        )
        while True:
            async with self.transport.stream(request) as stream:
                if stream.status != _TOO_MANY_REQUESTS:
                    yield Watch(stream.status, aiter(stream.chunks))
                    return
            await anyio.sleep(_POLL_SECONDS)  # the real server reads a new kind into its cache before it is watched


async def eventually(holds: Callable[[], Awaitable[bool]], *, timeout_seconds: float = 180) -> None:
    """Wait until something holds: at once in memory, where controllers work before a write is answered."""
    with anyio.fail_after(timeout_seconds):
        while not await holds():  # noqa: ASYNC110 - the server cannot tell us
            await anyio.sleep(_POLL_SECONDS)


async def furnished(transport: Transport, namespace: str) -> None:
    """Wait for what real controllers put into a new namespace.

    Watches and lists of tests are not to see the certificate come, and without the account no pod is admitted.
    """
    api = Api(transport, namespace, server="real")
    paths = [api.path("configmaps", "kube-root-ca.crt"), f"/api/v1/namespaces/{namespace}/serviceaccounts/default"]
    with anyio.fail_after(PATIENCE_SECONDS):
        for path in paths:
            while (await api.call("GET", path)).status != 200:  # noqa: ASYNC110 - as above
                await anyio.sleep(0.02)


async def prepare(transport: Transport, server: str, forget: Callable[[], None] | None = None) -> Api:
    """A namespace of the test's own, and the CRDs: those of a control plane of ours were there before its tests."""
    namespace = new_name("conformance")
    api = Api(transport, namespace, server=server, forget=forget)
    await api.created("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    if server == "real":
        await furnished(transport, namespace)
    if (await api.get("customresourcedefinitions", CRDS[-1]["metadata"]["name"])).status == 200:
        return api
    for crd in CRDS:
        await api.create("customresourcedefinitions", crd)
        await eventually(partial(is_served, api, api.path(crd["spec"]["names"]["plural"])))
    return api


async def is_served(api: Api, path: str) -> bool:
    """Whether objects can be written: reading works a moment before, and a kind on its way out takes no new ones."""
    if (await api.call("GET", path)).status != 200:
        return False
    return (await api.call("POST", path, {"metadata": {"name": "Not A Name"}})).status in {400, 422}
