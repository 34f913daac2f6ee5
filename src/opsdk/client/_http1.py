"""HTTP/1.1 as a client speaks it: heads of requests, and answers from bytes in pieces of any size (RFC 9110, 9112).

h11 reads the same and is what the tests compare with; a tenth of an operator's CPU was its share. Servers that are less
strict than the RFC are refused, not guessed at: an answer that two programs read differently is how requests are
smuggled.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, final

__all__ = ["Answer", "header_block", "request_line"]

_LONGEST_HEAD_BYTES: Final = 65_536
_LONGEST_SIZE_LINE_BYTES: Final = 4_096
_NO_CONTENT: Final = frozenset({204, 304})

_NAME: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_METHOD: Final = re.compile(_NAME)
_TARGET: Final = re.compile(r"[\x21-\x7e]+")
_SENT_HEADER: Final = re.compile(rf"{_NAME}: (?:[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?)?")
_STATUS_LINE: Final = re.compile(r"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?")
_HEADERS: Final = re.compile(rf"(?:{_NAME}:[\t\x20-\x7e\x80-\xff]*\r\n)*")
_LENGTH: Final = re.compile(r"[0-9]{1,18}")
_SIZE_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})(?:;[\t\x20-\x7e\x80-\xff]*|[ \t]*)")
_FRAMING: Final = ("connection", "content-length", "transfer-encoding")


def request_line(method: str, target: str) -> bytes:
    """The first line of a request.

    Raises:
        ValueError: It has characters that HTTP does not allow there.
    """
    if not _METHOD.fullmatch(method) or not _TARGET.fullmatch(target):
        raise ValueError("the method or the path has characters that HTTP does not allow")
    return f"{method} {target} HTTP/1.1\r\n".encode("ascii")


def header_block(headers: Iterable[tuple[str, str]]) -> bytes:
    """Header fields in order, each with the end of its line.

    Raises:
        ValueError: One has characters that HTTP does not allow; the text names it, and not its value.
    """
    lines: list[str] = []
    for name, value in headers:
        line = f"{name}: {value}"
        if not _SENT_HEADER.fullmatch(line):
            raise ValueError(f"the header {name!r} has characters that HTTP does not allow")
        lines.append(line)
    return "".join(f"{line}\r\n" for line in lines).encode("ascii")


@final
class Answer:
    """One answer, read from what is fed to it.

    First `read_head` until it says that the head is there, then `read_body` until `done`. Where more is needed they say
    so by False and by no bytes. All raise `ConnectionError` when what came is no answer or ends too early.
    """

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.done = False
        self._bytes = b""
        self._at = 0
        """Where in the bytes what has not been read begins."""
        self._ended = False
        self._reusable = False
        self._left: int | None = None
        """Bytes until the end of the body, or of this chunk; None: until the end of the connection."""
        self._chunked = False
        self._between_chunks = False

    @property
    def reusable(self) -> bool:
        """Whether another request may follow on the connection: the answer was read to its end, and no further."""
        return self.done and self._reusable and self._at == len(self._bytes) and not self._ended

    def feed(self, data: bytes) -> None:
        """Take the next piece; an empty one is the end of the connection."""
        if not data:
            self._ended = True
        elif self._at == len(self._bytes):
            self._bytes, self._at = data, 0
        else:
            self._bytes, self._at = self._bytes[self._at :] + data, 0

    def read_head(self) -> bool:
        """Whether status and headers are there. Interim answers (1xx) are passed over."""
        while True:
            end = self._bytes.find(b"\r\n\r\n", self._at, self._at + _LONGEST_HEAD_BYTES)
            if end < 0:
                self._check_beginning(self._bytes[self._at : self._at + _LONGEST_HEAD_BYTES])
                return False
            head = self._bytes[self._at : end + 2].decode("latin-1")
            self._at = end + 4
            version = self._parse(head)
            if self.status >= 200:
                self._frame(version)
                return True
            if self.status == 101:
                raise ConnectionError("the server changes to a protocol that was not asked for")

    def read_body(self) -> bytes:
        """What there is of the body, as it was sent."""
        if self.done:
            return b""
        if self._chunked:
            return self._read_chunks()
        if self._left is None:
            data, self._bytes, self._at = self._bytes[self._at :], b"", 0
            self.done = self._ended
            return data
        data = self._take()
        self.done = self._left == 0
        if not self.done:
            self._check_end()
        return data

    def _check_beginning(self, beginning: bytes) -> None:
        if not b"HTTP/1.".startswith(beginning[:7]):
            raise ConnectionError(f"the answer is no HTTP/1.1: it begins with {beginning[:20]!r}")
        if len(beginning) == _LONGEST_HEAD_BYTES:
            raise ConnectionError(f"the head of the answer is longer than {_LONGEST_HEAD_BYTES} bytes")
        if self._ended:
            raise ConnectionError("the connection ended without an answer")

    def _check_end(self) -> None:
        if self._ended:
            raise ConnectionError("the connection ended in the middle of the answer")

    def _parse(self, head: str) -> str:
        line, _, fields = head.partition("\r\n")
        matched = _STATUS_LINE.fullmatch(line)
        if matched is None:
            raise ConnectionError(f"the answer is no HTTP/1.1: it begins with {line[:80]!r}")
        if not _HEADERS.fullmatch(fields):
            raise ConnectionError("a header of the answer has characters that HTTP does not allow")
        self.status = int(matched[2])
        headers: dict[str, str] = {}
        for field in fields.split("\r\n")[:-1]:
            name, _, value = field.partition(":")
            name, value = name.lower(), value.strip(" \t")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        self.headers = headers
        return matched[1]

    def _frame(self, version: str) -> None:
        """Where the body ends (RFC 9112, 6.3)."""
        connection, length, coding = map(self.headers.get, _FRAMING)
        self._reusable = version == "1" and (
            connection is None or "close" not in (option.strip() for option in connection.lower().split(","))
        )
        if self.status in _NO_CONTENT:
            self.done = True
        elif coding is not None:
            if version == "0" or coding.lower() != "chunked":
                raise ConnectionError(f"the answer's transfer-encoding {coding!r} is not one that was asked for")
            self._chunked = True
            self._left = 0
            self._reusable = self._reusable and length is None
        elif length is not None:
            lengths = {one.strip() for one in length.split(",")}
            if len(lengths) != 1 or not _LENGTH.fullmatch(length := lengths.pop()):
                raise ConnectionError(f"the answer's content-length {length!r} is no number of bytes")
            self._left = int(length)
            self.done = self._left == 0
        else:
            self._reusable = False

    def _take(self) -> bytes:
        """What there is of the body or chunk."""
        left = self._left or 0
        if not self._at and len(self._bytes) <= left:
            data, self._bytes = self._bytes, b""  # most of a long answer: nothing is copied
        else:
            data = self._bytes[self._at : self._at + left]
            self._at += len(data)
        self._left = left - len(data)
        return data

    def _read_chunks(self) -> bytes:
        """All chunks that are there, as one."""
        parts: list[bytes] = []
        while not self.done:
            if self._left:
                if part := self._take():
                    parts.append(part)
                if self._left:
                    break
                self._between_chunks = True
            if not self._next_chunk():
                break
        if not parts and not self.done:
            self._check_end()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _next_chunk(self) -> bool:
        """Read the line that says how long the next chunk is, or the end. False: it is not all there."""
        start = self._at
        if self._between_chunks:
            if len(self._bytes) - start < 2:
                return False
            if not self._bytes.startswith(b"\r\n", start):
                raise ConnectionError("a chunk of the answer is longer than it said")
            start += 2
        end = self._bytes.find(b"\r\n", start, start + _LONGEST_SIZE_LINE_BYTES)
        if end < 0:
            if len(self._bytes) - start >= _LONGEST_SIZE_LINE_BYTES:
                raise ConnectionError("a chunk of the answer does not say how long it is")
            return False
        matched = _SIZE_LINE.fullmatch(self._bytes, start, end)
        if matched is None:
            raise ConnectionError("a chunk of the answer does not say how long it is")
        self._left = int(matched[1], 16)
        if self._left == 0:
            return self._read_trailers(end + 2)
        self._at = end + 2
        self._between_chunks = False
        return True

    def _read_trailers(self, start: int) -> bool:
        """Pass over the fields after the last chunk, of which none is of use here."""
        fields = b""
        end = start
        if not self._bytes.startswith(b"\r\n", start):
            end = self._bytes.find(b"\r\n\r\n", start, start + _LONGEST_HEAD_BYTES) + 2
            if end < 2:
                if len(self._bytes) - start >= _LONGEST_HEAD_BYTES:
                    raise ConnectionError(f"the trailers of the answer are longer than {_LONGEST_HEAD_BYTES} bytes")
                return False
            fields = self._bytes[start:end]
        if not _HEADERS.fullmatch(fields.decode("latin-1")):
            raise ConnectionError("a trailer of the answer has characters that HTTP does not allow")
        self._at = end + 2
        self.done = True
        return True
