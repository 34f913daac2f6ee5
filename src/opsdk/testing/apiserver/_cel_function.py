"""What a function that Kubernetes adds to CEL is: a name, what it takes and gives, and how it is computed.

A value that CEL has no type for (a quantity, an address) is an `Opaque`: a text of a kind, in a spelling in which equal
values are equal texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, final

__all__ = ["OPAQUE", "Compute", "Function", "FunctionError", "Opaque", "member", "plain"]

OPAQUE: Final = {
    "cidr": "net.CIDR",
    "format": "opsdk.cel.NamedFormat",
    "ip": "net.IP",
    "quantity": "opsdk.cel.Quantity",
    "semver": "opsdk.cel.Semver",
    "url": "opsdk.cel.URL",
}
"""The types of Kubernetes, by our names for them. Only those of addresses have names that expressions can use."""


Compute: TypeAlias = (
    Callable[[], object] | Callable[[Any], object] | Callable[[Any, Any], object] | Callable[[Any, Any, Any], object]
)
"""Computes a function; arguments are of the types that it is declared for."""


class FunctionError(ValueError):
    """A function cannot be computed; its text is what a user reads."""


@final
@dataclass(frozen=True, slots=True)
class Opaque:
    """A value of a type of Kubernetes' own.

    Args:
        kind: A key of `OPAQUE`.
        text: The value.
    """

    kind: str
    text: str


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """One overload.

    Args:
        name: What expressions call.
        takes: Types of the arguments: a scalar, `dyn`, `A` for any one type, `[…]` for a list, a key of `OPAQUE`.
        gives: The type of the result; `{…}` for a map with texts as keys, `?…` for an optional value.
        member: Whether the first argument stands before a dot.
        compute: Computes it from plain Python values and `Opaque`s; None: the CEL library does.
    """

    name: str
    takes: Sequence[str]
    gives: str
    member: bool
    compute: Callable[..., object] | None

    @property
    def id(self) -> str:
        """The overload's own name."""
        return f"{self.name}({','.join(self.takes)})"


def member(name: str, gives: str, compute: Compute, *takes: str) -> Function:
    """A function that is called on its first argument."""
    return Function(name=name, takes=takes, gives=gives, member=True, compute=compute)


def plain(name: str, gives: str, compute: Compute | None, *takes: str) -> Function:
    """A function that is called by its name alone."""
    return Function(name=name, takes=takes, gives=gives, member=False, compute=compute)
