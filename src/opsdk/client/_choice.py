"""Which transport a configuration gets when nobody chooses one."""

from __future__ import annotations

import ipaddress
import os
import sys
from collections.abc import Mapping
from urllib.parse import urlsplit

from opsdk.client.kubeconfig import ClientConfig
from opsdk.client.lean_transport import LeanTransport
from opsdk.client.transport import Transport

__all__ = ["needs_proxy", "proxy_of", "transport_for"]


def transport_for(config: ClientConfig) -> Transport:
    """The lean transport; httpx2's where a proxy applies.

    Raises:
        ConfigurationError: A certificate or credential cannot be used.
    """
    if not needs_proxy(config, _proxies()):
        return LeanTransport(config)
    from opsdk.client.httpx_transport import HttpxTransport  # loads httpx2, which few need

    return HttpxTransport(config)


def proxy_of(config: ClientConfig) -> str | None:
    """The proxy through which the server is reached, if through one."""
    if config.proxy_url is not None:
        return config.proxy_url
    proxies = _proxies()
    if not needs_proxy(config, proxies):
        return None
    proxy = proxies.get(urlsplit(config.server).scheme) or proxies["all"]
    return proxy if "://" in proxy else f"http://{proxy}"


def _proxies() -> Mapping[str, str]:
    """What the environment says, or on some systems their own settings."""
    if sys.platform not in {"darwin", "win32"} and not any(name.lower().endswith("_proxy") for name in os.environ):
        return {}
    from urllib.request import getproxies  # with http.client and email, 20 ms of a start

    return getproxies()


def needs_proxy(config: ClientConfig, proxies: Mapping[str, str]) -> bool:
    """Whether the server is reached through a proxy, by the kubeconfig or by the environment.

    Args:
        config: The configuration.
        proxies: What the environment says, as `urllib` reads it: `http`, `https`, `all`, `no`.
    """
    if config.proxy_url is not None:
        return True
    url = urlsplit(config.server)
    if not (proxies.get(url.scheme) or proxies.get("all")):
        return False
    host, port = url.hostname or "", url.port
    return not any(_covers(entry.strip().lower(), host, port) for entry in proxies.get("no", "").split(","))


def _covers(entry: str, host: str, port: int | None) -> bool:
    """Whether an entry of `no_proxy` is about the host: a name, a suffix, an address, a network, or `*`."""
    if not entry:
        return False
    if entry in {"*", host, f"{host}:{port}", f"[{host}]", f"[{host}]:{port}"}:
        return True
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return host.endswith(f".{entry.lstrip('.')}")
