"""Records: the JSON that they are, and points in time."""

from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hub.events import AgentEventRecord, AgentEventSourceError
from hub.events.records import decode, draft, encode, instant, with_sequence

scalars = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
texts = st.text('ab \0\n"\\\u2028é\U0001f600\x7f', max_size=8)
values = st.recursive(
    scalars | texts, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6
)


def record(**changes: object) -> AgentEventRecord:
    members: dict[str, object] = {
        "id": "e", "session_id": "s", "run_id": "r", "type": "t", "timestamp": "2026-01-01T00:00:00.000Z",
        "event": {"type": "t", "sessionId": "s", "runId": "r"}, "redacted": True, "tenant_id": "x",
    }  # fmt: skip
    return AgentEventRecord(**{**members, **changes})  # type: ignore[arg-type]


def test_the_json_names_are_the_wires() -> None:
    whole = record(account_id="a", user_id="u", entry_id="n", metadata={"k": 1}, sequence=3)
    assert msgspec.json.decode(encode(whole)) == {
        "id": "e", "sessionId": "s", "runId": "r", "type": "t", "timestamp": "2026-01-01T00:00:00.000Z",
        "event": {"type": "t", "sessionId": "s", "runId": "r"}, "redacted": True, "tenantId": "x",
        "account_id": "a", "user_id": "u", "entry_id": "n", "metadata": {"k": 1}, "sequence": 3,
    }  # fmt: skip


@settings(max_examples=50)
@given(st.dictionaries(texts, values, max_size=3), st.integers(1, 2**62))
def test_what_is_accepted_comes_back_the_same(extra: dict[str, object], sequence: int) -> None:
    given_record = record(event={**extra, "type": "t", "sessionId": "s", "runId": "r"}, metadata=extra)
    body = draft(given_record, max_event_bytes=10**6).body
    assert decode(with_sequence(body, sequence)) == msgspec.structs.replace(given_record, sequence=sequence)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"id": 1e400}', b"9" * 5000,
        encode(record()), encode(record(sequence=0)), encode(record(sequence=-1)),
        encode(record(sequence=1))[:-1] + b',"more":1}', encode(record(sequence=1)).replace(b'"e"', b'"\\ud800"'),
    ],
)  # fmt: skip
def test_bytes_that_are_no_stored_record_are_none(data: bytes) -> None:
    assert decode(data) is None


def test_deep_nesting_is_refused_not_fatal() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(AgentEventSourceError, match="nested"):
        draft(record(metadata={"deep": deep}), max_event_bytes=10**6)
    for _ in range(100_000):  # taken apart by hand: the interpreter's own way is recursive
        (deep,) = deep or [[]]  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("moment", "wanted"),
    [
        (datetime(2026, 1, 2, 3, 4, 5, 678999, UTC), "2026-01-02T03:04:05.678Z"),
        (datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=2))), "2026-01-02T01:00:00.000Z"),
        (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00.000Z"),
        ("2024-02-29T00:00:00.000Z", "2024-02-29T00:00:00.000Z"),
    ],
)
def test_instants_have_one_form(moment: str | datetime, wanted: str) -> None:
    assert instant(moment) == wanted
