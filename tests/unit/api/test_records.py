"""The wire's records: times of one width, payloads as they came, and none that spoils a list for its reader."""

import base64
import json
from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from hub.api import records
from hub.api.records import wave_summary
from hub.protocol import BadPayload, decode_payload
from hub.storage import records as stored
from hub.storage.records import TaskCount

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)


def envelope(payload: bytes, **members: object) -> records.Envelope:
    usual = {
        "id": "m", "sender": "alice", "channel": "room", "to": None, "timestamp": NOW, "kind": "message",
        "reply_to": None, "stored_at": NOW,
    }  # fmt: skip
    return records.envelope(stored.EnvelopeRecord(**{**usual, **members}, payload=Raw(payload)))  # type: ignore[arg-type]


def test_times_have_one_width_and_sort_as_text() -> None:
    moments = [
        NOW,
        NOW + timedelta(microseconds=1),
        NOW.astimezone(timezone(timedelta(hours=9))),
        datetime.min.replace(tzinfo=UTC),
    ]
    texts = [envelope(b"1", timestamp=moment).timestamp for moment in moments]
    assert {len(text) for text in texts} == {27}
    assert sorted(texts) == [texts[3], texts[0], texts[2], texts[1]]


def test_members_have_the_contracts_names() -> None:
    assert list(msgspec.json.decode(msgspec.json.encode(envelope(b"1")))) == [
        "id", "from", "channel", "to", "timestamp", "kind", "reply_to", "payload", "stored_at",
    ]  # fmt: skip


@pytest.mark.parametrize("payload", [b"null", b'{"a": 1.50}', b'"\xf0\x9f\x98\x80\\u0000"', b"[" * 128 + b"]" * 128])
def test_a_payload_goes_out_as_the_bytes_that_it_was(payload: bytes) -> None:
    record = envelope(payload)
    assert bytes(record.payload) == payload
    assert record.payload_error is msgspec.UNSET


@pytest.mark.parametrize(
    "payload",
    [
        b'"\\ud800"',
        b"[" * 129 + b"]" * 129,
        b"1e999",
        b"18446744073709551616",
        b'{"\\uDfff":1}',
        b'{"a":' * 400 + b"1" + b"}" * 400,
    ],
)
def test_a_payload_that_receivers_refuse_is_beside_the_record(payload: bytes) -> None:
    record = envelope(payload)
    assert bytes(record.payload) == b"null"
    assert record.payload_error
    assert base64.b64decode(str(record.payload_data)) == payload
    msgspec.json.decode(msgspec.json.encode([record]))
    json.loads(msgspec.json.encode([record]))


@given(st.text(alphabet='[]{}",:\\ud8f0eE+-19 .', max_size=60))
def test_every_payload_that_goes_out_can_be_decoded(text: str) -> None:
    payload = text.encode()
    try:
        msgspec.json.decode(payload, type=Raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return  # no router lets it through
    shown = bytes(envelope(payload).payload)
    try:
        decode_payload(payload)
    except BadPayload:
        assert shown == b"null"
    else:
        assert shown == payload


def test_alive_is_seen_within_90_seconds() -> None:
    agent = stored.Agent(identity="a", capabilities=[], metadata={}, registered_at=NOW, last_seen=NOW)
    assert records.agent(agent, now=NOW + timedelta(seconds=90)).alive
    assert not records.agent(agent, now=NOW + timedelta(seconds=90, microseconds=1)).alive


@pytest.mark.parametrize(
    ("counts", "gate"),
    [
        ([("pending", None, 2)], "waiting"),
        ([("done", None, 1), ("running", None, 1)], "waiting"),
        ([("done", None, 1), ("done", "passed", 1)], "open"),
        ([("done", "failed", 1)], "blocked"),
        ([("done", "missing", 1), ("running", None, 1)], "blocked"),
        ([("failed", None, 1), ("running", None, 1)], "blocked"),
        ([("cancelled", None, 1)], "blocked"),
    ],
)
def test_the_merge_gate_opens_when_all_is_done_and_verified(counts: list[tuple], gate: str) -> None:  # type: ignore[type-arg]
    summary = wave_summary([TaskCount(*count) for count in counts])
    assert summary.merge_gate == gate
    assert summary.total == sum(count for _, _, count in counts)
    assert summary.done == sum(count for status, _, count in counts if status == "done")
