"""What a soak has to tell, as a page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from soak.replica import LEASE_SECONDS, WORKERS
from soak.replicas import Figures
from soak.storm import Report

__all__ = ["page"]

_ROWS: Final = 12

_INTRODUCTION: Final = """\
# Soak

Three replicas of an operator, processes of their own, {how} and look after {objects} objects at a
real kube-apiserver, while users change what they want, connections are cut, held up and slowed down in a TCP proxy, the
API server is killed and started again, and {victim} is killed, ended or stopped beyond its lease. Afterwards all
objects have to be as their users left them. What each write was, by whom and in which order, is read from etcd, by
nothing of opsdk's.

`make soak` does it again and writes this page (20 minutes; `MINUTES=` or `SECONDS=` for another time, `REPORT=` for
another file; `SOAK=--sharded` has the replicas divide the objects); `make e2e` runs a cut of a minute. The code is in
`tests/soak`.
"""

_RULES: Final = f"""\
## What was checked

- **Nothing is lost**: of every object the newest spec and label have arrived in its status and its child; what was
  deleted is gone, and so is its child.
- **Never two writers**: each write is signed with its leader's term, or, where replicas divide the objects, with the
  number of the view that gave it the object. Of a term there is one writer (of an object); no object is written by an
  older term after a newer one has written it. *Late* are writes of an older leader after a newer one has written
  something else: what had passed the gate when its process was stopped. There may be one for each of {WORKERS} workers.
- **Nothing grows**: memory (10 % and 8 MiB of slack), descriptors (8) and threads (4) of the replica that is never
  replaced, from the first quarter after the warm-up (a third of the time) to the last.
- **Ends are orderly**: at last each replica ends with 0 within the grace period, and nobody holds a Lease.
"""

_FIGURES: Final = """\
*Changes waited for* can be more than the writes of users: a replacement is one write and two changes, as an object
goes and another comes. What is changed again before it was reconciled is waited for once, from the first change on.

The longest waits can be much longer than a Lease of {lease} s. They include outages of the server, spells in which
nobody might write, and terms in which the machine was busy: it also runs etcd, the API server, the proxy, the users and
the other replicas.
{takes_over}
"""

_OF_LEADERS: Final = """\
Each new leader goes through all objects that exist, in random order, and what changed before it came has its turn
among them; so a change waits longest when one term after the other ends too soon.\
"""
_OF_SHARES: Final = """\
A replica that is given objects goes through all of them, and what changed before has its turn among them; so a change
waits longest when its object moves on too soon, time after time.\
"""

_MEMORY: Final = "memory (grows by 10 % and 8 MiB at most)"
_DESCRIPTORS: Final = "descriptors (by 8)"
_THREADS: Final = "threads (by 4)"
_GROWTH: Final = """\
The first third of the time is the warm-up, in which caches fill, and does not count. Of the rest the median of the last
quarter is held against that of the first, with the slack that stands in the heads.
"""


def page(report: Report) -> str:
    """The report as Markdown."""
    plan, facts = report.plan, report.facts
    verdict = "all held" if not report.faults else f"{len(report.faults)} faults"
    waits = sorted(facts.waits)
    figures: list[tuple[str, str]] = [
        ("faults went on for", f"{plan.seconds:g} s"),
        ("before that, until all objects were there and reconciled", f"{report.began_seconds:.0f} s"),
        ("objects at any time", f"{plan.objects:,}"),
        *((what, f"{count:,}") for what, count in sorted(report.counts.items())),
        ("writes of the operator", f"{facts.writes:,}"),
        *([] if plan.sharded else [("of these late", f"{facts.late_writes:,}")]),
        ("events in etcd", f"{facts.events:,}"),
        ("changes waited for", f"{len(waits):,}"),
        ("from a change to its reconcile: median", _seconds(waits, 0.5)),
        ("from a change to its reconcile: 99 of 100", _seconds(waits, 0.99)),
        ("from a change to its reconcile: longest, outages included", _seconds(waits, 1.0)),
        ("until all was settled, after the last fault", f"{report.settled_seconds:.1f} s"),
    ]
    lines = [
        _INTRODUCTION.format(
            objects=f"{plan.objects:,}",
            how="divide the objects" if plan.sharded else "elect a leader on a Lease",
            victim="one of them" if plan.sharded else "whoever leads",
        ),
        f"## The latest run: {verdict}",
        "",
        f"On {datetime.now(UTC):%Y-%m-%d}, seed {plan.seed}, a Lease of {LEASE_SECONDS} s.",
        "",
        "| what | figure |",
        "|---|---|",
        *(f"| {what} | {figure} |" for what, figure in figures),
        "",
        *(f"- **{fault.splitlines()[0]}**" for fault in report.faults),
        *([""] if report.faults else []),
        _FIGURES.format(
            lease=LEASE_SECONDS,
            takes_over=_OF_SHARES if plan.sharded else _OF_LEADERS,
        ),
        _RULES,
        f"## What the replica `{report.steady}` took",
        "",
        _GROWTH,
        f"| after | {_MEMORY} | {_DESCRIPTORS} | {_THREADS} |",
        "|---|---|---|---|",
        *(
            f"| {each.seconds:.0f} s | {each.rss_mib:.0f} MiB | {each.descriptors} | {each.threads} |"
            for each in _thinned(report.curves.get(report.steady, []))
        ),
    ]
    return "\n".join(lines) + "\n"


def _seconds(waits: Sequence[float], share: float) -> str:
    """The wait, of waits in order, that no more than a share of them exceeds."""
    return f"{waits[min(int(len(waits) * share), len(waits) - 1)]:.2f} s" if waits else "none"


def _thinned(curve: Sequence[Figures]) -> Sequence[Figures]:
    if len(curve) <= _ROWS:
        return curve
    return [curve[round(index * (len(curve) - 1) / (_ROWS - 1))] for index in range(_ROWS)]
