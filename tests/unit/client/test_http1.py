"""Answers are read as h11 reads them, from pieces of any size, and nothing is accepted that it refuses."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsdk.client._http1 import Answer, header_block, request_line


@dataclass(frozen=True, slots=True)
class Read:
    """What was read of an answer."""

    status: int
    headers: dict[str, str]
    body: bytes
    reusable: bool


def read(data: bytes, cuts: list[int], *, ends: bool) -> Read | None:
    """With our reader; None: more is needed.

    Raises:
        ConnectionError: It is refused.
    """
    answer = Answer()
    pieces = pieces_of(data, cuts) + ([b""] if ends else [])
    while not answer.read_head():
        if not pieces:
            return None
        answer.feed(pieces.pop(0))
    body: list[bytes] = []
    while True:
        part = answer.read_body()
        body.append(part)
        if part:
            continue
        if answer.done:
            break
        if not pieces:
            return None
        answer.feed(pieces.pop(0))
    for piece in pieces:
        answer.feed(piece)
    headers = dict(answer.headers)
    if "transfer-encoding" in headers:
        headers["transfer-encoding"] = headers["transfer-encoding"].lower()  # as h11 says it
    return Read(answer.status, headers, b"".join(body), answer.reusable)


def read_by_h11(data: bytes, *, ends: bool) -> Read | None:
    """The same with h11.

    Raises:
        h11.RemoteProtocolError: It is refused.
    """
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=65_536)
    connection.send(h11.Request(method="GET", target="/", headers=[("host", "x")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(data)
    if ends:
        connection.receive_data(b"")
    status = 0
    headers: dict[str, str] = {}
    body: list[bytes] = []
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            return None
        if isinstance(event, h11.Response):
            status = event.status_code
            for raw_name, raw_value in event.headers:
                name, value = raw_name.decode(), raw_value.decode("latin-1")
                headers[name] = f"{headers[name]}, {value}" if name in headers else value
        elif isinstance(event, h11.Data):
            body.append(bytes(event.data))
        elif isinstance(event, h11.EndOfMessage):
            unread, closed = connection.trailing_data
            done = connection.our_state is h11.DONE and connection.their_state is h11.DONE
            return Read(status, headers, b"".join(body), done and not unread and not closed)
        elif isinstance(event, h11.ConnectionClosed):
            raise h11.RemoteProtocolError("closed before an answer")


def pieces_of(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in pairwise(places) if end > start]


names = st.from_regex(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,12}", fullmatch=True).filter(
    lambda name: name.lower() not in {"content-length", "transfer-encoding", "connection"}
)
values = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=20)
spaces = st.sampled_from(["", " ", "\t", "  "])


@st.composite
def header_lines(draw: st.DrawFn) -> str:
    return f"{draw(names)}:{draw(spaces)}{draw(values).strip()}{draw(spaces)}"


lines = header_lines()
cuts = st.lists(st.integers(min_value=0, max_value=100_000), max_size=12)


@st.composite
def chunked(draw: st.DrawFn, body: bytes) -> bytes:
    data = bytearray()
    for piece in pieces_of(body, draw(cuts)):
        size = draw(st.sampled_from(["{:x}", "{:X}", "000{:x}"])).format(len(piece))
        data += size.encode() + draw(st.sampled_from([b"", b";a=b", b';q="x y"'])) + b"\r\n" + piece + b"\r\n"
    data += b"0" + draw(st.sampled_from([b"", b";last"])) + b"\r\n"
    for line in draw(st.lists(lines, max_size=2)):
        data += line.encode("latin-1") + b"\r\n"
    return bytes(data + b"\r\n")


@st.composite
def answers(draw: st.DrawFn) -> tuple[bytes, bool]:
    """An answer as a server may send it, and whether its end is the connection's."""
    data = bytearray()
    for status in draw(st.lists(st.sampled_from([100, 102, 103]), max_size=2)):
        data += f"HTTP/1.1 {status} \r\nx: y\r\n\r\n".encode()
    status = draw(st.sampled_from([200, 201, 204, 304, 404, 409, 429, 500]))
    version = draw(st.sampled_from(["1.1", "1.1", "1.0"]))
    reason = draw(st.sampled_from([" OK", " ", "", " Not \tso"]))
    fields = draw(st.lists(lines, max_size=5))
    if draw(st.booleans()):
        fields.append(draw(st.sampled_from(["Connection: close", "connection: keep-alive, Close", "Connection: x"])))
    body = draw(st.binary(max_size=200))
    ends = False
    if status in {204, 304}:
        body = b""
    else:
        how = draw(st.sampled_from(["length", "chunks", "end"] if version == "1.1" else ["length", "end"]))
        if how == "length":
            fields.append(f"Content-Length: {len(body)}")
        elif how == "chunks":
            fields.append(f"Transfer-Encoding: {draw(st.sampled_from(['chunked', 'Chunked']))}")
            body = draw(chunked(body))
        else:
            ends = True
    data += f"HTTP/{version} {status}{reason}\r\n".encode()
    for line in draw(st.permutations(fields)):
        data += line.encode("latin-1") + b"\r\n"
    return bytes(data + b"\r\n" + body), ends


@given(answers(), cuts)
def test_answers_are_read_as_h11_reads_them_in_whatever_pieces_they_come(
    answer: tuple[bytes, bool], cuts: list[int]
) -> None:
    data, ends = answer
    assert read(data, cuts, ends=ends) == read_by_h11(data, ends=ends)


@given(answers(), st.data())
def test_an_answer_that_is_cut_or_goes_on_is_never_taken_for_a_whole_one(
    answer: tuple[bytes, bool], data: st.DataObject
) -> None:
    whole, until_end = answer
    cut = data.draw(st.integers(min_value=0, max_value=len(whole) - 1))
    if not until_end:
        assert read(whole[:cut], [], ends=False) is None
        with pytest.raises(ConnectionError):
            read(whole[:cut], [], ends=True)
    more = read(whole + b"x", [], ends=until_end)
    assert more is not None
    assert not more.reusable


@given(answers(), st.data(), cuts)
def test_whatever_a_spoiled_answer_is_taken_for_h11_takes_it_for_the_same(
    answer: tuple[bytes, bool], data: st.DataObject, cuts: list[int]
) -> None:
    spoiled = bytearray(answer[0])
    for _ in range(data.draw(st.integers(min_value=1, max_value=3))):
        place = data.draw(st.integers(min_value=0, max_value=len(spoiled) - 1))
        what = data.draw(
            st.sampled_from([b"", b"\r", b"\n", b"\r\n", b" ", b":", b"\0", b"0", b",", b";", b"\xff", b"a"])
        )
        spoiled[place : place + data.draw(st.integers(min_value=0, max_value=2))] = what
        if not spoiled:
            return
    try:
        ours = read(bytes(spoiled), cuts, ends=True)
    except ConnectionError:
        return  # being stricter is allowed
    assert ours == read_by_h11(bytes(spoiled), ends=True)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"SSH-2.0-OpenSSH\r\n", "no HTTP/1.1"),
        (b"HTTP/2 200\r\n\r\n", "no HTTP/1.1"),
        (b"HTTP/1.1 20 OK\r\n\r\n", "no HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nbad name: x\r\n\r\n", "a header"),
        (b"HTTP/1.1 200 OK\r\na: b\r\n folded\r\n\r\n", "a header"),
        (b"HTTP/1.1 200 OK\r\na : b\r\n\r\n", "a header"),
        (b"HTTP/1.1 200 OK\r\na: \0\r\n\r\n", "a header"),
        (b"HTTP/1.1 200 OK\nContent-Length: 0\n\nHTTP/1.1 200 OK\r\n\r\n", "no HTTP/1.1"),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n", "was not asked for"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx", "content-length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\nx", "content-length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nx", "content-length"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "transfer-encoding"),
        (b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "transfer-encoding"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", "how long"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", "how long"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n", "longer than it said"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nbad trailer\r\n\r\n", "trailer"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"0" * 5_000, "how long"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000, "longer than 65536"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nx: " + b"y" * 70_000, "longer than 65536"),
    ],
)
def test_what_is_no_answer_is_refused_with_the_reason(data: bytes, text: str) -> None:
    with pytest.raises(ConnectionError, match=text):
        read(data, [], ends=False)


def test_a_length_and_chunks_together_are_read_as_chunks_and_end_the_connection() -> None:
    found = read(
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", [], ends=False
    )
    assert found is not None
    assert (found.body, found.reusable) == (b"x", False)


@pytest.mark.parametrize(
    ("method", "target"),
    [("GE T", "/"), ("", "/"), ("GET", ""), ("GET", "/a b"), ("GET", "/é"), ("GET", "/\r\nx: y"), ("GET", "/\n")],
)
def test_a_request_line_that_is_more_than_one_line_is_refused(method: str, target: str) -> None:
    with pytest.raises(ValueError, match="HTTP does not allow"):
        request_line(method, target)


@pytest.mark.parametrize(
    ("name", "value"), [("a b", "x"), ("", "x"), ("a", "x\r\nb: c"), ("a", "x\n"), ("a", "é"), ("a", " x"), ("a:", "x")]
)
def test_a_header_that_is_more_than_one_line_is_refused_without_telling_its_value(name: str, value: str) -> None:
    with pytest.raises(ValueError, match="HTTP does not allow") as caught:
        header_block([("host", "x"), (name, value)])
    assert repr(value) not in str(caught.value)


def test_headers_are_written_in_order() -> None:
    assert header_block([("host", "a:1"), ("x", ""), ("y", "b  c")]) == b"host: a:1\r\nx: \r\ny: b  c\r\n"
    assert request_line("GET", "/a?b=c") == b"GET /a?b=c HTTP/1.1\r\n"
