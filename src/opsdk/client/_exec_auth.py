"""Credentials from a program of the user's, as kubectl has them from its exec plugins."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final, final

import anyio
import msgspec
from lightkube.config.models import UserExec

from opsdk import clock
from opsdk.client._credentials import Certificate, Credential
from opsdk.errors import ApiConnectionError, ApiTimeoutError, ConfigurationError
from opsdk.types import Json, JsonObject

__all__ = ["ExecAuth"]

_API_GROUP: Final = "client.authentication.k8s.io"
_VERSIONS: Final = (f"{_API_GROUP}/v1", f"{_API_GROUP}/v1beta1")
_LEEWAY: Final = timedelta(seconds=10)
_PLUGIN_SECONDS: Final = 60.0
_LONGEST_COMPLAINT: Final = 300


class _Status(msgspec.Struct):
    token: str | None = None
    expiration: datetime | None = msgspec.field(name="expirationTimestamp", default=None)
    certificate: str | None = msgspec.field(name="clientCertificateData", default=None)
    key: str | None = msgspec.field(name="clientKeyData", default=None)


class _Printed(msgspec.Struct):
    status: _Status
    api_version: str = msgspec.field(name="apiVersion", default="")


@final
class ExecAuth:
    """What a program gives, a token or a client certificate or both: run again when it expires or was rejected.

    `client.authentication.k8s.io/v1` and `v1beta1`.

    Args:
        plugin: The program; lightkube's.
        options: What lightkube's model leaves out (`interactiveMode`, `provideClusterInfo`).
        cluster: What the program is told about the cluster, if it asks for it.
        source: Where this stands, for error texts.
    """

    def __init__(
        self,
        plugin: UserExec,
        *,
        options: JsonObject | None = None,
        cluster: JsonObject | None = None,
        source: str = "kubeconfig",
    ) -> None:
        if plugin.apiVersion not in _VERSIONS:
            raise ConfigurationError(
                f"{source}: user.exec.apiVersion {plugin.apiVersion!r} is not supported; supported are: "
                f"{', '.join(_VERSIONS)}"
            )
        options = options or {}
        if options.get("interactiveMode") == "Always":
            raise ConfigurationError(
                f"{source}: user.exec.interactiveMode is Always, but nobody is there to answer {plugin.command!r}"
            )
        self._plugin = plugin
        self._source = source
        spec: dict[str, Json] = {"interactive": False}
        if options.get("provideClusterInfo") is True and cluster is not None:
            spec["cluster"] = cluster
        info: JsonObject = {"apiVersion": plugin.apiVersion, "kind": "ExecCredential", "spec": spec}
        self._info = json.dumps(info)
        self._credential: Credential | None = None
        self._expires: datetime | None = None
        self._lock = anyio.Lock()

    async def credential(self, rejected: Credential | None = None, /) -> Credential:
        """What the last run gave, if that is still good."""
        async with self._lock:
            if self._credential is None or self._credential == rejected or self._expired():
                status = await self._run()
                self._credential = _credential_of(status)
                self._expires = status.expiration
            return self._credential

    def _expired(self) -> bool:
        return self._expires is not None and clock.now() >= self._expires - _LEEWAY

    async def _run(self) -> _Status:
        plugin = self._plugin
        what = f"{self._source}: the exec plugin {plugin.command!r}"
        environment: Mapping[str, str] = {
            **os.environ,
            **{one.name: one.value for one in plugin.env or ()},
            "KUBERNETES_EXEC_INFO": self._info,
        }
        try:
            with anyio.fail_after(_PLUGIN_SECONDS):
                done = await anyio.run_process([plugin.command, *(plugin.args or ())], env=environment, check=False)
        except TimeoutError as error:
            raise ApiTimeoutError(f"{what} gave no credentials in {_PLUGIN_SECONDS:g} s", sent=False) from error
        except OSError as error:
            hint = f". {plugin.installHint.strip()}" if plugin.installHint else ""
            raise ConfigurationError(f"{what} cannot be run: {error.strerror or error}{hint}") from error
        if done.returncode != 0:
            # Its complaint is meant for people; its output, which may hold a token, is not shown.
            complaint = " ".join(done.stderr.decode("utf-8", errors="replace").split())[:_LONGEST_COMPLAINT]
            raise ApiConnectionError(f"{what} ended with {done.returncode}: {complaint or 'no reason'}", sent=False)
        try:
            printed = msgspec.json.decode(done.stdout, type=_Printed)
        except msgspec.MsgspecError:
            raise ConfigurationError(f"{what} did not print an ExecCredential") from None
        if printed.api_version != plugin.apiVersion:
            raise ConfigurationError(
                f"{what} printed an ExecCredential of {printed.api_version!r}, not of {plugin.apiVersion!r}"
            )
        status = printed.status
        if bool(status.certificate) != bool(status.key):
            raise ConfigurationError(f"{what} gave a client certificate without its key, or a key without certificate")
        if not status.token and not status.certificate:
            raise ConfigurationError(f"{what} gave neither a token nor a client certificate")
        return status


def _credential_of(status: _Status) -> Credential:
    return Credential(
        header=f"Bearer {status.token}" if status.token else None,
        certificate=Certificate(status.certificate, status.key) if status.certificate and status.key else None,
    )
