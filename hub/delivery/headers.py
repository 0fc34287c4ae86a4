"""Header blocks of NATS messages: from bytes to names and values, whatever the bytes are, and back."""

import re
from typing import Final

from nats import errors as nats_errors

ORDINARY: Final = ":"
"""Put before the name of an ordinary header that is called `Status` or `Description`; no header name holds a colon."""

TOO_MANY_LINES: Final = "Nats-Too-Many-Lines"
"""Stands alone for a header block of more lines than `MOST_HEADER_LINES`: nothing is known of what it holds, and as
every name that only a server writes it lets no message through."""

MOST_HEADER_LINES: Final = 1000
"""More than any client writes. Of the two million lines that fit into 8 MB, each costs microseconds of the loop."""

_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_LINE_BREAK = re.compile(r"[\r\n]")
_BLANKS: Final = " \t\r\n\v\f"  # ASCII's alone: `str.strip` without them takes what is part of a value
_STATUS_NAMES: Final = frozenset({"status", "description"})


def inline_status(header_block: bytes) -> int:
    """The status in a header block's first line (`NATS/1.0 404 No Messages`), 0 when there is none."""
    if not header_block.startswith(b"NATS/1.0 "):
        return 0
    digits = header_block[9:12]
    return int(digits) if digits.isdigit() else 0


def header_lines(header_block: bytes) -> list[tuple[str, str]]:
    """The ordinary headers of a block in their order, repeated names included; whatever its bytes are, this returns.

    Bytes that are not UTF-8 are escaped. A header called `Status` or `Description` stands under `ORDINARY + name`. A
    block of too many lines is not read: `TOO_MANY_LINES` stands for it.
    """
    if header_block.count(b"\r\n") > MOST_HEADER_LINES:
        return [(TOO_MANY_LINES, "")]
    lines: list[tuple[str, str]] = []
    for line in header_block.decode("utf-8", "backslashreplace").split("\r\n")[1:]:
        if line:
            name, _, value = line.partition(":")
            name = name.strip(_BLANKS)
            if name.lower() in _STATUS_NAMES:
                name = ORDINARY + name
            lines.append((name, value.strip(_BLANKS)))
    return lines


def parse_headers(header_block: bytes) -> dict[str, str]:
    """The header block as names and values: of a repeated name the last one wins.

    The server's inline status stands under `Status` and `Description`, see `header_lines` for ordinary ones.
    """
    found = dict(header_lines(header_block))
    status = inline_status(header_block)
    if status:
        found["Status"] = str(status)
        description = header_block.partition(b"\r\n")[0][12:].strip().decode("utf-8", "backslashreplace")
        if description:
            found["Description"] = description
    return found


def encode_headers(headers: dict[str, str]) -> bytes:
    """The header block of these headers; values are trimmed and a line break in one becomes a blank, as in nats-py.

    Raises:
        nats.errors.BadHeaderError: a name that is none.
    """
    lines = [b"NATS/1.0\r\n"]
    for name, value in headers.items():
        if _HEADER_NAME.fullmatch(name) is None:
            raise nats_errors.BadHeaderError(name)
        lines.append(f"{name}: {_LINE_BREAK.sub(' ', value.strip())}\r\n".encode())
    lines.append(b"\r\n")
    return b"".join(lines)
