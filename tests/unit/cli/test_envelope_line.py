"""The line of hub-watch: what people need of each message, on one line."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.cli.envelope_line import envelope_line, gist
from hub.protocol import make, parse

AT = datetime(2026, 3, 1, 21, 30, 1, tzinfo=UTC)


def line(payload: Any, **meta: Any) -> str:
    envelope = make(**({"sender": "alice", "channel": "room", "id": "m1"} | meta), payload=payload)
    return envelope_line(envelope, at=AT)


def test_a_direct_message_says_from_whom_to_whom() -> None:
    assert line("hi", to="bob") == "21:30:01  alice → bob  room  message  hi  id=m1"


def test_a_broadcast_has_no_recipient_and_an_answer_names_its_question() -> None:
    shown = line({"a": 1}, kind="event", reply_to="m0")
    assert shown == '21:30:01  alice  room  event  {"a":1}  id=m1 reply_to=m0'


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        ({"prompt": "do it", "task_channel": "task.m1"}, "do it"),
        ({"text": "hello"}, "hello"),
        ({"text": "hello", "urgent": True}, '{"text":"hello","urgent":true}'),
        ({"status": "working", "for": "alice"}, "working"),
        ({"event_type": "progress", "data": {"message": "half"}, "for": "alice"}, 'progress {"message":"half"}'),
        ({"status": "done", "result": {"n": 1}, "error": None}, 'done: {"n":1}'),
        ({"status": "error", "result": None, "error": "boom", "code": "handler_error"}, "error (handler_error): boom"),
        ({"status": "cancelled", "result": None, "error": "cancelled"}, "cancelled: cancelled"),
        (None, "null"),
        ([1, "x"], '[1,"x"]'),
        ({"status": ["odd"], "result": 1}, '{"status":["odd"],"result":1}'),
        ({"event_type": 5}, '{"event_type":5}'),
    ],
)
def test_payloads_of_the_protocol_are_shown_by_what_they_say(payload: Any, shown: str) -> None:
    assert gist(payload) == shown


def test_a_long_payload_is_cut_and_says_its_size() -> None:
    shown = line("x" * 5000)
    assert "x" * 2000 + "… (5002 bytes)" in shown
    assert len(shown) < 2200


def test_a_payload_that_no_receiver_takes_is_still_a_line() -> None:
    body = make(sender="alice", channel="room", id="m1").body.replace(b'"payload":null', rb'"payload":"\ud800"')
    assert "payload refused" in envelope_line(parse(body), at=AT)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_no_text_breaks_the_line_or_reaches_the_terminal_raw(text: str) -> None:
    assert line({"text": text}).isprintable()
