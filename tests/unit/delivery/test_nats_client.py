"""The wire parser on whatever pieces arrive, and frames that no value can break out of."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats import errors as nats_errors

from hub.delivery.headers import encode_headers, header_lines
from hub.delivery.nats_client import HardenedClient, Incoming

SUBJECTS = st.sampled_from([b"a.b", b"hub.pub.x.y", b"x\xff\x0c", b"q\rz"])
BYTES = st.binary(max_size=40) | st.sampled_from([b"\r\n", b"MSG a 1 0\r\n\r\n", b"\r", b"\n"])


class Ear(HardenedClient):
    """A client without a network that notes what its parser tells it."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[Any] = []
        self.direct = {1: self._note}

    def _note(self, message: Incoming) -> None:
        self.heard.append((message.subject, message.reply, message.data, message.header_block))

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        self.heard.append(("slow way", sid, subject, reply, data, headers))

    async def _process_pong(self) -> None:
        self.heard.append("PONG")


@st.composite
def frames(draw: st.DrawFn) -> tuple[bytes, Any]:
    """A frame and what must be heard of it."""
    subject, reply, body = draw(SUBJECTS), draw(st.sampled_from([b"", b"r.e"])), draw(BYTES)
    head = draw(st.none() | BYTES)
    sid = draw(st.sampled_from([1, 2]))
    if draw(st.integers(0, 5)) == 0:
        return b"PONG\r\n", "PONG"
    target = b" ".join(part for part in (subject, b"%d" % sid, reply) if part)
    if head is None:
        frame = b"MSG %b %d\r\n%b\r\n" % (target, len(body), body)
    else:
        frame = b"HMSG %b %d %d\r\n%b%b\r\n" % (target, len(head), len(head) + len(body), head, body)
    heard: Any = ("slow way", sid, subject, reply, body, head or b"")
    if sid == 1:
        heard = (subject.decode("utf-8", "backslashreplace"), reply.decode(), body, head or b"")
    return frame, heard


async def parse(pieces: list[bytes]) -> tuple[list[Any], bytes]:
    ear = Ear()
    for piece in pieces:
        await ear._ps.parse(piece)
    return ear.heard, bytes(ear._ps.buf)


@given(st.lists(frames(), max_size=8), st.lists(st.integers(1, 60), min_size=1, max_size=20))
def test_frames_are_heard_once_and_whole_however_they_are_cut(sent: list[tuple[bytes, Any]], cuts: list[int]) -> None:
    stream, pieces = b"".join(frame for frame, _ in sent), []
    while stream:
        size = cuts[len(pieces) % len(cuts)]
        pieces.append(stream[:size])
        stream = stream[size:]
    assert asyncio.run(parse(pieces)) == ([heard for _, heard in sent], b"")


def test_a_large_message_in_small_pieces_is_not_looked_at_before_it_is_there() -> None:
    body = bytes(1_000_000)
    frame = b"MSG a 1 %d\r\n%b\r\n" % (len(body), body)
    pieces = [frame[at : at + 1000] for at in range(0, len(frame), 1000)]
    heard, left = asyncio.run(parse([*pieces, b"MSG a 1 2\r\nhi\r\nPO"]))
    assert [(subject, len(data)) for subject, _, data, _ in heard] == [("a", 1_000_000), ("a", 2)]
    assert left == b"PO"


@pytest.mark.parametrize("line", [b"MSG a\r\n", b"MSG a x 5\r\n", b"HMSG a 1 5\r\n", b"WHAT\r\n", b"x" * 1_100_000])
def test_what_is_no_protocol_is_refused(line: bytes) -> None:
    with pytest.raises(nats_errors.ProtocolError):
        asyncio.run(parse([line]))


def test_an_exception_in_a_callback_costs_its_message_and_no_other() -> None:
    ear = Ear()

    def break_down(_: Incoming) -> None:
        raise RuntimeError("the callback's fault")

    ear.direct[2] = break_down
    asyncio.run(ear._ps.parse(b"MSG a 2 1\r\nx\r\nMSG a 1 1\r\ny\r\n"))
    assert [data for _, _, data, _ in ear.heard] == [b"y"]


@given(st.text(max_size=30))
def test_no_header_value_ends_its_line(value: str) -> None:
    try:
        block = encode_headers({"traceparent": value})
    except UnicodeEncodeError:  # a lone surrogate: nothing was sent
        return
    assert block.count(b"\r\n") == 3
    assert [name for name, _ in header_lines(block)] == ["traceparent"]


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a\r\nb", "\u00e9"])
def test_a_header_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(nats_errors.BadHeaderError):
        encode_headers({name: "x"})


@pytest.mark.parametrize("subject", ["", "a b", "a\r\nPUB evil 0\r\n", "a\tb"])
async def test_a_subject_that_would_break_the_line_is_refused(subject: str) -> None:
    client = HardenedClient()
    with pytest.raises(nats_errors.BadSubjectError):
        client.publish_now(subject, b"")
    with pytest.raises(nats_errors.BadSubjectError):
        client.publish_now("fine", b"", reply=subject or " ")
