"""What a direct message asks of a worker, and whether its sender may (contract §7 to §9)."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.mailbox import Cancel, Close, Refuse, Send, Start, Task
from hub.protocol import Envelope, names, parse
from workers.classify import Ignored, Judgement, Policy, Work, classify, reply_channel_of

ID = "12345678-aaaa"
OWN = "task.12345678"
HUB = names.HUB_IDENTITY
ALL = Policy()
CHOSEN = Policy(accept_from=frozenset({"alice"}))
COMMANDS = Policy(runs_commands=True)


def dm(payload: Any, *, kind: str = "message", sender: str = "alice", raw: str | None = None) -> Envelope:
    meta = {"id": ID, "from": sender, "channel": "direct", "to": "bob", "timestamp": "2026-01-01T00:00:00Z"}
    text = json.dumps({"meta": meta | {"kind": kind}, "payload": "PAYLOAD"})
    return parse(text.replace('"PAYLOAD"', json.dumps(payload) if raw is None else raw).encode())


def told(judged: Judgement) -> tuple[str | None, str | None]:
    """A refusal's code and the channel that it goes to."""
    assert isinstance(judged, Work)
    assert isinstance(judged.request, Refuse)
    assert judged.request.outcome.status == "error"
    assert judged.request.outcome.error
    return judged.request.outcome.code, judged.reply_channel


START = {"action": "session_start", "session_id": "s"}


@pytest.mark.parametrize(
    ("payload", "kind", "request_type", "channel"),
    [
        ({"text": "hi"}, "human", Task, None),
        ({"prompt": "hi", "task_channel": OWN}, "message", Task, OWN),
        ({"prompt": "hi", "task_channel": None}, "message", Task, None),
        ({"prompt": "hi", "task_id": ID}, "message", Task, None),
        ({"prompt": "hi", "action": "cancel"}, "message", Task, None),
        (START, "control", Start, "session.s"),
        (START, "message", Start, "session.s"),
        (START | {"channel": "session.t"}, "control", Start, "session.t"),
        (START | {"session_channel": "session.u", "channel": "session.t"}, "control", Start, "session.u"),
        ({"action": "session_send", "session_id": "s", "message": "x"}, "control", Send, "session.s"),
        ({"action": "session_close", "session_id": "s"}, "message", Close, "session.s"),
    ],
)
def test_what_asks_for_work_is_work_and_answered_where_it_said(
    payload: Any, kind: str, request_type: type, channel: str | None
) -> None:
    judged = classify(dm(payload, kind=kind), ALL)
    assert isinstance(judged, Work)
    assert (type(judged.request), judged.reply_channel) == (request_type, channel)


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        ("hi", "status"),
        ({"prompt": "hi"}, "event"),
        (START, "status"),
        ({"action": "reboot"}, "control"),
        ({"action": ["session_start"]}, "control"),
        ("hi", "control"),
        ({"task_id": "x", "status": "done", "result": "ping"}, "message"),  # a result: no ping-pong
        ({"action": "cancel"}, "control"),
        ({"action": "cancel", "task_id": "a b"}, "control"),
        ({"action": "cancel", "task_id": 7}, "control"),
        ({"action": "cancel", "task_id": "x", "wave_id": "a.b"}, "control"),
    ],
)
def test_what_asks_for_nothing_gets_no_answer(payload: Any, kind: str) -> None:
    judged = classify(dm(payload, kind=kind), ALL)
    assert isinstance(judged, Ignored)
    assert not judged.is_suspicious


@pytest.mark.parametrize(
    ("payload", "sender", "policy", "code", "channel"),
    [
        (None, "alice", ALL, "bad_request", None),
        ("hi", "alice", ALL, "bad_request", None),
        ({"prompt": 7, "task_channel": OWN}, "alice", ALL, "bad_request", OWN),
        ({"prompt": "x", "task_channel": "task.victim"}, "alice", ALL, "bad_request", None),
        ({"prompt": "x", "task_channel": 5}, "alice", ALL, "bad_request", None),
        ({"prompt": "x", "task_channel": OWN}, "mallory", CHOSEN, "rejected", OWN),
        (START | {"session_id": "a.b"}, "alice", ALL, "bad_request", None),
        ({"action": "session_start"}, "alice", ALL, "bad_request", None),
        (START | {"wave_id": "a b"}, "alice", ALL, "bad_request", None),
        (START | {"session_channel": "wave.w.task.s"}, "alice", ALL, "bad_request", None),
        (START | {"session_channel": "inbox.carol"}, "alice", ALL, "bad_request", None),
        (START | {"session_channel": "general"}, "alice", ALL, "bad_request", None),
        (START | {"session_channel": f"task.{ID}"}, HUB, ALL, "bad_request", None),
        (START | {"prompt": 5}, "alice", ALL, "bad_request", "session.s"),
        (START | {"cwd": ["x"]}, "alice", ALL, "bad_request", "session.s"),
        (START | {"timeout_secs": -1}, "alice", ALL, "bad_request", "session.s"),
        (START | {"timeout_secs": True}, "alice", ALL, "bad_request", "session.s"),
        (START | {"verify_cmd": "true"}, "alice", ALL, "rejected", "session.s"),
        (START, "mallory", CHOSEN, "rejected", "session.s"),
        (START | {"orchestrator": "alice"}, "mallory", CHOSEN, "rejected", "session.s"),
        (START | {"orchestrator": "mallory"}, HUB, CHOSEN, "rejected", "session.s"),
        ({"action": "session_send", "session_id": "s"}, "alice", ALL, "bad_request", "session.s"),
        ({"action": "session_send", "session_id": "s", "message": 1}, "alice", ALL, "bad_request", "session.s"),
    ],
)
def test_what_cannot_or_may_not_be_done_is_refused_with_its_code_where_the_sender_listens(
    payload: Any, sender: str, policy: Policy, code: str, channel: str | None
) -> None:
    assert told(classify(dm(payload, sender=sender), policy)) == (code, channel)


@pytest.mark.parametrize("value", ["1e999", '"\\ud800"', "[" * 200 + "]" * 200, "12345678901234567890123"])
def test_a_payload_that_json_cannot_carry_is_refused_on_the_channel_that_can_still_be_read(value: str) -> None:
    raw = f'{{"task_channel": "{OWN}", "prompt": "x", "more": {value}}}'
    code, channel = told(classify(dm(None, raw=raw), ALL))
    assert code == "bad_request"
    assert channel in {OWN, None}, "never one that is not its own"


@pytest.mark.parametrize(
    ("sender", "policy"), [("alice", CHOSEN), (HUB, CHOSEN), ("bob", ALL)], ids=["accepted", "wave's owner", "all"]
)
def test_those_who_are_accepted_start_sessions(sender: str, policy: Policy) -> None:
    judged = classify(dm(START | {"orchestrator": "alice"}, sender=sender), policy)
    assert isinstance(judged, Work)
    assert isinstance(judged.request, Start)


def test_a_command_from_the_wire_runs_only_where_the_operator_allows_it() -> None:
    judged = classify(dm(START | {"verify_cmd": "true"}), COMMANDS)
    assert isinstance(judged, Work)
    assert isinstance(judged.request, Start)


def test_a_wave_s_channel_is_the_hub_s_to_name() -> None:
    judged = classify(dm(START | {"session_channel": "wave.w.task.s", "wave_id": "w"}, sender=HUB), ALL)
    assert isinstance(judged, Work)
    assert judged.reply_channel == "wave.w.task.s"
    assert isinstance(judged.request, Start)
    assert judged.request.wave_id == "w"


def test_an_attempt_s_number_is_no_part_of_a_start_s_content() -> None:
    digests = []
    for more in ({"attempt": 1}, {"attempt": 2}, {"prompt": "x"}):
        judged = classify(dm(START | more), ALL)
        assert isinstance(judged, Work)
        assert isinstance(judged.request, Start)
        digests.append(judged.request.digest)
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize(
    ("sender", "more", "whose"),
    [
        ("alice", {}, "alice"),
        ("alice", {"from": "alice"}, "alice"),
        ("alice", {"from": "carol"}, None),
        ("alice", {"from": 5}, None),
        ("alice", {"wave_id": "w"}, "alice"),
        (HUB, {"from": "carol"}, "carol"),
        (HUB, {"wave_id": "w"}, HUB),
        (HUB, {"wave_id": "w", "from": "carol"}, HUB),
        (HUB, {}, None),
        (HUB, {"from": "a b"}, None),
    ],
)
def test_a_cancel_is_of_its_sender_s_own_task_or_the_hub_says_whose(
    sender: str, more: dict[str, Any], whose: str | None
) -> None:
    judged = classify(dm({"action": "cancel", "task_id": "t"} | more, kind="control", sender=sender), ALL)
    if whose is None:
        assert isinstance(judged, Ignored)
        assert judged.is_suspicious == (sender != HUB)
    else:
        assert judged == Cancel(requested_by=sender, sender=whose, task_id="t", wave_id=more.get("wave_id"))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
_WORD = st.sampled_from(
    ["alice", "carol", "s", "w", ID, "task.victim", OWN, "session.s", "wave.w.task.s", "inbox.x", ""]
)
_PAYLOAD = _JSON | st.fixed_dictionaries(
    {},
    optional={
        "action": st.sampled_from(["session_start", "session_send", "session_close", "cancel", "x"]) | _JSON,
        **dict.fromkeys(
            ("session_id", "wave_id", "session_channel", "channel", "task_channel", "task_id", "status"), _WORD | _JSON
        ),
        **dict.fromkeys(("from", "prompt", "message", "verify_cmd", "orchestrator", "timeout_secs"), _WORD | _JSON),
    },
)


@given(
    payload=_PAYLOAD,
    kind=st.sampled_from(["message", "control", "human", "status", "event"]),
    sender=st.sampled_from(["alice", "mallory", HUB]),
    policy=st.builds(
        Policy, accept_from=st.sampled_from([frozenset(), frozenset({"alice"})]), runs_commands=st.booleans()
    ),
)
def test_whatever_comes_is_judged_and_nobody_gets_what_is_not_theirs(
    payload: Any, kind: str, sender: str, policy: Policy
) -> None:
    judged = classify(dm(payload, kind=kind, sender=sender), policy)
    if isinstance(judged, Cancel):
        assert kind == "control"
        assert judged.sender == sender or sender == HUB
        return
    if isinstance(judged, Ignored):
        assert kind in {"status", "event", "control"} or {"task_id", "status"} <= set(payload)
        return
    channel = judged.reply_channel
    assert channel is None or channel == OWN or channel.startswith("session.") or (
        channel.startswith("wave.") and sender == HUB
    )  # fmt: skip
    request = judged.request
    if isinstance(request, Refuse):
        return
    if isinstance(request, Start):
        assert policy.runs_commands or not payload.get("verify_cmd")
        assert sender == HUB or not policy.accept_from or sender in policy.accept_from
    if isinstance(request, Task):
        assert not policy.accept_from or sender in policy.accept_from
    # Progress goes where the result goes.
    session_id = getattr(request, "session_id", None)
    assert reply_channel_of(ID, payload, session_id) == channel
