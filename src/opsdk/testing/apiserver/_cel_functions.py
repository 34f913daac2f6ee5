"""Every function that rules can call beyond what the CEL library declares by itself."""

from __future__ import annotations

from collections.abc import Callable

from opsdk.testing.apiserver._cel_function import Function
from opsdk.testing.apiserver._cel_lists import LISTS
from opsdk.testing.apiserver._cel_measures import MEASURES
from opsdk.testing.apiserver._cel_network import NETWORK
from opsdk.testing.apiserver._cel_texts import TEXTS, text_functions

__all__ = ["functions"]


def functions(delegate: Callable[[str], Callable[..., object]]) -> tuple[Function, ...]:
    """All of them.

    Args:
        delegate: Makes a function of an expression of the CEL library over `a`, `b`, `c` and `d`.
    """
    return (*LISTS, *MEASURES, *NETWORK, *TEXTS, *text_functions(delegate))
