"""Where a configuration's credentials come from."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Final, final

import anyio

from opsdk.client._credentials import Authorization, Credential
from opsdk.client._exec_auth import ExecAuth
from opsdk.client.kubeconfig import ClientConfig
from opsdk.errors import ConfigurationError

__all__ = ["FileAuth", "StaticAuth", "authorization_of"]

_REREAD_SECONDS: Final = 60.0


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


@final
class StaticAuth:
    """A header that never changes."""

    def __init__(self, value: str) -> None:
        self._credential = Credential(header=value)

    async def credential(self, rejected: Credential | None = None, /) -> Credential:
        """The same one, whatever the server thought of it."""
        return self._credential


@final
class FileAuth:
    """A token in a file that somebody else rotates: read again every minute, and when it was rejected.

    Args:
        path: The file.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._credential: Credential | None = None
        self._read_at = 0.0

    async def credential(self, rejected: Credential | None = None, /) -> Credential:
        """The token of the file. While it cannot be read the last one stands."""
        now = anyio.current_time()
        if self._credential is None or rejected == self._credential or now - self._read_at >= _REREAD_SECONDS:
            token = self._read()
            if token:
                self._credential = Credential(header=f"Bearer {token}")
            elif self._credential is None:
                raise ConfigurationError(f"the token file {self._path} is missing or empty")
            self._read_at = now
        return self._credential

    def _read(self) -> str:
        try:
            return self._path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return ""
