"""The console: what `up` shows, written by a thread of its own, so that a terminal that stands still holds nobody up.

Everything is in the log files. A console that takes lines slowly slows the children's output down; one that takes
nothing for a second (Ctrl-S, a reader that hangs) is passed by, and told how many lines it missed once it moves again.
"""

import os
import threading
from collections import deque
from typing import Final

from runtime.logs import rendering
from runtime.logs.lines import Batch

_QUEUE_BYTES: Final = 8 * 1024 * 1024
_STALL_SECS: Final = 1.0
_CLOSE_SECS: Final = 2.0  # for what is left at the end
_WRITE_BYTES: Final = 65536  # progress is seen at least this often


class Console:
    """One output for all lines.

    Args:
        fd: where to write.
        is_terminal: for people, or JSON.
        width: of the column with the names.
    """

    def __init__(self, fd: int, *, is_terminal: bool, width: int = 12, colours: bool = True) -> None:
        self._fd = fd
        self._is_terminal = is_terminal
        self._colours = colours
        self.width = width
        self._queue: deque[bytes] = deque()
        self._size = 0
        self._written = 0
        self._missed = 0
        self._is_stalled = False
        self._is_dead = False
        self._is_closing = False
        self._change = threading.Condition()
        self._thread = threading.Thread(target=self._write, name="console", daemon=True)

    def start(self) -> None:
        """Begin to write. Starting twice is fine."""
        if not self._thread.is_alive() and not self._is_closing:
            self._thread.start()

    def show(self, batch: Batch) -> None:
        """Show lines; waits while the console is slow, at most a second when it stands still."""
        if self._is_dead:
            return
        data = self._render(batch)
        with self._change:
            if not self._has_room(len(data)):
                self._missed += len(batch.lines)
                return
            if self._missed:
                data = self._render(self._missed_note(batch.at)) + data
                self._missed = 0
            self._queue.append(data)
            self._size += len(data)
            self._change.notify_all()

    def close(self) -> None:
        """Write what is left, for two seconds at most. Closing twice is fine."""
        with self._change:
            self._is_closing = True
            self._change.notify_all()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_SECS)

    def _render(self, batch: Batch) -> bytes:
        if self._is_terminal:
            return rendering.as_terminal(batch, self.width, colours=self._colours)
        return rendering.as_json(batch)

    def _missed_note(self, at: float) -> Batch:
        text = (
            f"{self._missed} lines were not shown here, because this output did not take them; the log files have them"
        )
        return Batch("runtime", os.getpid(), "stderr", at, [text.encode()])

    def _has_room(self, size: int) -> bool:
        """With the lock: wait for room as long as the console moves."""
        while self._size and self._size + size > _QUEUE_BYTES and not self._is_dead:
            if self._is_stalled or not self._has_moved(self._written):
                self._is_stalled = True
                return False
        return True

    def _has_moved(self, before: int) -> bool:
        """With the lock: wait until it wrote more than that, for as long as a stall takes."""
        return self._change.wait_for(lambda: self._written != before or self._is_dead, _STALL_SECS)

    def _write(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: bool(self._queue) or self._is_closing)
                if not self._queue:
                    return
                data = memoryview(self._queue.popleft())
            whole = len(data)
            while data:
                try:
                    written = os.write(self._fd, data[:_WRITE_BYTES])
                except BlockingIOError:
                    # Somebody else made the shared output non-blocking: wait as it would have.
                    threading.Event().wait(0.01)
                    continue
                except OSError:
                    self._die()  # the terminal or the reader is gone; the files go on
                    return
                data = data[written:]
                with self._change:
                    self._written += written
                    self._is_stalled = False
                    self._change.notify_all()
            with self._change:
                self._size -= whole
                self._change.notify_all()

    def _die(self) -> None:
        with self._change:
            self._is_dead = True
            self._queue.clear()
            self._size = 0
            self._change.notify_all()
