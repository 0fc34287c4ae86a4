"""`logs`: reads the log files, merged by time; with `-f` goes on as they grow. Needs no running `up`."""

import heapq
import os
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from runtime.errors import Refused
from runtime.logs.files import LineReader, files_of
from runtime.logs.rendering import as_text, event_text, without_control

_POLL_SECS: Final = 0.2
_READ_BYTES: Final = 1 << 20


class ShownLine(msgspec.Struct, frozen=True, order=True):
    """One line of one process; ordered by time."""

    at: str
    process: str
    stream: str
    text: str


def logs_of(folder: Path, name: str | None) -> list[Path]:
    """The log files of a process (`router`), a replica (`router.0`), or of all.

    Raises:
        Refused: there is none.
    """
    paths = sorted(path for path in folder.glob("*.log") if path.is_file())
    labels = [path.name.removesuffix(".log") for path in paths]
    if name is None:
        return paths
    found = [
        path for path, label in zip(paths, labels, strict=True) if label == name or label.rpartition(".")[0] == name
    ]
    if not found:
        raise Refused(f"no logs of {name!r} in {folder}; there are {', '.join(labels) or 'none'}")
    return found


class LogView:
    """The lines of some processes: what is there, and from then on what comes. Nothing between the two is lost.

    Args:
        folder: of the log files.
        name: of a process or a replica; None: all.

    Raises:
        Refused: there is no such log.
    """

    def __init__(self, folder: Path, name: str | None) -> None:
        self._folder = folder
        self._name = name
        self._readers = {path: LogReader(path) for path in logs_of(folder, name)}

    def history(self, lines: int) -> list[ShownLine]:
        """The last `lines` lines of all of them together, in the order of time; 0: all."""
        histories = [reader.history(lines) for reader in self._readers.values()]
        merged = list(heapq.merge(*histories, key=lambda line: line.at))
        return merged[-lines:] if lines else merged

    def follow(self) -> Iterator[ShownLine]:
        """What comes after that, also of processes that start later; never ends."""
        while True:
            for path in logs_of(self._folder, self._name):
                if path not in self._readers:
                    self._readers[path] = LogReader(path)
            lines = [line for reader in self._readers.values() for line in reader.new_lines()]
            yield from sorted(lines, key=lambda line: line.at)
            if not lines:
                time.sleep(_POLL_SECS)


class LogReader:
    """Reads one log over its turns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO = path.open("rb")
        self._reader = LineReader()

    def history(self, lines: int) -> list[ShownLine]:
        """The last lines until now, old files too; 0: all."""
        kept: deque[ShownLine] = deque(maxlen=lines or None)
        for path in files_of(self._path):
            if path != self._path:
                with path.open("rb") as old:
                    kept.extend(self._read(old))
        kept.extend(self._read(self._file))
        return list(kept)

    def new_lines(self) -> list[ShownLine]:
        """What came since the last look."""
        lines = list(self._read(self._file))
        try:
            is_turned = not os.path.samestat(os.fstat(self._file.fileno()), self._path.stat())
        except FileNotFoundError:
            return lines  # between two files
        if is_turned:
            lines += self._read(self._file)  # what came between the read and the turn
            self._file.close()
            self._file = self._path.open("rb")
            lines += self._read(self._file)
        return lines

    def _read(self, file: BinaryIO) -> Iterator[ShownLine]:
        while data := file.read(_READ_BYTES):
            for line in self._reader.feed(data):
                yield _shown(self._path, line.at, line.stream, line.text)


def _shown(path: Path, at: str, stream: str, text: bytes) -> ShownLine:
    label = path.name.removesuffix(".log")
    return ShownLine(at, label, stream, event_text(text) if stream == "event" else as_text(text))


def render(line: ShownLine, width: int) -> str:
    """A line for people."""
    bar = "!" if line.stream == "stderr" else "|"
    return f"{line.at[11:23]} {line.process.ljust(width)} {bar} {without_control(line.text)}"
