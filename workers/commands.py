"""The runner of commands: a child under a guard, its output drained, its end certain.

Cancelling `run` sends the command's process group SIGTERM and, after 3 s, kills all that came from it (contract §7);
what it leaves behind is killed when it ends, and when this process dies.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

log = structlog.get_logger(__name__)

TERM_SECS: Final = 3.0  # contract §7
KILL_SECS: Final = 5.0  # longer than the guard tries
DRAIN_SECS: Final = 3.0  # after the end of all that wrote: a pipe's content is read within milliseconds
CHUNK_BYTES: Final = 65_536
LINES_OF_A_CHUNK: Final = 100  # shown to people; a command that prints megabytes is not read line by line
TAIL_CHARACTERS: Final = 2000  # contract §9: what an error shows of the output
CANNOT_START: Final = 127  # the guard's, and any shell's

_GUARD: Final = str(Path(__file__).with_name("guard.py"))


class Finished(msgspec.Struct, frozen=True):
    """How a command ended.

    Attributes:
        exit_code: negative: the signal that ended it. 127: it could not be started, `tail` says why.
        stdout: what it wrote, cut at `stdout_most` bytes.
        stdout_bytes: how much it wrote.
        tail: the last 2000 characters of stderr (of both outputs when they were joined).
    """

    exit_code: int
    stdout: bytes
    stdout_bytes: int
    tail: str


class Guarded:
    """A command that runs under a guard. Made by `start`; exactly one of `wait` and `end` must be awaited to its end.

    Attributes:
        process: the guard; its exit code is the command's.
    """

    def __init__(self, process: asyncio.subprocess.Process, lifeline: int) -> None:
        self.process = process
        self._lifeline: int | None = lifeline

    @classmethod
    async def start(cls, command: Sequence[str], *, pass_fds: Sequence[int] = (), **options: Any) -> "Guarded":
        """Start a command; `options` are those of `asyncio.create_subprocess_exec`.

        Raises:
            OSError, ValueError: the guard cannot be started (no processes left, a NUL in an argument, no such folder).
        """
        theirs, ours = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-I",
                "-S",
                _GUARD,
                str(theirs),
                *command,
                pass_fds=(theirs, *pass_fds),
                start_new_session=True,
                **options,
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        return cls(process, ours)

    @property
    def is_running(self) -> bool:
        """Has it not ended yet?"""
        return self.process.returncode is None

    async def wait(self) -> int:
        """Wait for its end; returns its exit code, negative for a signal."""
        code = await self.process.wait()
        self._close()
        return code

    async def end(self, term_secs: float = TERM_SECS) -> None:
        """End it: SIGTERM to its group, and after `term_secs` everything that came from it is killed."""
        if self._lifeline is not None and term_secs > 0:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._lifeline, b"t")
            await self._ended(term_secs)
        self._close()
        if not await self._ended(KILL_SECS):
            log.error("a command does not end", pid=self.process.pid)
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()

    async def _ended(self, secs: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(secs):
                await self.process.wait()
        return self.process.returncode is not None

    def _close(self) -> None:
        lifeline, self._lifeline = self._lifeline, None
        if lifeline is not None:
            os.close(lifeline)


async def run(
    command: Sequence[str] | str,
    *,
    cwd: Path,
    environ: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    on_line: Callable[[str], Any] | None = None,
    on_chunk: Callable[[bytes], Any] | None = None,
    stdout_most: int = 8 * 1024 * 1024,
    join_outputs: bool = False,
) -> Finished:
    """Run a command to its end.

    Args:
        command: program and arguments; a text is given to `sh -c`.
        cwd: where.
        environ: its environment, ours when None.
        stdin: what it reads.
        on_line: called with lines of stdout as they come; of many at once only the last 100.
        on_chunk: called with all of stdout, piece by piece.
        stdout_most: bytes of stdout that are kept; all of it is read.
        join_outputs: stderr goes where stdout goes.

    Raises:
        OSError, ValueError: it cannot be started.
    """
    guarded = await Guarded.start(
        ["sh", "-c", command] if isinstance(command, str) else command,
        cwd=cwd,
        env=None if environ is None else dict(environ),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT if join_outputs else asyncio.subprocess.PIPE,
    )
    process = guarded.process
    kept = _Kept(stdout_most, on_line)
    tail = Tail()
    also = [] if on_chunk is None else [on_chunk]
    helpers = [
        asyncio.create_task(read_all(process.stdout, kept.take, *([tail.take] if join_outputs else []), *also)),
        asyncio.create_task(read_all(process.stderr, tail.take)),
        asyncio.create_task(_feed(process.stdin, stdin)),
    ]
    try:
        exit_code = await guarded.wait()
        await asyncio.wait(helpers, timeout=DRAIN_SECS)
    except asyncio.CancelledError:
        await guarded.end()
        raise
    finally:
        for task in helpers:
            task.cancel()
        await asyncio.gather(*helpers, return_exceptions=True)
    kept.finish()
    return Finished(exit_code, bytes(kept.data), kept.count, tail.text())


class _Kept:
    """The first bytes of an output, and its lines as they come."""

    def __init__(self, most: int, on_line: Callable[[str], Any] | None) -> None:
        self.data = bytearray()
        self.count = 0
        self._most = most
        self._on_line = on_line
        self._line = bytearray()

    def take(self, chunk: bytes) -> None:
        self.data += chunk[: max(0, self._most - len(self.data))]
        self.count += len(chunk)
        if self._on_line is None:
            return
        first, *others = chunk.split(b"\n")
        self._line += first[: max(0, CHUNK_BYTES - len(self._line))]  # an endless line is shown by its beginning
        if not others:
            return
        whole = [bytes(self._line), *others[:-1]][-LINES_OF_A_CHUNK:]
        self._line = bytearray(others[-1])
        for line in whole:
            self._on_line(line.decode(errors="replace"))

    def finish(self) -> None:
        if self._line and self._on_line is not None:
            self._on_line(self._line.decode(errors="replace"))


class Tail:
    """The last characters of an output."""

    def __init__(self) -> None:
        self._data = bytearray()

    def take(self, chunk: bytes) -> None:
        """Take more of the output."""
        self._data += chunk
        if len(self._data) > 8 * TAIL_CHARACTERS:
            del self._data[: -4 * TAIL_CHARACTERS]  # four bytes are the longest character

    def text(self) -> str:
        """What it holds."""
        return self._data.decode(errors="replace")[-TAIL_CHARACTERS:].strip()


async def read_all(stream: asyncio.StreamReader | None, *takers: Callable[[bytes], Any]) -> None:
    """Give all that comes out of a stream to each taker, piece by piece, to its end."""
    while stream is not None and (chunk := await stream.read(CHUNK_BYTES)):
        for take in takers:
            take(chunk)


async def _feed(stream: asyncio.StreamWriter | None, data: bytes) -> None:
    if stream is None:
        return
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it need not read
        stream.write(data)
        await stream.drain()
        stream.close()
