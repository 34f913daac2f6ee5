"""The client: typed verbs over bytes over a transport.

`ApiClient` implements `opsdk.protocols.Client`. Below it, `RawClient` speaks in bytes, and a `Transport` carries them.
"""

from opsdk.client._metadata import refresh_metadata
from opsdk.client.api import ApiClient
from opsdk.client.crds import InstalledCrd, install_crds
from opsdk.client.httpx_transport import HttpxTransport
from opsdk.client.kubeconfig import ClientConfig, Impersonation
from opsdk.client.lean_transport import LeanTransport
from opsdk.client.raw import RawClient, RawEvent, RawPage, RequestObserver, WriteGate
from opsdk.client.status_writer import ApiStatusWriter
from opsdk.client.transport import HttpRequest, HttpResponse, HttpStream, Transport

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
