"""Log files: one a replica, turned over by size; also how they are read back.

A line is `TIME STREAM F|P TEXT` (as container runtimes write it): P is a piece of a line that goes on. TEXT is the
child's bytes, unchanged.
"""

import contextlib
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from runtime.logs.lines import Batch


class LoggedLine(msgspec.Struct, frozen=True):
    """One line read back."""

    at: str
    stream: str
    text: bytes


def timestamp(at: float) -> str:
    """RFC 3339 in UTC with microseconds: fixed width, so that text sorts as time does."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def render(batch: Batch) -> bytes:
    """A batch as it stands in the file."""
    prefix = f"{timestamp(batch.at)} {batch.stream} ".encode()
    if not batch.is_cut:
        whole = prefix + b"F "
        return whole + (b"\n" + whole).join(batch.lines) + b"\n"
    *whole_lines, piece = batch.lines
    return b"".join([prefix + b"F " + line + b"\n" for line in whole_lines]) + prefix + b"P " + piece + b"\n"


class LogFile:
    """The file of one replica; `path.1` is the newest old one.

    Args:
        path: where.
        max_bytes: it is turned over before it grows beyond.
        keep: how many old ones stay.
    """

    def __init__(self, path: Path, *, max_bytes: int, keep: int) -> None:
        self._path = path
        self._max = max_bytes
        self._keep = keep
        self._fd: int | None = None
        self._size = 0

    def write(self, data: bytes) -> None:
        """Append.

        Raises:
            OSError: it could not; the next write tries again.
        """
        if self._fd is not None and self._size and self._size + len(data) > self._max:
            self._turn_over()
        if self._fd is None:
            self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._size = os.fstat(self._fd).st_size
        view = memoryview(data)
        while view:
            written = os.write(self._fd, view)
            self._size += written
            view = view[written:]

    def close(self) -> None:
        """Close. Closing twice is fine."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _turn_over(self) -> None:
        self.close()
        for number in range(self._keep, 0, -1):
            newer = self._path if number == 1 else old_file(self._path, number - 1)
            with contextlib.suppress(FileNotFoundError):
                newer.replace(old_file(self._path, number))
        if self._keep == 0:
            self._path.unlink(missing_ok=True)


def old_file(path: Path, number: int) -> Path:
    """The name of an old log file; 1 is the newest."""
    return path.with_name(f"{path.name}.{number}")


def files_of(path: Path) -> list[Path]:
    """A log and its old ones, oldest first; those that are there."""
    numbers = [
        int(other.name.removeprefix(path.name + "."))
        for other in path.parent.glob(f"{path.name}.*")
        if other.name.removeprefix(path.name + ".").isdigit()
    ]
    return [old_file(path, number) for number in sorted(numbers, reverse=True)] + ([path] if path.exists() else [])


class LineReader:
    """Puts lines of a log file together again, pieces too."""

    def __init__(self) -> None:
        self._rest = b""
        self._pieces: dict[str, list[bytes]] = {}

    def feed(self, data: bytes) -> Iterator[LoggedLine]:
        """Take bytes of the file; gives the lines that are complete. What is not a log line is left out."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            fields = line.split(b" ", 3)
            if len(fields) != 4 or fields[2] not in {b"F", b"P"}:
                continue
            stream = fields[1].decode("ascii", "replace")
            pieces = self._pieces.setdefault(stream, [])
            pieces.append(fields[3])
            if fields[2] == b"F":
                yield LoggedLine(fields[0].decode("ascii", "replace"), stream, b"".join(pieces))
                pieces.clear()
