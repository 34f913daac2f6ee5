"""What the printers of several kinds share: names, ages, counts, selectors, and columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias, final

from opsdk.testing.apiserver._fields import Tree, entries, is_integer, members

__all__ = [
    "NAME",
    "NONE",
    "UNKNOWN",
    "Cell",
    "Cells",
    "Column",
    "Printer",
    "age_of",
    "condition_of",
    "containers_of",
    "dig",
    "human_duration",
    "label_text",
    "name_of",
    "number_of",
    "selector_text",
    "since",
    "spec_of",
    "status_of",
    "text_of",
    "time_of",
]

Cell: TypeAlias = "str | int | float | bool | None"
"""What a cell can hold."""
NONE: Final = "<none>"
"""Shown where there is nothing."""
UNKNOWN: Final = "<unknown>"
"""Shown where it cannot be told."""


def human_duration(elapsed: timedelta) -> str:
    """A duration in two or three figures: `5s`, `4m30s`, `3h`, `2d4h`, `400d`."""
    seconds = int(elapsed.total_seconds())
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < -1:
        return "<invalid>"
    if seconds < 120:
        return f"{max(seconds, 0)}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if hours < 24 * 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if hours < 24 * 365 * 2:
        return f"{days}d"
    if hours < 24 * 365 * 8:
        return f"{days // 365}y{days % 365}d" if days % 365 else f"{days // 365}y"
    return f"{days // 365}y"


@final
@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0

    def definition(self) -> Tree:
        """The column as the Table describes it."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


Cells: TypeAlias = Callable[[Tree, datetime], Sequence[Cell]]
"""Makes a row's cells of an object, given the time."""


@final
@dataclass(frozen=True, slots=True)
class Printer:
    """How objects of a kind become rows."""

    columns: tuple[Column, ...]
    cells: Cells


def name_of(obj: Tree) -> str:
    """The object's name."""
    return str(members(obj, "metadata").get("name", ""))


def time_of(text: object) -> datetime | None:
    """A timestamp, None where it is none."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


def since(text: object, now: datetime) -> str:
    """How long ago that was."""
    moment = time_of(text)
    return human_duration(now - moment) if moment is not None else UNKNOWN


def age_of(obj: Tree, now: datetime) -> str:
    """How long ago the object was created."""
    return since(members(obj, "metadata").get("creationTimestamp"), now)


def number_of(value: object) -> int:
    """An integer, 0 where it is none."""
    return value if is_integer(value) else 0


def text_of(value: object, otherwise: str = "") -> str:
    """A string, or something else where it is empty or none."""
    return value if isinstance(value, str) and value else otherwise


def dig(value: Tree, *path: str) -> Tree:
    """The object at a path, empty where there is none."""
    for part in path:
        value = members(value, part)
    return value


def containers_of(obj: Tree, *path: str) -> tuple[str, str]:
    """Names and images of the containers of the pod spec at a path."""
    found = entries(dig(obj, *path), "containers")
    return ",".join(text_of(each.get("name")) for each in found), ",".join(text_of(each.get("image")) for each in found)


def label_text(labels: Tree) -> str:
    """Labels as one string."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or NONE


def selector_text(selector: Tree) -> str:
    """A label selector as one string."""
    parts = {key: f"{key}={value}" for key, value in members(selector, "matchLabels").items()}
    for each in entries(selector, "matchExpressions"):
        key, values = text_of(each.get("key")), ",".join(sorted(map(str, entries(each, "values"))))
        match each.get("operator"):
            case "In":
                parts[key] = f"{key} in ({values})"
            case "NotIn":
                parts[key] = f"{key} notin ({values})"
            case "Exists":
                parts[key] = key
            case _:
                parts[key] = f"!{key}"
    return ",".join(parts[key] for key in sorted(parts))


def condition_of(obj: Tree, kind: str) -> str | None:
    """The status of a condition, None without it."""
    for each in entries(members(obj, "status"), "conditions"):
        if each.get("type") == kind:
            return text_of(each.get("status"))
    return None


def spec_of(obj: Tree) -> Tree:
    """The object's spec."""
    return members(obj, "spec")


def status_of(obj: Tree) -> Tree:
    """The object's status."""
    return members(obj, "status")


NAME: Final = Column("Name", format="name", description="Name must be unique within a namespace.")
