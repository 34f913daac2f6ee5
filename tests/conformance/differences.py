"""Where the in-memory API server differs from kube-apiserver: each difference, its reason, and what to do about it.

This is the one place where a difference is declared. A test whose answers differ is marked with `differs(…)` and takes
the answer of the server it runs on from `Difference.on(…)`; `conftest.py` sees to it that a test does both or neither,
and since both answers are asserted, a difference that has gone fails its test. `make parity` writes the tables of
`docs/parity.md` from what is declared here and from the tests' names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeVar, final

import pytest

__all__ = ["DIFFERENCES", "Difference", "differs", "taken"]

T = TypeVar("T")

taken: Final[list[Difference]] = []
"""Which differences the running test has made use of."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that the servers do not do alike.

    Args:
        name: For anchors; of letters and dashes.
        what: What a client does or looks at.
        kube_apiserver: What it gets from there.
        in_memory: What it gets in memory.
        reason: Why that is so.
        advice: What somebody does about it who tests an operator in memory.
    """

    name: str
    what: str
    kube_apiserver: str
    in_memory: str
    reason: str
    advice: str

    def on(self, server: str, *, kube_apiserver: T, in_memory: T) -> T:
        """What this server answers.

        Args:
            server: `real`, or any other for the one in memory.
            kube_apiserver: What the real one answers.
            in_memory: What the other one answers.
        """
        assert kube_apiserver != in_memory, f"{self.name}: the same answer on both servers is no difference"
        taken.append(self)
        return kube_apiserver if server == "real" else in_memory


def differs(*differences: Difference) -> pytest.MarkDecorator:
    """Mark a test, or one of its cases, whose answers are not the same on both servers."""
    return pytest.mark.differs(*differences)


VERSION_ON_CREATE: Final = Difference(
    name="version-on-create",
    what="`resourceVersion` on create",
    kube_apiserver="500 without a reason",
    in_memory="400 `BadRequest` with the same message",
    reason="the 500 is a slip: the reason is lost on the way, and clients take it for a server in trouble",
    advice="nothing: both are refusals, and no client that retries a 500 gets further on the real one",
)

DIFFERENCES: Final = (VERSION_ON_CREATE,)
"""In the order of the table."""
