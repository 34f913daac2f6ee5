"""What a request proves who it is with, and how to send one again when that was not enough."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar, final

__all__ = ["Authorization", "Certificate", "Credential", "authorized"]

R = TypeVar("R")


@final
@dataclass(frozen=True, slots=True)
class Certificate:
    """A client certificate and its key, both in PEM. Never shown."""

    certificate: str = field(repr=False)
    key: str = field(repr=False)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """What a request is sent with. Never shown.

    Args:
        header: The value of the Authorization header, if there is one.
        certificate: The certificate to connect with, if it comes with the credential and not with the configuration.
    """

    header: str | None = field(default=None, repr=False)
    certificate: Certificate | None = field(default=None, repr=False)


class Authorization(Protocol):
    """Knows the credential to send."""

    async def credential(self, rejected: Credential | None = None, /) -> Credential:
        """The credential to send.

        Args:
            rejected: The one that the server has just answered with 401, if so: a new one is got, once for all who
                ask.

        Raises:
            ConfigurationError: There can be none.
            ApiConnectionError: There is none now.
        """
        ...


async def authorized(
    authorization: Authorization | None,
    send: Callable[[Credential], Awaitable[R]],
    status_of: Callable[[R], int],
    discard: Callable[[R], Awaitable[None]],
) -> R:
    """Send with credentials; once more with new ones if the server does not take them.

    Args:
        authorization: Where credentials come from, if from anywhere.
        send: Sends the request with them.
        status_of: The answer's status code.
        discard: Lets go of an answer that is not wanted.
    """
    if authorization is None:
        return await send(Credential())
    credential = await authorization.credential()
    answer = await send(credential)
    if status_of(answer) != 401:
        return answer
    try:
        renewed = await authorization.credential(credential)
    except BaseException:
        await discard(answer)
        raise
    if renewed == credential:
        return answer
    await discard(answer)
    return await send(renewed)
