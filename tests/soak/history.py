"""What really happened, read from etcd, and what must not have: independent of opsdk and of kube-apiserver.

The rules, for each write that took effect, in the order in which they did:
    * Of a term there is one writer; where objects are divided, one for each object.
    * No object is written by an older term after a newer one has written it: the precondition refused that.
    * Where one leads: of an older term, after a newer one has written anything, there is at most what was on its way
      when its gate closed: one write for each worker.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, final

from etcd_gateway import Etcd, EtcdEvent
from soak.gadgets import GROUP, LABEL, WRITER
from soak.replica import WORKERS

__all__ = ["END", "Facts", "History", "Judge"]

END: Final = "the-end"
"""The name of the object that ends the history."""
_PREFIX: Final = f"/registry/{GROUP}/"
_SILENCE_SECONDS: Final = 300.0


@final
@dataclass(slots=True)
class _Gadget:
    """The newest of a Gadget, and since when something has been left to do."""

    wanted: tuple[int, str]
    done: tuple[int, str] = (-1, "")
    deleting: bool = False
    since: float | None = None


@final
@dataclass(slots=True)
class Facts:
    """What came of it."""

    events: int = 0
    writes: int = 0
    late_writes: int = 0
    terms: set[int] = field(default_factory=set[int])
    waits: list[float] = field(default_factory=list[float])
    faults: list[str] = field(default_factory=list[str])


@final
class Judge:
    """Looks at one write after the other.

    Args:
        sharded: Whether replicas divide the objects, so that terms are an object's own.
    """

    def __init__(self, *, sharded: bool) -> None:
        self.facts: Final = Facts()
        self._sharded = sharded
        self._gadgets: dict[str, _Gadget] = {}
        self._parts: dict[str, tuple[int, str]] = {}
        self._signatures: dict[str, str] = {}
        self._newest: dict[str, int] = {}
        self._newest_of_all = -1
        self._late: Counter[int] = Counter()
        self._writers: dict[tuple[int, str], str] = {}

    @property
    def unfinished(self) -> int:
        """How many Gadgets have something left to do; from another thread, more or less."""
        return sum(gadget.since is not None for gadget in list(self._gadgets.values()))

    def take(self, kind: str, name: str, event: EtcdEvent) -> None:
        """One write."""
        self.facts.events += 1
        document = event.document
        if document is None:
            self._forget(kind, name)
        else:
            annotations: Mapping[str, str] = document["metadata"].get("annotations") or {}
            status: Mapping[str, Any] = document.get("status") or {}
            for where, signature in ((kind, annotations.get(WRITER, "")), ("status", status.get("writer", ""))):
                if signature and self._signatures.get(f"{where}/{name}") != signature:
                    self._signatures[f"{where}/{name}"] = signature
                    self._written(f"{kind}/{name}", signature, event.revision)
            self._see(kind, name, document, status)
        gadget = self._gadgets.get(name)
        if gadget is not None and not gadget.deleting:
            finished = gadget.wanted == gadget.done == self._parts.get(name)
            if not finished and gadget.since is None:
                gadget.since = time.monotonic()
            elif finished and gadget.since is not None:
                self.facts.waits.append(time.monotonic() - gadget.since)
                gadget.since = None

    def _forget(self, kind: str, name: str) -> None:
        for known in (f"{kind}/{name}", *(("status/" + name,) if kind == "gadgets" else ())):
            self._signatures.pop(known, None)
        self._newest.pop(f"{kind}/{name}", None)
        if kind == "parts":
            self._parts.pop(name, None)
        elif (gadget := self._gadgets.pop(name, None)) is not None and gadget.since is not None:
            self.facts.waits.append(time.monotonic() - gadget.since)

    def _see(self, kind: str, name: str, document: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        labels: Mapping[str, str] = document["metadata"].get("labels") or {}
        shown: tuple[int, str] = (document["spec"]["value"], labels.get(LABEL, ""))
        if kind == "parts":
            self._parts[name] = shown
            return
        gadget = self._gadgets.setdefault(name, _Gadget(shown))
        gadget.wanted, gadget.done = shown, (status.get("value", -1), status.get("tier", ""))
        if document["metadata"].get("deletionTimestamp") and not gadget.deleting:
            gadget.deleting, gadget.since = True, gadget.since or time.monotonic()

    def _written(self, key: str, signature: str, revision: int) -> None:
        facts = self.facts
        facts.writes += 1
        term_text, replica, _ = signature.split("/")
        term = int(term_text)
        facts.terms.add(term)
        of_term = (term, key if self._sharded else "")
        if self._writers.setdefault(of_term, replica) != replica:
            facts.faults.append(f"{key}@{revision}: {replica} wrote in term {term} of {self._writers[of_term]}")
        if term < self._newest.get(key, -1):
            facts.faults.append(f"{key}@{revision}: term {term} wrote after term {self._newest[key]} had")
        self._newest[key] = term
        if term < self._newest_of_all and not self._sharded:
            facts.late_writes += 1
            self._late[term] += 1
            if self._late[term] > WORKERS:
                facts.faults.append(
                    f"{key}@{revision}: write number {self._late[term]} of term {term} after one of term "
                    f"{self._newest_of_all}, and only {WORKERS} can have been on their way"
                )
        self._newest_of_all = max(self._newest_of_all, term)


@final
class History:
    """Follows etcd in a thread of its own, from now on, until an object named `END` is created.

    Args:
        etcd: The store.
        judge: Is shown each write.
    """

    def __init__(self, etcd: Etcd, judge: Judge) -> None:
        self.judge: Final = judge
        self._etcd = etcd
        self._after = etcd.revision()
        self._thread = threading.Thread(target=self._follow, name="history", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """What was waited for up to now does not count; that nothing waits now is the caller's to know."""
        self.judge.facts.waits.clear()

    def join(self, seconds: float) -> None:
        """Wait for the end, which must have been written."""
        self._thread.join(seconds)
        if self._thread.is_alive():
            self.judge.facts.faults.append("the history has no end")

    def _follow(self) -> None:
        faults = self.judge.facts.faults
        try:
            with self._etcd.watching(_PREFIX, after=self._after, silence_seconds=_SILENCE_SECONDS) as events:
                for event in events:
                    kind, name = event.key.removeprefix(_PREFIX).split("/")[0::2]
                    if name == END:
                        return
                    self.judge.take(kind, name, event)
            faults.append(f"nothing happened for {_SILENCE_SECONDS:g} s")
        except Exception as error:  # noqa: BLE001 - a history with a hole proves nothing
            faults.append(f"the history was lost: {error!r}")
