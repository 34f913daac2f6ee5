"""The same operator on opsdk and on its peers, each measured from outside against one kube-apiserver.

`install-peers.sh` makes the peers; those that are there are compared. One runs at a time. The rounds go peer by peer,
so that noise falls on all; peers against which there is no goal run in the first round only.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Final

from cluster import api_server
from figures import Figure, figure
from peer_process import PeerProcess

__all__ = ["Sample", "details", "measure"]

_HERE: Final = Path(__file__).parent
_OURS: Final = {"opsdk": "pydantic", "opsdk-structs": "structs"}
"""Peers that are ours, and what their models are made of."""
_NEEDED: Final = {
    "sync": {*_OURS, "lightkube", "controller-runtime"},
    "converge": {*_OURS, "lightkube", "controller-runtime"},
    "noop": {*_OURS, "kubernetes-asyncio", "controller-runtime", "lightkube"},
    "idle": {*_OURS, "lightkube", "kopf", "controller-runtime"},
}
_ROUNDS: Final = {"sync": 3, "converge": 2, "noop": 3, "idle": 3}
_CONFIG_MAPS: Final = 10_000
_WIDGETS: Final = 1_000
_CHANGES: Final = 2_000
_RESULTS: Final = _HERE / "results" / "operators.json"
_PATIENCE: Final = 180.0
_CHILD_NAMESPACE: Final = "bench-converge"
_SETTLED_SECONDS: Final = 7.0  # past what kopf's workers wait before they end
_IDLE_SECONDS: Final = 7.0


@dataclass(frozen=True, slots=True)
class Sample:
    """What one run of one operator cost.

    Args:
        workload: What it did.
        peer: Which operator.
        values: By name.
    """

    workload: str
    peer: str
    values: dict[str, float]


class Bench:
    """The API server, the loader and the peers.

    Args:
        kubeconfig: The API server.
        folder: Where `install-peers.sh` put them.
    """

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self._folder = folder
        self._environment = {"KUBECONFIG": str(kubeconfig), **dict(_extra_environment())}
        (folder / "logs").mkdir(exist_ok=True)
        self.peers = [
            name for name, command in _commands(folder).items() if all(Path(part).exists() for part in command)
        ]

    def loader(self, step: str, **flags: object) -> dict[str, float]:
        """One step of the loader."""
        done = subprocess.run(  # noqa: S603 - our own program
            [*self._loader(step, **flags)],
            check=True,
            stdout=subprocess.PIPE,
            env={**os.environ, **self._environment},
        )
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return found

    def start(
        self, peer: str, workload: str, *, namespace: str, count: int, kind: str = "widgets", label: str = ""
    ) -> PeerProcess:
        """An operator at work."""
        command = [*_commands(self._folder)[peer], workload, namespace, str(count), kind, label]
        environment = {**self._environment, "BENCH_MODELS": _OURS.get(peer, "")}
        return PeerProcess(peer, command, environment, self._folder / "logs" / f"{peer}.{workload}.log")

    # The workloads

    def sync(self, peer: str) -> dict[str, float]:
        """W1: until all ConfigMaps are in the cache."""
        with self.start(peer, "sync", namespace="bench-many", count=_CONFIG_MAPS, kind="configmaps") as process:
            count, at = process.wait_for("synced", seconds=_PATIENCE)
            cpu = process.cpu_seconds()
            time.sleep(1.5)
            found = {"cpu": cpu, "wall": at - process.started_at, "peak": process.peak_megabytes()}
            found["resident"] = process.resident_megabytes()
        assert count == _CONFIG_MAPS, f"{peer} has {count} objects"
        return found

    def converge(self, peer: str) -> dict[str, float]:
        """W2: from Widgets without children to all ready; then again, after all specs have changed."""
        self.loader("renew", namespace=_CHILD_NAMESPACE, count=_WIDGETS)
        before = self.loader("requests")
        flags = self._loader("converge", namespace=_CHILD_NAMESPACE, count=_WIDGETS)
        with subprocess.Popen(flags, stdout=subprocess.PIPE, env={**os.environ, **self._environment}) as watching:  # noqa: S603 - our own program
            assert watching.stdout is not None
            watching.stdout.readline()
            with self.start(peer, "converge", namespace=_CHILD_NAMESPACE, count=_WIDGETS) as process:
                done = json.loads(watching.stdout.readline())
                time.sleep(2.0)  # for the events that come late
                first_cpu = process.cpu_seconds()
                between = self.loader("requests")
                again = self.loader("respec", namespace=_CHILD_NAMESPACE, count=_WIDGETS)
                time.sleep(2.0)
                second_cpu = process.cpu_seconds() - first_cpu
                after = self.loader("requests")
                right = self.loader("verify", namespace=_CHILD_NAMESPACE)
                time.sleep(1.0)
                rest = self.loader("requests")
                peak = process.peak_megabytes()
        assert right == {"right": _WIDGETS, "children": _WIDGETS}, f"{peer}: {right}"
        return {
            "first wall": done["at"] - process.started_at,
            "first cpu": 1000 * first_cpu / _WIDGETS,
            "first writes": _writes(before, between) / _WIDGETS,
            "first events": _writes(before, between, events=True) / _WIDGETS,
            "second wall": again["seconds"],
            "second cpu": 1000 * second_cpu / _WIDGETS,
            "second writes": _writes(between, after) / _WIDGETS - 1,  # one of them is the loader's
            "rest writes": _writes(after, rest),
            "peak": peak,
        }

    def noop(self, peer: str) -> dict[str, float]:
        """W3: label changes, of which each is looked at and nothing is done."""
        label = f"f{time.time_ns() // 1_000_000 % 10**9}"
        with self.start(peer, "noop", namespace="bench-labels", count=_WIDGETS, label=label) as process:
            process.wait_for("initial", seconds=_PATIENCE)
            time.sleep(1.0)
            cpu = process.cpu_seconds()
            storm = self.loader("storm", namespace="bench-labels", count=_WIDGETS, changes=_CHANGES, final=label)
            _, at = process.wait_for("done", seconds=_PATIENCE)
            cpu = process.cpu_seconds() - cpu
        return {"cpu": 1e6 * cpu / _CHANGES, "lag": 1000 * (at - storm["at"]), "writes": _CHANGES / storm["seconds"]}

    def idle(self, peer: str, *, long: bool = False) -> dict[str, float]:
        """W4: from the start of the process to the end of the first reconcile; then what it costs to do nothing."""
        self.loader("renew", namespace="bench-one", count=1)
        with self.start(peer, "idle", namespace="bench-one", count=1) as process:
            _, at = process.wait_for("first", seconds=_PATIENCE)
            found = {"start": at - process.started_at, "start cpu": process.cpu_seconds()}
            if long:
                time.sleep(_SETTLED_SECONDS)
                cpu = process.cpu_seconds()
                time.sleep(_IDLE_SECONDS)
                found["idle cpu"] = 1000 * (process.cpu_seconds() - cpu) / _IDLE_SECONDS
                found["idle memory"] = process.resident_megabytes()
        return found

    def _loader(self, step: str, **flags: object) -> list[str]:
        given = (f"-{name}={value}" for name, value in flags.items())
        return [str(self._folder / "bin" / "loader"), step, *given]


def _extra_environment() -> Mapping[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("BENCH_")}


def _commands(folder: Path) -> dict[str, list[str]]:
    ours = [str(folder / "opsdk" / "bin" / "python"), str(_HERE / "peers" / "opsdk_operator.py")]
    found = {"controller-runtime": [str(folder / "bin" / "controllerruntime")], **dict.fromkeys(_OURS, ours)}
    for name in ("lightkube", "kubernetes-asyncio", "kopf", "cloudcoil"):
        program = _HERE / "peers" / f"{name.replace('-', '_')}_operator.py"
        found[name] = [str(folder / name / "bin" / "python"), str(program)]
    return found


def _writes(before: Mapping[str, float], after: Mapping[str, float], *, events: bool = False) -> float:
    """Requests that write Widgets and ConfigMaps, or events; those that were refused as well."""
    resources = {"events"} if events else {"widgets", "widgets/status", "configmaps"}
    total = 0.0
    for name, count in after.items():
        verb, resource = name.split(" ")[:2]
        if verb in {"POST", "PUT", "PATCH", "APPLY", "DELETE"} and resource in resources:
            total += count - before.get(name, 0.0)
    return total


def measure(*, rounds: int | None = None, workloads: Sequence[str] = (), peers: Sequence[str] = ()) -> list[Figure]:
    """All comparisons of operators; writes what each run cost to `results/operators.json`.

    Args:
        rounds: How often each is made. Default: as often as makes all of it last ten minutes on a quiet machine.
        workloads: Which; default: all.
        peers: Which; default: all that are installed.
    """
    folder = _installed()
    chosen = tuple(workloads) or tuple(_NEEDED)
    with api_server() as kubeconfig:
        bench = Bench(kubeconfig, folder)
        names = [name for name in bench.peers if not peers or name in peers]
        _prepare(bench, chosen, names)
        samples: list[Sample] = []
        runs: Mapping[str, Callable[[str], dict[str, float]]] = {
            "sync": bench.sync,
            "converge": bench.converge,
            "noop": bench.noop,
            "idle": lambda peer: bench.idle(
                peer, long=not any(s.workload == "idle" and s.peer == peer for s in samples)
            ),
        }
        for workload in chosen:
            for number in range(_ROUNDS[workload] if rounds is None else rounds):
                for peer in names:
                    if number == 0 or peer in _NEEDED[workload]:
                        sample = Sample(workload, peer, runs[workload](peer))
                        samples.append(sample)
                        print(_line(sample), flush=True)
    _write(samples)
    return _figures(samples)


def _installed() -> Path:
    done = subprocess.run([str(_HERE / "install-peers.sh"), "--where"], check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603 - ours
    return Path(done.stdout.strip())


def _prepare(bench: Bench, workloads: Sequence[str], peers: Sequence[str]) -> None:
    bench.loader("install", file=_HERE / "widgets.json")
    if "sync" in workloads:
        bench.loader("configmaps", namespace="bench-many", count=_CONFIG_MAPS)
    if "noop" in workloads:
        bench.loader("widgets", namespace="bench-labels", count=_WIDGETS)
    for peer in peers:  # compiled modules and warm files are not what is measured
        bench.idle(peer)


def _line(sample: Sample) -> str:
    values = ", ".join(f"{name} {value:.3g}" for name, value in sample.values.items())
    return f"{sample.workload:9}{sample.peer:20}{values}"


def _figures(samples: Sequence[Sample]) -> list[Figure]:
    """What there are goals for."""
    return [figure for ours, models in _OURS.items() for figure in _figures_of(ours, models, samples)]


def _figures_of(ours: str, models: str, samples: Sequence[Sample]) -> list[Figure]:
    def of(workload: str, peer: str, value: str) -> list[float]:
        return [s.values[value] for s in samples if s.workload == workload and s.peer == peer and value in s.values]

    found: list[Figure] = []

    def compare(what: str, unit: str, workload: str, value: str, other: str, goal: float | None) -> None:
        rounds = list(zip(of(workload, ours, value), of(workload, other, value), strict=False))
        if rounds:
            found.append(figure(f"{models}: {what}", unit, rounds, other=other, goal=goal))

    compare("W1 10,000 ConfigMaps: CPU until synced", "s", "sync", "cpu", "lightkube", 0.7)
    compare("W1 peak memory", "MB", "sync", "peak", "controller-runtime", 1.0)
    for phase in ("first", "second"):
        compare(f"W2 {phase} phase: CPU each", "ms", "converge", f"{phase} cpu", "lightkube", 0.4)
        compare(f"W2 {phase} phase: CPU each", "ms", "converge", f"{phase} cpu", "controller-runtime", 1.0)
        compare(f"W2 {phase} phase: time", "s", "converge", f"{phase} wall", "controller-runtime", 1.2)
        if writes := of("converge", ours, f"{phase} writes"):
            least = [(count, 2.0) for count in writes]
            found.append(figure(f"{models}: W2 {phase} phase: writes each", "", least, other="the least", goal=1.0))
    if rest := of("converge", ours, "rest writes"):
        one = [(count, 1.0) for count in rest]
        found.append(figure(f"{models}: W2 in rest: writes of 1,000", "", one, other="one", goal=0.0))
    compare("W3 CPU of 1,000 events", "ms", "noop", "cpu", "kubernetes-asyncio", 0.8)
    compare("W4 start to first reconcile", "s", "idle", "start", "lightkube", 1.1)
    compare("W4 start: CPU", "s", "idle", "start cpu", "lightkube", None)
    compare("W4 idle memory", "MB", "idle", "idle memory", "kopf", 0.9)
    return found


_ROWS: Final = (
    ("W1 CPU until 10,000 ConfigMaps are cached, s", "sync", "cpu"),
    ("W1 time, s", "sync", "wall"),
    ("W1 peak memory, MB", "sync", "peak"),
    ("W1 memory afterwards, MB", "sync", "resident"),
    ("W2 first phase: CPU per Widget, ms", "converge", "first cpu"),
    ("W2 first phase: time for 1,000, s", "converge", "first wall"),
    ("W2 first phase: writes per Widget", "converge", "first writes"),
    ("W2 first phase: events per Widget", "converge", "first events"),
    ("W2 second phase: CPU per Widget, ms", "converge", "second cpu"),
    ("W2 second phase: time for 1,000, s", "converge", "second wall"),
    ("W2 second phase: writes per Widget", "converge", "second writes"),
    ("W2 writes in rest, of 1,000 Widgets", "converge", "rest writes"),
    ("W2 peak memory, MB", "converge", "peak"),
    ("W3 CPU per 1,000 events, ms", "noop", "cpu"),
    ("W4 start to first reconcile, s", "idle", "start"),
    ("W4 CPU until then, s", "idle", "start cpu"),
    ("W4 idle memory, MB", "idle", "idle memory"),
    ("W4 idle CPU, ms per s", "idle", "idle cpu"),
)


def details() -> str:
    """The medians of all peers, of the last measurement, as a Markdown table."""
    samples = [Sample(**one) for one in json.loads(_RESULTS.read_text(encoding="utf-8"))]
    peers = list(dict.fromkeys(["opsdk", *(sample.peer for sample in samples)]))
    lines = [f"| | {' | '.join(peers)} |", f"|---{'|---' * len(peers)}|"]
    for title, workload, value in _ROWS:
        cells: list[str] = []
        for peer in peers:
            found = [s.values[value] for s in samples if (s.workload, s.peer) == (workload, peer) and value in s.values]
            cells.append(f"{median(found):.3g}" if found else "")
        if any(cells):
            lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _write(samples: Sequence[Sample]) -> None:
    _RESULTS.parent.mkdir(exist_ok=True)
    _RESULTS.write_text(json.dumps([asdict(sample) for sample in samples], indent=1) + "\n", encoding="utf-8")
