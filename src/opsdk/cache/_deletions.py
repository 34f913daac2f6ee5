"""What the server's answer to a DELETE says of the object."""

from __future__ import annotations

from typing import Final, final

import msgspec

__all__ = ["Deleted", "read_answer"]


class _Details(msgspec.Struct):
    uid: str = ""


class _Metadata(msgspec.Struct):
    uid: str = ""
    finalizers: list[str] | None = None
    grace_seconds: int | None = msgspec.field(name="deletionGracePeriodSeconds", default=None)


class _Answer(msgspec.Struct):
    kind: str = ""
    details: _Details | None = None
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


_ANSWERS: Final = msgspec.json.Decoder(_Answer)


@final
class Deleted(msgspec.Struct, frozen=True):
    """What became of an object.

    Args:
        uid: Its uid.
        gone: Whether it is gone; else the answer is the object, on its way out.
    """

    uid: str
    gone: bool


def read_answer(raw: bytes) -> Deleted | None:
    """What the answer says; None when it does not.

    An object that is gone is answered with a Status, but for some kinds (pods, services, service accounts, volume
    claims) with its last state, which looks like one that stays. One stays when a finalizer or a grace period holds it.
    """
    try:
        answer = _ANSWERS.decode(raw)
    except msgspec.MsgspecError:
        return None
    if answer.kind == "Status":
        uid, gone = "" if answer.details is None else answer.details.uid, True
    else:
        metadata = answer.metadata
        # Namespaces have finalizers of their own, in their spec.
        stays = bool(metadata.finalizers) or bool(metadata.grace_seconds) or answer.kind == "Namespace"
        uid, gone = metadata.uid, not stays
    return Deleted(uid, gone) if uid else None
