"""The bytes of one connection to a server, in the clear on this side whether or not they travel encrypted."""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import Final, Protocol, final

from opsdk._tcp import TcpConnection

__all__ = ["TlsWire", "Wire"]

_READ_BYTES: Final = 262_144


class Wire(Protocol):
    """What a connection has to be able to do. `TcpConnection` is one."""

    async def send(self, data: bytes, seconds: float, /) -> None:
        """Hand all of it on, in so long. The first byte goes before anybody else runs.

        Raises:
            TimeoutError: It took longer.
            OSError: The connection broke.
        """
        ...

    async def receive(self, seconds: float, /) -> bytes:
        """What comes next, at least a byte; nothing once no more will come.

        Raises:
            TimeoutError: Nothing has come for so long.
            OSError: The connection broke.
        """
        ...

    def is_quiet(self) -> bool:
        """Whether the connection stands and nothing has come that was not received."""
        ...

    def abort(self) -> None:
        """Close it at once. May be called again."""
        ...


@final
class TlsWire:
    """TLS over a connection, without a word at the end: HTTP says itself where an answer ends.

    Args:
        connection: The connection, on which nothing has been said yet.
        context: Whom to trust and who we are.
        hostname: The name that the server's certificate has to bear.
    """

    def __init__(self, connection: TcpConnection, context: ssl.SSLContext, hostname: str) -> None:
        self._connection = connection
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=hostname)
        self._ended = False
        self._fault: ssl.SSLError | None = None

    async def shake_hands(self, seconds: float) -> None:
        """Agree on keys.

        Args:
            seconds: Longest silence to accept.

        Raises:
            ssl.SSLCertVerificationError: The server is not who it should be.
            TimeoutError: It is silent.
            OSError: There is no agreement.
        """
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush(seconds)
                await self._more(seconds)
            except ssl.SSLError:
                with suppress(OSError):
                    await self._flush(seconds)  # tells the server why
                raise
            else:
                await self._flush(seconds)
                return

    async def send(self, data: bytes, seconds: float, /) -> None:
        """Encrypt and send all of it."""
        self._tls.write(data)
        await self._flush(seconds)

    async def receive(self, seconds: float, /) -> bytes:
        """What comes next, decrypted."""
        while True:
            if data := self._read():
                return data
            if self._ended:
                return b""
            await self._flush(seconds)  # the answer to a change of keys
            await self._more(seconds)

    def is_quiet(self) -> bool:
        """Whether the connection stands and nothing has come that was not received."""
        if self._ended or self._fault is not None:
            return False
        return not self._incoming.pending and not self._tls.pending() and self._connection.is_quiet()

    def abort(self) -> None:
        """Close the connection at once."""
        self._connection.abort()

    def _read(self) -> bytes:
        """All that is there: a server that says much writes many records, and each step above costs as much for one."""
        if self._fault is not None:
            raise self._fault
        parts: list[bytes] = []
        try:
            while self._incoming.pending or self._tls.pending():
                if not (data := self._tls.read(_READ_BYTES)):
                    self._ended = True  # the server has said goodbye; what follows that, nobody reads
                    break
                parts.append(data)
        except ssl.SSLWantReadError:
            pass  # the rest of a record, or what is not for us
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            self._ended = True
        except ssl.SSLError as error:
            self._fault = error  # OpenSSL tells it once, and speaks of an end from then on
            if not parts:
                raise
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _flush(self, seconds: float) -> None:
        if self._outgoing.pending:
            await self._connection.send(self._outgoing.read(), seconds)

    async def _more(self, seconds: float) -> None:
        data = await self._connection.receive(seconds)
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()
            self._ended = not self._incoming.pending  # else it is read first
