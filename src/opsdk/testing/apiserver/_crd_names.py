"""Which names a CRD gets: those that no other CRD of its group has already."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from opsdk.testing.apiserver._fields import go_quote
from opsdk.testing.apiserver._json import Document, as_list, as_text

__all__ = ["AcceptedNames", "accepted_names"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedNames:
    """What became of the names that a CRD asks for.

    Args:
        names: The names that it has now.
        reason: Why it has not got all of them; empty where it has.
        message: Which name is the cause.
    """

    names: Document
    reason: str = ""
    message: str = ""


def accepted_names(asked: Document, had: Document, others: Iterable[Document]) -> AcceptedNames:
    """The names that a CRD gets.

    Args:
        asked: Its `spec.names`.
        had: Its `status.acceptedNames`.
        others: Those of the other CRDs in its group.
    """
    resources: set[str] = set()
    kinds: set[str] = set()
    for each in others:
        resources.update((as_text(each.get("plural")), as_text(each.get("singular"))))
        resources.update(as_text(name) for name in as_list(each.get("shortNames")))
        kinds.update((as_text(each.get("kind")), as_text(each.get("listKind"))))
    names: Document = dict(had)
    reason = message = ""
    for key, taken in (
        ("plural", resources),
        ("singular", resources),
        ("shortNames", resources),
        ("kind", kinds),
        ("listKind", kinds),
    ):
        wanted = _texts(asked, key)
        clashes = [name for name in wanted if name in taken and name not in _texts(had, key)]
        if clashes:
            reason = f"{key[0].upper()}{key[1:]}Conflict"
            message = f"{go_quote(clashes[0])} is already in use"
        elif key in asked:
            names[key] = asked[key]
        else:
            names.pop(key, None)
    if "categories" in asked:
        names["categories"] = asked["categories"]
    else:
        names.pop("categories", None)
    return AcceptedNames(names=names, reason=reason, message=message)


def _texts(names: Document, key: str) -> list[str]:
    found = names.get(key)
    if key == "shortNames":
        return [as_text(each) for each in as_list(found)]
    return [as_text(found)] if found else []
