"""Scanner of JSON text: finds what decoders lose: who stands there twice, where a value stands, lone surrogates."""

import re
from collections import Counter
from typing import Final

import msgspec
from msgspec import Raw

from hub.protocol.errors import BadEnvelope

LONE_SURROGATES: Final = re.compile(  # group `lone`; whole pairs and all other escapes match to be passed over
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    rb"|\\.",
    re.DOTALL,
)
STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+'
"""A string without its closing mark. Possessive: however long it is, it costs no memory and is never tried again."""

_SPACE: Final = rb"[ \t\r\n]*+"
_MEMBER_START = re.compile(_SPACE + rb"[{,]" + _SPACE + STRING + rb'"' + _SPACE + rb":" + _SPACE, re.DOTALL)
_MOST_NAME: Final = 80  # characters of a name in an error

_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode


class _Name(str):
    """A member's name, counted as it is decoded."""

    __slots__ = ()


def mask_lone_surrogates(text: bytes) -> bytes | None:
    """The same text with each lone surrogate's escape replaced by that of U+FFFD, which is as long.

    None when there is none. Names that differ only there become the same one: many decoders see them so.
    """
    found = False

    def mask(escape: "re.Match[bytes]") -> bytes:
        nonlocal found
        if escape.lastgroup != "lone":
            return escape.group()
        found = True
        return rb"\ufffd"

    masked = LONE_SURROGATES.sub(mask, text)
    return masked if found else None


def members(text: bytes, path: str) -> dict[str, Raw]:
    """The members of an object, in the text's order.

    Args:
        text: valid JSON text of an object, without lone surrogates.
        path: where it stands, for the error.

    Raises:
        BadEnvelope: a member stands there twice (after unescaping), or it is nested too deeply.
    """
    try:
        found = _decode_members(text)
        # A name takes two quotation marks. One that stands there twice takes more, and so does one with a mark in it.
        if text.count(b'"') - b"".join(found.values()).count(b'"') != 2 * len(found):
            _refuse_repeated(text, path)
    except RecursionError:
        raise too_deep(path) from None
    return found


def _refuse_repeated(text: bytes, path: str) -> None:
    seen: Counter[str] = Counter()

    def count(_type: type, name: str) -> _Name:
        seen[name] += 1
        return _Name(name)

    msgspec.json.Decoder(dict[_Name, Raw], dec_hook=count).decode(text)
    [(name, times)] = seen.most_common(1)
    if times > 1:
        raise BadEnvelope(f"{path}.{ascii(name[:_MOST_NAME])[1:-1]}", f"expected once, got {times} times")


def spans(text: bytes, found: dict[str, Raw]) -> dict[str, tuple[int, int]]:
    """Where the value of each member stands: name → (start, end).

    Args:
        text: the text of an object.
        found: all of its members, as `members` gives them.
    """
    places: dict[str, tuple[int, int]] = {}
    position = 0
    for name, value in found.items():
        start = _MEMBER_START.match(text, position)
        assert start is not None
        position = start.end() + len(value)
        places[name] = (start.end(), position)
    return places


def too_deep(path: str) -> BadEnvelope:
    """The error for nesting that the decoder gives up on: some 900 levels on CPython 3.11, more on newer ones."""
    return BadEnvelope(path, "nested too deeply to parse")
