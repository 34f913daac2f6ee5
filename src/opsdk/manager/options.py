"""What a manager can be told, checked where it is said."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import Final, cast, final

from opsdk.cache import ReflectorOptions
from opsdk.errors import ConfigurationError
from opsdk.manager._names import lease_fault, namespace_fault
from opsdk.manager.logs import LogFormat
from opsdk.manager.sharding import Sharding
from opsdk.metrics import ServingTls, parse_bind_address

__all__ = ["ManagerOptions", "default_manager_options"]

_JITTER: Final = 1.2
_LONGEST_GROUP: Final = 63
_NEEDED: Final[dict[type, str]] = {
    bool: "True or False",
    int: "a whole number",
    str: "a str",
    timedelta: "a timedelta",
    Path: "a pathlib.Path",
    tuple: "a tuple of names",
    ReflectorOptions: "an opsdk.cache.ReflectorOptions",
}
_REFLECTOR: Final = ReflectorOptions()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerOptions:
    """Options of a `Manager`. Change some with `dataclasses.replace`.

    Args:
        leader_election: Whether only the holder of a Lease works. Needs `leader_election_id`. Default True.
        leader_election_id: The Lease's name; the same for all replicas of an operator, unique among operators.
        leader_election_namespace: The Lease's namespace. Default: the pod's, else the kubeconfig context's.
        leader_election_identity: Who this process is; must be unique. Default: the host's name and a random part.
        lease_duration: How long others wait after the leader's last renewal. Default 15 s.
        renew_deadline: How long a leader that cannot renew goes on. Default 10 s.
        retry_period: Time between renewals, and between tries to become leader. Default 2 s.
        sharding: Divide the objects over all live replicas, instead of having one replica do everything: see
            `Sharding`. Controllers run on every replica then; other leader-only runnables still need leader election.
            Needs `leader_election_id`, of 63 characters at most. Default None: no sharding.
        serve_metrics: Whether `/metrics` is served. Default True.
        metrics_bind_address: Where; no host means all addresses, port 0 lets the system choose. Default `:8080`.
        metrics_certificate: Serve metrics by HTTPS with this PEM certificate and `metrics_key`; both or neither.
        metrics_key: The certificate's private key.
        metrics_client_ca: Ask scrapers for a certificate that this authority signed.
        serve_probes: Whether `/healthz`, `/livez` and `/readyz` are served. Default True.
        probe_bind_address: Where. Default `:8081`.
        grace_period: How long running reconciles may go on when the manager stops. Default 25 s.
        field_manager: Names this operator in managedFields and as the reporter of events. Default `opsdk`.
        namespaces: Watch only these; default: all.
        reflector: How caches list and watch: page size, streamed lists, timeouts. Default: see `ReflectorOptions`.
        kubeconfig_context: The context to use when the manager makes its own client; default: the current one.
        readiness_staleness: A cache that has heard nothing from the server for this long is not ready. Default 5 min.
        liveness_block: Liveness fails when the event loop has not turned for this long. Default 30 s.
        block_warning: The stack of whatever blocks the event loop for this long is logged. Default 3 s.
        log_format: What `run` sets up where the program has not configured logging: `json`, `text`, or `auto` (JSON in
            a cluster, text elsewhere); None: leave logging alone. Default `auto`.
        log_level: The level that goes with it. Default `INFO`.
        redact: Is given each text of a log line or event before it is written, and returns what may be seen of it. For
            logs, where `run` sets them up.

    Raises:
        ConfigurationError: A value makes no sense; the text names the field.
    """

    leader_election: bool = True
    leader_election_id: str = ""
    leader_election_namespace: str | None = None
    leader_election_identity: str | None = None
    lease_duration: timedelta = timedelta(seconds=15)
    renew_deadline: timedelta = timedelta(seconds=10)
    retry_period: timedelta = timedelta(seconds=2)
    sharding: Sharding | None = None
    serve_metrics: bool = True
    metrics_bind_address: str = ":8080"
    metrics_certificate: Path | None = None
    metrics_key: Path | None = None
    metrics_client_ca: Path | None = None
    serve_probes: bool = True
    probe_bind_address: str = ":8081"
    grace_period: timedelta = timedelta(seconds=25)
    field_manager: str = "opsdk"
    namespaces: tuple[str, ...] = ()
    reflector: ReflectorOptions = _REFLECTOR
    kubeconfig_context: str | None = None
    readiness_staleness: timedelta = timedelta(minutes=5)
    liveness_block: timedelta = timedelta(seconds=30)
    block_warning: timedelta = timedelta(seconds=3)
    log_format: LogFormat | None = "auto"
    log_level: str = "INFO"
    redact: Callable[[str], str] | None = None

    def __post_init__(self) -> None:
        # What is of another type makes no sense to the other checks, so it is told alone.
        checks = (self._election, self._durations, self._texts, self._serving)
        faults = self._types() or [fault for check in checks for fault in check()]
        if faults:
            raise ConfigurationError("ManagerOptions: " + "; ".join(faults))

    def _types(self) -> list[str]:
        """What an untyped caller can get wrong. The type of a field is that of its default, or a path or a text."""
        faults: list[str] = []
        for field in fields(self):
            value: object = getattr(self, field.name)
            if field.name in {"log_format", "redact", "sharding"} or (value is None and field.default is None):
                continue
            default: object = field.default
            paths = ("metrics_certificate", "metrics_key", "metrics_client_ca")
            wanted = (Path if field.name in paths else str) if default is None else type(default)
            if not isinstance(value, wanted):
                faults.append(f"{field.name}: {value!r} is {_a(value)}; give {_NEEDED[wanted]}")
        faults += _sharding_faults(self.sharding)
        faults += [
            f"namespaces: {x!r} is {_a(x)}; give {_NEEDED[str]}"
            for x in _entries(self.namespaces)
            if not isinstance(x, str)
        ]
        return faults

    def _election(self) -> list[str]:
        faults: list[str] = []
        if self.leader_election_id and (fault := lease_fault(self.leader_election_id)):
            faults.append(f"leader_election_id is {self.leader_election_id!r}; it {fault}")
        where = self.leader_election_namespace
        if where is not None and (fault := namespace_fault(where)):
            faults.append(f"leader_election_namespace is {where!r}; it {fault}")
        if self.leader_election and not self.leader_election_id:
            faults.append(
                "leader_election_id is empty: give the Lease a name (default_manager_options(id) does), or set "
                "leader_election=False for an operator with one replica"
            )
        if self.sharding is not None and not 1 <= len(self.leader_election_id) <= _LONGEST_GROUP:
            faults.append(
                f"leader_election_id is {self.leader_election_id!r}; sharding needs one, of {_LONGEST_GROUP} "
                "characters at most: it names the Leases by which the replicas divide the objects"
            )
        if not self.retry_period * _JITTER < self.renew_deadline:
            faults.append(
                f"renew_deadline ({self.renew_deadline}) must be over 1.2 x retry_period ({self.retry_period})"
            )
        if not self.renew_deadline < self.lease_duration:
            faults.append(f"lease_duration ({self.lease_duration}) must be over renew_deadline ({self.renew_deadline})")
        return faults

    def _durations(self) -> list[str]:
        positive = ("retry_period", "readiness_staleness", "liveness_block", "block_warning")
        values: dict[str, object] = {field.name: getattr(self, field.name) for field in fields(self)}
        faults = [
            f"{name} is {value}; it must be over zero"
            for name in positive
            if isinstance(value := values[name], timedelta) and value <= timedelta(0)
        ]
        if self.grace_period < timedelta(0):
            faults.append(f"grace_period is {self.grace_period}; it must not be negative")
        return faults

    def _texts(self) -> list[str]:
        faults: list[str] = []
        if not self.field_manager or len(self.field_manager) > 128:
            faults.append("field_manager must have 1 to 128 characters")
        faults += [f"namespaces: {x!r} {fault}" for x in self.namespaces if (fault := namespace_fault(x))]
        if self.log_format not in {None, "auto", "json", "text"}:
            faults.append(f"log_format is {self.log_format!r}; it must be 'auto', 'json', 'text' or None")
        if self.log_level not in logging.getLevelNamesMapping():
            faults.append(f"log_level is {self.log_level!r}; it must be one of logging's names, such as 'INFO'")
        if len(set(self.namespaces)) != len(self.namespaces):
            faults.append(f"namespaces names one twice: {self.namespaces}")
        return faults

    def _serving(self) -> list[str]:
        faults: list[str] = []
        for name, address in (
            ("metrics_bind_address", self.metrics_bind_address),
            ("probe_bind_address", self.probe_bind_address),
        ):
            try:
                bind = parse_bind_address(address)
            except ConfigurationError as error:
                faults.append(f"{name}: {error}")
                continue
            both = self.serve_metrics and self.serve_probes and self.metrics_bind_address == self.probe_bind_address
            if both and bind.port and name == "probe_bind_address":
                faults.append(f"probe_bind_address and metrics_bind_address are both {address}")
        try:
            ServingTls.of(certificate=self.metrics_certificate, key=self.metrics_key, client_ca=self.metrics_client_ca)
        except ConfigurationError as error:
            faults.append(f"metrics_certificate: {error}")
        return faults


def _sharding_faults(value: object) -> list[str]:
    if value is None or isinstance(value, Sharding):
        return []
    return [f"sharding: {value!r} is {_a(value)}; give a Sharding()"]


def _entries(value: object) -> tuple[object, ...]:
    return cast("tuple[object, ...]", value) if isinstance(value, tuple) else ()


def _a(value: object) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def default_manager_options(id: str, /) -> ManagerOptions:  # noqa: A002 - positional; what Kubernetes calls it
    """The options of an operator in production: metrics on `:8080`, probes on `:8081`, leader election on a Lease.

    Args:
        id: The Lease's name, such as `widgets.demo.example.com`.
    """
    return ManagerOptions(leader_election_id=id)
