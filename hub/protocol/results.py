"""Payloads of delegated work: tasks, their progress and their one result (contract §7)."""

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from hub.protocol import names
from hub.protocol.envelope import Envelope

Status = Literal["done", "error", "cancelled"]
ErrorCode = Literal[
    "handler_error", "timeout", "interrupted", "verify_failed", "bad_request", "rejected", "too_large", "undelivered"
]
"""The words of contract §7, and `undelivered`: what a delegator makes of the router's word that its task could not be
delivered (§3.3); no worker sends it."""

TERMINAL_STATUSES: Final[frozenset[str]] = frozenset({"done", "error", "cancelled"})
PROGRESS_STATUSES: Final[frozenset[str]] = frozenset({"queued", "ready", "working", "idle", "closed"})
TEXT_MEMBERS: Final = ("prompt", "text", "command", "message")  # contract §7: the first that holds a string wins


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The one terminal message of a task.

    Attributes:
        status: how it ended.
        task_id: the task's envelope id.
        result: any JSON value on `done`, else None.
        error: what went wrong, for people, on `error`; `"cancelled"` on `cancelled`.
        code: on `error`, which kind of error.
        verify: `passed` or `failed` when a verification ran.
        message_id: the result envelope's id, fixed when the turn ended.
    """

    status: str
    task_id: str
    result: Any = None
    error: str | None = None
    code: str | None = None
    verify: str | None = None
    message_id: str | None = None


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """One progress message; it is for people, may be dropped or merged, and decides nothing.

    Attributes:
        type: `status`, or the event's type (`started`, `progress`, `stdout`, `milestone`, …).
        data: for `status` `{"status": …}`, else the event's data.
    """

    type: str
    data: Mapping[str, Any]


def task_payload(prompt: str, envelope_id: str, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The payload of a task that is answered on its own channel.

    Args:
        prompt: what the worker is to do.
        envelope_id: the id of the envelope that will carry it; the task channel follows from it.
        extra: more members for the handler; `prompt` and `task_channel` are the protocol's and win.
    """
    return {**(extra or {}), "prompt": prompt, "task_channel": names.task_channel(envelope_id)}


def cancel_payload(task_id: str) -> dict[str, str]:
    """The payload of a cancel (kind `control`) for one of the sender's own tasks."""
    return {"action": "cancel", "task_id": task_id}


def text_of(payload: Any) -> str | None:
    """The text of a task: the first string under `prompt`, `text`, `command`, `message`; None when there is none."""
    if not isinstance(payload, Mapping):
        return None
    return next((payload[name] for name in TEXT_MEMBERS if isinstance(payload.get(name), str)), None)


def is_result_payload(payload: Any) -> bool:
    """Is this a result, and so no task (contract §7: no ping-pong)?"""
    return isinstance(payload, Mapping) and "task_id" in payload and "status" in payload


def read_result(envelope: Envelope, payload: Any, *, task_id: str, worker: str, delegator: str) -> Result | None:
    """Take an envelope of a task channel as the task's result, or not at all.

    Args:
        envelope: what came on the channel.
        payload: its decoded payload.
        task_id: the task's envelope id.
        worker: the identity that the task was delegated to.
        delegator: the identity that delegated it.

    Returns:
        The result when it is this task's: a `message` from the worker, for the delegator, with a terminal status, and
        with `reply_to` or `task_id` the task's id. None for anything else: another's words decide nothing.
    """
    meta = envelope.meta
    if meta.kind != "message" or meta.sender != worker or not isinstance(payload, Mapping):
        return None
    status = payload.get("status")
    if not isinstance(status, str) or status not in TERMINAL_STATUSES or payload.get("for") != delegator:
        return None
    if meta.reply_to != task_id and payload.get("task_id") != task_id:
        return None
    return Result(
        status=status,
        task_id=task_id,
        result=payload.get("result") if status == "done" else None,
        error=_text(payload.get("error")),
        code=_text(payload.get("code")),
        verify=_text(payload.get("verify")),
        message_id=meta.id,
    )


def read_progress(envelope: Envelope, payload: Any, *, task_id: str, worker: str, delegator: str) -> Progress | None:
    """Take an envelope of a task channel as progress of this task; None when it is none."""
    meta = envelope.meta
    if meta.sender != worker or meta.reply_to != task_id or not isinstance(payload, Mapping):
        return None
    if payload.get("for", delegator) != delegator:
        return None
    if meta.kind == "status" and isinstance(payload.get("status"), str):
        return Progress(type="status", data={"status": payload["status"]})
    if meta.kind == "event" and isinstance(payload.get("event_type"), str):
        data = payload.get("data")
        return Progress(type=payload["event_type"], data=data if isinstance(data, Mapping) else {})
    return None


def _text(value: object) -> str | None:
    """A text member of a result as others sent it: anything else is taken as its JSON text rather than trusted."""
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()
