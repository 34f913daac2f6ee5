"""What a test expects of the writes that were recorded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NoReturn

import msgspec
from typing_extensions import TypeVar

from opsdk.models import codec_of, resource_of
from opsdk.protocols import EventType, KubeObject
from opsdk.testing.simulator._action import Action, RecordedEvent, Verb
from opsdk.testing.simulator._errors import ExpectationError, UnexpectedActionsError
from opsdk.testing.simulator._matching import Matching
from opsdk.testing.simulator._recording import ActionLog
from opsdk.testing.simulator._report import expectation_text, unexpected_text

__all__ = ["Expectations"]

T = TypeVar("T", bound=KubeObject)


class Expectations:
    """A record of writes, and the `expect_…` calls that take them in order.

    Each call takes the next recorded write and returns its object: as stored after the write; for a delete, and for a
    subresource other than `status`, as it was before. A call that finds another write takes nothing and fails with what
    was expected, what came, what it changed and what else is queued. Events queue apart from all other writes.

    After the kind, each call takes, in any order, the object's name and any number of `matching(…)`. In pytest, the
    traceback of a failure ends at the test's own line.
    """

    def __init__(self) -> None:
        self._log = ActionLog()

    @property
    def actions(self) -> Sequence[Action]:
        """Every write since the last `clear`, expected or not, as data; events and refused writes aside."""
        return tuple(self._log.actions)

    @property
    def events(self) -> Sequence[RecordedEvent]:
        """Every event write since the last `clear`, expected or not."""
        return tuple(self._log.events)

    @property
    def refused(self) -> Sequence[Action]:
        """Writes since the last `clear` that the API server refused."""
        return tuple(self._log.refused)

    def clear(self) -> None:
        """Forget what is recorded: writes, events and refused writes."""
        self._log.clear()

    def assert_complete(self) -> None:
        """Assert that every write was expected. Left-over events never fail.

        Raises:
            UnexpectedActionsError: Some were not; they are shown with what they changed.
        """
        __tracebackhide__ = True
        if self._log.queue:
            raise UnexpectedActionsError(unexpected_text(tuple(self._log.queue), self._log.refused))

    def expect_create(
        self, kind: type[T], /, *what: str | Matching[T], namespace: str | None = None, subresource: str | None = None
    ) -> T:
        """Expect that an object of `kind` was created, or something below one: a pod's `eviction`.

        Raises:
            ExpectationError: The next write is another one.
        """
        __tracebackhide__ = True
        return self._expect("create", kind, what, namespace, subresource=subresource)

    def expect_replace(
        self, kind: type[T], /, *what: str | Matching[T], namespace: str | None = None, subresource: str | None = None
    ) -> T:
        """Expect that an object was replaced (PUT).

        Raises:
            ExpectationError: The next write is another one.
        """
        __tracebackhide__ = True
        return self._expect("replace", kind, what, namespace, subresource=subresource)

    def expect_patch(
        self, kind: type[T], /, *what: str | Matching[T], namespace: str | None = None, subresource: str | None = None
    ) -> T:
        """Expect that an object was patched, with a merge, JSON or strategic merge patch.

        Raises:
            ExpectationError: The next write is another one.
        """
        __tracebackhide__ = True
        return self._expect("patch", kind, what, namespace, subresource=subresource)

    def expect_apply(
        self, kind: type[T], /, *what: str | Matching[T], namespace: str | None = None, subresource: str | None = None
    ) -> T:
        """Expect that an object was applied (server-side apply), whether it was there before or not.

        Raises:
            ExpectationError: The next write is another one.
        """
        __tracebackhide__ = True
        return self._expect("apply", kind, what, namespace, subresource=subresource)

    def expect_delete(self, kind: type[T], /, *what: str | Matching[T], namespace: str | None = None) -> T:
        """Expect that an object was deleted; `matching` sees it as it was before.

        Raises:
            ExpectationError: The next write is another one.
        """
        __tracebackhide__ = True
        return self._expect("delete", kind, what, namespace, subresource=None)

    def expect_delete_collection(self, kind: type[KubeObject], /, *, namespace: str | None = None) -> None:
        """Expect that all objects of `kind` in a namespace, or those that a selector names, were deleted at once.

        Raises:
            ExpectationError: The next write is another one.
        """
        __tracebackhide__ = True
        info = resource_of(kind)
        expected = f"delete_collection {info.kind}{f' in {namespace}' if namespace else ''}"
        action = self._next("delete_collection", expected, (info.group, info.version, info.plural), None)
        if namespace is not None and action.namespace != namespace:
            self._fail(expected, action, f"its namespace is {action.namespace}")
        self._log.queue.popleft()

    def expect_status_update(self, kind: type[T], /, *what: str | Matching[T], namespace: str | None = None) -> T:
        """Expect a write to the status subresource, by whichever verb.

        Raises:
            ExpectationError: The next write is another one.
        """
        __tracebackhide__ = True
        return self._expect(None, kind, what, namespace, subresource="status")

    def expect_event(
        self,
        reason: str | None = None,
        *,
        type: EventType | None = None,  # noqa: A002 - the API's word
        message: str | None = None,
        about: str | None = None,
    ) -> RecordedEvent:
        """Expect the next event.

        Args:
            reason: Its reason; None: any.
            type: Its type; None: any.
            message: A regular expression that is found in its message; None: any.
            about: Name of the object that it is about; None: any.

        Raises:
            ExpectationError: The next event is another one.
        """
        __tracebackhide__ = True
        wanted = {"type": type, "reason": reason, "message": message, "about": about}
        expected = "event " + (", ".join(f"{key}={value!r}" for key, value in wanted.items() if value) or "(any)")
        queue = self._log.event_queue
        event = queue[0] if queue else None
        why = ""
        if event is None:
            why = "no event is left"
        elif type is not None and event.type != type:
            why = f"its type is {event.type}"
        elif reason is not None and event.reason != reason:
            why = f"its reason is {event.reason}"
        elif about is not None and event.name != about:
            why = f"it is about {event.name}"
        elif message is not None and re.search(message, event.message) is None:
            why = "its message does not match"
        if event is None or why:
            text = expectation_text(expected, event, why=why, rest=tuple(queue)[1:], refused=self._log.refused)
            raise ExpectationError(text)
        return queue.popleft()

    def _expect(
        self,
        verb: Verb | None,
        kind: type[T],
        what: Sequence[str | Matching[T]],
        namespace: str | None,
        *,
        subresource: str | None,
    ) -> T:
        __tracebackhide__ = True
        info = resource_of(kind)
        names = [item for item in what if isinstance(item, str)]
        matchers = [item for item in what if isinstance(item, Matching)]
        if len(names) > 1:
            raise TypeError(f"an object has one name, not {len(names)}: {', '.join(names)}")
        place = "/".join([part for part in (namespace, *names) if part])
        head = "status update" if verb is None else f"{subresource} {verb}" if subresource else verb
        expected = " ".join([head, info.kind, *([place] if place else []), *(repr(matcher) for matcher in matchers)])

        action = self._next(verb, expected, (info.group, info.version, info.plural), subresource)
        if names and action.name != names[0]:
            self._fail(expected, action, f"its name is {action.name}")
        if namespace is not None and action.namespace != namespace:
            self._fail(expected, action, f"its namespace is {action.namespace}")
        document = action.before if action.object is None or subresource not in {None, "status"} else action.object
        if document is None:
            self._fail(expected, action, "there was no such object")
        raw = msgspec.json.encode(document)
        for matcher in matchers:
            # Each predicate gets its own object: one that changes it cannot mislead the next.
            if not matcher.holds(codec_of(kind).decode(raw)):
                self._fail(expected, action, f"{matcher!r} is false for it")
        self._log.queue.popleft()
        return codec_of(kind).decode(raw)

    def _next(
        self, verb: Verb | None, expected: str, resource: tuple[str, str, str], subresource: str | None
    ) -> Action:
        __tracebackhide__ = True
        if not self._log.queue:
            self._fail(expected, None, "")
        action = self._log.queue[0]
        if action.resource != resource:
            same_kind = action.resource[0] == resource[0] and action.plural == resource[2]
            why = f"it went through version {action.version}" if same_kind else "it is another kind"
            self._fail(expected, action, why)
        if action.subresource != subresource or (verb is not None and action.verb != verb):
            self._fail(expected, action, "it is another kind of write")
        return action

    def _fail(self, expected: str, came: Action | None, why: str) -> NoReturn:
        __tracebackhide__ = True
        rest = tuple(self._log.queue)[1:]
        raise ExpectationError(expectation_text(expected, came, why=why, rest=rest, refused=self._log.refused))
