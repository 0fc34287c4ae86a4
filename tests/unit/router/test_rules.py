"""The routing rules by tables (contract §1, §3)."""

import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.delivery.headers import header_lines
from hub.protocol import make
from hub.router.rules import Drop, Home, Reason, Route, route, trace_lines

HEADERS: list[tuple[str, str]] = []


def body(**given: Any) -> bytes:
    wire = {"sender": "alice", "channel": "room", "payload": {"n": 1}} | given
    return make(**wire).body


def raw(**meta: Any) -> bytes:
    head = {
        "id": "1",
        "from": "alice",
        "channel": "room",
        "to": None,
        "timestamp": "2026-11-30T00:00:00Z",
        "kind": "message",
        "reply_to": None,
    }
    return msgspec.json.encode({"meta": {name: value for name, value in (head | meta).items() if value != "absent"}})


@pytest.mark.parametrize(
    ("channel", "to", "destination", "home"),
    [
        ("room", None, "channel.room", Home.LIVE),
        ("a.b.c", None, "channel.a.b.c", Home.LIVE),
        ("room", "bob", "channel.inbox.bob", Home.INBOX),
        ("task.12345678", None, "channel.task.12345678", Home.TASKS),
        ("task.12345678", "bob", "channel.inbox.bob", Home.INBOX),
        ("session.s1", None, "channel.session.s1", Home.TASKS),
        ("wave.w1", None, "channel.wave.w1", Home.TASKS),
        ("wave.w1.task.t1", None, "channel.wave.w1.task.t1", Home.TASKS),
        ("tasks", None, "channel.tasks", Home.LIVE),
        ("presence", "hub-orchestrator", "channel.inbox.hub-orchestrator", Home.INBOX),
    ],
)
def test_destination_follows_from_recipient_and_channel(
    channel: str, to: str | None, destination: str, home: Home
) -> None:
    decided = route(f"hub.pub.alice.{channel}", HEADERS, body(channel=channel, to=to, id="m1"), is_guarded=True)
    assert isinstance(decided, Route)
    assert (decided.destination, decided.home) == (destination, home)
    assert decided.message_id == f"hub-router:alice:m1:{destination}"


def test_the_subject_beats_what_the_envelope_says_of_its_sender() -> None:
    decided = route("hub.pub.mallory.lobby", HEADERS, body(), is_guarded=True)
    assert isinstance(decided, Route)
    assert (decided.envelope.meta.sender, decided.envelope.meta.channel) == ("mallory", "lobby")
    assert decided.destination == "channel.lobby"


def test_an_honest_envelope_goes_out_byte_for_byte() -> None:
    sent = body()
    decided = route("hub.pub.alice.room", HEADERS, sent, is_guarded=True)
    assert isinstance(decided, Route)
    assert decided.envelope.body is sent


@pytest.mark.parametrize(
    ("subject", "sent", "reason"),
    [
        ("hub.pub.alice.room", b"", Reason.UNDECODABLE),
        ("hub.pub.alice.room", b"[" * 100_000, Reason.UNDECODABLE),
        ("hub.pub.alice.room", b'{"stream":"HUB_INBOX","seq":1}', Reason.UNDECODABLE),
        ("hub.pub.alice.room", raw(kind="shout"), Reason.UNDECODABLE),
        ("hub.pub.alice.room", raw(timestamp="2026-11-30T00:00:00"), Reason.UNDECODABLE),
        ("hub.pub.alice.room", raw(id="absent"), Reason.UNDECODABLE),
        ("hub.pub.alice.room", raw(id="has blank"), Reason.UNDECODABLE),
        ("hub.pub.alice.room", raw(to="bob.x"), Reason.BAD_RECIPIENT),
        ("hub.pub.alice.room", raw(to=">"), Reason.BAD_RECIPIENT),
        ("hub.pub.alice.room", raw(to=""), Reason.BAD_RECIPIENT),
        ("hub.pub.alice.room", raw(to=7), Reason.BAD_RECIPIENT),
        ("hub.pub.al*ce.room", raw(), Reason.BAD_IDENTITY),
        ("hub.pub.>.room", raw(), Reason.BAD_IDENTITY),
        (f"hub.pub.{'a' * 65}.room", raw(), Reason.BAD_IDENTITY),
        ("hub.pub.alice.>", raw(), Reason.BAD_CHANNEL),
        ("hub.pub.alice.inbox.bob", raw(), Reason.BAD_CHANNEL),
        ("hub.pub.alice.task", raw(), Reason.BAD_CHANNEL),
        ("hub.pub.alice.task.a.b", raw(), Reason.BAD_CHANNEL),
        ("hub.pub.alice.wave.w.x.t", raw(), Reason.BAD_CHANNEL),
        ("hub.pub.alice.a b", raw(), Reason.BAD_CHANNEL),
        ("hub.pub.alice.room\x0c", raw(), Reason.BAD_CHANNEL),
        ("hub.pub.alice." + ".".join("a" * 17), raw(), Reason.BAD_CHANNEL),
        ("channel.inbox.bob", raw(), Reason.REPLAYED),
    ],
)
def test_what_cannot_be_delivered_is_dropped_by_its_reason(subject: str, sent: bytes, reason: Reason) -> None:
    decided = route(subject, HEADERS, sent, is_guarded=True)
    assert isinstance(decided, Drop)
    assert decided.reason is reason
    assert decided.detail


def test_a_bad_recipient_names_sender_and_message() -> None:
    decided = route("hub.pub.alice.room", HEADERS, raw(to="b b"), is_guarded=True)
    assert isinstance(decided, Drop)
    assert (decided.sender, decided.channel, decided.envelope_id) == ("alice", "room", "1")


def test_in_core_mode_the_servers_request_info_is_expected() -> None:
    headers = [("Nats-Request-Info", "{}"), ("Nats-Stream", "x")]
    assert isinstance(route("hub.pub.alice.room", headers, body(), is_guarded=False), Route)
    assert isinstance(route("hub.pub.alice.room", headers, body(), is_guarded=True), Drop)


@pytest.mark.parametrize(
    ("headers", "carried"),
    [
        ([("traceparent", "00-1-2-01")], b"traceparent: 00-1-2-01\r\n"),
        ([("tracestate", "a=b"), ("X-Other", "1")], b"tracestate: a=b\r\n"),
        ([("traceparent", "a" * 512)], b"traceparent: " + b"a" * 512 + b"\r\n"),
        ([("traceparent", "a" * 513)], b""),
        ([("traceparent", "a\r\nNats-Msg-Id: b")], b""),
        ([("traceparent", "é")], b""),
        ([("Traceparent", "x")], b""),
        ([("traceparent", "first"), ("traceparent", "second")], b"traceparent: first\r\n"),
    ],
)
def test_only_the_trace_context_is_carried_on(headers: list[tuple[str, str]], carried: bytes) -> None:
    assert trace_lines(headers) == carried


@given(st.text(max_size=60), st.binary(max_size=300))
def test_nothing_that_comes_crashes_the_rules(subject: str, sent: bytes) -> None:
    route(f"hub.pub.{subject}", HEADERS, sent, is_guarded=True)


@pytest.mark.parametrize("is_guarded", [True, False])
@pytest.mark.parametrize("line", [b"a:\r\n", b"\r\n"])
def test_a_message_of_millions_of_header_lines_is_dropped_in_no_time(line: bytes, *, is_guarded: bool) -> None:
    block = b"NATS/1.0\r\n" + line * (8_000_000 // len(line)) + b"Nats-Stream: HUB_INBOX\r\n\r\n"
    began = time.process_time()
    decided = route("hub.pub.alice.room", header_lines(block), body(), is_guarded=is_guarded)
    assert time.process_time() - began < 0.5
    assert isinstance(decided, Drop)
    assert decided.reason is Reason.UNDECODABLE
