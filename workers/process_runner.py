"""The runner of handlers in child processes: one a turn in hand, used again, killed with the turn that is cancelled."""

import asyncio
import contextlib
import socket
import sys
from typing import Any, Final

import msgspec
import structlog

from hub.protocol import TooLarge, encode_payload
from workers.attempt import HandlerDied, HandlerFailed, Returned
from workers.commands import Guarded
from workers.frames import (
    BadFrame,
    BrokenFrame,
    FailedFrame,
    FromChild,
    LineFrame,
    ReadyFrame,
    RejectFrame,
    ReportFrame,
    RetryFrame,
    ReturnedFrame,
    TooLargeFrame,
    TurnFrame,
    pack,
    read_from_child,
)
from workers.handlers import BadHandler, HandlerSpec, Reject, Retry
from workers.turn import Turn

log = structlog.get_logger(__name__)

START_SECS: Final = 60.0  # for the import of a handler: heavy libraries on a busy machine
LEAVE_SECS: Final = 2.0  # an idle child ends at once when its channel closes


class ProcessRunner:
    """Runs turns in child processes.

    Args:
        spec: the handler; its `target` is imported there.
        options: its settings as they were given.
    """

    def __init__(self, spec: HandlerSpec, options: dict[str, str]) -> None:
        self._spec = spec
        self._options = options
        self._idle: list[_Child] = []

    async def start(self) -> None:
        """Start the first child.

        Raises:
            BadHandler: the handler cannot be imported there; says why.
        """
        self._idle.append(await _Child.start(self._spec, self._options))

    async def stop(self) -> None:
        """End the idle children; those with a turn end with it."""
        idle, self._idle = self._idle, []
        await asyncio.gather(*(child.end(LEAVE_SECS) for child in idle))

    async def run(self, turn: Turn) -> Returned:
        """See `Runner.run`."""
        try:
            child = await self._take()
        except (BadHandler, OSError) as error:
            raise HandlerFailed(f"the handler's process cannot be started: {error}") from error
        is_usable = False
        try:
            frame = await child.run(turn)
            is_usable = True
        finally:
            if is_usable:
                self._idle.append(child)
            else:
                await child.end()
        return _read(frame, turn)

    async def _take(self) -> "_Child":
        while self._idle:
            child = self._idle.pop()
            if child.is_running:
                return child
            await child.end(0)
        return await _Child.start(self._spec, self._options)


def _read(frame: FromChild, turn: Turn) -> Returned:
    match frame:
        case ReturnedFrame(result_json=result, context_json=context):
            return Returned(result, context)
        case RetryFrame(delay_secs=delay_secs, reason=reason):
            raise Retry(delay_secs, reason)
        case RejectFrame(reason=reason):
            raise Reject(reason)
        case TooLargeFrame(what=what, size=size, limit=limit):
            raise TooLarge(what, size, limit)
        case FailedFrame(error=error, traceback=traceback):
            log.warning("the handler failed", task_id=turn.task_id, error=error, traceback=traceback)
            raise HandlerFailed(error)
        case _:
            raise HandlerDied(f"the handler's process wrote {type(frame).__name__} out of turn")


class _Child:
    """One handler process."""

    def __init__(self, guarded: Guarded, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._guarded = guarded
        self._reader = reader
        self._writer = writer

    @classmethod
    async def start(cls, spec: HandlerSpec, options: dict[str, str]) -> "_Child":
        """Start one and wait until its handler is imported."""
        ours, theirs = socket.socketpair()
        try:
            guarded = await Guarded.start(
                [
                    sys.executable,
                    "-m",
                    "workers.child",
                    str(theirs.fileno()),
                    spec.target,
                    msgspec.json.encode(options).decode(),
                ],
                pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        reader, writer = await asyncio.open_connection(sock=ours)
        child = cls(guarded, reader, writer)
        try:
            async with asyncio.timeout(START_SECS):
                first = await read_from_child(reader)
        except BaseException as error:
            await child.end(0)
            if isinstance(error, TimeoutError):
                raise BadHandler(f"{spec.target} is not imported within {START_SECS:g} s") from None
            raise
        if not isinstance(first, ReadyFrame):
            await child.end(0)
            reason = first.error if isinstance(first, BrokenFrame) else "it ended while it was imported"
            raise BadHandler(f"{spec.target}: {reason}")
        return child

    @property
    def is_running(self) -> bool:
        """May it take a turn?"""
        return self._guarded.is_running and not self._reader.at_eof()

    async def run(self, turn: Turn) -> FromChild:
        """Give it a turn; returns the frame that ends it.

        Raises:
            HandlerDied: it ended first.
        """
        frame = TurnFrame(
            task_id=turn.task_id,
            prompt=turn.prompt,
            payload_json=encode_payload(turn.payload),
            sender=turn.sender,
            attempt=turn.attempt,
            session_id=turn.session_id,
            context_json=encode_payload(dict(turn.context)),
            workdir=str(turn.planned_workdir),
        )
        with contextlib.suppress(ConnectionError):  # its end is read below
            self._writer.write(pack(frame))
            await self._writer.drain()
        while True:
            try:
                said = await read_from_child(self._reader)
            except BadFrame as error:
                raise HandlerDied(f"the handler's process wrote what is no frame: {error}") from error
            if said is None:
                raise HandlerDied(await self._how_it_ended())
            if isinstance(said, ReportFrame):
                turn.relay(said.event_type, said.data)
            elif isinstance(said, LineFrame):
                turn.stdout(said.text)
            else:
                return said

    async def end(self, term_secs: float = 3.0) -> None:
        """End it and all that came from it: SIGTERM, and after 3 s SIGKILL (contract §7)."""
        self._writer.close()
        await self._guarded.end(term_secs)

    async def _how_it_ended(self) -> str:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECS):
                await self._guarded.process.wait()
        code: Any = self._guarded.process.returncode
        how = (
            "closed its channel"
            if code is None
            else f"was ended by signal {-code}"
            if code < 0
            else f"exited with {code}"
        )
        return f"the handler's process {how} in the middle of the turn; it may have run in part"
