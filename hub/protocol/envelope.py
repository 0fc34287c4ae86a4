"""Codec of envelopes: what every message on the hub's subjects is made of (contract §1).

Decoding is shallow: the payload stays the bytes that came, so that a router never pays for, changes or judges it.
`Envelope.payload` decodes and judges it, for those who act on it.
"""

from datetime import UTC, datetime
from typing import Any, Final, Literal, get_args

import msgspec
from msgspec import UNSET, Raw, UnsetType

from hub.protocol import names, scanner
from hub.protocol.errors import BadEnvelope
from hub.protocol.payload import decode_payload, encode_payload

Kind = Literal["message", "control", "human", "status", "event"]
KINDS: Final[tuple[str, ...]] = get_args(Kind)


class Meta(msgspec.Struct, frozen=True, gc=False):
    """The head of an envelope. `sender` is `meta.from` on the wire; `timestamp` is aware, in whatever offset came."""

    id: str
    sender: str
    channel: str
    timestamp: datetime
    kind: Kind
    to: str | None = None
    reply_to: str | None = None


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """One message.

    Attributes:
        meta: its head.
        payload_json: the payload's bytes, exactly as they came (`null` when it had none).
        body: the whole message, exactly as it came or goes out.
    """

    meta: Meta
    payload_json: bytes
    body: bytes

    @property
    def payload(self) -> Any:
        """The payload as Python values, decoded anew at each access.

        Raises:
            BadPayload: it holds what receivers refuse (a number out of range, a lone surrogate, nesting deeper than
                128); the error names the path.
        """
        return decode_payload(self.payload_json)


class _WireMeta(msgspec.Struct, rename={"sender": "from"}, gc=False):
    """`Meta` as it is decoded: "absent" and "null" are told apart, to count the members that stood there."""

    id: str
    sender: str
    channel: str
    timestamp: datetime
    kind: Kind
    to: str | UnsetType | None = UNSET
    reply_to: str | UnsetType | None = UNSET


class _Wire(msgspec.Struct, gc=False):
    meta: _WireMeta
    payload: Raw = Raw(b"")


_decode_wire = msgspec.json.Decoder(_Wire).decode

_MOST_DETAIL: Final = 200  # characters of a complaint that quotes what came, which may be megabytes
_FIXED_QUOTES: Final = 2 + 5 * 4  # "meta" and the five required members, names and values


def parse(body: bytes) -> Envelope:
    """Decode a message as a router does: the head is checked, the payload is only known to be JSON.

    Args:
        body: the message's bytes.

    Returns:
        The envelope. `meta.to` is not validated: a wrong one is the router's `bad_recipient`.

    Raises:
        BadEnvelope: undecodable (contract §1): not UTF-8, not JSON, a required member missing or mistyped, a member
            of the envelope or of `meta` twice, an unknown kind, a timestamp without offset, too deep to parse.
    """
    try:
        return _parse(body, body)
    except BadEnvelope:
        # A lone surrogate in the payload is legal JSON text that the decoder does not take; it is the receiver's to
        # refuse. U+FFFD takes its place meanwhile, which no id and no name may hold either.
        masked = scanner.mask_lone_surrogates(body)
        if masked is None:
            raise
        return _parse(masked, body)


def _parse(text: bytes, body: bytes) -> Envelope:
    """Decode `text`, which is `body` or `body` with its lone surrogates masked (same length, same members)."""
    try:
        wire = _decode_wire(text)
        if not text.isascii():
            text.decode()
    except msgspec.ValidationError as error:
        raise _from_validation(error) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadEnvelope("$", f"expected UTF-8 JSON text, got something else ({error})") from None
    except RecursionError:
        raise scanner.too_deep("$") from None
    head, payload_json = wire.meta, bytes(wire.payload)
    # Every quotation mark outside the payload belongs to a member that was decoded, unless a member stands there
    # twice, is unknown, or holds an escaped one. All of these only ever add marks, so that none can hide another;
    # where the count is met, no member stands there twice.
    quotes = _FIXED_QUOTES + (2 if payload_json else 0)
    to, reply_to = head.to, head.reply_to
    if to is UNSET:
        to = None
    else:
        quotes += 2 if to is None else 4
    if reply_to is UNSET:
        reply_to = None
    else:
        quotes += 2 if reply_to is None else 4
    start = len(text) - 1 - len(payload_json)
    if text.startswith(payload_json, start):  # as nearly everybody writes it: the payload is the last member
        found = text.count(b'"', 0, start)
    else:
        found = text.count(b'"') - payload_json.count(b'"')
    if found != quotes:
        outer = scanner.members(text, "$")
        scanner.members(bytes(outer["meta"]), "$.meta")
    if payload_json and text is not body:
        start, end = scanner.spans(text, scanner.members(text, "$"))["payload"]
        payload_json = body[start:end]
    if not names.is_message_id(head.id):
        raise BadEnvelope("$.meta.id", f"expected {names.MESSAGE_ID_RULE}, got {ascii(head.id)[:80]}")
    _require_instant(head.timestamp)
    meta = Meta(head.id, head.sender, head.channel, head.timestamp, head.kind, to, reply_to)
    return Envelope(meta, payload_json or b"null", body)


def _require_instant(timestamp: datetime) -> None:
    """Refuse a time without offset, and one that is no instant in the years 1 to 9999 of UTC."""
    if timestamp.tzinfo is None:
        raise BadEnvelope("$.meta.timestamp", "expected RFC 3339 with an offset, got a time without one")
    if timestamp.year in {1, 9999}:
        try:
            timestamp.astimezone(UTC)
        except OverflowError:
            raise BadEnvelope("$.meta.timestamp", "expected a year from 1 to 9999 in UTC") from None


def _from_validation(error: msgspec.ValidationError) -> BadEnvelope:
    """The decoder's complaint as ours: `Expected `str`, got `int` - at `$.meta.id`` has the path at its end."""
    detail, found, where = str(error).rpartition(" - at `")
    if not found:
        return BadEnvelope("$", str(error))
    return BadEnvelope(where.rstrip("`"), ascii(detail[:_MOST_DETAIL])[1:-1])


def stamp(envelope: Envelope, sender: str, channel: str) -> Envelope:
    """The envelope as the router passes it on: `meta.from` and `meta.channel` are the subject's (contract §3, 3).

    Everything else goes through byte by byte, unknown members included; an honest envelope is returned as it is.

    Args:
        envelope: a parsed envelope.
        sender: the subject's identity, validated.
        channel: the subject's channel, validated.

    Raises:
        BadEnvelope: nested so deeply that it could just be parsed, but not here, further down the stack.
    """
    meta = envelope.meta
    if meta.sender == sender and meta.channel == channel:
        return envelope
    body = envelope.body
    text = scanner.mask_lone_surrogates(body) or body
    outer = scanner.members(text, "$")
    offset, end = scanner.spans(text, outer)["meta"]
    head = text[offset:end]
    spans = scanner.spans(head, scanner.members(head, "$.meta"))
    parts: list[bytes] = []
    position = 0
    for (start, end), name in sorted([(spans["from"], sender), (spans["channel"], channel)]):
        parts += [body[position : offset + start], b'"', name.encode(), b'"']
        position = offset + end
    parts.append(body[position:])
    stamped = msgspec.structs.replace(meta, sender=sender, channel=channel)
    return Envelope(stamped, envelope.payload_json, b"".join(parts))


def format_time(moment: datetime) -> str:
    """An aware time as the wire has it: UTC, microseconds, `Z`; always 27 characters, so that texts sort as times.

    Raises:
        BadEnvelope: a time without offset, or one outside the years 1 to 9999 of UTC.
    """
    _require_instant(moment)
    return f"{moment.astimezone(UTC).isoformat(timespec='microseconds').removesuffix('+00:00')}Z"


def make(
    *,
    sender: str,
    channel: str,
    payload: Any = None,
    to: str | None = None,
    kind: Kind = "message",
    reply_to: str | None = None,
    id: str | None = None,  # noqa: A002 - the wire's name
    timestamp: datetime | None = None,
) -> Envelope:
    """Make an envelope to send; everything is checked as receivers will.

    Args:
        sender: the sender's identity.
        channel: the channel; for a direct message what the recipient should see as its channel.
        payload: any JSON value (None, bool, int, float, str, list or tuple, dict with text keys).
        to: the recipient's identity for a direct message.
        kind: what the message is.
        reply_to: the id of the message that this one answers.
        id: the message id; a fresh UUID v4 when None.
        timestamp: an aware time; now when None.

    Raises:
        BadName: a name breaks its rule.
        BadPayload: the payload cannot be sent; the error names the path.
        BadEnvelope: an unknown kind, or a timestamp without offset.
    """
    if kind not in KINDS:
        raise BadEnvelope("$.meta.kind", f"expected {', '.join(KINDS[:-1])} or {KINDS[-1]}, got {ascii(kind)[:80]}")
    moment = datetime.now(UTC) if timestamp is None else timestamp
    time_text = format_time(moment)
    meta = Meta(
        id=names.new_message_id() if id is None else names.message_id(id),
        sender=names.identity(sender),
        channel=names.channel(channel),
        to=None if to is None else names.identity(to),
        timestamp=moment,
        kind=kind,
        reply_to=None if reply_to is None else names.message_id(reply_to),
    )
    payload_json = encode_payload(payload)
    head = {
        "id": meta.id,
        "from": meta.sender,
        "channel": meta.channel,
        "to": meta.to,
        "timestamp": time_text,
        "kind": meta.kind,
        "reply_to": meta.reply_to,
    }
    return Envelope(meta, payload_json, b'{"meta":%b,"payload":%b}' % (msgspec.json.encode(head), payload_json))
