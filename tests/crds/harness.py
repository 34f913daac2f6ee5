"""What the tests of CRDs have in common: a server, and kinds whose objects are tried on it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import new_class
from typing import Any, TypeAlias, final

import anyio

from opsdk.client import ApiClient, HttpRequest, install_crds
from opsdk.client._apply_body import apply_body
from opsdk.errors import NotFoundError
from opsdk.models import CustomResource, Model, crd_manifest, resource_of
from opsdk.protocols import KubeObject

__all__ = ["CRDS", "GROUP", "Body", "Server", "eventually", "kind_of", "new_kind_name"]

GROUP = "crds.example.com"
Body: TypeAlias = dict[str, Any]
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def new_kind_name() -> str:
    """A kind that no other test has."""
    return f"T{uuid.uuid4().hex[:12]}"


def kind_of(spec: type[Model], status: type[Model] | None = None, **keywords: Any) -> type[CustomResource[Any, Any]]:
    """A cluster-scoped kind of its own with that spec."""
    base: Any = CustomResource
    parameters = base[spec] if status is None else base[spec, status]
    given = {"group": GROUP, "version": "v1", "kind": new_kind_name(), "scope": "Cluster", **keywords}
    kind: Any = new_class("Kind", (parameters,), given)
    found: type[CustomResource[Any, Any]] = kind
    return found


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what a real server does a moment after it was asked to, and the one in memory at once."""
    with anyio.fail_after(120):
        while not await holds():  # noqa: ASYNC110 - the server cannot tell us
            await anyio.sleep(0.1)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One server.

    Args:
        client: Speaks to it.
        real: Whether it is a kube-apiserver.
    """

    client: ApiClient
    real: bool

    async def install(self, *kinds: type[KubeObject]) -> None:
        """Install the kinds, which must be accepted as they are: nothing unknown, nothing defaulted away."""
        (installed,) = await install_crds(self.client, *kinds)
        stored = await self.crd(installed.name)
        manifest = json.loads(json.dumps(crd_manifest(*kinds)))
        assert "NonStructuralSchema" not in {
            condition["type"] for condition in stored["status"]["conditions"] if condition["status"] == "True"
        }
        for given, kept in zip(manifest["spec"]["versions"], stored["spec"]["versions"], strict=True):
            assert kept["schema"] == given["schema"], "the server keeps another schema than it was given"

    async def install_once(self, *kinds: type[KubeObject]) -> None:
        """Install the kinds unless they are there, for many tests to share."""
        info = resource_of(kinds[0])
        try:
            await self.crd(f"{info.plural}.{info.group}")
        except NotFoundError:
            await self.install(*kinds)

    async def crd(self, name: str) -> Body:
        """A CRD as it is stored."""
        return self._decoded(await self.client.raw.request("GET", f"{CRDS}/{name}"))

    async def forget(self, *kinds: type[KubeObject]) -> None:
        """Delete the kinds with all their objects."""
        for kind in kinds:
            info = resource_of(kind)
            with suppress(NotFoundError):
                await self.client.raw.request("DELETE", f"{CRDS}/{info.plural}.{info.group}")

    async def apply(
        self,
        kind: type[KubeObject],
        body: Body,
        *,
        name: str = "tried",
        dry_run: bool = False,
        subresource: str | None = None,
        manager: str = "tests",
    ) -> Body:
        """Apply an object of any shape; what comes back is as stored: defaulted and pruned."""
        info = resource_of(kind)
        metadata = {"name": name, **body.get("metadata", {})}
        document = {**body, "apiVersion": info.api_version, "kind": info.kind, "metadata": metadata}
        query = [("fieldManager", manager), ("force", "true")]
        if dry_run:
            query.append(("dryRun", "All"))
        raw = await self.client.raw.request(
            "PATCH",
            info.path(name=name, subresource=subresource),
            query=query,
            body=apply_body(document),
            content_type="application/apply-patch+yaml",
        )
        return self._decoded(raw)

    async def try_to_create(self, kind: type[KubeObject], spec: Body) -> Body:
        """What a creation would store; nothing is stored.

        Not an apply, whose own typing answers some wrong types with an error of the server.
        """
        info = resource_of(kind)
        document = {"apiVersion": info.api_version, "kind": info.kind, "metadata": {"name": "tried"}, "spec": spec}
        raw = await self.client.raw.request(
            "POST", info.path(), query=[("dryRun", "All")], body=json.dumps(document).encode()
        )
        return self._decoded(raw)

    async def replace(self, kind: type[KubeObject], body: Body, *, name: str = "tried", dry_run: bool = False) -> Body:
        """Replace an object whole; unlike an apply, with fields that the schema does not name."""
        info = resource_of(kind)
        version = (await self.get(kind, name))["metadata"]["resourceVersion"]
        metadata = {"name": name, "resourceVersion": version}
        document = {**body, "apiVersion": info.api_version, "kind": info.kind, "metadata": metadata}
        query = [("dryRun", "All")] if dry_run else []
        path = info.path(name=name)
        raw = await self.client.raw.request("PUT", path, query=query, body=json.dumps(document).encode())
        return self._decoded(raw)

    async def get(self, kind: type[KubeObject], name: str = "tried") -> Body:
        """An object as it is stored."""
        return self._decoded(await self.client.raw.request("GET", resource_of(kind).path(name=name)))

    async def read(self, path: str, *, accept: str = "application/json", query: Sequence[tuple[str, str]] = ()) -> Body:
        """Any document."""
        return self._decoded(await self.client.raw.request("GET", path, accept=accept, query=query))

    async def merge(self, path: str, patch: Body) -> Body:
        """A merge patch of anything."""
        raw = await self.client.raw.request(
            "PATCH", path, body=json.dumps(patch).encode(), content_type="application/merge-patch+json"
        )
        return self._decoded(raw)

    async def warning(self, path: str) -> str:
        """The Warning header that comes with a document."""
        request = HttpRequest(method="GET", path=path, headers={"accept": "application/json"})
        response = await self.client.raw.transport.request(request)
        return response.headers.get("warning", "")

    @staticmethod
    def encoded(document: Body) -> bytes:
        """A document as a client would get it."""
        return json.dumps(document).encode()

    @staticmethod
    def _decoded(raw: bytes) -> Body:
        document: Body = json.loads(raw)
        return document
