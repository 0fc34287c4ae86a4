"""Column types and codecs: how values of records become columns that no database refuses.

Text that came over the wire and is not a name is kept as UTF-8 bytes: PostgreSQL refuses a NUL in text. Times are
whole microseconds since 1970 (UTC): exact, ordered, and the same arithmetic on every database.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from sqlalchemy import BigInteger, ColumnElement, Integer, LargeBinary, Text, func
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_SURROGATES = re.compile("[\ud800-\udfff]")

Micros = BigInteger
"""Microseconds since 1970."""

Key = BigInteger().with_variant(Integer(), "sqlite")
"""The row's own number; SQLite's rowid, which must be declared INTEGER."""

Bytes = LargeBinary
"""Bytes as they came, or text and JSON from the wire as UTF-8."""


class Name(TypeDecorator[str]):
    """A name of contract §1, compared byte by byte on every database.

    A text that cannot be a column's value (NUL, a lone surrogate) is looked up as one that no row has.
    """

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[str]:
        return dialect.type_descriptor(Text(collation="C") if dialect.name == "postgresql" else Text())

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None or (value.isascii() and "\0" not in value):
            return value
        return _UNSTORABLE.sub("\ufffd", value)


def unindexed(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """The column in a form that no index knows.

    A planner that knows little takes the wrong one of two indexes: all that one sender sent, instead of the few that
    reply to one message.
    """
    return func.coalesce(column, "")


def to_micros(moment: datetime) -> int:
    """An aware time as microseconds since 1970."""
    passed = moment - EPOCH
    return (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds


def maybe_micros(moment: datetime | None) -> int | None:
    """As `to_micros`; None stays."""
    return None if moment is None else to_micros(moment)


def from_micros(micros: int) -> datetime:
    """Microseconds since 1970 as a time in UTC."""
    return EPOCH + timedelta(microseconds=micros)


def maybe_time(micros: int | None) -> datetime | None:
    """As `from_micros`; None stays."""
    return None if micros is None else from_micros(micros)


def to_bytes(text: str) -> bytes:
    """Any text as UTF-8; a lone surrogate, which UTF-8 has no bytes for, as U+FFFD."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _SURROGATES.sub("\ufffd", text).encode()


def maybe_bytes(text: str | None) -> bytes | None:
    """As `to_bytes`; None stays."""
    return None if text is None else to_bytes(text)


def maybe_text(data: bytes | None) -> str | None:
    """UTF-8 bytes as text; None stays."""
    return None if data is None else data.decode()


def to_json(value: Any) -> bytes:
    """JSON for a column. Raises `UnicodeEncodeError` on a lone surrogate, `TypeError` on what is no JSON."""
    return msgspec.json.encode(value)


def from_json(data: bytes) -> Any:
    """What `to_json` wrote."""
    return msgspec.json.decode(data)
