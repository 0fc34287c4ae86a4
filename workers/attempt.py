"""The attempt: one start of a handler, from its call to what came of it. Knows no mailbox and no network."""

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, Protocol

import msgspec
import structlog

from hub.mailbox import Outcome
from hub.protocol import BadPayload, TooLarge, encode_payload
from workers.handlers import Reject, Retry
from workers.turn import Turn

log = structlog.get_logger(__name__)

PATIENCE_SECS: Final = 9.0  # a command of a handler's gets SIGTERM, after 3 s SIGKILL, and then a while to be reaped
ERROR_MOST_CHARACTERS: Final = 3000  # 2000 of a command's stderr (contract §7), and what is said before it


class Returned(msgspec.Struct, frozen=True):
    """What a handler returned.

    Attributes:
        result_json: its result as JSON text.
        context_json: the session's context, as it left it.
    """

    result_json: bytes
    context_json: bytes


class HandlerFailed(Exception):
    """The handler raised, or returned what cannot be sent; the text is for people."""


class HandlerDied(Exception):
    """The handler's process ended in the middle of its turn."""


class Runner(Protocol):
    """Calls a handler. Cancelling `run` ends the handler, and returns when it has ended."""

    async def run(self, turn: Turn) -> Returned:
        """Run one turn.

        Raises:
            Retry, Reject: as the handler raised.
            TooLarge: its result is known to be too large.
            HandlerFailed: it raised anything else.
            HandlerDied: its process ended.
        """
        ...


class Again(msgspec.Struct, frozen=True):
    """The handler asks for another attempt."""

    delay_secs: float
    reason: str


class Interrupted(msgspec.Struct, frozen=True):
    """It was cut off: its process died, or the worker stops.

    Attributes:
        is_shutdown: the worker stops: through no fault of the handler.
        reason: for people.
    """

    is_shutdown: bool
    reason: str


class Ended(msgspec.Struct, frozen=True):
    """It is over.

    Attributes:
        outcome: what everyone is told.
        context_json: what the session keeps; None when it did not succeed.
    """

    outcome: Outcome
    context_json: bytes | None = None


Verdict = Ended | Again | Interrupted


class Stop(Enum):
    """Why an attempt is stopped from outside."""

    CANCEL = "cancel"  # somebody who may has cancelled it
    SHUTDOWN = "shutdown"


class Stopper:
    """Stops whatever a turn does now. The first reason counts, but a cancel beats a shutdown."""

    def __init__(self) -> None:
        self._reason: Stop | None = None
        self._asked = asyncio.Event()

    def reason(self) -> Stop | None:
        """Why it is to stop; None: it is not."""
        return self._reason

    def ask(self, reason: Stop) -> None:
        """Stop it."""
        if self._reason is not Stop.CANCEL:
            self._reason = reason
        self._asked.set()

    async def watch(
        self,
        work: "asyncio.Task[Any]",
        timeout_secs: float | None,
        *,
        on_stop: Callable[[], None] | None = None,
    ) -> bool:
        """Wait for the end of `work`; when it is to stop or its time is over, cancel it and wait for a while.

        Args:
            work: what runs.
            timeout_secs: how long it may; None is without end.
            on_stop: called before it is cancelled.

        Returns:
            True when it ended by itself, False when it was cancelled.
        """
        asked = asyncio.ensure_future(self._asked.wait())
        try:
            await asyncio.wait({work, asked}, timeout=timeout_secs, return_when=asyncio.FIRST_COMPLETED)
            is_by_itself = work.done()
            if not is_by_itself:
                if on_stop is not None:
                    on_stop()
                await end(work)
        except asyncio.CancelledError:
            work.cancel()
            raise
        else:
            return is_by_itself
        finally:
            asked.cancel()


async def end(work: "asyncio.Task[Any]") -> None:
    """Cancel a task and wait for its end; one that swallows its cancel is left behind."""
    work.cancel()
    done, _ = await asyncio.wait({work}, timeout=PATIENCE_SECS)
    if not done:
        log.error("a handler ignores its cancel and is left behind; it should run in a process", task=work.get_name())
        work.add_done_callback(lambda late: late.cancelled() or late.exception())


async def attempt(runner: Runner, turn: Turn, stopper: Stopper, timeout_secs: float) -> Verdict:
    """Run a handler once.

    Args:
        runner: calls it.
        turn: what it gets.
        stopper: ends it from outside.
        timeout_secs: how long it may take; 0 is without end.
    """
    if (reason := stopper.reason()) is not None:
        return _stopped(reason)
    work = asyncio.ensure_future(runner.run(turn))
    if await stopper.watch(work, timeout_secs or None, on_stop=turn.mark_cancelled):
        return _read(work, stopper)
    if (reason := stopper.reason()) is None:
        return Ended(Outcome.failed("timeout", f"the handler did not end within {timeout_secs:g} s"))
    if reason is Stop.SHUTDOWN and work.done() and not work.cancelled() and work.exception() is None:
        return _read(work, stopper)  # it came to its end just so
    return _stopped(reason)


def _stopped(reason: Stop) -> Verdict:
    if reason is Stop.CANCEL:
        return Ended(Outcome.cancelled())
    return Interrupted(True, "the worker stopped while it ran; it may have run in part")


def _read(work: "asyncio.Task[Returned]", stopper: Stopper) -> Verdict:
    if work.cancelled():
        if (reason := stopper.reason()) is not None:
            return _stopped(reason)
        return Ended(Outcome.failed("handler_error", "the handler cancelled itself"))
    error = work.exception()
    if error is None:
        returned = work.result()
        return Ended(Outcome(status="done", result_json=returned.result_json), returned.context_json)
    match error:
        case Retry():
            return Again(error.delay_secs, error.reason)
        case Reject():
            return Ended(Outcome.failed("rejected", shown(error) or "refused by the handler"))
        case TooLarge():
            return Ended(Outcome.failed("too_large", shown(error)))
        case HandlerDied():
            return Interrupted(False, shown(error))
        case HandlerFailed():
            return Ended(Outcome.failed("handler_error", shown(error)))
        case _:
            raise error  # a fault of ours


def shown(error: BaseException) -> str:
    """The text of an error that somebody else raised, cut; its `str` may itself fail."""
    try:
        text = str(error)
    except Exception as failed:  # noqa: BLE001 - the user's code may raise anything; this error is the one to tell
        text = f"(its text cannot be had: {type(failed).__name__})"
    return text if len(text) <= ERROR_MOST_CHARACTERS else f"{text[:ERROR_MOST_CHARACTERS]}… ({len(text)} characters)"


def named(error: BaseException) -> str:
    """An error's type and text, for the sender of the task."""
    return f"{type(error).__name__}: {shown(error)}" if shown(error) else type(error).__name__


def encode(result: Any, turn: Turn) -> Returned:
    """A handler's result and its context, as they go to disk.

    Raises:
        HandlerFailed: one of them is nothing that JSON can carry.
    """
    try:
        result_json = encode_payload(result)
    except BadPayload as error:
        raise HandlerFailed(f"the handler returned what JSON cannot carry: {error}") from error
    try:
        context_json = encode_payload(dict(turn.context))
    except BadPayload as error:
        raise HandlerFailed(f"the session's context cannot be kept: {error}") from error
    return Returned(result_json, context_json)
