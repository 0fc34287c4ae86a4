"""The frames between a worker and its handler process: length-prefixed MessagePack over a socket pair."""

import asyncio
import socket
import struct
from typing import Any, Final

import msgspec

_LENGTH: Final = struct.Struct(">I")
FRAME_MOST_BYTES: Final = 256 * 1024 * 1024  # a result that large is told as too large; more than this is a fault


class TurnFrame(msgspec.Struct, tag="turn"):
    """To the child: a turn to run."""

    task_id: str
    prompt: str
    payload_json: bytes
    sender: str
    attempt: int
    session_id: str | None
    context_json: bytes
    workdir: str


class ReadyFrame(msgspec.Struct, tag="ready"):
    """From the child: the handler is imported."""


class BrokenFrame(msgspec.Struct, tag="broken"):
    """From the child: the handler cannot be imported."""

    error: str


class ReportFrame(msgspec.Struct, tag="report"):
    """From the child: progress."""

    event_type: str
    data: dict[str, Any]


class LineFrame(msgspec.Struct, tag="line"):
    """From the child: a line of output."""

    text: str


class ReturnedFrame(msgspec.Struct, tag="returned"):
    """From the child: the end of a turn."""

    result_json: bytes
    context_json: bytes


class RetryFrame(msgspec.Struct, tag="retry"):
    """From the child: `Retry` was raised."""

    delay_secs: float
    reason: str


class RejectFrame(msgspec.Struct, tag="reject"):
    """From the child: `Reject` was raised."""

    reason: str


class FailedFrame(msgspec.Struct, tag="failed"):
    """From the child: the handler raised something else."""

    error: str
    traceback: str


class TooLargeFrame(msgspec.Struct, tag="too_large"):
    """From the child: `TooLarge` was raised."""

    what: str
    size: int
    limit: int


FromChild = (
    ReadyFrame
    | BrokenFrame
    | ReportFrame
    | LineFrame
    | ReturnedFrame
    | RetryFrame
    | RejectFrame
    | FailedFrame
    | TooLargeFrame
)

_encode = msgspec.msgpack.Encoder().encode
_decode_from_child = msgspec.msgpack.Decoder(FromChild).decode
_decode_turn = msgspec.msgpack.Decoder(TurnFrame).decode


class BadFrame(Exception):
    """The other side wrote what is no frame."""


def pack(frame: msgspec.Struct) -> bytes:
    """A frame's bytes."""
    body = _encode(frame)
    return _LENGTH.pack(len(body)) + body


async def read_from_child(stream: asyncio.StreamReader) -> FromChild | None:
    """The next frame; None at the end.

    Raises:
        BadFrame: it is none.
    """
    try:
        (length,) = _LENGTH.unpack(await stream.readexactly(_LENGTH.size))
        if length > FRAME_MOST_BYTES:
            raise BadFrame(f"a frame of {length} bytes")
        return _decode_from_child(await stream.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionResetError):
        return None
    except msgspec.DecodeError as error:
        raise BadFrame(str(error)) from error


def read_turn(channel: socket.socket) -> TurnFrame | None:
    """The next turn, in the child, blocking; None at the end."""
    head = _read_exactly(channel, _LENGTH.size)
    if head is None:
        return None
    body = _read_exactly(channel, *_LENGTH.unpack(head))
    return None if body is None else _decode_turn(body)


def _read_exactly(channel: socket.socket, count: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < count:
        try:
            chunk = channel.recv(min(count - len(parts), 1 << 20))
        except ConnectionResetError:
            return None
        if not chunk:
            return None
        parts += chunk
    return bytes(parts)
