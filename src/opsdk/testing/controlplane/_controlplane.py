"""Starts and ends a whole control plane."""

from __future__ import annotations

import base64
import contextlib
import json
import secrets
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, final

import msgspec

from opsdk.errors import ConfigurationError
from opsdk.testing.controlplane._assets import Assets, find_assets
from opsdk.testing.controlplane._pki import Authority, Credential, write_key_pair
from opsdk.testing.controlplane._process import Process, ProcessFailedError
from opsdk.testing.controlplane._watchdog import Watchdog
from opsdk.types import JsonObject

__all__ = ["ControlPlane"]

_SERVICE_CIDR = "10.96.0.0/16"
_ANSWER_SECONDS = 15
_BUSY = frozenset({429, 503, 504})
_PORTS = range(20_000, 30_000)  # below those that Linux and macOS hand out, and below Kubernetes' node ports
_ATTEMPTS = 100
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@final
class ControlPlane:
    """etcd, kube-apiserver and, where found, kube-controller-manager, on loopback.

    Use it as a context manager. It blocks while it starts (4 to 10 s) and stops, so in async tests make it in
    a session-scoped fixture that is not async.

    *Guarantees*: what it started is ended, by process id, when the context is left or the start fails; nothing
    else is. Where there is a `/proc` that holds even if this process is killed: a watchdog ends what is left. State
    lives in a temporary folder that goes with it. Any number of them stand side by side.

    *Not promised*: pods that run. There are no nodes and no scheduler.

    Args:
        assets: The programs; by default what `find_assets` finds.
        crds: CRD manifests to install before the controllers start. The real garbage collector learns of kinds that
            come later only at its next round, up to 41 s later.
        controllers: Run kube-controller-manager: None, where found.
        start_timeout_seconds: How long each program may take to become ready.

    Attributes:
        url: The API server's address.
        kubeconfig: Path of a kubeconfig with the contexts `admin` (client certificate), `token-admin` (bearer token)
            and `plain-user` (token, no rights).
    """

    def __init__(
        self,
        *,
        assets: Assets | None = None,
        crds: Sequence[JsonObject] = (),
        controllers: bool | None = None,
        start_timeout_seconds: float = 120,
    ) -> None:
        self._assets = assets if assets is not None else find_assets()
        self._crds = crds
        self._timeout_seconds = start_timeout_seconds
        if controllers and self._assets.kube_controller_manager is None:
            msg = "controllers=True, but there is no kube-controller-manager beside kube-apiserver"
            raise ConfigurationError(msg)
        self._with_controllers = controllers is not False and self._assets.kube_controller_manager is not None
        self._folder: Path | None = None
        self._watchdog: Watchdog | None = None
        self._processes: list[Process] = []
        self._admin_token = secrets.token_hex(20)
        self._port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The API server's address."""
        return f"https://127.0.0.1:{self._port}"

    @property
    def folder(self) -> Path:
        """Where its state and logs are.

        Raises:
            ConfigurationError: It is not started.
        """
        if self._folder is None:
            msg = "the control plane is not started"
            raise ConfigurationError(msg)
        return self._folder

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig's path."""
        return self.folder / "kubeconfig"

    @property
    def etcd(self) -> Process:
        """The store's process."""
        return self._process("etcd")

    @property
    def api_server(self) -> Process:
        """kube-apiserver's process; kill and start it to see what a client makes of it."""
        return self._process("kube-apiserver")

    @property
    def controller_manager(self) -> Process:
        """kube-controller-manager's process."""
        return self._process("kube-controller-manager")

    def _process(self, name: str) -> Process:
        for process in self._processes:
            if process.name == name:
                return process
        msg = f"this control plane runs no {name}"
        raise ConfigurationError(msg)

    def start(self) -> None:
        """Start everything and return when it works.

        Raises:
            ProcessFailedError: A program ended or did not become ready; everything started is ended again.
        """
        self._folder = Path(tempfile.mkdtemp(prefix="opsdk-cp-"))  # short: unix socket paths end at 107 characters
        try:
            self._watchdog = Watchdog(self._folder)
            self._start(self._folder)
        except BaseException:
            self.stop()
            raise

    def _start(self, folder: Path) -> None:
        authority = Authority(folder)
        self._port = _free_port()
        self._write_credentials(folder, authority)
        socket_path = folder / "etcd.sock"
        self._run(Process("etcd", self._etcd_command(folder, socket_path), folder=folder, watchdog=self._watchdog))
        self._run(
            Process(
                "kube-apiserver", self._api_server_command(folder, socket_path), folder=folder, watchdog=self._watchdog
            )
        )
        self.wait_ready()
        for crd in self._crds:
            self._install(crd)
        for crd in self._crds:
            self._wait("kube-apiserver", partial(self._is_discovered, crd))
        if self._with_controllers:
            self._run(
                Process(
                    "kube-controller-manager", self._controllers_command(folder), folder=folder, watchdog=self._watchdog
                )
            )
            # they work once they have made this account
            self._wait(
                "kube-controller-manager",
                lambda: self._get("/api/v1/namespaces/default/serviceaccounts/default") is not None,
            )

    def stop(self) -> None:
        """End what was started: the clients of etcd together, then etcd; then remove the folder."""
        clients = [process for process in self._processes if process.name != "etcd"]
        for process in clients:
            process.resume()
            process.terminate()
        for process in [*clients, *(process for process in self._processes if process.name == "etcd")]:
            process.stop()
        self._processes.clear()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        if self._watchdog is not None:
            self._watchdog.dismiss()
            self._watchdog = None

    def wait_ready(self) -> None:
        """Wait until the API server answers `/readyz` with ok; for use after a restart.

        Raises:
            ProcessFailedError: It ended, or was not ready in time.
        """
        self._wait("kube-apiserver", lambda: self._get("/readyz") == b"ok")

    def kubectl(self, *arguments: str, stdin: str | None = None, context: str = "admin") -> str:
        """Run kubectl against this control plane and return what it prints.

        Raises:
            ConfigurationError: There is no kubectl among the assets.
            ProcessFailedError: It exits with another status than 0; the text is what it said.
        """
        if self._assets.kubectl is None:
            msg = "there is no kubectl beside kube-apiserver"
            raise ConfigurationError(msg)
        done = subprocess.run(  # noqa: S603 - our own arguments, no shell
            [self._assets.kubectl, "--kubeconfig", self.kubeconfig, "--context", context, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            env={"HOME": str(self.folder), "KUBECACHEDIR": str(self.folder / "kubecache")},
        )
        if done.returncode != 0:
            msg = f"kubectl {' '.join(arguments)}: exit status {done.returncode}: {done.stderr.strip()}"
            raise ProcessFailedError(msg)
        return done.stdout

    def _run(self, process: Process) -> None:
        self._processes.append(process)
        process.start()

    def _wait(self, name: str, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + self._timeout_seconds
        while not ready():
            for process in self._processes:
                process.require_alive()
            if time.monotonic() > deadline:
                msg = f"{name} was not ready after {self._timeout_seconds:g} s:\n{self._process(name).log_tail()}"
                raise ProcessFailedError(msg)
            time.sleep(0.1)

    def _get(self, path: str) -> bytes | None:
        try:
            return self._call(path)
        except OSError:  # not there yet, or an HTTP error: urllib's are OSErrors
            return None

    def _call(self, path: str, body: bytes | None = None) -> bytes:
        context = ssl.create_default_context(cafile=str(self.folder / "ca.crt"))
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        request = urllib.request.Request(  # noqa: S310 - our own https address
            self.url + path,
            data=body,
            headers={"authorization": f"Bearer {self._admin_token}", "content-type": "application/json"},
        )
        with opener.open(request, timeout=_ANSWER_SECONDS) as answer:
            content: bytes = answer.read()
            return content

    def _install(self, crd: JsonObject) -> None:
        self._wait("kube-apiserver", partial(self._is_created, json.dumps(crd).encode()))
        path = f"{_CRDS}/{msgspec.convert(crd, _Crd).metadata.name}"
        self._wait("kube-apiserver", lambda: _established(self._get(path)))

    def _is_created(self, body: bytes) -> bool:
        try:
            self._call(_CRDS, body)
        except urllib.error.HTTPError as error:
            if error.code == 409:  # created all the same by an attempt whose answer came too late
                return True
            if error.code in _BUSY:
                return False
            msg = f"the API server refuses a CRD: {error.read().decode(errors='replace')}"
            raise ProcessFailedError(msg) from error
        except OSError:  # no answer in time
            return False
        return True

    def _is_discovered(self, crd: JsonObject) -> bool:
        """Whether clients that ask what there is are told of it, the controllers for one: later than it is served."""
        spec = msgspec.convert(crd, _Crd).spec
        return f'"{spec.group}"'.encode() in (self._get("/apis") or b"") and all(
            f'"name":"{spec.names.plural}"'.encode() in (self._get(f"/apis/{spec.group}/{version.name}") or b"")
            for version in spec.versions
            if version.served
        )

    def _write_credentials(self, folder: Path, authority: Authority) -> None:
        authority.issue(
            "apiserver",
            common_name="kube-apiserver",
            addresses=("127.0.0.1", "10.96.0.1", "localhost", "kubernetes.default.svc"),
        )
        admin = authority.issue("admin", common_name="admin", organization="system:masters")
        controllers = authority.issue("controllers", common_name="system:kube-controller-manager")
        write_key_pair(folder, "accounts")
        user_token = secrets.token_hex(20)
        (folder / "tokens.csv").write_text(
            f'{self._admin_token},token-admin,uid-admin,"system:masters"\n{user_token},plain-user,uid-plain-user,devs\n'
        )
        users: dict[str, dict[str, str]] = {
            "admin": _certificate_user(admin),
            "token-admin": {"token": self._admin_token},
            "plain-user": {"token": user_token},
        }
        self._write_kubeconfig(self.kubeconfig, authority, users)
        self._write_kubeconfig(folder / "controllers.kubeconfig", authority, {"admin": _certificate_user(controllers)})

    def _write_kubeconfig(self, path: Path, authority: Authority, users: dict[str, dict[str, str]]) -> None:
        cluster = {"server": self.url, "certificate-authority-data": _base64(authority.certificate)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "admin",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": name, "user": user} for name, user in users.items()],
            "contexts": [
                {"name": name, "context": {"cluster": "test", "user": name, "namespace": "default"}} for name in users
            ],
        }
        path.write_text(json.dumps(config, indent=1))  # YAML's subset that needs no library
        path.chmod(0o600)

    def _etcd_command(self, folder: Path, socket_path: Path) -> list[str | Path]:
        peer = f"unix://{folder / 'peer.sock'}"
        return [
            self._assets.etcd,
            "--name=cp",
            f"--data-dir={folder / 'etcd'}",
            "--unsafe-no-fsync",
            "--log-level=warn",
            f"--listen-client-urls=unix://{socket_path}",
            f"--advertise-client-urls=unix://{socket_path}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=cp={peer}",
        ]

    def _api_server_command(self, folder: Path, socket_path: Path) -> list[str | Path]:
        return [
            self._assets.kube_apiserver,
            f"--etcd-servers=unix://{socket_path}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            f"--secure-port={self._port}",
            f"--tls-cert-file={folder / 'apiserver.crt'}",
            f"--tls-private-key-file={folder / 'apiserver.key'}",
            f"--client-ca-file={folder / 'ca.crt'}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            "--anonymous-auth=false",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={folder / 'accounts.pub'}",
            f"--service-account-signing-key-file={folder / 'accounts.key'}",
            f"--service-cluster-ip-range={_SERVICE_CIDR}",
            "--allow-privileged=true",
            "--profiling=false",
        ]

    def _controllers_command(self, folder: Path) -> list[str | Path]:
        assert self._assets.kube_controller_manager is not None
        return [
            self._assets.kube_controller_manager,
            f"--kubeconfig={folder / 'controllers.kubeconfig'}",
            "--secure-port=0",
            "--leader-elect=false",
            "--kube-api-qps=1000",
            "--kube-api-burst=2000",
            f"--flex-volume-plugin-dir={folder / 'flexvolume'}",
            "--use-service-account-credentials",
            f"--service-account-private-key-file={folder / 'accounts.key'}",
            f"--root-ca-file={folder / 'ca.crt'}",
            # without kubelets nobody renews node leases: the controller that would mark nodes unreachable stays off
            "--controllers=*,-node-lifecycle-controller",
        ]


def _certificate_user(credential: Credential) -> dict[str, str]:
    return {
        "client-certificate-data": _base64(credential.certificate),
        "client-key-data": _base64(credential.key),
    }


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _free_port() -> int:
    """A free port that nobody else gets by chance while the API server starts, or is down to be started again.

    So it is not one of those that the system hands out: to other servers, and to connections, one of which may even
    be a client's to this very port, which then talks to itself.
    """
    for _ in range(_ATTEMPTS):
        port = _PORTS.start + secrets.randbelow(len(_PORTS))
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    with socket.socket() as probe:  # a strange system
        probe.bind(("127.0.0.1", 0))
        found: int = probe.getsockname()[1]
        return found


class _Condition(msgspec.Struct):
    type: str
    status: str


class _CrdStatus(msgspec.Struct):
    conditions: list[_Condition] | None = None  # a null in the first moment


class _Metadata(msgspec.Struct):
    name: str = ""


class _Names(msgspec.Struct):
    plural: str = ""


class _Version(msgspec.Struct):
    name: str
    served: bool = False


class _CrdSpec(msgspec.Struct):
    group: str = ""
    names: _Names = msgspec.field(default_factory=_Names)
    versions: list[_Version] = msgspec.field(default_factory=list[_Version])


class _Crd(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _CrdSpec = msgspec.field(default_factory=_CrdSpec)
    status: _CrdStatus = msgspec.field(default_factory=_CrdStatus)


def _established(crd: bytes | None) -> bool:
    if crd is None:
        return False
    conditions = msgspec.json.decode(crd, type=_Crd).status.conditions
    return any(c.type == "Established" and c.status == "True" for c in conditions or ())
