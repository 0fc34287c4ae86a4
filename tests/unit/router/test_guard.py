"""The replay guard by tables (contract §6, permissions)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.delivery.headers import header_lines
from hub.router import guard
from hub.router.rules import trace_lines

HONEST = "hub.pub.alice.room"


def block(*lines: bytes) -> bytes:
    return b"NATS/1.0\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


@pytest.mark.parametrize(
    "lines",
    [
        (),
        (b"Nats-Msg-Id: 0123456789abcdef",),
        (b"Nats-Expected-Stream: HUB_INGRESS",),
        (b"Nats-Request-Info: {}",),
        (b"traceparent: 00-a-b-01", b"X-Anything: 1", b"Natsy: 1", b"Kv: 1"),
    ],
)
def test_what_an_agent_sends_passes(lines: tuple[bytes, ...]) -> None:
    assert guard.check(HONEST, header_lines(block(*lines))) is None


@pytest.mark.parametrize(
    "line",
    [
        b"Nats-Stream: HUB_INBOX",
        b"Nats-Sequence: 1",
        b"Nats-Subject: channel.inbox.bob",
        b"Nats-Time-Stamp: 2026-01-01T00:00:00Z",
        b"Nats-Last-Sequence: 0",
        b"nats-stream: HUB_INBOX",
        b"NATS-ROLLUP: all",
        b" Nats-Stream : x",
        b"nats-msg-id: in another case it is no message id",
        b"Nats-Pending-Messages: 1",
        b"KV-Operation: DEL",
        b"kv-operation: DEL",
        b"Status: 404",
        b"status: 404",
        b"Description: No Messages",
        b"Nats-Msg-Id: hub-router:bob:1:channel.inbox.alice",
        b"Nats-\xff: 1",
    ],
)
def test_what_only_a_server_or_a_router_writes_gives_a_message_away(line: bytes) -> None:
    assert guard.check(HONEST, header_lines(block(b"X-First: 1", line))) is not None


def test_a_router_id_behind_an_honest_one_is_found() -> None:
    lines = (b"Nats-Msg-Id: honest", b"Nats-Msg-Id: hub-router:x")
    assert guard.check(HONEST, header_lines(block(*lines))) is not None
    assert guard.check(HONEST, header_lines(block(*reversed(lines)))) is not None


@pytest.mark.parametrize(
    "subject", ["channel.inbox.bob", "hub.pub.alice", "hub.pub", "hub.publish.a.b", "$JS.API.x", ""]
)
def test_a_message_from_outside_the_ingress_is_dropped(subject: str) -> None:
    assert guard.check(subject, []) is not None


@given(st.binary(max_size=200))
def test_no_header_block_crashes_the_guard(bytes_: bytes) -> None:
    guard.check(HONEST, header_lines(b"NATS/1.0\r\n" + bytes_))


LINES = st.sampled_from(
    [
        b"Nats-Msg-Id: 0123",
        b"Nats-Msg-Id: hub-router:a:b:c",
        b"Nats-Msg-Id:  hub-router:a:b:c",
        b"Nats-Msg-Id:hub-router:a:b:c",
        b"Nats-Msg-Id: \x0bhub-router:x",
        b"nats-msg-id: x",
        b"Nats-Expected-Stream: HUB_INGRESS",
        b"Nats-Stream: HUB_INBOX",
        b"Status: 404",
        b"traceparent: 00-a-b-01",
        b"X-Anything: 1",
        b"",
        b" ",
    ]
)


@given(st.lists(LINES, max_size=5), st.booleans())
def test_what_is_ordinary_at_one_look_passes_the_guard_and_carries_nothing_on(lines: list[bytes], is_cut: bool) -> None:
    headers = block(*lines)[: -2 if is_cut else None]
    if guard.is_ordinary(headers):
        assert guard.check(HONEST, header_lines(headers)) is None
        assert trace_lines(header_lines(headers)) == b""


@given(st.binary(max_size=60))
def test_no_bytes_that_the_guard_refuses_are_ordinary(bytes_: bytes) -> None:
    headers = b"NATS/1.0\r\nNats-Msg-Id: " + bytes_ + b"\r\n\r\n"
    if guard.check(HONEST, header_lines(headers)) is not None:
        assert not guard.is_ordinary(headers)


@pytest.mark.parametrize("lines", [(), (b"Nats-Msg-Id: 0123",), (b"Nats-Expected-Stream: S", b"Nats-Msg-Id: 0123")])
def test_what_clients_send_is_ordinary(lines: tuple[bytes, ...]) -> None:
    assert guard.is_ordinary(block(*lines))
