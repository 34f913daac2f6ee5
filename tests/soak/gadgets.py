"""What the soak's operator looks after: a Gadget, and the Part that it makes for each."""

from __future__ import annotations

from typing import Final

from opsdk import CustomResource, Model

__all__ = ["FINALIZER", "GROUP", "LABEL", "NAMESPACE", "WRITER", "Gadget", "Part"]

GROUP: Final = "soak.example.com"
NAMESPACE: Final = "default"
LABEL: Final = "tier"
"""A label of a Gadget that its Part has to have, too: to change it changes no generation."""
WRITER: Final = f"{GROUP}/writer"
"""The annotation that each write of the operator sets to something new: term, replica, number."""
FINALIZER: Final = f"{GROUP}/parts"


class GadgetSpec(Model):
    """What is wanted."""

    value: int = 0


class GadgetStatus(Model):
    """What has been done, and by whom."""

    value: int = -1
    tier: str = ""
    observed_generation: int = 0
    writer: str = ""


class Gadget(CustomResource[GadgetSpec, GadgetStatus], group=GROUP, version="v1"):
    """A number, to be copied."""


class PartSpec(Model):
    """The copy."""

    value: int = 0


class Part(CustomResource[PartSpec], group=GROUP, version="v1"):
    """The copy of a Gadget's number."""
