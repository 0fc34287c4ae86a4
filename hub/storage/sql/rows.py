"""Row codec: envelopes as columns and back; what can never be stored is found here, before the database sees it."""

from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import msgspec
from sqlalchemy import Row

from hub.protocol import BadName, names
from hub.storage.records import EnvelopeRecord, NewEnvelope
from hub.storage.sql.types import from_micros, maybe_bytes, maybe_text, to_micros

KINDS: Final = frozenset({"message", "control", "human", "status", "event"})
ASKING_KINDS: Final = frozenset({"message", "human"})  # what waits for an answer (contract §10.1, thread.pending)
MAX_DESTINATION: Final = 2048  # `channel.` and 16 tokens of 64 characters are 1047
MAX_PAYLOAD_BYTES: Final = 512 * 1024 * 1024  # SQLite refuses 1 GB, PostgreSQL too; NATS at most 64 MB
RECORD_BYTES: Final = 220  # the names of the members of an envelope's record, its times and its punctuation


class Unstorable(ValueError):
    """This row can never be stored; the text says why."""


class _Outcome(msgspec.Struct):
    status: Any = None
    task_id: Any = None


_decode_outcome = msgspec.json.Decoder(_Outcome).decode


def envelope_values(row: NewEnvelope, now: datetime) -> dict[str, Any]:
    """The columns of an envelope.

    Raises:
        Unstorable: it breaks contract §1 in a way that a router would not have let through.
    """
    if not names.is_message_id(row.id):
        raise Unstorable(str(BadName("message id", row.id, names.MESSAGE_ID_RULE)))
    destination = row.destination
    _require_names(row.sender, row.channel, row.to, destination)
    if row.kind not in KINDS:
        raise Unstorable(f"bad kind {ascii(row.kind)[:80]}: expected one of {', '.join(sorted(KINDS))}")
    if len(row.payload) > MAX_PAYLOAD_BYTES:
        raise Unstorable(f"bad payload: expected up to {MAX_PAYLOAD_BYTES} bytes")
    reply_to = row.reply_to
    is_reply = names.is_message_id(reply_to)
    reply_text = None if is_reply else maybe_bytes(reply_to)
    weight = RECORD_BYTES + len(row.id) + len(row.sender) + len(row.channel) + len(row.to or "") + len(row.payload)
    if is_reply:
        weight += len(reply_to or "")
    elif reply_text is not None:
        weight += len(msgspec.json.encode(reply_text.decode()))
    return {
        "id": row.id,
        "sender": row.sender,
        "destination": destination,
        "channel": row.channel,
        "recipient": row.to,
        "kind": row.kind,
        "sent_at": _micros("timestamp", row.timestamp),
        "stored_at": _micros("stored_at", row.stored_at or now),
        "size": weight,
        "is_open": int(row.to is not None and row.kind in ASKING_KINDS),
        "is_error": int(row.kind == "message" and is_error_result(row.payload)),
        "reply_to": reply_to if is_reply else None,
        "reply_text": reply_text,
        "payload": bytes(row.payload),
    }


@lru_cache(maxsize=4096)  # as many conversations at once; an entry takes some 500 bytes
def _require_names(sender: str, channel: str, to: str | None, destination: str) -> None:
    try:
        names.identity(sender)
        names.channel(channel)
        if to is not None:
            names.identity(to)
    except BadName as error:
        raise Unstorable(str(error)) from None
    if not 0 < len(destination) <= MAX_DESTINATION or not _is_printable(destination):
        raise Unstorable(f"bad destination: expected up to {MAX_DESTINATION} printable ASCII characters")


def envelope_record(row: Row[Any]) -> EnvelopeRecord:
    """An envelope of its columns."""
    return EnvelopeRecord(
        id=row.id,
        sender=row.sender,
        channel=row.channel,
        to=row.recipient,
        timestamp=from_micros(row.sent_at),
        kind=row.kind,
        reply_to=row.reply_to if row.reply_text is None else maybe_text(row.reply_text),
        payload=msgspec.Raw(row.payload),
        stored_at=from_micros(row.stored_at),
    )


def is_error_result(payload: bytes) -> bool:
    """Is this the payload of a result with the status `error` (contract §7)?"""
    if b'"error"' not in payload or b'"task_id"' not in payload:
        return False
    try:
        outcome = _decode_outcome(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return outcome.status == "error" and isinstance(outcome.task_id, str)


def _micros(what: str, moment: datetime) -> int:
    if moment.tzinfo is None:
        raise Unstorable(f"bad {what}: expected a time with an offset")
    return to_micros(moment)


def _is_printable(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text
