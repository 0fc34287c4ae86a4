"""The line that shows an envelope to people. Pure."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from hub.cli.output import harmless
from hub.protocol import BadPayload, Envelope
from hub.protocol.results import TERMINAL_STATUSES, text_of

MOST_SHOWN: Final = 2000  # characters of a payload; `--json` shows all of it


def envelope_line(envelope: Envelope, *, at: datetime, most: int = MOST_SHOWN) -> str:
    """`21:30:01  alice → bob  room  message  the text  id=…`: one line, whatever is in the message.

    Args:
        envelope: as the router sent it; its sender and channel are the subject's.
        at: when it came, in the zone to show.
        most: how many characters of the payload are shown.
    """
    meta = envelope.meta
    whom = f" → {meta.to}" if meta.to is not None else ""
    try:
        shown = gist(envelope.payload)
    except BadPayload as error:
        shown = f"(payload refused: {error})"
    if len(shown) > most:
        shown = f"{shown[:most]}… ({len(envelope.payload_json)} bytes)"
    reply = f" reply_to={meta.reply_to}" if meta.reply_to is not None else ""
    line = f"{at:%H:%M:%S}  {meta.sender}{whom}  {meta.channel}  {meta.kind}  {shown}  id={meta.id}{reply}"
    return harmless(line)


def gist(payload: Any) -> str:
    """What a payload says, for people: a task's text, a result, a step of progress; else its JSON."""
    if isinstance(payload, Mapping):
        status, text = payload.get("status"), text_of(payload)
        if isinstance(status, str) and status in TERMINAL_STATUSES and ("result" in payload or "error" in payload):
            detail = _json(payload.get("result")) if status == "done" else payload.get("error")
            code = payload.get("code")
            return f"{status}{f' ({code})' if code else ''}: {detail}"
        if isinstance(status, str) and set(payload) <= {"status", "for"}:
            return status
        if isinstance(payload.get("event_type"), str):
            data = payload.get("data")
            return f"{payload['event_type']}{f' {_json(data)}' if data else ''}"
        if text is not None and set(payload) <= {"prompt", "text", "command", "message", "task_channel"}:
            return text
    return payload if isinstance(payload, str) else _json(payload)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
