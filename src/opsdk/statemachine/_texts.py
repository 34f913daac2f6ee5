"""Words for what an author wrote, in error texts."""

from __future__ import annotations

from typing import Final

__all__ = ["callable_fault", "clipped", "kind_text", "quoted", "type_fault"]

_LONGEST: Final = 100


def clipped(text: str) -> str:
    """The text, or its beginning when it is long."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def quoted(value: object) -> str:
    """The value as Python writes it, shortened; texts as plain ones, whichever enum they are members of."""
    return repr(clipped(str.__str__(value))) if isinstance(value, str) else clipped(repr(value))


def type_fault(value: object, wanted: type | tuple[type, ...], give: str) -> str:
    """What to say of a value of the wrong type; empty: it is of the right one.

    Args:
        value: What was given.
        wanted: The classes that it may be of.
        give: What to give instead, for people.
    """
    if isinstance(value, wanted):
        return ""
    return f"{kind_text(value)}; give {give}"


def callable_fault(value: object) -> str:
    """What to say of what should be a function of the object; empty: it can be called."""
    return "" if callable(value) else f"{kind_text(value)}; give a function that takes the object"


def kind_text(value: object) -> str:
    """What a value is: `5 is an int`."""
    if value is None:
        return "is None"
    name = type(value).__name__
    return f"{quoted(value)} is {'an' if name[:1] in 'aeiouAEIOU' else 'a'} {name}"
