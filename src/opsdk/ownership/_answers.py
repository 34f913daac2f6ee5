"""What an author's functions answered that is no answer, for error texts."""

from __future__ import annotations

import inspect
from collections.abc import Coroutine, Iterable, Mapping
from typing import Final, cast

from opsdk.models.families import is_model

__all__ = ["PURE", "answer_fault", "children_fault", "function_name", "is_async"]

PURE: Final = "functions of a For look at what they are given and do no I/O: write it with a plain def"

_LONGEST: Final = 100


def function_name(function: object) -> str:
    """A function's name, or what Python says of it."""
    name: object = getattr(function, "__qualname__", None)
    text = name.rpartition("<locals>.")[2] if isinstance(name, str) else repr(function)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def is_async(function: object) -> bool:
    """Whether calling it gives a coroutine, as far as that can be seen."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - not whether it can be called


def answer_fault(function: object, answer: object, wanted: type, give: str) -> str:
    """What to say of an answer of the wrong type; empty: it is of the right one. A coroutine is closed.

    Args:
        function: What was called.
        answer: What it returned.
        wanted: The class that the answer must be of.
        give: What to return instead, for people.
    """
    if type(answer) is wanted:  # as nearly always; the questions below are asked of abstract classes, which take long
        return ""
    if inspect.isawaitable(answer):
        if isinstance(answer, Coroutine):
            cast("Coroutine[object, object, object]", answer).close()
        return f"{function_name(function)} is async; {PURE}"
    if isinstance(answer, wanted):
        return ""
    return f"{function_name(function)} returned {_described(answer)}; return {give}"


def children_fault(function: object, built: object) -> str:
    """The same for what `build` returned, which may be None."""
    if built is None or type(built) is list:
        return ""
    if fault := answer_fault(function, built, object, ""):
        return fault
    described = _described(built)
    # Models of pydantic are iterable: over their fields.
    if isinstance(built, str | bytes | Mapping) or is_model(built) or not isinstance(built, Iterable):
        return f"{function_name(function)} returned {described}; return a list of the children, or None"
    return ""


def _described(answer: object) -> str:
    if answer is None:
        return "None"
    name = type(answer).__name__
    return f"{'an' if name[:1] in 'aeiouAEIOU' else 'a'} {name}"
