"""Reference decoder of envelopes and payloads: slow, on the standard library, and easy to see right.

It reads contract §1 word by word and shares no code with `hub.protocol`.
"""

import json
import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from typing import Any

JSON_SPACE = " \t\r\n"
TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(\.\d+)?(?:([Zz])|([+-])(\d\d):?(\d\d))", re.ASCII)


class Undecodable(Exception):
    """The text is no envelope, or the payload is to be refused."""


class Repeated(Exception):
    """A payload has a member twice, which the contract leaves open."""


class Pairs(list[tuple[str, Any]]):
    """An object as its members, in order, repeated ones included."""


@dataclass
class Member:
    """One member of an object: its name, its value, and where the value stands in the text."""

    name: str
    value: Any
    start: int
    end: int


@dataclass
class ReferenceEnvelope:
    """What `parse` should find."""

    id: str
    sender: str
    channel: str
    to: str | None
    timestamp: datetime
    kind: str
    reply_to: str | None
    payload_json: bytes
    text: str
    outer: list[Member]
    inner: list[Member]


def _no_constant(word: str) -> None:
    raise Undecodable(f"{word} is not JSON")


# Numbers stay text: the router does not judge them.
_decoder = json.JSONDecoder(object_pairs_hook=Pairs, parse_int=str, parse_float=str, parse_constant=_no_constant)


def as_compared(name: str) -> str:
    """A member's name as it is compared: lone surrogates are U+FFFD."""
    return "".join("\ufffd" if "\ud800" <= letter <= "\udfff" else letter for letter in name)


def members_of(text: str, position: int) -> list[Member]:
    """The members of the object that begins at `position` (the text is known to be JSON)."""

    def skip(place: int) -> int:
        while text[place] in JSON_SPACE:
            place += 1
        return place

    found: list[Member] = []
    position = skip(position)
    assert text[position] == "{"
    position = skip(position + 1)
    while text[position] != "}":
        name, position = _decoder.raw_decode(text, position)
        position = skip(position)
        assert text[position] == ":"
        start = skip(position + 1)
        value, end = _decoder.raw_decode(text, start)
        found.append(Member(name, value, start, end))
        position = skip(end)
        if text[position] == ",":
            position = skip(position + 1)
    names = [as_compared(member.name) for member in found]
    if len(set(names)) != len(names):
        raise Undecodable("a member twice")
    return found


def read_time(text: str) -> datetime:
    """An RFC 3339 time that is an instant in the years 1 to 9999 of UTC."""
    match = TIME.fullmatch(text)
    if match is None:
        raise Undecodable("not RFC 3339 with an offset")
    *fields, fraction, _z, sign, hours, minutes = match.groups()
    if sign and (int(hours) > 23 or int(minutes) > 59):
        raise Undecodable("no such offset")
    offset = timedelta(hours=int(hours), minutes=int(minutes)) if sign else timedelta(0)
    try:
        moment = datetime(*map(int, fields), tzinfo=timezone(-offset if sign == "-" else offset))  # type: ignore[misc]
        # Half a microsecond rounds up; the digits are cut, since thousands of them are no number that Python reads.
        moment += timedelta(microseconds=int(Fraction(f"0{(fraction or '.0')[:40]}") * 10**6 + Fraction(1, 2)))
        moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise Undecodable("no such instant") from error
    return moment


def parse(body: bytes) -> ReferenceEnvelope:
    """Decode an envelope.

    Raises:
        Undecodable: it is none.
    """
    try:
        text = body.decode("utf-8")
        whole = _decoder.decode(text)
    except (ValueError, RecursionError) as error:
        raise Undecodable("not JSON in UTF-8") from error
    if not isinstance(whole, Pairs):
        raise Undecodable("no object")
    outer = members_of(text, 0)
    by_name = {member.name: member for member in outer}
    if "meta" not in by_name or not isinstance(by_name["meta"].value, Pairs):
        raise Undecodable("no meta")
    inner = members_of(text, by_name["meta"].start)
    meta = {member.name: member.value for member in inner}
    for name in ("id", "from", "channel", "timestamp", "kind"):
        # Numbers are text here, so what is quoted in the source is looked at.
        if name not in meta or text[next(m.start for m in inner if m.name == name)] != '"':
            raise Undecodable(f"{name} is missing or no text")
    for name in ("to", "reply_to"):
        if meta.get(name) is not None and text[next(m.start for m in inner if m.name == name)] != '"':
            raise Undecodable(f"{name} is neither text nor null")
    if not 1 <= len(meta["id"]) <= 128 or not all("!" <= letter <= "~" for letter in meta["id"]):
        raise Undecodable("bad id")
    if meta["kind"] not in {"message", "control", "human", "status", "event"}:
        raise Undecodable("unknown kind")
    payload = by_name.get("payload")
    return ReferenceEnvelope(
        id=meta["id"],
        sender=meta["from"],
        channel=meta["channel"],
        to=meta.get("to"),
        timestamp=read_time(meta["timestamp"]),
        kind=meta["kind"],
        reply_to=meta.get("reply_to"),
        payload_json=text[payload.start : payload.end].encode() if payload else b"null",
        text=text,
        outer=outer,
        inner=inner,
    )


def stamp(envelope: ReferenceEnvelope, sender: str, channel: str) -> bytes:
    """The body with the two values replaced, and nothing else."""
    text = envelope.text
    places = {member.name: member for member in envelope.inner}
    replaced = [(places["from"], sender), (places["channel"], channel)]
    for member, name in sorted(replaced, key=lambda pair: pair[0].start, reverse=True):
        text = f'{text[: member.start]}"{name}"{text[member.end :]}'
    return text.encode()


def decode_payload(text: bytes) -> Any:
    """Decode a payload as a receiver should.

    Raises:
        Undecodable: it is to be refused.
        Repeated: it holds a member twice.
    """

    def integer(digits: str) -> int:
        if len(digits) > 21 or not -(2**63) <= int(digits) < 2**64:
            raise Undecodable("integer out of range")
        return int(digits)

    def number(digits: str) -> float:
        if not math.isfinite(float(digits)):
            raise Undecodable("float out of range")
        return float(digits)

    def look(value: Any, depth: int) -> None:
        if isinstance(value, str) and not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise Undecodable("lone surrogate") from error
        if isinstance(value, list | dict):
            if depth == 128:
                raise Undecodable("too deep")
            for inner in value if isinstance(value, list) else [*value.keys(), *value.values()]:
                look(inner, depth + 1)

    def once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) != len(pairs):
            raise Repeated
        return dict(pairs)

    try:
        source = text.decode()
        json.loads(source, object_pairs_hook=once_each, parse_int=str, parse_float=str, parse_constant=_no_constant)
        value = json.loads(source, parse_int=integer, parse_float=number)
    except (ValueError, RecursionError) as error:
        raise Undecodable("not JSON in UTF-8") from error
    look(value, 0)
    return value
