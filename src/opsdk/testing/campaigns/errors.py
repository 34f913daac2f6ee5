"""What a campaign says when a law does not hold."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import final

__all__ = ["CampaignError", "Law"]


class Law(StrEnum):
    """What holds for an operator, whatever its users ask for."""

    HISTORY = "history"
    """A spec ends in the same state, whatever was asked for before: A, B, A ends as A does."""
    REST = "rest"
    """After a change the operator comes to rest; then it writes nothing, not even when it is started again."""
    REFUSAL = "refusal"
    """A spec just outside of the schema is refused, and the operator does nothing about it."""
    DELETION = "deletion"
    """However it lived, a resource that is deleted goes, and leaves nothing behind."""


_TITLES = {
    Law.HISTORY: "how the resource ends depends on what was asked for before",
    Law.REST: "the operator does not come to rest",
    Law.REFUSAL: "a spec that is not allowed is not without effect",
    Law.DELETION: "the resource's end is not clean",
}


@final
class CampaignError(AssertionError):
    """A law does not hold; the text is the shortest way to see that which was found.

    Attributes:
        law: Which one.
        recipe: What to do to the resource, step by step.
        found: What is then to be seen.
        seed: Finds it again, while the code stays as it is.
    """

    def __init__(
        self, kind: str, law: Law, *, recipe: Sequence[str], what: str, found: Sequence[str], seed: int
    ) -> None:
        self.law = law
        self.recipe: tuple[str, ...] = tuple(recipe)
        self.found: tuple[str, ...] = (what, *found)
        self.seed = seed
        lines = [f"{kind}: {_TITLES[law]}"]
        lines += [f"  {number}. {step}" for number, step in enumerate(recipe, start=1)]
        lines.append(f"{what}{':' if found else ''}")
        lines += [f"  {line}" for line in found]
        lines.append(f"(law {law.value!r}; seed {seed} finds it again)")
        super().__init__("\n".join(lines))
