"""Lightkube's own client, for what ours does not cover: logs and exec."""

from __future__ import annotations

from typing import Final, final

import httpx2
from lightkube import AsyncClient
from lightkube.config.kubeconfig import SingleConfig
from lightkube.config.models import Cluster, Context, User

from opsdk.client._auth import authorization_of
from opsdk.client._choice import proxy_of
from opsdk.client._credentials import Certificate, Credential, authorized
from opsdk.client._gates import gate_extension
from opsdk.client._tls import load_certificate, ssl_context_of
from opsdk.client.kubeconfig import ClientConfig
from opsdk.client.raw import WriteGate

__all__ = ["lightkube_client"]

_CONNECT_SECONDS: Final = 10.0
_READ_SECONDS: Final = 30.0
_KEPT_ALIVE: Final = 20


def lightkube_client(
    config: ClientConfig, *, field_manager: str, dry_run: bool, write_gate: WriteGate | None
) -> AsyncClient:
    """A client of lightkube's that reaches the server as ours does.

    Raises:
        ConfigurationError: A certificate or credential cannot be used.
    """
    return AsyncClient(
        # Server and namespace only: trust and credentials are the transport's, which knows more of them.
        config=SingleConfig(
            context_name=config.context,
            context=Context(cluster="", namespace=config.namespace),
            cluster=Cluster(server=config.server),
            user=User(),
        ),
        timeout=httpx2.Timeout(_READ_SECONDS, connect=_CONNECT_SECONDS),
        field_manager=field_manager,
        dry_run=dry_run,
        trust_env=False,
        transport=_AuthorizedTransport(config, write_gate),
    )


@final
class _AuthorizedTransport(httpx2.AsyncBaseTransport):
    """Trust, proxy, credentials and impersonation of a configuration; everything else is httpx2's."""

    def __init__(self, config: ClientConfig, write_gate: WriteGate | None) -> None:
        self._write_gate = write_gate
        self._source = config.source
        self._authorization = authorization_of(config)
        self._certificate: Certificate | None = None
        self._headers = [] if config.impersonate is None else config.impersonate.headers()
        self._tls_server_name = config.tls_server_name
        self._context = ssl_context_of(config)
        # A kept connection would go on with the certificate that it was made with, and plugins give new ones.
        kept_alive = _KEPT_ALIVE if config.user.exec is None else 0
        self._inner = httpx2.AsyncHTTPTransport(
            verify=self._context,
            proxy=proxy_of(config),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=kept_alive),
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request, or open a WebSocket with it."""
        gate = self._write_gate if request.method != "GET" or "upgrade" in request.headers else None
        if gate is not None:
            gate()
            request.extensions = {**request.extensions, **gate_extension(gate)}
        for name, value in self._headers:
            request.headers[name] = value
        if self._tls_server_name is not None:
            request.extensions = {**request.extensions, "sni_hostname": self._tls_server_name}

        async def send(credential: Credential) -> httpx2.Response:
            if credential.certificate is not None and credential.certificate != self._certificate:
                load_certificate(self._context, credential.certificate, source=self._source)
                self._certificate = credential.certificate
            if credential.header is not None:
                request.headers["authorization"] = credential.header
            return await self._inner.handle_async_request(request)

        return await authorized(
            self._authorization, send, lambda response: response.status_code, httpx2.Response.aclose
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._inner.aclose()
