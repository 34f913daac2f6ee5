"""Reading one's own writes over a store that lags: random histories against a model of the server.

The invariants:
    * a read never goes behind this process's own latest write or deletion of that object (scenario Q13);
    * what it sees is a state that the object really was in: no ghosts, and none of an earlier incarnation;
    * once the watch has caught up, it sees what the server has, and a while later the overlay is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from lightkube.resources.core_v1 import ConfigMap

from opsdk.cache import Cached, Change, ObjectDeleted, Store
from opsdk.cache.overlay import Overlay
from opsdk.types import Request

NAMES = "ab"

State = tuple[str, int] | None
"""uid and version of an object; None: there is none."""


class Server:
    """The truth: objects, and everything that ever happened to them."""

    def __init__(self) -> None:
        self.version = 0
        self.uids = 0
        self.objects: dict[str, tuple[str, int]] = {}
        self.log: list[tuple[str, str, tuple[str, int]]] = []
        self.history: dict[str, list[State]] = {name: [None] for name in NAMES}

    def write(self, name: str) -> tuple[str, int]:
        self.version += 1
        if name not in self.objects:
            self.uids += 1
        uid = self.objects[name][0] if name in self.objects else f"uid-{self.uids}"
        self.objects[name] = (uid, self.version)
        self.log.append(("put", name, self.objects[name]))
        self.history[name].append(self.objects[name])
        return self.objects[name]

    def delete(self, name: str) -> str | None:
        found = self.objects.pop(name, None)
        if found is None:
            return None
        self.version += 1
        self.log.append(("gone", name, (found[0], self.version)))
        self.history[name].append(None)
        return found[0]


class Reader:
    """A store with an overlay, fed by a watch that lags."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.store = Store(ConfigMap)
        self.now = 0.0
        self.overlay = Overlay[ConfigMap](lambda: self.now)
        self.delivered = 0
        self.listing: tuple[dict[str, tuple[str, int]], int, int] | None = None
        self.answers: list[tuple[str, Callable[[], None]]] = []
        self.floor = dict.fromkeys(NAMES, 0)

    def cached(self, name: str, state: tuple[str, int]) -> Cached[ConfigMap]:
        metadata = {"name": name, "namespace": "d", "uid": state[0], "resourceVersion": str(state[1])}
        found = self.store.read(msgspec.json.encode({"metadata": metadata}))
        assert found is not None
        return found

    def deliver(self, count: int) -> None:
        if self.listing is not None:
            return  # one request at a time
        for what, name, state in self.server.log[self.delivered : self.delivered + count]:
            cached = self.cached(name, state)
            if what == "put":
                self.tell(self.store.put(cached))
            else:
                self.store.discard(cached)
                self.overlay.saw_deletion(state[0])
            self.overlay.caught_up(state[1])
            self.delivered += 1

    def begin_list(self) -> None:
        self.overlay.list_started()
        self.listing = (dict(self.server.objects), self.server.version, len(self.server.log))

    def end_list(self) -> None:
        if self.listing is None:
            return
        objects, version, delivered = self.listing
        self.listing = None
        for name, state in objects.items():
            self.tell(self.store.put(self.cached(name, state)))
        self.overlay.list_ended(version)
        for cached in tuple(self.store.select()):
            if cached.header.name not in objects:
                self.tell(self.store.discard(cached))
        self.delivered = delivered

    def tell(self, changes: Sequence[Change[ConfigMap]]) -> None:
        for change in changes:
            if isinstance(change, ObjectDeleted):
                self.overlay.saw_deletion(change.old.header.uid)

    def write(self, name: str) -> None:
        self.finish(name)
        state = self.server.write(name)
        floor = len(self.server.history[name]) - 1

        def answered() -> None:
            self.floor[name] = max(self.floor[name], floor)
            self.overlay.wrote(("d", name), self.cached(name, state))

        self.answers.append((name, answered))

    def delete(self, name: str) -> None:
        self.finish(name)
        found = (self.store.cached(Request(name, "d")), self.overlaid(name))
        before = {cached.header.uid for cached in found if cached is not None}
        coming = {state[0] for _, about, state in self.server.log[self.delivered :] if about == name}
        last = self.server.objects.get(name)
        if last is not None and coming - before - {last[0]}:
            return  # what is not promised: an incarnation between what was seen and what is deleted
        uid = self.server.delete(name)
        if uid is None:
            return
        floor = len(self.server.history[name]) - 1

        def answered() -> None:
            self.floor[name] = max(self.floor[name], floor)
            self.overlay.deleted(("d", name), uid, before=before)

        self.answers.append((name, answered))

    def answer(self) -> None:
        if self.answers:
            self.answers.pop(0)[1]()

    def finish(self, name: str) -> None:
        """Have no other request about the object under way: one worker a key."""
        while any(about == name for about, _ in self.answers):
            self.answer()

    def overlaid(self, name: str) -> Cached[ConfigMap] | None:
        return self.overlay.over(("d", name), self.store.cached(Request(name, "d")))

    def read(self, name: str) -> State:
        found = self.overlaid(name)
        return None if found is None else (found.header.uid, found.header.order)

    def check(self) -> None:
        for name in NAMES:
            seen = self.read(name)
            possible = self.server.history[name][self.floor[name] :]
            assert seen in possible, f"{name}: read {seen}, after own write only {possible} are possible"


OPERATION = st.tuples(
    st.sampled_from(
        ["write", "delete", "other writes", "other deletes", "answer", "deliver", "begin list", "end list"]
    ),
    st.sampled_from(NAMES),
    st.integers(1, 3),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(OPERATION, max_size=40), st.booleans())
def test_q13_reads_never_go_behind_own_writes_and_see_no_ghosts(
    history: list[tuple[str, str, int]],
    answers_first: bool,  # noqa: FBT001 - from hypothesis
) -> None:
    server = Server()
    reader = Reader(server)
    for what, name, count in history:
        match what:
            case "write":
                reader.write(name)
            case "delete":
                reader.delete(name)
            case "other writes":
                server.write(name)
            case "other deletes":
                server.delete(name)
            case "answer":
                reader.answer()
            case "deliver":
                reader.deliver(count)
            case "begin list":
                reader.begin_list()
            case _:
                reader.end_list()
        reader.check()
    for last in ("answers", "watch", "answers") if answers_first else ("watch", "answers"):
        if last == "answers":
            while reader.answers:
                reader.answer()
        else:
            reader.end_list()
            reader.deliver(len(server.log))
        reader.check()
    assert {name: reader.read(name) for name in NAMES} == {name: server.objects.get(name) for name in NAMES}
    reader.now = 1_000.0
    reader.overlay.caught_up(server.version)  # a bookmark
    assert len(reader.overlay) == 0
