"""Line cutter: from chunks of bytes to whole lines. Pure."""

from typing import Final

import msgspec

MAX_LINE_BYTES: Final = 4 * 1024 * 1024
"""A longer line comes in pieces of this size: one that never ends must not fill the memory."""


class Batch(msgspec.Struct, frozen=True):
    """Lines of one stream that came together.

    Attributes:
        process: the replica, as `router.0`.
        pid: of its leader; 0 when not known.
        stream: `stdout`, `stderr` or `event` (the supervisor's own, JSON).
        at: when they came, seconds since the epoch.
        lines: without line ends, bytes as they came.
        is_cut: the last line goes on in the next batch.
    """

    process: str
    pid: int
    stream: str
    at: float
    lines: list[bytes]
    is_cut: bool = False


class LineCutter:
    """Cuts one stream."""

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._max = max_line_bytes

    def feed(self, chunk: bytes) -> tuple[list[bytes], bool]:
        """Take a chunk; returns the lines that it completes, and whether the last is a piece of a longer one."""
        first, newline, rest = chunk.partition(b"\n")
        self._parts.append(first)
        self._size += len(first)
        if not newline:
            return ([self._take()], True) if self._size >= self._max else ([], False)
        lines = [self._take()]
        if rest:
            *more, last = rest.split(b"\n")
            lines += more
            if last:
                self._parts.append(last)
                self._size = len(last)
        return lines, False

    def end(self) -> list[bytes]:
        """The stream ended: what stands there without a line end is a line."""
        return [self._take()] if self._size else []

    def _take(self) -> bytes:
        line = b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        return line
