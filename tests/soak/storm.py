"""The soak itself: users, faults and checks, from a control plane's start to its end."""

from __future__ import annotations

import json
import random
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, final

import anyio
import anyio.to_thread

from etcd_gateway import Etcd
from opsdk.models import crd_manifest
from opsdk.testing.controlplane import Assets, ControlPlane
from soak.churn import Churn
from soak.direct import Direct
from soak.gadgets import GROUP, LABEL, Gadget, Part
from soak.history import END, Facts, History, Judge
from soak.replica import LEASE, LEASE_SECONDS
from soak.replicas import Figures, Replica
from tcp_proxy import TcpProxy, tcp_proxy

__all__ = ["Plan", "Report", "growth", "soak"]

_USERS: Final = 2
_SETTLE_SECONDS: Final = 180.0
_SETTLE_SECONDS_AN_OBJECT: Final = 0.3


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long, how many, how fast.

    Args:
        seconds: How long faults happen.
        objects: How many Gadgets there are at any time.
        writes_per_second: What users do.
        sharded: Whether the replicas divide the objects; else one leads.
        leader_every: Seconds between two attacks on the leader, or on any replica where none leads.
        streams_every: Seconds between two attacks on connections.
        server_every: Seconds between two deaths of kube-apiserver.
        sample_every: Seconds between two looks at the processes.
        seed: Where chance comes from.
    """

    seconds: float
    objects: int = 2000
    writes_per_second: float = 10.0
    sharded: bool = False
    leader_every: float = 6.0
    streams_every: float = 5.0
    server_every: float = 45.0
    sample_every: float = 5.0
    seed: int = 0


@final
@dataclass(slots=True, kw_only=True)
class Report:
    """What was done and what came of it."""

    plan: Plan
    facts: Facts
    counts: Counter[str] = field(default_factory=Counter[str])
    faults: list[str] = field(default_factory=list[str])
    curves: dict[str, list[Figures]] = field(default_factory=dict[str, list[Figures]])
    steady: str = ""
    settled_seconds: float = 0.0
    began_seconds: float = 0.0


@final
class _Storm:
    def __init__(self, plan: Plan, plane: ControlPlane, proxy: TcpProxy, report: Report) -> None:
        self._plan = plan
        self._plane = plane
        self._proxy = proxy
        self._report = report
        self._random = random.Random(plan.seed)
        self.direct = Direct(plane.url, plane.folder)
        kubeconfig = _through(plane, proxy.port)
        make = partial(Replica, mode="sharded" if plan.sharded else "leader", kubeconfig=kubeconfig)
        # Each has its own fate; the first is never replaced, so that its curves are long.
        self.replicas = [
            make("steady", "asyncio", log=plane.folder / "steady.log"),
            make("orderly", "trio", log=plane.folder / "orderly.log"),
            make("mortal", "asyncio", log=plane.folder / "mortal.log"),
        ]

    async def rage(self) -> None:
        """Faults, until the time is up."""
        with anyio.move_on_after(self._plan.seconds):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._attack_leaders)
                tasks.start_soon(self._attack_streams)
                tasks.start_soon(self._attack_server)
        self._proxy.resume()
        for replica in self.replicas:
            replica.resume()
        self._plane.api_server.start()
        await anyio.to_thread.run_sync(self._plane.wait_ready)

    async def watch_over(self, began: float) -> None:
        """Start what has ended, and look at what each takes; until cancelled."""
        sampled = -self._plan.sample_every
        while True:
            for replica in self.replicas:
                replica.start()
            if time.monotonic() - began - sampled >= self._plan.sample_every:
                sampled = time.monotonic() - began
                for replica in self.replicas:
                    if (figures := replica.figures(began)) is not None:
                        self._report.curves.setdefault(replica.name, []).append(figures)
            await anyio.sleep(0.25)

    async def _attack_leaders(self) -> None:
        while True:
            await anyio.sleep(self._plan.leader_every * self._random.uniform(0.7, 1.3))
            if self._plan.sharded:
                await self._attack(self._random.choice(self.replicas))
                continue
            try:
                holders = await anyio.to_thread.run_sync(self.direct.holders, LEASE)
            except OSError:
                continue  # the server is being attacked
            for replica in self.replicas:
                if holders.get(LEASE, "").startswith(f"{replica.name}-"):
                    await self._attack(replica)

    async def _attack(self, victim: Replica) -> None:
        match victim.name:
            case "orderly":
                self._report.counts["replicas ended with SIGTERM"] += 1
                victim.terminate()
            case "mortal":
                self._report.counts["replicas killed with SIGKILL"] += 1
                victim.kill()
            case _:
                self._report.counts["replicas stopped beyond their lease with SIGSTOP"] += 1
                victim.pause()
                await anyio.sleep(LEASE_SECONDS + 1.5)
                victim.resume()

    async def _attack_streams(self) -> None:
        while True:
            await anyio.sleep(self._plan.streams_every * self._random.uniform(0.5, 1.5))
            match self._random.choice(("all", "one", "stall", "slow")):
                case "all":
                    self._report.counts["connections cut"] += self._proxy.cut()
                case "one" if self._proxy.open:
                    self._report.counts["connections cut"] += self._proxy.cut(self._random.choice(self._proxy.open))
                case "stall":
                    self._report.counts["stalls of 1.5 s"] += 1
                    self._proxy.stall()
                    try:
                        await anyio.sleep(1.5)
                    finally:
                        self._proxy.resume()
                case _:
                    self._report.counts["spells of 100 ms latency"] += 1
                    self._proxy.delay_seconds = 0.05
                    try:
                        await anyio.sleep(2)
                    finally:
                        self._proxy.delay_seconds = 0

    async def _attack_server(self) -> None:
        while True:
            await anyio.sleep(self._plan.server_every * self._random.uniform(0.7, 1.3))
            self._report.counts["kube-apiserver killed"] += 1
            self._plane.api_server.kill()
            self._plane.api_server.start()
            await anyio.to_thread.run_sync(self._plane.wait_ready)


def _through(plane: ControlPlane, port: int) -> Path:
    """A kubeconfig whose server is the proxy."""
    document: dict[str, Any] = json.loads(plane.kubeconfig.read_text())
    for cluster in document["clusters"]:
        cluster["cluster"]["server"] = f"https://127.0.0.1:{port}"
    path = plane.folder / "through-proxy.kubeconfig"
    path.write_text(json.dumps(document))
    path.chmod(0o600)
    return path


async def soak(plan: Plan, assets: Assets) -> Report:
    """Start everything, make the objects, let it rage, let it settle, and check. Ends what it started in any case."""
    plane = ControlPlane(assets=assets, crds=[crd_manifest(Gadget), crd_manifest(Part)])
    await anyio.to_thread.run_sync(plane.start)
    try:
        async with tcp_proxy(int(plane.url.rpartition(":")[2])) as proxy:
            return await _soak(plan, plane, proxy)
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(plane.stop)


async def _soak(plan: Plan, plane: ControlPlane, proxy: TcpProxy) -> Report:
    judge = Judge(sharded=plan.sharded)
    history = History(Etcd(plane.folder), judge)
    report = Report(plan=plan, facts=judge.facts)
    storm = _Storm(plan, plane, proxy, report)
    users = [
        Churn(
            Direct(plane.url, plane.folder),
            prefix=f"user{number}",
            objects=plan.objects // _USERS,
            per_second=plan.writes_per_second / _USERS,
            seed=plan.seed + number,
        )
        for number in range(_USERS)
    ]
    began = time.monotonic()
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(storm.watch_over, began)
            for user in users:
                await anyio.to_thread.run_sync(user.wait_complete)
            await _settle(storm.direct, users, history, report)
            history.begin()
            report.began_seconds = time.monotonic() - began
            for user in users:
                user.begin()
            await storm.rage()
            for user in users:
                await anyio.to_thread.run_sync(user.stop)
            calm = time.monotonic()
            await _settle(storm.direct, users, history, report)
            report.settled_seconds = time.monotonic() - calm
            tasks.cancel_scope.cancel()
        report.counts["writes of users"] = sum(user.writes for user in users)
        report.faults += [f"a user gave up: {user.fault}" for user in users if user.fault]
        await anyio.to_thread.run_sync(_end, storm, history, plane, report)
    finally:
        for replica in storm.replicas:
            replica.kill()
        for user in users:
            user.stop()
        storm.direct.close()
    return report


def _wanted(users: Sequence[Churn]) -> dict[str, tuple[int, str]]:
    return {name: shown for user in users for name, shown in user.wanted.items()}


def _differences(direct: Direct, wanted: dict[str, tuple[int, str]]) -> list[str]:
    """Where the cluster is not as the users want it: Gadgets as they left them, statuses and Parts like them."""
    gadgets, parts = direct.all("gadgets"), direct.all("parts")
    found = [f"{kind} {name} should be gone" for kind, there in (("Gadget", gadgets), ("Part", parts))
             for name in there.keys() - wanted.keys()]  # fmt: skip
    for name, (value, tier) in wanted.items():
        gadget, part = gadgets.get(name), parts.get(name)
        if gadget is None or part is None:
            found.append(f"{name} has no {'Part' if gadget else 'Gadget'}")
            continue
        status: dict[str, Any] = gadget.get("status") or {}
        shown = {
            "spec": (gadget["spec"]["value"], gadget["metadata"]["labels"][LABEL]),
            "status": (status.get("value"), status.get("tier")),
            "part": (part["spec"]["value"], part["metadata"]["labels"][LABEL]),
        }
        found += [
            f"{name}: {what} is {one}, not {(value, tier)}" for what, one in shown.items() if one != (value, tier)
        ]
        if status.get("observedGeneration") != gadget["metadata"]["generation"]:
            found.append(f"{name}: its newest generation was not observed")
        if part["metadata"]["ownerReferences"][0]["uid"] != gadget["metadata"]["uid"]:
            found.append(f"{name}: its Part belongs to another Gadget of that name")
    return found


async def _settle(direct: Direct, users: Sequence[Churn], history: History, report: Report) -> None:
    """Wait until everything is as it was left."""
    patience = _SETTLE_SECONDS + _SETTLE_SECONDS_AN_OBJECT * report.plan.objects
    deadline = time.monotonic() + patience
    while True:
        differences = await anyio.to_thread.run_sync(_differences, direct, _wanted(users))
        if not differences and not history.judge.unfinished:
            return
        if time.monotonic() > deadline:
            report.faults += [f"lost: {difference}" for difference in differences[:20]]
            report.faults.append(f"{len(differences)} differences after {patience:g} s of calm")
            return
        await anyio.sleep(1)


def _end(storm: _Storm, history: History, plane: ControlPlane, report: Report) -> None:
    """Stop the replicas in order, end the history, and look at both. Blocks."""
    direct = storm.direct
    for replica in storm.replicas:
        status = replica.end(grace_seconds=30)
        if status != 0:
            report.faults.append(f"replica {replica.name} ended with {status} at last")
        if replica.unexpected:
            log = (plane.folder / f"{replica.name}.log").read_text(errors="replace")[-2000:]
            report.faults.append(f"replica {replica.name} ended by itself with {replica.unexpected}:\n{log}")
        report.counts["starts of replicas"] += replica.starts
    held = {name: holder for name, holder in direct.holders(LEASE).items() if name != f"{LEASE}.shards"}
    if held:
        report.faults.append(f"Leases are still held: {held}")
    direct.create({"apiVersion": f"{GROUP}/v1", "kind": "Gadget", "metadata": {"name": END}, "spec": {"value": 0}})
    history.join(60)
    report.counts["terms"] = len(history.judge.facts.terms)
    report.steady = storm.replicas[0].name
    report.faults += history.judge.facts.faults
    report.faults += growth(report.curves.get(report.steady, []))


def growth(curve: Sequence[Figures]) -> list[str]:
    """What has grown from the first quarter after the warm-up to the last one."""
    after_warm_up = curve[len(curve) // 3 :]
    quarter = max(len(after_warm_up) // 4, 1)
    first, last = after_warm_up[:quarter], after_warm_up[-quarter:]
    if not first:
        return ["the steady replica was never seen"]

    def median(figures: Sequence[Figures], what: str) -> float:
        return statistics.median(float(getattr(each, what)) for each in figures)

    found: list[str] = []
    for what, slack, share in (("rss_mib", 8.0, 0.10), ("descriptors", 8.0, 0.0), ("threads", 4.0, 0.0)):
        before, after = median(first, what), median(last, what)
        if after > before * (1 + share) + slack:
            found.append(f"{what} grew from {before:g} to {after:g}")
    return found
