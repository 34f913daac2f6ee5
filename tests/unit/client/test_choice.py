"""Which transport is chosen when nobody chooses one."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from opsdk.client import ClientConfig, HttpxTransport, LeanTransport
from opsdk.client._choice import needs_proxy, transport_for
from opsdk.errors import ConfigurationError


def config(server: str, proxy: str = "") -> ClientConfig:
    return ClientConfig.from_dict(
        {
            "current-context": "x",
            "clusters": [{"name": "x", "cluster": {"server": server, "proxy-url": proxy}}],
            "contexts": [{"name": "x", "context": {"cluster": "x"}}],
        }
    )


@pytest.mark.parametrize(
    ("server", "proxies", "needed"),
    [
        ("https://10.0.0.1:443", {}, False),
        ("https://10.0.0.1:443", {"http": "http://p"}, False),
        ("https://10.0.0.1:443", {"https": "http://p"}, True),
        ("https://10.0.0.1:443", {"all": "http://p"}, True),
        ("https://10.0.0.1:443", {"https": "http://p", "no": "10.0.0.1"}, False),
        ("https://10.0.0.1:443", {"https": "http://p", "no": "x, 10.0.0.0/8"}, False),
        ("https://11.0.0.1:443", {"https": "http://p", "no": "x, 10.0.0.0/8"}, True),
        ("https://[fd00::1]:443", {"https": "http://p", "no": "fd00::/8"}, False),
        ("https://api.corp.example:6443", {"https": "http://p", "no": ".corp.example"}, False),
        ("https://api.corp.example:6443", {"https": "http://p", "no": "corp.example"}, False),
        ("https://api.corp.example:6443", {"https": "http://p", "no": "api.corp.example:6443"}, False),
        ("https://api.corp.example:6443", {"https": "http://p", "no": "orp.example,"}, True),
        ("https://api.corp.example:6443", {"https": "http://p", "no": "10.0.0.0/8"}, True),
        ("https://api.corp.example:6443", {"https": "http://p", "no": "*"}, False),
    ],
)
def test_a_proxy_applies_as_the_environment_says(server: str, proxies: Mapping[str, str], *, needed: bool) -> None:
    assert needs_proxy(config(server), proxies) is needed


def test_a_proxy_in_the_kubeconfig_always_applies() -> None:
    proxied = config("http://127.0.0.1:1", "http://proxy:3128")
    assert needs_proxy(proxied, {"no": "*"})
    assert isinstance(transport_for(proxied), HttpxTransport)
    with pytest.raises(ConfigurationError, match=r"proxy-url needs HttpxTransport"):
        LeanTransport(proxied)


def test_without_a_proxy_the_lean_transport_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert isinstance(transport_for(config("http://127.0.0.1:1")), LeanTransport)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:3128")
    monkeypatch.setenv("no_proxy", "")
    assert isinstance(transport_for(config("http://10.0.0.1:1")), HttpxTransport)
