"""The classifier: what a direct message asks of a worker, and whether its sender may ask it (contract §7..§9). Pure."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hub.mailbox import Cancel, Close, Outcome, Refuse, Request, Send, Start, Task, content_digest
from hub.protocol import BadName, BadPayload, Envelope, encode_payload, names
from hub.protocol.results import is_result_payload, text_of

SESSION_ACTIONS: Final = frozenset({"session_start", "session_send", "session_close"})


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What this worker lets others do.

    Attributes:
        accept_from: identities whose work is taken; empty is everybody. For a wave's start the wave's owner counts.
        runs_commands: a `verify_cmd` from the wire may run: the handler runs commands anyway, or the operator said so.
    """

    accept_from: frozenset[str] = frozenset()
    runs_commands: bool = False


class Work(msgspec.Struct, frozen=True):
    """Something that gets exactly one result.

    Attributes:
        request: what the mailbox is to make of it.
        reply_channel: where its result and progress go; None: a direct message to its sender, and no progress.
    """

    request: Request
    reply_channel: str | None = None


class Ignored(msgspec.Struct, frozen=True):
    """Something that gets no answer.

    Attributes:
        reason: why, for the log.
        is_suspicious: worth a warning: somebody asked for what is not theirs.
    """

    reason: str
    is_suspicious: bool = False


Judgement = Work | Cancel | Ignored


def classify(envelope: Envelope, policy: Policy) -> Judgement:
    """Decide what a direct message is.

    Args:
        envelope: the message; its payload is decoded here.
        policy: what this worker lets others do.
    """
    kind = envelope.meta.kind
    if kind in {"status", "event"}:
        return Ignored(f"kind {kind} asks for nothing")
    try:
        payload = envelope.payload
    except BadPayload as error:
        return _refuse("bad_request", str(error), _channel_of_bad(envelope))
    action = payload.get("action") if isinstance(payload, Mapping) else None
    if isinstance(action, str) and action in SESSION_ACTIONS and kind in {"control", "message"}:
        return _session(envelope, payload, action, policy)
    if kind == "control":
        return _cancel(envelope, payload) if action == "cancel" else Ignored(f"unknown control {ascii(action)[:60]}")
    if is_result_payload(payload):
        return Ignored("a result is no task")
    return _task(envelope, payload, policy)


def _task(envelope: Envelope, payload: Any, policy: Policy) -> Work:
    sender, envelope_id = envelope.meta.sender, envelope.meta.id
    named = payload.get("task_channel") if isinstance(payload, Mapping) else None
    if named is not None:
        try:
            own = names.task_channel(envelope_id)
        except BadName as error:
            return _refuse("bad_request", str(error))
        if named != own:
            return _refuse(
                "bad_request", f"expected task_channel {own} (it follows from the id), got {ascii(named)[:80]}"
            )
    if not _is_accepted(sender, policy):
        return _refuse("rejected", f"this worker takes no tasks from {sender}", named)
    if text_of(payload) is None:
        expected = "expected text under prompt, text, command or message, got none"
        return _refuse("bad_request", expected, named)
    return Work(Task(), named)


class _TaskHead(msgspec.Struct):
    task_channel: str | None = None


def _channel_of_bad(envelope: Envelope) -> str | None:
    """Where the sender of a payload that cannot be taken waits for its answer, as far as that can be read."""
    try:
        named = msgspec.json.decode(envelope.payload_json, type=_TaskHead).task_channel
        return named if named == names.task_channel(envelope.meta.id) else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, BadName):
        return None


def reply_channel_of(envelope_id: str, payload: Any, session_id: str | None) -> str | None:
    """Where progress of an accepted envelope goes; None: nowhere, its result is a direct message."""
    if session_id is not None:
        named = payload.get("session_channel")
        named = payload.get("channel") if named is None else named
        return f"session.{session_id}" if named is None else str(named)
    is_named = isinstance(payload, Mapping) and payload.get("task_channel") is not None
    return names.task_channel(envelope_id) if is_named else None


def _session(envelope: Envelope, payload: Mapping[str, Any], action: str, policy: Policy) -> Work:
    sender = envelope.meta.sender
    try:
        session_id = names.token(payload.get("session_id"), "session_id")
        wave_id = payload.get("wave_id")
        if wave_id is not None:
            names.token(wave_id, "wave_id")
        channel = _session_channel(payload, session_id, sender)
    except BadName as error:
        return _refuse("bad_request", str(error))
    if action == "session_close":
        return Work(Close(session_id=session_id, wave_id=wave_id), channel)
    if action == "session_send":
        if not isinstance(payload.get("message"), str):
            return _refuse("bad_request", "expected text under message, got none", channel)
        return Work(Send(session_id=session_id, wave_id=wave_id), channel)
    refusal = _refusal_of_start(payload, sender, policy)
    if refusal is not None:
        return Work(Refuse(refusal), channel)
    start = Start(
        session_id=session_id,
        wave_id=wave_id or "",
        payload_json=encode_payload(payload),
        digest=content_digest(payload),
    )
    return Work(start, channel)


def _session_channel(payload: Mapping[str, Any], session_id: str, sender: str) -> str:
    """The channel that a session's message named; a wave's only from the hub (a worker publishes on it)."""
    named = payload.get("session_channel")
    if named is None:
        named = payload.get("channel")
    if named is None:
        return names.channel(f"session.{session_id}")
    channel = names.channel(named)
    first = channel.partition(".")[0]
    if first == "session" or (first == "wave" and sender == names.HUB_IDENTITY):
        return channel
    raise BadName("session_channel", named, f"a session.<id> channel (a wave's is {names.HUB_IDENTITY}'s to name)")


def _refusal_of_start(payload: Mapping[str, Any], sender: str, policy: Policy) -> Outcome | None:
    owner = payload.get("orchestrator") if sender == names.HUB_IDENTITY else sender
    if not _is_accepted(owner if isinstance(owner, str) else sender, policy):
        return Outcome.failed("rejected", f"this worker takes no sessions from {ascii(owner)[:80]}")
    for member in ("prompt", "cwd", "model", "provider", "verify_cmd", "handoff_path"):
        value = payload.get(member)
        if value is not None and not isinstance(value, str):
            return Outcome.failed("bad_request", f"expected text under {member}, got {type(value).__name__}")
    timeout_secs = payload.get("timeout_secs")
    if timeout_secs is not None and not is_timeout(timeout_secs):
        return Outcome.failed("bad_request", f"expected seconds under timeout_secs, got {ascii(timeout_secs)[:80]}")
    if payload.get("verify_cmd") and not policy.runs_commands:
        return Outcome.failed("rejected", "this worker runs no verify_cmd; its operator allows it with --allow-verify")
    return None


def is_timeout(value: Any) -> bool:
    """Is this a timeout in seconds? 0 is the handler's own."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _cancel(envelope: Envelope, payload: Mapping[str, Any]) -> Cancel | Ignored:
    sender, task_id, wave_id = envelope.meta.sender, payload.get("task_id"), payload.get("wave_id")
    if not names.is_message_id(task_id):
        return Ignored("a cancel without a task_id")
    if wave_id is not None and not names.is_token(wave_id):
        return Ignored("a cancel with a bad wave_id")
    whose = payload.get("from")
    if sender != names.HUB_IDENTITY:
        if whose not in {None, sender}:
            return Ignored(f"{sender} asks to cancel a task of {ascii(whose)[:80]}", is_suspicious=True)
        return Cancel(requested_by=sender, sender=sender, task_id=str(task_id), wave_id=wave_id)
    if wave_id is not None:
        return Cancel(requested_by=sender, sender=sender, task_id=str(task_id), wave_id=wave_id)
    if not names.is_token(whose):
        return Ignored(f"a cancel of {names.HUB_IDENTITY} says neither whose task it is nor which wave's")
    return Cancel(requested_by=sender, sender=str(whose), task_id=str(task_id))


def _is_accepted(sender: str, policy: Policy) -> bool:
    return not policy.accept_from or sender in policy.accept_from


def _refuse(code: str, error: str, channel: str | None = None) -> Work:
    return Work(Refuse(Outcome.failed(code, error)), channel)
