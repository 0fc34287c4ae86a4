"""Codec of envelopes: what every message on the hub's subjects is made of (contract §1).

Decoding is shallow: the payload stays the bytes that came, so that a router never pays for, changes or judges it.
`Envelope.payload` decodes and judges it, for those who act on it.
"""

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType

from hub.protocol import names
from hub.protocol.errors import BadEnvelope
from hub.protocol.payload import decode_payload, encode_payload

Kind = Literal["message", "control", "human", "status", "event"]

if TYPE_CHECKING:
    _OptionalText: TypeAlias = str | None
else:  # on the way in, "absent" and "null" must be told apart to count members; `parse` leaves only None
    _OptionalText: TypeAlias = str | UnsetType | None


class Meta(msgspec.Struct, rename={"sender": "from"}, kw_only=True):
    """The head of an envelope. `sender` is `meta.from` on the wire; `timestamp` is aware."""

    id: str
    sender: str
    channel: str
    to: _OptionalText = UNSET  # type: ignore[assignment]
    timestamp: datetime
    kind: Kind
    reply_to: _OptionalText = UNSET  # type: ignore[assignment]


class Envelope(msgspec.Struct, frozen=True):
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


class _Wire(msgspec.Struct):
    meta: Meta
    payload: Raw = Raw(b"")


class _Key(str):
    """A member's name, counted as it is decoded."""

    __slots__ = ()


_decode_wire = msgspec.json.Decoder(_Wire).decode

_FIXED_QUOTES: Final = 2 + 5 * 4  # "meta" and the five required members, names and values
_WHITESPACE: Final = rb"[ \t\r\n]*"
_STRING: Final = rb'"(?:[^"\\]|\\.)*"'
_OPEN = re.compile(_WHITESPACE + rb"\{")
_MEMBER_NAME = re.compile(_WHITESPACE + _STRING + _WHITESPACE + rb":" + _WHITESPACE, re.DOTALL)
_COMMA = re.compile(_WHITESPACE + rb",?")
_ESCAPES = re.compile(
    rb"(?P<kept>\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    rb"|\\.",
    re.DOTALL,
)


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
        # refuse. In a name a blank takes its place, which no name may hold.
        masked = _mask_lone_surrogates(body)
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
        raise BadEnvelope("$", "nested too deeply to parse") from None
    meta = wire.meta
    payload_json = bytes(wire.payload)
    # Every quotation mark outside the payload belongs to a member that was decoded, unless a member stands there
    # twice, is unknown, or holds an escape: only then is the slow look needed.
    expected_quotes = _FIXED_QUOTES + _optional_quotes(meta) + (2 if payload_json else 0)
    is_plain = text.count(b'"') - payload_json.count(b'"') == expected_quotes
    if not is_plain or text is not body:
        outer = _member_spans(text, "$")
        start, end = outer["meta"]
        _member_spans(text[start:end], "$.meta")
        if payload_json:
            start, end = outer["payload"]
            payload_json = body[start:end]
    if not names.is_message_id(meta.id):
        raise BadEnvelope("$.meta.id", f"expected {names.MESSAGE_ID_RULE}, got {ascii(meta.id)[:80]}")
    _require_instant(meta.timestamp)
    return Envelope(meta, payload_json or b"null", body)


def _optional_quotes(meta: Meta) -> int:
    """How many quotation marks the optional members took; an absent member becomes None here, as null is."""
    quotes = 0
    to: object = meta.to
    if to is UNSET:
        meta.to = None
    else:
        quotes += 2 if to is None else 4
    reply_to: object = meta.reply_to
    if reply_to is UNSET:
        meta.reply_to = None
    else:
        quotes += 2 if reply_to is None else 4
    return quotes


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
    return BadEnvelope(where.rstrip("`"), detail) if found else BadEnvelope("$", str(error))


def _mask_lone_surrogates(body: bytes) -> bytes | None:
    """The same text with each lone surrogate escape replaced by an escaped blank; None when there is none."""
    found = False

    def mask(escape: "re.Match[bytes]") -> bytes:
        nonlocal found
        if escape.lastgroup != "lone":
            return escape.group()
        found = True
        return rb"\u0020"

    masked = _ESCAPES.sub(mask, body)
    return masked if found else None


def _member_spans(text: bytes, path: str) -> dict[str, tuple[int, int]]:
    """Where each member's value of a JSON object stands in its text: name → (start, end), in the text's order.

    Raises:
        BadEnvelope: a member stands there twice (after unescaping).
    """
    seen: list[str] = []

    def count(_type: type, name: str) -> _Key:
        seen.append(name)
        return _Key(name)

    members = msgspec.json.Decoder(dict[_Key, Raw], dec_hook=count).decode(text)
    if len(seen) != len(members):
        twice = next(name for name in members if seen.count(name) > 1)
        raise BadEnvelope(f"{path}.{twice}"[:120], "expected once, got twice")
    spans: dict[str, tuple[int, int]] = {}
    opened = _OPEN.match(text)
    assert opened is not None
    position = opened.end()
    for name, value in members.items():
        named = _MEMBER_NAME.match(text, position)
        assert named is not None
        start = named.end()
        end = start + len(value)
        spans[str(name)] = (start, end)
        after = _COMMA.match(text, end)
        assert after is not None
        position = after.end()
    return spans


def stamp(envelope: Envelope, sender: str, channel: str) -> Envelope:
    """The envelope as the router passes it on: `meta.from` and `meta.channel` are the subject's (contract §3, 3).

    Everything else goes through byte by byte, unknown members included; an honest envelope is returned as it is.

    Args:
        envelope: a parsed envelope.
        sender: the subject's identity, validated.
        channel: the subject's channel, validated.
    """
    meta = envelope.meta
    if meta.sender == sender and meta.channel == channel:
        return envelope
    body = envelope.body
    masked = _mask_lone_surrogates(body) or body
    meta_start, meta_end = _member_spans(masked, "$")["meta"]
    spans = _member_spans(masked[meta_start:meta_end], "$.meta")
    replaced = sorted([(spans["from"], sender), (spans["channel"], channel)])
    parts: list[bytes] = []
    position = 0
    for (start, end), name in replaced:
        parts += [body[position : meta_start + start], b'"', name.encode(), b'"']
        position = meta_start + end
    parts.append(body[position:])
    stamped = msgspec.structs.replace(meta, sender=sender, channel=channel)
    return Envelope(stamped, envelope.payload_json, b"".join(parts))


def format_time(moment: datetime) -> str:
    """An aware time as the wire has it: UTC, microseconds, `Z`; always 27 characters, so that texts sort as times."""
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


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
    if kind not in ("message", "control", "human", "status", "event"):
        raise BadEnvelope("$.meta.kind", f"expected message, control, human, status or event, got {ascii(kind)[:80]}")
    moment = datetime.now(UTC) if timestamp is None else timestamp
    _require_instant(moment)
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
        "timestamp": format_time(moment),
        "kind": meta.kind,
        "reply_to": meta.reply_to,
    }
    return Envelope(meta, payload_json, b'{"meta":%b,"payload":%b}' % (msgspec.json.encode(head), payload_json))
