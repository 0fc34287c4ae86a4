"""Moments and spans as people write them (`10m`, `2h`, an RFC 3339 time) and as they read them. Pure."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from hub.cli.running import CommandError
from hub.service.exits import Exit

_SPAN: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhdw])")
_UNIT_SECS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


def span_of(text: str, option: str) -> float:
    """Seconds of `90s`, `10m`, `2h`, `7d` or `1w`.

    Raises:
        CommandError: it is none of these.
    """
    found = _SPAN.fullmatch(text.strip())
    if found is None or float(found[1]) == 0:
        raise CommandError(f"{option}: expected a span as 90s, 10m, 2h, 7d or 1w, got {text!a}", Exit.USAGE)
    return float(found[1]) * _UNIT_SECS[found[2]]


def moment_of(text: str, option: str, *, now: datetime) -> datetime:
    """The moment so long ago, or an RFC 3339 time; one without an offset is in the local zone.

    Raises:
        CommandError: it is neither.
    """
    expected = f"{option}: expected a span (10m, 2h, 7d: so long ago) or a time as 2026-11-30T20:15:00Z, got {text!a}"
    try:
        if _SPAN.fullmatch(text.strip()) is not None:
            return now - timedelta(seconds=span_of(text, option))
        return datetime.fromisoformat(text.strip()).astimezone(UTC)
    except (ValueError, OverflowError):
        raise CommandError(expected, Exit.USAGE) from None


def local(text: str) -> datetime:
    """A time of the API in the local zone, to be shown."""
    return datetime.fromisoformat(text).astimezone()


def shown(text: str | None) -> str:
    """A time of the API for people: local, to the second; empty when there is none."""
    return "" if text is None else f"{local(text):%Y-%m-%d %H:%M:%S}"
