"""What an operator under measurement is told and tells: arguments, and events as lines of JSON.

`PROGRAM WORKLOAD NAMESPACE COUNT KIND LABEL`, with the workloads

* `sync`: keep the objects of KIND (`configmaps` or `widgets`) in a cache; tell `synced` when COUNT are there.
* `converge`: give each Widget a ConfigMap and a status; tell `first` after the first one.
* `idle`: the same with one Widget.
* `noop`: look at each Widget; tell `initial` when all COUNT were seen, `done` when all were seen with LABEL.

At SIGTERM an operator tells `ended` and how many reconciles there were, and ends.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Literal, cast

__all__ = ["Arguments", "Seen", "arguments", "tell"]

Workload = Literal["sync", "converge", "idle", "noop"]


@dataclass(frozen=True)
class Arguments:
    """What to do."""

    workload: Workload
    namespace: str
    count: int
    kind: str
    label: str


def arguments() -> Arguments:
    """What the command line says."""
    _, workload, namespace, count, kind, label = sys.argv
    return Arguments(cast("Workload", workload), namespace, int(count), kind, label)


def tell(event: str, count: int = 0) -> None:
    """Tell the driver that something happened."""
    print(json.dumps({"event": event, "count": count}), flush=True)


class Seen:
    """What a reconcile that does nothing does: it notes which Widgets it saw.

    Args:
        count: How many there are.
        label: The value of their last change.
    """

    def __init__(self, count: int, label: str) -> None:
        self._count = count
        self._label = label
        self._seen: set[str] = set()
        self._final: set[str] = set()
        self.looks = 0

    def look(self, name: str, label: str) -> None:
        """One reconcile.

        Args:
            name: The Widget's.
            label: The value of its label `round`.
        """
        self.looks += 1
        if len(self._seen) < self._count:
            self._seen.add(name)
            if len(self._seen) == self._count:
                tell("initial", self._count)
        if label == self._label and len(self._final) < self._count:
            self._final.add(name)
            if len(self._final) == self._count:
                tell("done", self.looks)
