"""The server that users meet: `ApiServer`, and the ways into it."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self, final

import anyio.lowlevel

from opsdk.client.transport import HttpRequest, HttpResponse, HttpStream, Transport
from opsdk.clock import Clock
from opsdk.testing.apiserver._calls import Call, Rendering, route
from opsdk.testing.apiserver._changes import Writer
from opsdk.testing.apiserver._cluster import Cluster
from opsdk.testing.apiserver._connect import connect
from opsdk.testing.apiserver._crds import CrdController
from opsdk.testing.apiserver._discovery import discovery_content_type, discovery_response, text_response
from opsdk.testing.apiserver._gc import GarbageCollector
from opsdk.testing.apiserver._json import encode
from opsdk.testing.apiserver._kinds import KindRegistry
from opsdk.testing.apiserver._namespaces import NamespaceController, create_initial
from opsdk.testing.apiserver._openapi import openapi_response
from opsdk.testing.apiserver._protobuf import json_request
from opsdk.testing.apiserver._reads import get_object, list_objects
from opsdk.testing.apiserver._render import render_document, render_list
from opsdk.testing.apiserver._serve import ServedApi, serve
from opsdk.testing.apiserver._status import StatusError, method_not_allowed, not_found, not_that_form, unknown_resource
from opsdk.testing.apiserver._subresources import BEYOND_OBJECTS, allows
from opsdk.testing.apiserver._warnings import warned
from opsdk.testing.apiserver._watch import Watch, open_watch
from opsdk.testing.apiserver._writes import Verbs

if TYPE_CHECKING:
    import httpx2

    from opsdk.client import ApiClient

__all__ = ["ApiServer"]

_JSON: Final = "application/json"
_TEXT: Final = "text/plain; charset=utf-8"


@final
class ApiServer:
    """A Kubernetes API server in memory.

    All built-in kinds are there, and those of CustomResourceDefinitions as soon as one is stored. What controllers of
    a real cluster do at the level of the API (garbage collection, draining of namespaces) happens at once, before the
    write that causes it is answered; what they do with workloads does not happen, see `opsdk.testing.apiserver.actors`.

    *Guarantees*

    - No sockets, no threads, no timers of its own: with a virtual clock a test runs in no time.
    - A request is handled in one step, after one checkpoint: cancelled before it, nothing happened.
    - Status codes, reasons and texts are those of kube-apiserver 1.37.

    *Not promised*: authentication, authorization, admission webhooks; the Nodes' side of Pods.

    Args:
        clock: Where timestamps come from. Default: the current clock (`opsdk.clock`) at each write.
        garbage_collector: Whether owner references have an effect; without, as against a kube-apiserver that runs
            alone.
        history: How many changes of each resource can still be watched and listed.
        expired_watch_is_http: Whether a watch from a version that is forgotten is refused with HTTP 410, instead of
            with an ERROR event in the stream, which is what servers with a watch cache do.
        cel_rules: What becomes of CEL rules (`x-kubernetes-validations`): "enforce" needs the extra `cel`, and a CRD
            with rules is refused without it; "ignore" stores what breaks them. Default: the environment's
            OPSDK_CEL_RULES, else "enforce".
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        garbage_collector: bool = True,
        history: int = 10_000,
        expired_watch_is_http: bool = False,
        cel_rules: Literal["enforce", "ignore"] | None = None,
    ) -> None:
        enforced = (cel_rules or os.environ.get("OPSDK_CEL_RULES") or "enforce") != "ignore"
        self._cluster = Cluster(clock=clock, history=history, rules=enforced)
        self._crds = CrdController(self._cluster)
        self._cluster.reactors.extend((self._crds, NamespaceController(self._cluster)))
        if garbage_collector:
            self._cluster.reactors.append(GarbageCollector(self._cluster))
        self._addresses = 0
        self._verbs = Verbs(self._cluster, Writer(self._cluster, self._next_address))
        self._watches: dict[Watch, None] = {}
        self._expired_watch_is_http = expired_watch_is_http
        self._transport = _MemoryTransport(self)
        create_initial(self._cluster)
        self._cluster.settle()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end_watches()

    # Ways in

    def transport(self) -> Transport:
        """A transport that ends here; closing it changes nothing."""
        return self._transport

    def client(self, *, field_manager: str = "opsdk") -> ApiClient:
        """A client of this server.

        Args:
            field_manager: Whom `managedFields` name for its writes.
        """
        from opsdk.client import ApiClient  # loads httpx2

        return ApiClient(self._transport, field_manager=field_manager)

    def httpx2_transport(self) -> httpx2.AsyncBaseTransport:
        """A transport for httpx2 clients, lightkube's own among them."""
        from opsdk.testing.apiserver._httpx2 import MemoryHttpx2Transport  # loads httpx2

        return MemoryHttpx2Transport(self._transport)

    def serve(self, port: int = 0) -> AbstractAsyncContextManager[ServedApi]:
        """Serve HTTP on 127.0.0.1 while the context is open; needs real time.

        Args:
            port: The port; 0: a free one.
        """
        return serve(self._transport, port=port)

    async def install(self, *kinds: type) -> None:
        """Create the CustomResourceDefinitions of these classes; they are served when this returns.

        Classes of one group and kind are versions of one CRD. A CRD that is there already is replaced.

        Raises:
            CrdSchemaError: A class has no structural schema.
            ApiStatusError: The CRD is refused.
        """
        from opsdk.testing.apiserver._install import install  # the models load pydantic

        await anyio.lowlevel.checkpoint()
        install(self, kinds)

    # For tests

    @property
    def resource_version(self) -> str:
        """The version of the newest write."""
        return str(self._cluster.store.revision)

    @property
    def registry(self) -> KindRegistry:
        """The kinds that are served now."""
        return self._cluster.registry

    def compact(self) -> None:
        """Forget all history: older watches and continue tokens are answered with 410 from now on."""
        self._cluster.store.compact()

    def end_watches(self) -> None:
        """End all open watches, as a server does that restarts."""
        for watch in tuple(self._watches):
            watch.end()

    @property
    def open_watches(self) -> int:
        """How many watches are open."""
        return len(self._watches)

    # Handling

    def handle(self, request: HttpRequest) -> HttpResponse:
        """Answer a request that is no watch, in one step."""
        try:
            response = self._answer(json_request(request))
        except StatusError as error:
            headers = {"content-type": _JSON}
            if error.retry_after_seconds is not None:
                headers["retry-after"] = str(error.retry_after_seconds)
            response = HttpResponse(status=error.code, headers=headers, body=error.body())
        self._cluster.settle()
        return warned(response, self._cluster.take_warnings())

    def watch_of(self, request: HttpRequest) -> Watch | None:
        """The watch that a request opens; None when it opens none.

        Raises:
            StatusError: The watch is refused.
        """
        if request.method != "GET":
            return None
        query = dict(request.query)
        if query.get("watch") not in {"true", "1", "True"}:
            return None
        call = route(self._cluster.registry, request)
        if call is None or not call.watch or "watch" not in call.info.verbs:
            return None
        watch = open_watch(self._cluster, call, self._crds.selectable(call.info))
        if self._expired_watch_is_http and (error := watch.too_old()) is not None:
            raise error
        return watch

    @asynccontextmanager
    async def stream(self, watch: Watch) -> AsyncGenerator[AsyncIterator[bytes]]:
        """The chunks of a watch, while the context is open."""
        self._watches[watch] = None
        try:
            async with aclosing(watch.chunks()) as chunks:
                yield chunks
        finally:
            del self._watches[watch]

    def _answer(self, request: HttpRequest) -> HttpResponse:
        if request.method == "GET":
            special = self._special(request)
            if special is not None:
                return special
        call = route(self._cluster.registry, request)
        if call is not None and call.info.deprecation:
            self._cluster.warn(call.info.deprecation)
        if call is None or (call.subresource and call.subresource not in call.info.subresources):
            if self._is_builtin_version(request.path):
                raise unknown_resource()
            if call is not None and call.name:  # whether or not there is an object of that name
                raise not_found(call.info, call.name)
            return HttpResponse(status=404, headers={"content-type": _TEXT}, body=b"404 page not found\n")
        code, body = self._dispatch(call)
        return HttpResponse(status=code, headers={"content-type": _JSON} if body else {}, body=body)

    def _dispatch(self, call: Call) -> tuple[int, bytes]:
        if call.subresource and not allows(call.subresource, call.method):
            raise method_not_allowed()
        if call.subresource in BEYOND_OBJECTS:
            return connect(self._cluster, call)
        match call.method, bool(call.name):
            case "GET", False:
                if "list" not in call.info.verbs:
                    raise method_not_allowed()
                _check_form(call)
                return 200, list_objects(self._cluster, call, self._crds.selectable(call.info))
            case "GET", True:
                if call.subresource == "scale":
                    return 200, encode(self._verbs.get_scale(call))
                if "get" not in call.info.verbs:
                    raise method_not_allowed()
                _check_form(call)
                return 200, get_object(self._cluster, call)
            case "POST", _:
                outcome = self._verbs.create(call)
            case "PUT", True:
                outcome = self._verbs.replace(call)
            case "PATCH", True:
                outcome = self._verbs.patch(call)
            case "DELETE", True:
                outcome = self._verbs.delete(call)
            case "DELETE", False:
                found = self._verbs.delete_collection(call, self._crds.selectable(call.info))
                metadata = {"resourceVersion": self.resource_version}
                return 200, render_list(call.info, found, dict(metadata), call.rendering)
            case _:
                raise method_not_allowed()
        rendering = call.rendering if outcome.document.get("kind") == call.info.kind else Rendering()
        return outcome.code, render_document(call.info, outcome.document, rendering)

    def _special(self, request: HttpRequest) -> HttpResponse | None:
        path = request.path.rstrip("/") or "/"
        text = text_response(path)
        if text is not None:
            return HttpResponse(status=200, headers={"content-type": _TEXT}, body=text.encode())
        accept = request.headers.get("accept", "")
        document = discovery_response(self._cluster.registry, path, accept)
        if document is not None:
            headers = {"content-type": discovery_content_type(document)}
            return HttpResponse(status=200, headers=headers, body=encode(document))
        if path.startswith("/openapi/"):
            found = openapi_response(self._cluster.registry, path, accept)
            if found is not None:
                return HttpResponse(status=200, headers={"content-type": found[0]}, body=found[1])
        return None

    def _is_builtin_version(self, path: str) -> bool:
        """Whether a path is below a version of a built-in group, where what is missing is answered with a Status."""
        match path.strip("/").split("/"):
            case ["api", "v1", *_]:
                return True
            case ["apis", group, version, *_]:
                kinds = self._cluster.registry.kinds()
                return any((each.group, each.version, each.builtin) == (group, version, True) for each in kinds)
            case _:
                return False

    def _next_address(self) -> str:
        self._addresses += 1
        return f"10.96.{self._addresses // 250 % 250}.{self._addresses % 250 + 1}"


def _check_form(call: Call) -> None:
    if call.rendering.form == "partial" and call.rendering.of_list == bool(call.name):
        raise not_that_form(call.info, of_list=call.rendering.of_list)


@final
class _MemoryTransport:
    """Requests become calls."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server

    async def request(self, request: HttpRequest, /) -> HttpResponse:
        # The one place where a request can be cancelled: before anything has happened.
        await anyio.lowlevel.checkpoint()
        if request.gate is not None:
            request.gate()
        return self._server.handle(request)

    @asynccontextmanager
    async def stream(self, request: HttpRequest, /) -> AsyncGenerator[HttpStream]:
        await anyio.lowlevel.checkpoint()
        try:
            watch = self._server.watch_of(request)
        except StatusError as error:
            yield HttpStream(status=error.code, headers={"content-type": _JSON}, chunks=_once(error.body()))
            return
        if watch is None:
            response = self._server.handle(request)
            yield HttpStream(status=response.status, headers=response.headers, chunks=_once(response.body))
            return
        async with self._server.stream(watch) as chunks:
            yield HttpStream(status=200, headers={"content-type": _JSON}, chunks=chunks)

    async def aclose(self) -> None:
        await anyio.lowlevel.checkpoint()


@final
class _Once:
    """A body that is there already."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        body, self._body = self._body, None
        if not body:
            raise StopAsyncIteration
        return body


def _once(body: bytes) -> _Once:
    return _Once(body)
