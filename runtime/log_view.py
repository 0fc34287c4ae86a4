"""`logs`: reads the log files, merged by time; with `-f` goes on as they grow. Needs no running `up`."""

import heapq
import os
import time
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


def read_all(paths: list[Path], lines: int) -> list[ShownLine]:
    """The last `lines` lines of all of them together, in the order of time; 0: all."""
    merged: Iterator[ShownLine] = heapq.merge(*(_read(path) for path in paths), key=lambda line: line.at)
    if not lines:
        return list(merged)
    kept: list[ShownLine] = []
    for line in merged:
        kept.append(line)
        if len(kept) > 2 * lines:
            del kept[:-lines]
    return kept[-lines:]


def _read(path: Path) -> Iterator[ShownLine]:
    for file in files_of(path):
        reader = LineReader()
        with file.open("rb") as opened:
            while data := opened.read(_READ_BYTES):
                for line in reader.feed(data):
                    yield _shown(path, line.at, line.stream, line.text)


def follow(folder: Path, name: str | None) -> Iterator[ShownLine]:
    """New lines from now on, also of processes that start later; never ends."""
    followed: dict[Path, Follower] = {}
    is_first = True
    while True:
        try:
            paths = logs_of(folder, name)
        except Refused:
            paths = []
        for path in paths:
            if path not in followed:
                followed[path] = Follower(path, from_end=is_first)
        is_first = False
        lines = [line for follower in followed.values() for line in follower.new_lines()]
        yield from sorted(lines, key=lambda line: line.at)
        if not lines:
            time.sleep(_POLL_SECS)


class Follower:
    """Follows one log file over its turns."""

    def __init__(self, path: Path, *, from_end: bool) -> None:
        self._path = path
        self._file: BinaryIO = path.open("rb")
        self._reader = LineReader()
        if from_end:
            self._file.seek(0, os.SEEK_END)

    def new_lines(self) -> list[ShownLine]:
        """What came since the last look."""
        lines = self._read()
        try:
            is_turned = not os.path.samestat(os.fstat(self._file.fileno()), self._path.stat())
        except FileNotFoundError:
            return lines  # between two files
        if is_turned:
            lines += self._read()  # what came between the read and the turn
            self._file.close()
            self._file = self._path.open("rb")
            lines += self._read()
        return lines

    def _read(self) -> list[ShownLine]:
        lines: list[ShownLine] = []
        while data := self._file.read(_READ_BYTES):
            lines += [_shown(self._path, line.at, line.stream, line.text) for line in self._reader.feed(data)]
        return lines


def _shown(path: Path, at: str, stream: str, text: bytes) -> ShownLine:
    label = path.name.removesuffix(".log")
    return ShownLine(at, label, stream, event_text(text) if stream == "event" else as_text(text))


def render(line: ShownLine, width: int) -> str:
    """A line for people."""
    bar = "!" if line.stream == "stderr" else "|"
    return f"{line.at[11:23]} {line.process.ljust(width)} {bar} {without_control(line.text)}"
