"""`make soak`: a long soak, and the page about it. Exits with 1 when something did not hold."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

import anyio

from opsdk.testing.controlplane import find_assets
from soak.report import page
from soak.storm import Plan, soak

__all__ = ["main"]


def main() -> int:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1200.0, help="how long faults happen")
    parser.add_argument("--objects", type=int, default=2000, help="how many there are at any time")
    parser.add_argument("--writes", type=float, default=10.0, help="what users do in a second")
    parser.add_argument("--sharded", action="store_true", help="the replicas divide the objects, and none leads")
    parser.add_argument("--seed", type=int, default=0, help="where chance comes from")
    parser.add_argument("--report", type=Path, help="where the page goes; default: the terminal")
    given = parser.parse_args()
    built = os.environ.get("OPSDK_CONTROLPLANE_ASSETS")
    assets = find_assets(Path(built) if built else None)
    plan = Plan(
        seconds=given.seconds,
        objects=given.objects,
        writes_per_second=given.writes,
        sharded=given.sharded,
        seed=given.seed,
    )
    for number in (signal.SIGTERM, signal.SIGINT):  # also where a shell has had them ignored
        signal.signal(number, signal.default_int_handler)
    report = anyio.run(soak, plan, assets)
    text = page(report)
    if given.report is None:
        sys.stdout.write(text)
    else:
        given.report.write_text(text)
        sys.stdout.write(f"soak: {given.report}\n")
    for fault in report.faults:
        sys.stdout.write(f"soak: FAULT: {fault}\n")
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
