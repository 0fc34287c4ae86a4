"""A look into the hub's history for what has left the stored channel (contract §7, §10)."""

from datetime import datetime
from typing import Any, Final

import msgspec
import structlog

from hub.delivery.connection import Connection
from hub.delivery.errors import DeliveryError
from hub.delivery.sieve import Sifted, fits
from hub.protocol import BadPayload, Envelope, Meta, names, subjects
from hub.protocol.envelope import Kind

log = structlog.get_logger(__name__)

LONGEST_SECS: Final = 5.0  # for one page; the API answers from an index
PAGE: Final = 100
MOST_PAGES: Final = 20  # a channel's first 8 characters of an id are shared by few tasks


class _Record(msgspec.Struct, rename={"sender": "from"}):
    id: str
    sender: str
    channel: str
    timestamp: datetime
    kind: Kind
    to: str | None = None
    reply_to: str | None = None
    payload: msgspec.Raw = msgspec.Raw(b"null")


class _Data(msgspec.Struct):
    envelopes: list[_Record]
    next_cursor: str | None = None


class _Answer(msgspec.Struct):
    ok: bool
    data: _Data | None = None
    error: str = ""


_decode: Final = msgspec.json.Decoder(_Answer).decode


async def find_messages(connection: Connection, identity: str, *, channel: str, sender: str) -> list[Sifted] | None:
    """The messages of one sender on a channel that the hub's history knows, oldest first; None when it cannot say.

    A hub without an API, without storage or with trouble cannot say; that decides nothing, and may be over soon.

    Args:
        connection: the connection.
        identity: who asks.
        channel: the channel.
        sender: whose messages.
    """
    found: list[Sifted] = []
    params: dict[str, Any] = {"channel": channel, "from": sender, "kind": "message", "limit": PAGE}
    for _ in range(MOST_PAGES):
        try:
            data = await _ask(connection, identity, params)
        except (DeliveryError, msgspec.DecodeError, UnicodeDecodeError) as error:
            log.debug("history does not answer", channel=channel, error=str(error))
            return None
        if data is None:
            return None
        found += [sifted for record in data.envelopes if (sifted := _sift(record, channel)) is not None]
        if data.next_cursor is None:
            break
        params["cursor"] = data.next_cursor
    return found[::-1]


async def _ask(connection: Connection, identity: str, params: dict[str, Any]) -> _Data | None:
    subject = subjects.api(names.identity(identity), "history.query")
    message = await connection.request(subject, msgspec.json.encode({"params": params}), timeout_secs=LONGEST_SECS)
    answer = _decode(message.data)
    if not answer.ok:
        log.info("history refused", error=answer.error)
    return answer.data if answer.ok else None


def _sift(record: _Record, channel: str) -> Sifted | None:
    """A record as the message that it was; None when that is not one of this channel that a receiver may act on."""
    meta = Meta(
        id=record.id,
        sender=record.sender,
        channel=record.channel,
        to=record.to,
        timestamp=record.timestamp,
        kind=record.kind,
        reply_to=record.reply_to,
    )
    envelope = Envelope(meta, bytes(record.payload), b"")
    try:
        return Sifted(envelope, envelope.payload) if fits(subjects.channel(channel), meta) else None
    except BadPayload as error:
        log.info("ignored in history", id=ascii(record.id)[:130], error=str(error))
        return None
