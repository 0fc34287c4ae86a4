"""The log pump: one thread that reads every child's output and brings it to its file, its tail and the console."""

import asyncio
import contextlib
import fcntl
import os
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from runtime.logs.console import Console
from runtime.logs.files import LogFile, render
from runtime.logs.lines import Batch, LineCutter
from runtime.settings import LogSettings

TAIL_LINES: Final = 100
_TAIL_LINE_BYTES: Final = 8192  # a tail is for a look: a hundred megabyte lines a child would be a leak
_READ_BYTES: Final = 256 * 1024
_PIPE_BYTES: Final = 1024 * 1024  # Linux: fewer switches between a child that floods and us
_F_SETPIPE_SZ: Final = 1031
_JOIN_SECS: Final = 10.0


class LogStream:
    """One pipe of a child. `drained` is set when its end was read."""

    def __init__(self, process: str, stream: str, fd: int, loop: asyncio.AbstractEventLoop) -> None:
        self.process = process
        self.stream = stream
        self.fd = fd
        self.pid = 0
        self.has_begun = False
        self.drained = asyncio.Event()
        self._loop = loop
        self.cutter = LineCutter()

    def end(self) -> None:
        """From the pump's thread: all is read."""
        os.close(self.fd)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self.drained.set)


class LogPump:
    """Reads pipes until they end.

    Args:
        folder: of the log files.
        settings: when files are turned over.
        console: where lines are shown too.
        on_death: called from the pump's thread when it dies of an error: children would block on full pipes.
    """

    def __init__(
        self, folder: Path, settings: LogSettings, console: Console, *, on_death: Callable[[BaseException], None]
    ) -> None:
        self._folder = folder
        self._settings = settings
        self._console = console
        self._on_death = on_death
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = os.pipe()
        os.set_blocking(self._wake_in, False)
        os.set_blocking(self._wake_out, False)
        self._selector.register(self._wake_in, selectors.EVENT_READ)
        self._inbox: deque[LogStream | Batch | None] = deque()
        self._files: dict[str, LogFile] = {}
        self._unwritable: set[str] = set()
        self._tails: dict[str, deque[tuple[float, str, bytes]]] = {}
        self._tails_lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="logs", daemon=True)
        self._is_stopping = False

    def start(self) -> None:
        """Begin to read. Starting twice is fine."""
        if not self._thread.is_alive():
            self._console.start()
            self._thread.start()

    def stop(self) -> None:
        """Write what was posted and end; the streams should be drained by now. Stopping twice is fine."""
        if self._thread.is_alive():
            self._send(None)
            self._thread.join(_JOIN_SECS)
        self._console.close()

    def open_stream(self, process: str, stream: str) -> tuple[LogStream, int]:
        """Make a pipe; returns our end, to begin with, and the child's, which the caller passes on and closes."""
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        with contextlib.suppress(OSError):  # not Linux, or the user's pipes are used up: the default size works too
            fcntl.fcntl(reading, _F_SETPIPE_SZ, _PIPE_BYTES)
        return LogStream(process, stream, reading, asyncio.get_running_loop()), writing

    def begin(self, stream: LogStream, pid: int) -> None:
        """Read a stream from now on: its writer is known, and every line can name it. Beginning twice is fine."""
        if not stream.has_begun:
            stream.has_begun, stream.pid = True, pid
            self._send(stream)

    def post(self, batch: Batch) -> None:
        """Log lines that come from no pipe: the supervisor's own."""
        self._send(batch)

    def tail(self, process: str) -> list[tuple[float, str, bytes]]:
        """The last lines of a replica: (time, stream, line)."""
        with self._tails_lock:
            return list(self._tails.get(process, ()))

    def forget(self, process: str) -> None:
        """A replica is gone for good: its tail goes, its files stay."""
        with self._tails_lock:
            self._tails.pop(process, None)

    def _send(self, item: LogStream | Batch | None) -> None:
        self._inbox.append(item)
        with contextlib.suppress(BlockingIOError):  # full: it wakes up anyway
            os.write(self._wake_out, b"w")

    def _run(self) -> None:
        try:
            while not self._is_stopping or self._inbox:
                for key, _ in self._selector.select():
                    if isinstance(key.data, LogStream):
                        self._read(key.data)
                    else:
                        self._take_inbox()
        except BaseException as error:
            self._on_death(error)
            raise
        finally:
            for file in self._files.values():
                file.close()

    def _take_inbox(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_in, 4096)
        while self._inbox:
            item = self._inbox.popleft()
            if item is None:
                self._is_stopping = True
            elif isinstance(item, Batch):
                self._bring(item)
            else:
                self._selector.register(item.fd, selectors.EVENT_READ, item)

    def _read(self, stream: LogStream) -> None:
        """One read a turn, so that a child that floods leaves the others their turns."""
        try:
            chunk = os.read(stream.fd, _READ_BYTES)
        except BlockingIOError:
            return
        if chunk:
            lines, is_cut = stream.cutter.feed(chunk)
        else:
            lines, is_cut = stream.cutter.end(), False
        if lines:
            self._bring(Batch(stream.process, stream.pid, stream.stream, time.time(), lines, is_cut))
        if not chunk:
            self._selector.unregister(stream.fd)
            stream.end()

    def _bring(self, batch: Batch) -> None:
        self._write_file(batch)
        with self._tails_lock:
            tail = self._tails.setdefault(batch.process, deque(maxlen=TAIL_LINES))
            tail.extend((batch.at, batch.stream, line[:_TAIL_LINE_BYTES]) for line in batch.lines[-TAIL_LINES:])
        self._console.show(batch)

    def _write_file(self, batch: Batch) -> None:
        file = self._files.get(batch.process)
        if file is None:
            max_bytes = max(1, int(self._settings.max_mb * 1024 * 1024))
            path = self._folder / f"{batch.process}.log"
            file = self._files[batch.process] = LogFile(path, max_bytes=max_bytes, keep=self._settings.keep)
        try:
            file.write(render(batch))
        except OSError as error:
            file.close()
            if batch.process not in self._unwritable:  # once, not once a line
                self._unwritable.add(batch.process)
                text = f"the log file of {batch.process} cannot be written: {error.strerror}; lines are shown here only"
                self._console.show(Batch("runtime", os.getpid(), "stderr", batch.at, [text.encode()]))
        else:
            self._unwritable.discard(batch.process)
