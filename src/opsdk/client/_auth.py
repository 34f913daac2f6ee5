"""The Authorization header, from wherever it comes, and how to get a new one."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Protocol, TypeVar, final

import anyio
import msgspec
from lightkube.config.models import UserExec

from opsdk import clock
from opsdk.client.kubeconfig import ClientConfig
from opsdk.errors import ApiConnectionError, ApiTimeoutError, ConfigurationError
from opsdk.types import Json, JsonObject

__all__ = ["Authorization", "ExecAuth", "FileAuth", "StaticAuth", "authorization_of", "authorized"]

R = TypeVar("R")

_API_GROUP: Final = "client.authentication.k8s.io"
_VERSIONS: Final = (f"{_API_GROUP}/v1", f"{_API_GROUP}/v1beta1")
_REREAD_SECONDS: Final = 60.0
_LEEWAY: Final = timedelta(seconds=10)
_PLUGIN_SECONDS: Final = 60.0
_LONGEST_COMPLAINT: Final = 300


class Authorization(Protocol):
    """Knows the value of the Authorization header."""

    async def header(self, rejected: str | None = None, /) -> str:
        """The value to send.

        Args:
            rejected: The value that the server has just answered with 401, if so: a new one is got, once for all who
                ask.

        Raises:
            ConfigurationError: There can be none.
            ApiConnectionError: There is none now.
        """
        ...


def authorization_of(config: ClientConfig) -> Authorization | None:
    """What the configuration says, in the order of kubectl; None: no header.

    Raises:
        ConfigurationError: It says something that is not supported.
    """
    user = config.user
    if user.token_file:
        return FileAuth(user.token_file)
    if user.token:
        return StaticAuth(f"Bearer {user.token}")
    if user.exec is not None:
        return ExecAuth(user.exec, options=config.exec_options, cluster=config.cluster_info(), source=config.source)
    if user.username and user.password:
        pair = f"{user.username}:{user.password}".encode()
        return StaticAuth(f"Basic {base64.b64encode(pair).decode()}")
    if user.auth_provider is not None:  # pyright: ignore[reportUnknownMemberType] - lightkube says a bare Dict
        raise ConfigurationError(
            f"{config.source}: user.auth-provider is not supported (nor by kubectl, since 1.26); use an exec plugin"
        )
    return None


async def authorized(
    authorization: Authorization | None,
    send: Callable[[str | None], Awaitable[R]],
    status_of: Callable[[R], int],
    discard: Callable[[R], Awaitable[None]],
) -> R:
    """Send with credentials; once more with new ones if the server does not take them.

    Args:
        authorization: Where the header comes from, if there is one.
        send: Sends the request with that header.
        status_of: The answer's status code.
        discard: Lets go of an answer that is not wanted.
    """
    if authorization is None:
        return await send(None)
    value = await authorization.header()
    answer = await send(value)
    if status_of(answer) != 401:
        return answer
    try:
        renewed = await authorization.header(value)
    except BaseException:
        await discard(answer)
        raise
    if renewed == value:
        return answer
    await discard(answer)
    return await send(renewed)


@final
class StaticAuth:
    """A header that never changes."""

    def __init__(self, value: str) -> None:
        self._value = value

    async def header(self, rejected: str | None = None, /) -> str:
        """The value, whatever the server thought of it."""
        return self._value


@final
class FileAuth:
    """A token in a file that somebody else rotates: read again every minute, and when it was rejected.

    Args:
        path: The file.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._value: str | None = None
        self._read_at = 0.0

    async def header(self, rejected: str | None = None, /) -> str:
        """The token of the file. While it cannot be read the last one stands."""
        now = anyio.current_time()
        if self._value is None or rejected == self._value or now - self._read_at >= _REREAD_SECONDS:
            token = self._read()
            if token:
                self._value = f"Bearer {token}"
            elif self._value is None:
                raise ConfigurationError(f"the token file {self._path} is missing or empty")
            self._read_at = now
        return self._value

    def _read(self) -> str:
        try:
            return self._path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return ""


class _Status(msgspec.Struct):
    token: str | None = None
    expiration: datetime | None = msgspec.field(name="expirationTimestamp", default=None)
    certificate: str | None = msgspec.field(name="clientCertificateData", default=None)


class _Credential(msgspec.Struct):
    status: _Status
    api_version: str = msgspec.field(name="apiVersion", default="")


@final
class ExecAuth:
    """A token that a program gives (`v1` and `v1beta1`): run again when it expires, and when it was rejected.

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
        self._value: str | None = None
        self._expires: datetime | None = None
        self._lock = anyio.Lock()

    async def header(self, rejected: str | None = None, /) -> str:
        """The token, of the last run if it is still good."""
        async with self._lock:
            if self._value is None or self._value == rejected or self._expired():
                credential = await self._run()
                self._value = f"Bearer {credential.token}"
                self._expires = credential.expiration
            return self._value

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
            credential = msgspec.json.decode(done.stdout, type=_Credential)
        except msgspec.MsgspecError:
            raise ConfigurationError(f"{what} did not print an ExecCredential") from None
        if credential.api_version != plugin.apiVersion:
            raise ConfigurationError(
                f"{what} printed an ExecCredential of {credential.api_version!r}, not of {plugin.apiVersion!r}"
            )
        if credential.status.token is None:
            kind = "a client certificate, which is not supported" if credential.status.certificate else "no token"
            raise ConfigurationError(f"{what} gave {kind}")
        return credential.status
