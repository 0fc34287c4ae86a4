"""How a batch of lines looks on the console: prefixed and coloured at a terminal, JSON otherwise. Pure."""

import re
import time
import zlib
from typing import Any, Final

import msgspec

from runtime.logs.files import timestamp
from runtime.logs.lines import Batch

_COLOURS: Final = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)  # readable on black and on white
_RED: Final = 31
# Colours of a child stay; whatever else could move the cursor, ring the bell or rename the window is shown as text.
_COLOUR_SEQUENCE: Final = re.compile(r"(\x1b\[[0-9;:]*m)")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_encode = msgspec.json.Encoder().encode


def as_text(line: bytes) -> str:
    """A line as text; bytes that are not UTF-8 as `\\xff`."""
    return line.decode("utf-8", "backslashreplace").removesuffix("\r")


def without_control(text: str) -> str:
    """Control characters but tabs and colours shown as text."""
    if text.isascii() and text.isprintable():
        return text
    parts = _COLOUR_SEQUENCE.split(text)
    parts[::2] = [_CONTROL.sub(lambda match: repr(match[0])[1:-1], part) for part in parts[::2]]
    return "".join(parts) + ("\x1b[0m" if len(parts) > 1 else "")


def as_json(batch: Batch) -> bytes:
    """One JSON object a line: time, process, pid, stream, line; the supervisor's own events as they are."""
    if batch.stream == "event":
        return b"\n".join(batch.lines) + b"\n"
    head = {"time": timestamp(batch.at), "process": batch.process, "pid": batch.pid, "stream": batch.stream}
    prefix = _encode(head)[:-1] + b',"line":'
    ends = [b"}\n"] * len(batch.lines)
    if batch.is_cut:
        ends[-1] = b',"cut":true}\n'
    return b"".join([prefix + _encode(as_text(line)) + end for line, end in zip(batch.lines, ends, strict=True)])


def as_terminal(batch: Batch, width: int, *, colours: bool = True) -> bytes:
    """`12:00:01 router.0 | text`.

    Args:
        batch: what is shown.
        width: of the column with the names.
        colours: colour the prefix; stderr's bar is red.
    """
    clock = time.strftime("%H:%M:%S", time.localtime(batch.at))
    name = batch.process.ljust(width)
    bar = "|"
    if colours:
        colour = _COLOURS[zlib.crc32(batch.process.rpartition(".")[0].encode()) % len(_COLOURS)]
        name = f"\x1b[{colour}m{name}\x1b[0m"
        bar = f"\x1b[{_RED}m|\x1b[0m" if batch.stream == "stderr" else f"\x1b[{colour}m|\x1b[0m"
    texts = [event_text(line) if batch.stream == "event" else without_control(as_text(line)) for line in batch.lines]
    return "".join([f"{clock} {name} {bar} {text}\n" for text in texts]).encode("utf-8", "backslashreplace")


def event_text(line: bytes) -> str:
    """An event of the supervisor for people: its text, then what belongs to it."""
    fields: dict[str, Any] = msgspec.json.decode(line)
    more = [f"{key}={value}" for key, value in fields.items() if key not in {"time", "level", "event", "process"}]
    who = f"{fields['process']}: " if fields.get("process", "runtime") != "runtime" else ""
    return without_control(" ".join([who + str(fields.get("event", "")), *more]))
