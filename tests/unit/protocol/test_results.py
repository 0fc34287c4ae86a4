"""Results and progress: only the words of the worker that was asked, to the one who asked, decide a task."""

from collections.abc import Mapping
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hub.protocol import make, names, read_progress, read_result, results
from hub.protocol.results import Progress, Result

TASK = "0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d"
CHANNEL = names.task_channel(TASK)
DONE = {"status": "done", "task_id": TASK, "for": "orch", "result": {"n": 1}, "error": None}


def envelope(payload: Any, **meta: Any) -> Any:
    return make(**{"sender": "worker", "channel": CHANNEL, "reply_to": TASK, **meta}, payload=payload)


def result_of(payload: Any, **meta: Any) -> Result | None:
    sent = envelope(payload, **meta)
    return read_result(sent, sent.payload, task_id=TASK, worker="worker", delegator="orch")


def progress_of(payload: Any, **meta: Any) -> Progress | None:
    sent = envelope(payload, **{"kind": "status", **meta})
    return read_progress(sent, sent.payload, task_id=TASK, worker="worker", delegator="orch")


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (DONE, {"status": "done", "result": {"n": 1}}),
        *[({**DONE, "result": value}, {"status": "done", "result": value}) for value in (None, 0, False, "", [], {})],
        ({**DONE, "verify": "passed"}, {"status": "done", "result": {"n": 1}, "verify": "passed"}),
        (
            {**DONE, "status": "error", "result": None, "error": "boom", "code": "handler_error"},
            {"status": "error", "error": "boom", "code": "handler_error"},
        ),
        (
            {**DONE, "status": "error", "error": "x", "code": "verify_failed", "verify": "failed"},
            {"status": "error", "error": "x", "code": "verify_failed", "verify": "failed"},
        ),
        ({**DONE, "status": "cancelled", "error": "cancelled"}, {"status": "cancelled", "error": "cancelled"}),
        # What others write beside the contract: a result is only one on `done`; a text that is none is shown as JSON.
        (
            {**DONE, "status": "error", "error": {"a": [1]}, "code": 7},
            {"status": "error", "error": '{"a":[1]}', "code": "7"},
        ),
        ({"status": "done", "for": "orch"}, {"status": "done"}),
        ({**DONE, "more": 1}, {"status": "done", "result": {"n": 1}}),
    ],
    ids=str,
)
def test_a_terminal_message_of_the_worker_is_the_result(payload: Any, expected: Mapping[str, Any]) -> None:
    found = result_of(payload, id="r-1")
    assert found == Result(**{"task_id": TASK, "message_id": "r-1", **expected})


@pytest.mark.parametrize(
    ("payload", "meta"),
    [
        ({}, {"reply_to": TASK}),
        ({"task_id": "other"}, {"reply_to": TASK}),
        ({}, {"reply_to": None}),
        ({}, {"reply_to": "other"}),
        ({}, {"to": "orch"}),  # a task without a channel is answered by a direct message
    ],
)
def test_reply_to_or_task_id_names_the_task(payload: dict[str, Any], meta: dict[str, Any]) -> None:
    found = result_of({**DONE, **payload}, **meta)
    assert found is not None
    assert found.task_id == TASK


NO_RESULTS: list[tuple[Any, dict[str, Any]]] = [
    (DONE, {"sender": "mallory"}),
    (DONE, {"sender": "Worker"}),
    (DONE, {"sender": names.HUB_IDENTITY}),
    *[(DONE, {"kind": kind}) for kind in ("control", "human", "status", "event")],
    ({**DONE, "for": "other"}, {}),
    ({**DONE, "for": "ORCH"}, {}),
    ({**DONE, "for": None}, {}),
    ({**DONE, "for": ["orch"]}, {}),
    ({name: value for name, value in DONE.items() if name != "for"}, {}),
    *[({**DONE, "status": bad}, {}) for bad in ("working", "queued", "DONE", "", None, 1, ["done"], {"done": 1})],
    ({name: value for name, value in DONE.items() if name != "status"}, {}),
    ({**DONE, "task_id": "other"}, {"reply_to": "other"}),
    ({**DONE, "task_id": None}, {"reply_to": None}),
    ({**DONE, "task_id": [TASK]}, {"reply_to": None}),
    ({**DONE, "task_id": TASK[:8]}, {"reply_to": TASK[:8]}),
    *[(payload, {}) for payload in (None, "done", 1, True, [DONE], [["status", "done"]])],
]


@pytest.mark.parametrize(("payload", "meta"), NO_RESULTS, ids=str)
def test_anything_else_is_no_result_of_this_task(payload: Any, meta: dict[str, Any]) -> None:
    assert result_of(payload, **meta) is None


@pytest.mark.parametrize(
    ("payload", "kind", "expected"),
    [
        *[
            ({"status": s, "for": "orch"}, "status", ("status", {"status": s}))
            for s in sorted(results.PROGRESS_STATUSES)
        ],
        ({"status": "thinking", "for": "orch"}, "status", ("status", {"status": "thinking"})),
        ({"status": "ready"}, "status", ("status", {"status": "ready"})),
        ({"event_type": "stdout", "data": {"line": "x"}, "for": "orch"}, "event", ("stdout", {"line": "x"})),
        ({"event_type": "started", "for": "orch"}, "event", ("started", {})),
        ({"event_type": "progress", "data": [1], "for": "orch"}, "event", ("progress", {})),
    ],
    ids=str,
)
def test_the_workers_progress_is_read(payload: Any, kind: Any, expected: tuple[str, Any]) -> None:
    assert progress_of(payload, kind=kind) == Progress(type=expected[0], data=expected[1])


@pytest.mark.parametrize(
    ("payload", "meta"),
    [
        ({"status": "working", "for": "orch"}, {"sender": "mallory"}),
        ({"status": "working", "for": "orch"}, {"reply_to": "other"}),
        ({"status": "working", "for": "orch"}, {"reply_to": None}),
        ({"status": "working", "for": "other"}, {}),
        ({"status": "working", "for": None}, {}),
        ({"status": "working", "for": "orch"}, {"kind": "event"}),
        ({"status": "working", "for": "orch"}, {"kind": "message"}),
        ({"status": ["working"], "for": "orch"}, {}),
        ({"event_type": "started", "for": "orch"}, {"kind": "status"}),
        ({"event_type": 1, "for": "orch"}, {"kind": "event"}),
        (None, {}),
        (["status"], {}),
    ],
    ids=str,
)
def test_anything_else_is_no_progress_of_this_task(payload: Any, meta: dict[str, Any]) -> None:
    assert progress_of(payload, **meta) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.sampled_from([TASK, "done", "orch", "status"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["status", "for", "task_id", "error", "code", "event_type", "data"]), inner)
    ),
    max_leaves=6,
)


@settings(deadline=None)
@given(payload=json_values, kind=st.sampled_from(["message", "status", "event"]))
def test_no_payload_crashes_a_reader(payload: Any, kind: Any) -> None:
    found = result_of(payload, kind=kind)
    assert found is None or found.status in results.TERMINAL_STATUSES
    progress_of(payload, kind=kind)
    results.text_of(payload)
    results.is_result_payload(payload)


def test_a_task_names_the_channel_that_follows_from_its_id() -> None:
    assert results.task_payload("do it", TASK) == {"prompt": "do it", "task_channel": CHANNEL}
    extra = {"cwd": "/", "prompt": "no", "task_channel": "task.stolen"}
    assert results.task_payload("do it", TASK, extra) == {"cwd": "/", "prompt": "do it", "task_channel": CHANNEL}
    with pytest.raises(names.BadName):
        results.task_payload("do it", "a.b")
    assert results.cancel_payload(TASK) == {"action": "cancel", "task_id": TASK}


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ({"prompt": "p", "text": "t", "command": "c", "message": "m"}, "p"),
        ({"message": "m", "command": "c", "text": "t"}, "t"),
        ({"message": "m", "command": "c"}, "c"),
        ({"message": "m"}, "m"),
        ({"prompt": None, "text": ["t"], "command": 1, "message": "m"}, "m"),
        ({"prompt": "", "text": "t"}, ""),
        ({"prompt": None}, None),
        ({"Prompt": "p", "body": "b"}, None),
        ({}, None),
        ("p", None),
        (["prompt"], None),
        (None, None),
    ],
    ids=str,
)
def test_the_first_string_is_the_text_of_a_task(payload: Any, text: str | None) -> None:
    assert results.text_of(payload) == text


@pytest.mark.parametrize(
    ("payload", "is_result"),
    [
        (DONE, True),
        ({"task_id": None, "status": None}, True),
        ({"task_id": TASK}, False),
        ({"status": "done"}, False),
        (["task_id", "status"], False),
        ("task_id status", False),
        (None, False),
    ],
    ids=str,
)
def test_a_payload_with_task_id_and_status_is_a_result_and_no_task(payload: Any, is_result: bool) -> None:
    assert results.is_result_payload(payload) is is_result


def test_the_statuses_that_end_a_task_are_those_of_its_results() -> None:
    assert set(get_args(results.Status)) == results.TERMINAL_STATUSES
    assert not results.TERMINAL_STATUSES & results.PROGRESS_STATUSES
