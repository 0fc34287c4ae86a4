"""Requests: what the intake's classification makes of an envelope, for the mailbox to carry out."""

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from hub.mailbox.records import Outcome


class Task(msgspec.Struct, frozen=True):
    """A task of its own."""


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """A session's start; one that the session's starter sends again is an alias (contract §8, C3).

    Attributes:
        session_id: the session's id.
        wave_id: the wave's id, `""` for none.
        payload_json: the start's payload, kept with the session.
        digest: of its content, see `content_digest`.
    """

    session_id: str
    wave_id: str
    payload_json: bytes
    digest: bytes


class Send(msgspec.Struct, frozen=True, kw_only=True):
    """A further turn of a session.

    Attributes:
        session_id: the session's id.
        wave_id: the wave's id, `""` for none; None when the sender did not say.
    """

    session_id: str
    wave_id: str | None = None


class Close(msgspec.Struct, frozen=True, kw_only=True):
    """A session's end: what waits is cancelled, what runs is waited for, then a turn of kind `close` can be claimed."""

    session_id: str
    wave_id: str | None = None


class Refuse(msgspec.Struct, frozen=True):
    """Answered at once, never run: bad payload, sender not accepted, …

    Attributes:
        outcome: what the sender is told.
    """

    outcome: Outcome


Request = Task | Start | Send | Close | Refuse


class Cancel(msgspec.Struct, frozen=True, kw_only=True):
    """A cancel (contract §7), already judged: `requested_by` may cancel tasks of `sender`.

    Attributes:
        requested_by: who sent the cancel; its memory of early ones is limited by this name.
        sender: the task's sender (a wave's: the starter of its session).
        task_id: any envelope id that stands for the turn; with `wave_id` also the wave's task id.
        wave_id: the wave, when the cancel names one.
    """

    requested_by: str
    sender: str
    task_id: str
    wave_id: str | None = None


def content_digest(payload: Mapping[str, Any]) -> bytes:
    """What two starts of one session must share: the payload without `attempt`, whatever the order of its members."""
    content = {name: value for name, value in payload.items() if name != "attempt"}
    return hashlib.sha256(msgspec.json.encode(content, order="sorted")).digest()
