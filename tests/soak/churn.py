"""Users: they create, change, relabel and delete, and remember what each object should have come to."""

from __future__ import annotations

import random
import threading
import time
from typing import Final, final

from soak.direct import Direct
from soak.gadgets import GROUP, LABEL

__all__ = ["Churn"]

_TIERS: Final = ("gold", "silver", "bronze")


@final
class Churn:
    """One thread that makes its objects, and from `begin` on writes to them at a steady rate. Nobody else does.

    Args:
        direct: Its own connection.
        prefix: Of its objects' names.
        objects: How many there are at any time.
        per_second: How many writes.
        seed: What it does, as far as that depends on chance.

    Attributes:
        wanted: What each object that is there should have come to: value and tier.
        writes: How many there have been.
        fault: Why it stopped; None: it was asked to.
    """

    def __init__(self, direct: Direct, *, prefix: str, objects: int, per_second: float, seed: int) -> None:
        self.wanted: Final[dict[str, tuple[int, str]]] = {}
        self.writes = 0
        self.fault: str | None = None
        self._direct = direct
        self._prefix = prefix
        self._objects = objects
        self._interval = 1 / per_second
        self._random = random.Random(seed)
        self._made = 0
        self._complete = threading.Event()
        self._begun = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"churn-{prefix}", daemon=True)
        self._thread.start()

    def wait_complete(self) -> None:
        """Wait until all objects are there, or never will be."""
        self._complete.wait()

    def begin(self) -> None:
        """Write."""
        self._begun.set()

    def stop(self) -> None:
        """Write no more, and return when that is so."""
        self._stopping.set()
        self._begun.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            for _ in range(self._objects):
                self._create()
            self._complete.set()
            self._begun.wait()
            next_at = time.monotonic()
            while not self._stopping.is_set():
                self._write()
                self.writes += 1
                next_at = max(next_at + self._interval, time.monotonic() - 1)  # no stampede after an outage
                self._stopping.wait(max(next_at - time.monotonic(), 0))
        except OSError as error:
            self.fault = str(error)
        finally:
            self._direct.close()
            self._complete.set()

    def _create(self) -> None:
        if self._stopping.is_set():
            return
        self._made += 1
        name, value, tier = f"{self._prefix}-{self._made}", self._random.randrange(10**6), self._random.choice(_TIERS)
        self._direct.create(
            {
                "apiVersion": f"{GROUP}/v1",
                "kind": "Gadget",
                "metadata": {"name": name, "labels": {LABEL: tier}},
                "spec": {"value": value},
            }
        )
        self.wanted[name] = value, tier

    def _write(self) -> None:
        if not self.wanted:
            return
        name = self._random.choice(list(self.wanted))
        value, tier = self.wanted[name]
        match self._random.choices(("value", "tier", "replace", "steal"), weights=(65, 15, 12, 8))[0]:
            case "value":
                value = self._random.randrange(10**6)
                self._direct.patch(name, {"spec": {"value": value}})
                self.wanted[name] = value, tier
            case "tier":
                tier = self._random.choice(_TIERS)
                self._direct.patch(name, {"metadata": {"labels": {LABEL: tier}}})
                self.wanted[name] = value, tier
            case "replace":
                del self.wanted[name]
                self._direct.delete("gadgets", name)
                self._create()
            case _:
                self._direct.delete("parts", name)  # which the operator makes again
