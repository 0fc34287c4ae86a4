"""Parameters: what comes is understood, or refused by name in one short line."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hub.api import agents, history, sessions, stats, waves
from hub.api.errors import BadRequest
from hub.api.operations import OPERATIONS
from hub.api.params import NoParams, decode, require_json


def body(**params: Any) -> bytes:
    return json.dumps({"params": params}).encode()


@pytest.mark.parametrize("text", [b"", b"{}", b'{"params":{}}', b' {"params" : {} } '])
def test_no_parameters_can_be_left_out(text: bytes) -> None:
    assert isinstance(decode(text, NoParams), NoParams)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"[]", 'expected {"params"'),
        (b"nope", 'expected {"params"'),
        (b"\xff\xfe", 'expected {"params"'),
        (b'{"params":{},"more":1}', "unknown field `more`"),
        (b'{"params":null}', "got `null`"),
        (b'{"params":{"limt":1}}', "unknown field `limt`; did you mean 'limit'?"),
        (b'{"params":{"sender":"alice"}}', "unknown field `sender`"),
        (b'{"params":{"limit":0}}', ">= 1"),
        (b'{"params":{"limit":1001}}', "<= 1000"),
        (b'{"params":{"limit":true}}', "`params.limit`"),
        (b'{"params":{"limit":"10"}}', "`params.limit`"),
        (b'{"params":{"limit":1.5}}', "`params.limit`"),
        (b'{"params":{"limit":' + b"9" * 5000 + b"}}", "bad params"),
        (b'{"params":{"since":"2030-01-01T00:00:00"}}', "`params.since`"),
        (b'{"params":{"since":"yesterday"}}', "`params.since`"),
        (b'{"params":{"cursor":"' + b"1" * 200 + b'"}}', "`params.cursor`"),
        (b'{"params":{"channel":["x"]}}', "`params.channel`"),
        (b'{"params":' + b"[" * 100_000, "recursion"),
        (b'{"params":{"' + b"x" * 60_000 + b'":1}}', "unknown field"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_was_expected(text: bytes, words: str) -> None:
    with pytest.raises(BadRequest) as caught:
        decode(text, history.QueryParams)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 700
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "-1", "0", "1e30"])
def test_windows_are_numbers_that_make_sense(number: str) -> None:
    with pytest.raises(BadRequest):
        decode(b'{"params":{"secs":%b}}' % number.encode(), stats.RateParams)


def test_members_that_the_hub_decides_are_ignored_whatever_they_hold() -> None:
    params = decode(body(session_id="s", worker="w", status=["x"], created_at={"a": 1}), sessions.CreateParams)
    assert (params.session_id, params.worker) == ("s", "w")
    decode(
        body(wave={"goal": "g", "status": 3}, tasks=[{"task_id": "t", "worker": "w", "goal": "g", "status": None}]),
        waves.CreateParams,
    )


def test_results_and_dispatches_of_a_task_are_not_the_creators_to_give() -> None:
    for member in ("result", "verify_result", "dispatch_ids", "attempt", "error", "wave_id"):
        with pytest.raises(BadRequest, match=member):
            decode(
                body(wave={"goal": "g"}, tasks=[{"task_id": "t", "worker": "w", "goal": "g", member: None}]),
                waves.CreateParams,
            )


def test_lists_of_capabilities_are_short() -> None:
    with pytest.raises(BadRequest, match="length <= 64"):
        decode(body(capabilities=["x"] * 65), agents.FindParams)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": {"b": [2**70]}}, r"params\.metadata\.a\.b\[0\]: expected an integer"),
        ({"a": "x" * 1001}, "at most 1000 bytes"),
    ],
)
def test_objects_that_others_could_not_read_are_refused(value: Any, words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        require_json(value, "metadata", most_bytes=1000)


def test_objects_nested_deeper_than_128_are_refused() -> None:
    value: Any = 1
    for _ in range(200):
        value = {"a": value}
    with pytest.raises(BadRequest, match="128 levels"):
        require_json(value, "metadata", most_bytes=100_000)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
MEMBERS = sorted({field for operation in OPERATIONS.values() for field in operation.params.__struct_encode_fields__})


@settings(max_examples=40)
@given(st.sampled_from(sorted(OPERATIONS)), st.dictionaries(st.sampled_from(MEMBERS) | st.text(), JSON, max_size=4))
def test_any_json_is_either_understood_or_refused(op: str, params: dict[str, Any]) -> None:
    try:
        decode(json.dumps({"params": params}).encode(), OPERATIONS[op].params)
    except BadRequest as refused:
        assert str(refused)  # noqa: PT017 - that it is no other error is the promise


@given(st.sampled_from(sorted(OPERATIONS)), st.binary(max_size=200))
def test_any_bytes_are_either_understood_or_refused(op: str, text: bytes) -> None:
    try:
        decode(text, OPERATIONS[op].params)
    except BadRequest as refused:
        assert str(refused).isprintable()  # noqa: PT017
