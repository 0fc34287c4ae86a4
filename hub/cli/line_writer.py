"""The line writer: stdout in a thread of its own, so that a reader who is slow or stops holds up nothing else."""

import asyncio
import os
import queue
import threading
from typing import Final

from hub.cli.output import say

MOST_WAITING: Final = 10_000  # lines; about a megabyte each at the most common sizes, then the newest are dropped
_MOST_JOINED: Final = 256


class LineWriter:
    """Writes lines to a file descriptor; `ended` is set when its reader has gone.

    It writes past Python's buffers: a thread that hangs in a write must not hold a lock at the interpreter's exit.

    Args:
        descriptor: where to; it is not closed here.
    """

    def __init__(self, descriptor: int) -> None:
        self.ended = asyncio.Event()
        self.dropped = 0
        self._descriptor = descriptor
        self._lines: queue.Queue[str | None] = queue.Queue(MOST_WAITING)
        self._loop = asyncio.get_running_loop()
        self._done = asyncio.Event()
        self._thread = threading.Thread(target=self._write, name="line-writer", daemon=True)
        self._thread.start()

    def offer(self, line: str) -> bool:
        """Take a line; False when there is no room: it is dropped and counted."""
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self.dropped += 1
            return False
        return True

    async def close(self, *, within_secs: float) -> None:
        """Let what waits be written, for at most so long."""
        try:
            self._lines.put_nowait(None)
            async with asyncio.timeout(within_secs):
                await self._done.wait()
        except (TimeoutError, queue.Full):
            say("the reader of the output does not read; the rest is not shown")

    def _write(self) -> None:
        is_last = False
        try:
            while not is_last:
                lines = [self._lines.get()]
                while len(lines) < _MOST_JOINED and not self._lines.empty():
                    lines.append(self._lines.get_nowait())
                is_last = None in lines
                text = "".join(f"{line}\n" for line in lines if line is not None)
                data = text.encode("utf-8", "backslashreplace")
                while data:
                    data = data[os.write(self._descriptor, data) :]
        except OSError:  # the reader has gone, or the disk is full: there is nobody to write for
            self._tell(self.ended)
        finally:
            self._tell(self._done)

    def _tell(self, event: asyncio.Event) -> None:
        try:
            self._loop.call_soon_threadsafe(event.set)
        except RuntimeError:
            return  # the loop has ended, and with it whoever waited
