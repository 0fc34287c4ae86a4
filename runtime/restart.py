"""The restart decision: a pure function of a policy, a history, an ending and the clock (OTP's restart intensity)."""

from typing import Final

import msgspec

from runtime.exits import NOT_RETRIED
from runtime.settings import ProcessSettings

JITTER: Final = 0.2  # replicas that crash together should not come back together


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How one run ended.

    Attributes:
        exit_code: 0..255; None when a signal ended it or it never ran.
        signal: the signal that ended it.
        cause: what the supervisor adds: "not ready within 60 s", "cannot be executed: …"; empty: it ended by itself.
        is_final: a retry cannot mend it.
        ran_secs: from its start to its end.
    """

    exit_code: int | None = None
    signal: int | None = None
    cause: str = ""
    is_final: bool = False
    ran_secs: float = 0.0

    @property
    def is_failure(self) -> bool:
        """Anything but an exit with 0 of its own accord."""
        return self.exit_code != 0 or bool(self.cause)


class History(msgspec.Struct, frozen=True):
    """What is remembered between runs.

    Attributes:
        restarts: when it was restarted, on the monotonic clock, within the window.
        in_a_row: restarts since the last healthy run; sets the backoff.
    """

    restarts: tuple[float, ...] = ()
    in_a_row: int = 0


class Restart(msgspec.Struct, frozen=True):
    """Start again after `delay_secs`."""

    delay_secs: float
    history: History


class Finished(msgspec.Struct, frozen=True):
    """It ended as it should, and stays so."""

    history: History


class GiveUp(msgspec.Struct, frozen=True):
    """Park it (or stop everything, as its settings say); why is a text."""

    why: str
    history: History


Decision = Restart | Finished | GiveUp


def decide(settings: ProcessSettings, history: History, ending: Ending, *, now: float, random: float) -> Decision:
    """What to do after a run that nobody asked to end.

    Args:
        settings: how it is kept running.
        history: of its earlier restarts.
        ending: how this run ended.
        now: the monotonic clock.
        random: 0..1, for the jitter.
    """
    recent = tuple(at for at in history.restarts if now - at < settings.restart_window_secs)
    history = History(recent, history.in_a_row)
    if ending.is_final or ending.exit_code in NOT_RETRIED:
        return GiveUp(f"{describe(ending)}; starting it again would not mend that", history)
    if settings.restart == "temporary" or (settings.restart == "transient" and not ending.is_failure):
        if ending.is_failure:
            return GiveUp(f"{describe(ending)}; it is temporary and not started again", history)
        return Finished(history)
    if len(recent) >= settings.restart_limit:
        limit = f"restarted {len(recent)} times within {settings.restart_window_secs:g} s"
        return GiveUp(f"{describe(ending)}; {limit}", history)
    in_a_row = 0 if ending.ran_secs >= settings.restart_window_secs else history.in_a_row
    delay = backoff(settings, in_a_row, random)
    return Restart(delay, History((*recent, now), in_a_row + 1))


def backoff(settings: ProcessSettings, in_a_row: int, random: float) -> float:
    """The delay before a restart in seconds: doubled each time, limited, and up to a fifth shorter."""
    doubled = settings.backoff_secs * 2.0 ** min(in_a_row, 32)
    return min(doubled, settings.backoff_max_secs) * (1 - JITTER * random)


def describe(ending: Ending) -> str:
    """An ending in words."""
    if ending.exit_code is None and ending.signal is None:
        return ending.cause or "did not start"
    by_itself = f"exit code {ending.exit_code}" if ending.signal is None else f"ended by {signal_name(ending.signal)}"
    return f"{ending.cause} ({by_itself})" if ending.cause else by_itself


def signal_name(number: int) -> str:
    """`SIGKILL` for 9; a number that has no name stays one."""
    import signal  # noqa: PLC0415 - the name only: this module stays free of what acts

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
