"""etcd's own API, as JSON over its Unix socket: what kube-apiserver has no verb for.

Independent of opsdk and of kube-apiserver: what stands in etcd is what happened, in the order in which it happened.
"""

from __future__ import annotations

import base64
import http.client
import json
import socket
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Etcd", "EtcdEvent"]


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float | None) -> None:
        super().__init__("etcd", timeout=timeout)
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdEvent:
    """One write of one key. `revision` is a resourceVersion; `document` is None for a deletion."""

    key: str
    revision: int
    document: Mapping[str, Any] | None


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class Etcd:
    """A control plane's store.

    Args:
        folder: The control plane's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._socket = folder / "etcd.sock"

    def _call(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        connection = _UnixConnection(self._socket, timeout=10)
        try:
            connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
            answer = connection.getresponse()
            content: dict[str, Any] = json.loads(answer.read())
        finally:
            connection.close()
        if answer.status != 200:
            raise OSError(f"etcd: {path}: {answer.status}: {content}")
        return content

    def revision(self) -> int:
        """The newest one: the resourceVersion of the latest write of all."""
        return int(self._call("/v3/kv/range", {"key": _encoded("none")})["header"]["revision"])

    def put(self, documents: Mapping[str, Mapping[str, Any]]) -> int:
        """Write documents under keys, past kube-apiserver, which will take them for its own. Returns the revision."""
        connection = _UnixConnection(self._socket, timeout=10)
        revision = 0
        try:
            for key, document in documents.items():
                body = {"key": _encoded(key), "value": _encoded(json.dumps(document))}
                connection.request("POST", "/v3/kv/put", json.dumps(body), {"content-type": "application/json"})
                revision = int(json.loads(connection.getresponse().read())["header"]["revision"])
        finally:
            connection.close()
        return revision

    def delete(self, key: str) -> None:
        """Delete what stands under a key, past kube-apiserver."""
        self._call("/v3/kv/deleterange", {"key": _encoded(key)})

    def compact(self, revision: int | None = None) -> int:
        """Forget what was before a revision; None: everything up to now but the newest of each key. Returns which."""
        # what is of the newest revision itself is still known, so there has to be a newer one
        revision = self.put({"/opsdk/turn": {}}) if revision is None else revision
        self._call("/v3/kv/compaction", {"revision": str(revision), "physical": True})
        return revision

    @contextmanager
    def watching(self, prefix: str, *, after: int, silence_seconds: float) -> Generator[Generator[EtcdEvent]]:
        """All writes of JSON documents under a prefix, from the one after a revision on, in order, without a gap.

        Args:
            prefix: Of the keys, such as `/registry/example.com/`.
            after: The revision.
            silence_seconds: After so long without anything the generator ends.
        """
        connection = _UnixConnection(self._socket, timeout=silence_seconds)
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        request = {
            "create_request": {"key": _encoded(prefix), "range_end": _encoded(end), "start_revision": str(after + 1)}
        }
        connection.request("POST", "/v3/watch", json.dumps(request), {"content-type": "application/json"})
        try:
            yield _events(connection.getresponse())
        finally:
            connection.close()


def _events(answer: http.client.HTTPResponse) -> Generator[EtcdEvent]:
    while True:
        try:
            line = answer.readline()
        except TimeoutError:
            return
        if not line:
            raise OSError("etcd ended the watch")
        message = json.loads(line)
        if "error" in message or message["result"].get("canceled"):
            raise OSError(f"etcd ended the watch: {message}")
        for event in message["result"].get("events", ()):
            entry = event["kv"]
            gone = event.get("type") == "DELETE"
            yield EtcdEvent(
                key=base64.b64decode(entry["key"]).decode(),
                revision=int(entry["mod_revision"]),
                document=None if gone else json.loads(base64.b64decode(entry["value"])),
            )
