"""The client: typed verbs over bytes over a transport.

`ApiClient` implements `opsdk.protocols.Client`. Below it, `RawClient` speaks in bytes, and a `Transport` carries them.
What few programs use is loaded when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from opsdk.client._metadata import refresh_metadata
from opsdk.client.api import ApiClient
from opsdk.client.kubeconfig import ClientConfig, Impersonation
from opsdk.client.lean_transport import LeanTransport
from opsdk.client.raw import RawClient, RawEvent, RawPage, RequestObserver, WriteGate
from opsdk.client.status_writer import ApiStatusWriter
from opsdk.client.transport import HttpRequest, HttpResponse, HttpStream, Transport

if TYPE_CHECKING:
    from opsdk.client.crds import InstalledCrd, install_crds
    from opsdk.client.httpx_transport import HttpxTransport

__all__ = [
    "ApiClient",
    "ApiStatusWriter",
    "ClientConfig",
    "HttpRequest",
    "HttpResponse",
    "HttpStream",
    "HttpxTransport",
    "Impersonation",
    "InstalledCrd",
    "LeanTransport",
    "RawClient",
    "RawEvent",
    "RawPage",
    "RequestObserver",
    "Transport",
    "WriteGate",
    "install_crds",
    "refresh_metadata",
]

_LATER: Final = {
    "HttpxTransport": "opsdk.client.httpx_transport",
    "InstalledCrd": "opsdk.client.crds",
    "install_crds": "opsdk.client.crds",
}

if not TYPE_CHECKING:  # which would believe in every name

    def __getattr__(name: str) -> object:
        home = _LATER.get(name)
        if home is None:
            msg = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(msg)
        value: object = getattr(import_module(home), name)
        globals()[name] = value
        return value
