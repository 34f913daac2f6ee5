"""A minute of the soak, for CI. `make soak` takes twenty, with more objects, and writes a page about it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from opsdk.testing.controlplane import find_assets
from soak.storm import Plan, soak

pytestmark = [pytest.mark.anyio, pytest.mark.controlplane]


@pytest.fixture
def anyio_backend() -> str:
    """Real time: there are processes. The replicas have both backends."""
    return "asyncio"


async def test_for_a_minute_of_faults_nothing_is_lost_and_there_are_never_two_writers() -> None:
    built = os.environ.get("OPSDK_CONTROLPLANE_ASSETS")
    plan = Plan(
        seconds=60,
        objects=120,
        writes_per_second=6,
        leader_every=6,
        streams_every=5,
        server_every=25,
        sample_every=2,
    )
    report = await soak(plan, find_assets(Path(built) if built else None))
    assert not report.faults
    # and it was a soak
    assert report.counts["kube-apiserver killed"] >= 1
    assert report.counts["terms"] >= 3
    assert report.counts["writes of users"] >= 100
    assert report.facts.writes >= 3 * plan.objects
