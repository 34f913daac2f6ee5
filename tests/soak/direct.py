"""kube-apiserver, asked directly: past the proxy, and with nothing of opsdk's client."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, final
from urllib.parse import urlsplit

from soak.gadgets import GROUP, NAMESPACE

__all__ = ["Direct"]

_OBJECTS: Final = f"/apis/{GROUP}/v1/namespaces/{NAMESPACE}"
_PATIENCE_SECONDS: Final = 120.0


@final
class Direct:
    """One connection, for one thread. Repeats each request until it is answered.

    Args:
        url: The API server.
        folder: The control plane's folder, with certificates.
    """

    def __init__(self, url: str, folder: Path) -> None:
        self._address = urlsplit(url).netloc
        self._context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        self._context.load_cert_chain(folder / "admin.crt", folder / "admin.key")
        self._connection: http.client.HTTPSConnection | None = None

    def close(self) -> None:
        """End the connection; the next request makes another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, Any]]:
        """Status and document.

        Raises:
            OSError: There was no answer.
        """
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        connection = self._connection
        if connection is None:
            connection = http.client.HTTPSConnection(self._address, context=self._context, timeout=10)
            self._connection = connection
        try:
            connection.request(method, path, None if body is None else json.dumps(body), {"content-type": kind})
            answer = connection.getresponse()
            content: dict[str, Any] = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise OSError(f"{method} {path}: {error!r}") from error
        return answer.status, content

    def insist(self, method: str, path: str, body: object = None, *, fine: tuple[int, ...] = ()) -> dict[str, Any]:
        """The document of a success, or of one of the statuses that are fine; however often that has to be asked for.

        Raises:
            OSError: It is refused, or the server does not come back.
        """
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                status, content = self.ask(method, path, body)
            except OSError:
                if time.monotonic() > deadline:
                    raise
            else:
                if status < 300 or status in fine:
                    return content
                if status not in {409, 429, 500, 503, 504} or time.monotonic() > deadline:
                    raise OSError(f"{method} {path}: {status}: {content}")
            time.sleep(0.2)

    def create(self, document: Mapping[str, Any]) -> None:
        """Create a Gadget; it may be there already, from a try whose answer was lost."""
        self.insist("POST", f"{_OBJECTS}/gadgets", document, fine=(409,))

    def patch(self, name: str, patch: Mapping[str, Any]) -> None:
        """Change a Gadget."""
        self.insist("PATCH", f"{_OBJECTS}/gadgets/{name}", patch)

    def delete(self, kind: str, name: str) -> None:
        """Delete a Gadget or a Part, if it is there."""
        self.insist("DELETE", f"{_OBJECTS}/{kind}/{name}", fine=(404,))

    def all(self, kind: str) -> dict[str, dict[str, Any]]:
        """All objects by name."""
        items: list[dict[str, Any]] = self.insist("GET", f"{_OBJECTS}/{kind}")["items"]
        return {item["metadata"]["name"]: item for item in items}

    def holders(self, lease: str) -> dict[str, str]:
        """Who holds a Lease, and those whose names begin with its: names, and holders where there are any.

        Raises:
            OSError: There was no answer.
        """
        _, content = self.ask("GET", f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases")
        items: list[dict[str, Any]] = content.get("items") or []
        found: dict[str, str] = {}
        for item in items:
            name, spec = str(item["metadata"]["name"]), dict[str, Any](item.get("spec") or {})
            if name.startswith(lease) and spec.get("holderIdentity"):
                found[name] = str(spec["holderIdentity"])
        return found
