"""Limits of an event source: each with its default and the most that it takes."""

from dataclasses import dataclass, fields

from tenacity import wait_exponential, wait_random
from tenacity.wait import wait_base

from hub.events.errors import InvalidInputError

MIN_CURSOR_BYTES = 256  # the longest cursor that this version makes is under 200 bytes
CLEANUP_DEFAULT = 100
CLEANUP_MOST = 500

# name: (least, most). Out of range is refused when the source is made, never clamped.
RANGES: dict[str, tuple[float, float]] = {
    "max_event_bytes": (256, 1024 * 1024),
    "max_page_size": (1, 500),
    "max_cursor_bytes": (MIN_CURSOR_BYTES, 16 * 1024),
    "max_subscribers": (1, 4096),
    "poll_secs": (0.05, 30.0),
    "reconnect_min_secs": (0.01, 30.0),
    "reconnect_max_secs": (0.01, 30.0),
    "max_run_events": (1, 1_000_000),
    "append_timeout_secs": (0.05, 120.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one source allows.

    Attributes:
        max_event_bytes: a record's compact JSON, without the sequence that the source adds.
        max_page_size: most events a page; also the page size where a read names none.
        max_cursor_bytes: longest cursor that is looked at.
        max_subscribers: subscriptions open at once.
        poll_secs: how often a waiting subscription looks by itself, in seconds, should a wake be lost.
        reconnect_min_secs: first wait before a lost backend is tried again, in seconds.
        reconnect_max_secs: longest such wait, in seconds.
        max_run_events: retained events a run; an append above is refused.
        append_timeout_secs: how long one append tries before it gives up, in seconds.

    Raises:
        InvalidInputError: an option is out of its range; the message names it.
    """

    max_event_bytes: int = 64 * 1024
    max_page_size: int = 100
    max_cursor_bytes: int = 4 * 1024
    max_subscribers: int = 256
    poll_secs: float = 1.0
    reconnect_min_secs: float = 0.1
    reconnect_max_secs: float = 5.0
    max_run_events: int = 100_000
    append_timeout_secs: float = 10.0

    def __post_init__(self) -> None:
        for field in fields(self):
            least, most = RANGES[field.name]
            value = getattr(self, field.name)
            whole = isinstance(field.default, int)
            check_number(field.name, value, least, most, whole=whole)
        if self.reconnect_min_secs > self.reconnect_max_secs:
            raise InvalidInputError(
                f"reconnect_min_secs is {self.reconnect_min_secs}, above reconnect_max_secs {self.reconnect_max_secs}"
            )


def reconnect_wait(limits: Limits) -> wait_base:
    """How to wait for a lost backend: twice as long each time, within bounds, not all at the same moment."""
    return wait_exponential(multiplier=limits.reconnect_min_secs, max=limits.reconnect_max_secs) + wait_random(
        0, limits.reconnect_min_secs
    )


def check_number(name: str, value: object, least: float, most: float, *, whole: bool = True) -> None:
    """Refuse what is not a number of `least` to `most`.

    Raises:
        InvalidInputError: naming the option, what was expected and what came.
    """
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= most
    if not fits or (whole and not isinstance(value, int)):
        kind = "a whole number" if whole else "a number"
        raise InvalidInputError(f"{name} must be {kind} from {least:g} to {most:g}, not {value!r}")
