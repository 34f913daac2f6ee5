"""Puts the CRDs of model classes into a server."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from opsdk.client.transport import HttpRequest
from opsdk.errors import InvalidError
from opsdk.models import crd_manifests
from opsdk.testing.apiserver._json import Document, as_object, as_text, clone, decode, dig, encode

if TYPE_CHECKING:
    from opsdk.testing.apiserver.server import ApiServer

__all__ = ["install"]

_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def install(server: ApiServer, kinds: Sequence[type]) -> None:
    """Create or replace the CRDs of these classes.

    Raises:
        ApiStatusError: A CRD is refused.
    """
    for manifest in _manifests(tuple(kinds)):
        _put(server, as_object(decode(manifest)))


@lru_cache(maxsize=256)
def _manifests(kinds: tuple[type, ...]) -> tuple[bytes, ...]:
    """What the models say is the same for every server of a process, and costs more than the server."""
    return tuple(encode(as_object(clone(manifest))) for manifest in crd_manifests(*kinds))


def _put(server: ApiServer, manifest: Document) -> None:
    name = as_text(dig(manifest, "metadata", "name"))
    headers = {"content-type": "application/json", "user-agent": "opsdk-install"}
    found = server.handle(HttpRequest(method="GET", path=f"{_PATH}/{name}"))
    if found.status == 200:
        version = dig(decode(found.body), "metadata", "resourceVersion")
        as_object(manifest["metadata"])["resourceVersion"] = version
        request = HttpRequest(method="PUT", path=f"{_PATH}/{name}", headers=headers, body=encode(manifest))
    else:
        request = HttpRequest(method="POST", path=_PATH, headers=headers, body=encode(manifest))
    response = server.handle(request)
    if response.status >= 400:
        status = as_object(decode(response.body))
        raise InvalidError(
            response.status,
            reason=as_text(status.get("reason")),
            message=as_text(status.get("message")),
            kind="CustomResourceDefinition",
            name=name,
        )
