"""Differences for people to read."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from opsdk.patches._values import identities, identity_field, is_array, is_object, same
from opsdk.types import Json, JsonObject

__all__ = ["describe_difference", "redacted"]

_LONGEST = 80
_HIDDEN = "(hidden)"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def describe_difference(
    before: JsonObject, after: JsonObject, *, redact: Callable[[Sequence[str]], bool] | None = None
) -> list[str]:
    """One line for each leaf that differs: `spec.replicas: 1 -> 2`, in the order of the documents.

    Values longer than 80 characters are cut. The values of a Secret are never shown.

    Args:
        before: The one document.
        after: The other.
        redact: Called with a path, says whether its value must not be shown either.
    """
    secret = "Secret" in (before.get("kind"), after.get("kind"))
    lines: list[str] = []
    _object(lines, (), before, after, _hides(redact, secret=secret))
    return lines


def redacted(document: JsonObject, *, redact: Callable[[Sequence[str]], bool] | None = None) -> JsonObject:
    """The document with `(hidden)` for every value that `describe_difference` would not show."""
    hidden = _hides(redact, secret=document.get("kind") == "Secret")
    return {name: _redacted((name,), member, hidden) for name, member in document.items()}


_Hidden = Callable[[Sequence[str]], bool]


def _hides(redact: _Hidden | None, *, secret: bool) -> _Hidden:
    def hidden(path: Sequence[str]) -> bool:
        if secret and ((len(path) > 1 and path[0] in {"data", "stringData"}) or path[-1] == _LAST_APPLIED):
            return True
        return redact is not None and redact(path)

    return hidden


def _redacted(path: tuple[str, ...], value: Json, hidden: _Hidden) -> Json:
    if hidden(path):
        return _HIDDEN
    if is_object(value):
        return {name: _redacted((*path, name), member, hidden) for name, member in value.items()}
    if is_array(value):
        return [_redacted((*path, f"[{index}]"), item, hidden) for index, item in enumerate(value)]
    return value


def _text(path: tuple[str, ...], value: Json, hidden: _Hidden) -> str:
    if hidden(path):
        return _HIDDEN
    text = json.dumps(_redacted(path, value, hidden), ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _line(lines: list[str], path: tuple[str, ...], old: str, new: str) -> None:
    place = path[0] + "".join(part if part.startswith("[") else f".{part}" for part in path[1:])
    lines.append(f"{place}: {old} -> {new}")


def _object(lines: list[str], path: tuple[str, ...], before: JsonObject, after: JsonObject, hidden: _Hidden) -> None:
    for name in dict.fromkeys((*before, *after)):
        where = (*path, name)
        if name in before and name in after:
            _value(lines, where, before[name], after[name], hidden)
        else:
            shown = _text(where, before[name] if name in before else after[name], hidden)
            _line(lines, where, *((shown, "(none)") if name in before else ("(none)", shown)))


def _value(lines: list[str], path: tuple[str, ...], before: Json, after: Json, hidden: _Hidden) -> None:
    if same(before, after):
        return
    if hidden(path):
        _line(lines, path, _HIDDEN, _HIDDEN)
    elif is_object(before) and is_object(after):
        _object(lines, path, before, after, hidden)
    elif is_array(before) and is_array(after) and _described_by_item(lines, path, before, after, hidden):
        pass
    else:
        _line(lines, path, _text(path, before, hidden), _text(path, after, hidden))


def _described_by_item(
    lines: list[str], path: tuple[str, ...], before: Sequence[Json], after: Sequence[Json], hidden: _Hidden
) -> bool:
    keys = identities(before, after) if before and after else None
    if keys is None:
        return _described_by_index(lines, path, before, after, hidden)
    olds = dict(zip(keys(0), before, strict=True))
    news = dict(zip(keys(1), after, strict=True))
    count = len(lines)
    for key in dict.fromkeys((*olds, *news)):
        item = olds.get(key, news.get(key))
        named = identity_field(item)
        where = (*path, f"[{named[1] if named else key}]")
        if key in olds and key in news:
            _value(lines, where, olds[key], news[key], hidden)
        else:
            shown = _text(where, item, hidden)
            _line(lines, where, *((shown, "(none)") if key in olds else ("(none)", shown)))
    return len(lines) > count  # else only the order differs


def _described_by_index(
    lines: list[str], path: tuple[str, ...], before: Sequence[Json], after: Sequence[Json], hidden: _Hidden
) -> bool:
    # A history: something was appended, and perhaps the oldest fell off to make room for it.
    dropped = next((count for count in range(len(before)) if same(before[count:], after[: len(before) - count])), None)
    if len(before) == len(after) and (dropped is None or dropped > len(before) // 2):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            _value(lines, (*path, f"[{index}]"), old, new, hidden)
        return True
    if dropped is None:
        return False
    for index, item in enumerate(before[:dropped]):
        _line(lines, (*path, f"[{index}]"), _text(path, item, hidden), "(none)")
    for index, item in enumerate(after[len(before) - dropped :], len(before) - dropped):
        _line(lines, (*path, f"[{index}]"), "(none)", _text(path, item, hidden))
    return True
