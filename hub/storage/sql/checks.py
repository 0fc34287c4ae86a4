"""Checks: what may be stored under a name; `BadValue` says what was expected."""

from datetime import datetime
from typing import Any

from hub.protocol import BadName, names
from hub.storage.errors import BadValue
from hub.storage.sql.types import to_json


def check_token(what: str, value: str) -> str:
    """A name of one token (contract §1)."""
    try:
        return names.token(value, what)
    except BadName as error:
        raise BadValue(what, value, error.rule) from None


def check_message_id(what: str, value: str) -> str:
    """A message id (contract §1)."""
    try:
        return names.message_id(value)
    except BadName as error:
        raise BadValue(what, value, error.rule) from None


def check_aware(what: str, moment: datetime | None) -> None:
    """Refuse a time without an offset: it would mean another time on every machine."""
    if moment is not None and moment.tzinfo is None:
        raise BadValue(what, moment.isoformat(), "a time with an offset")


def json_object(what: str, value: Any) -> bytes:
    """JSON for a column."""
    try:
        return to_json(value)
    except (UnicodeEncodeError, TypeError, OverflowError, RecursionError) as error:
        raise BadValue(what, value, f"JSON ({error})") from None


def check_bigint(what: str, value: int) -> int:
    """A whole number that every database holds."""
    if not -(2**63) <= value < 2**63:
        raise BadValue(what, value, "a number in the int64 range")
    return value
