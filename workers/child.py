"""The handler process: imports one handler and runs one turn at a time, for its worker.

    python -m workers.child CHANNEL_FD TARGET OPTIONS_JSON

It runs under a guard (`workers/guard.py`), which ends it with its worker. SIGTERM cancels an async handler, and ends a
plain one, which cannot be cancelled.
"""

import asyncio
import json
import os
import signal
import socket
import sys
import threading
import traceback
from typing import Any

import msgspec

from hub.protocol import BadPayload, TooLarge, encode_payload
from hub.service import logs
from hub.service.standard_streams import occupy_standard_descriptors
from workers import plugins
from workers.attempt import HandlerFailed, Returned, encode, named, shown
from workers.frames import (
    BrokenFrame,
    FailedFrame,
    LineFrame,
    ReadyFrame,
    RejectFrame,
    ReportFrame,
    RetryFrame,
    ReturnedFrame,
    TooLargeFrame,
    TurnFrame,
    pack,
    read_turn,
)
from workers.handlers import BadHandler, HandlerSpec, Reject, Retry
from workers.turn import Turn


class _Channel:
    """Writes frames from any thread."""

    def __init__(self, channel: socket.socket) -> None:
        self.socket = channel
        self._lock = threading.Lock()

    def write(self, frame: msgspec.Struct) -> None:
        packed = pack(frame)
        with self._lock:
            self.socket.sendall(packed)

    def report(self, event_type: str, data: dict[str, Any]) -> None:
        try:
            plain = json.loads(encode_payload(data))
        except BadPayload:
            return  # progress decides nothing
        self.write(ReportFrame(event_type, plain))

    def report_line(self, text: str) -> None:
        self.write(LineFrame(str(text).encode(errors="replace").decode()))


def main() -> int:
    occupy_standard_descriptors()
    logs.configure()
    descriptor, target, options_json = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    os.set_inheritable(descriptor, False)
    channel = _Channel(socket.socket(fileno=descriptor))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the worker's to act on
    try:
        spec = plugins.load(target)
        options = plugins.read_options(spec, msgspec.json.decode(options_json, type=dict[str, str]))
    except (plugins.HandlerNotFound, BadHandler) as error:
        channel.write(BrokenFrame(str(error)))
        return 1
    channel.write(ReadyFrame())
    try:
        while (frame := read_turn(channel.socket)) is not None:
            channel.write(_run(spec, options, frame, channel))
    except BrokenPipeError:
        pass  # the worker is gone
    return 0


def _run(spec: HandlerSpec, options: Any, frame: TurnFrame, channel: _Channel) -> msgspec.Struct:
    from pathlib import Path  # noqa: PLC0415 - beside its one use

    turn = Turn(
        task_id=frame.task_id,
        prompt=frame.prompt,
        payload=msgspec.json.decode(frame.payload_json),
        sender=frame.sender,
        attempt=frame.attempt,
        session_id=frame.session_id,
        context=msgspec.json.decode(frame.context_json),
        workdir=Path(frame.workdir),
        report=channel.report,
        report_line=channel.report_line,
    )
    arguments = (turn,) if spec.options is None else (turn, options)
    try:
        result = asyncio.run(_call_async(spec, arguments)) if spec.is_async else spec.function(*arguments)
        returned: Returned = encode(result, turn)
    except Retry as error:
        return RetryFrame(error.delay_secs, error.reason)
    except Reject as error:
        return RejectFrame(shown(error))
    except TooLarge as error:
        return TooLargeFrame(error.what, error.size, error.limit)
    except HandlerFailed as error:
        return FailedFrame(str(error), "")
    except BaseException as error:  # noqa: BLE001 - the user's code may raise anything; it is told, and the next turn runs
        text = named(error).encode(errors="replace").decode()
        return FailedFrame(text, "".join(traceback.format_exception(error)).encode(errors="replace").decode()[-20_000:])
    return ReturnedFrame(returned.result_json, returned.context_json)


async def _call_async(spec: HandlerSpec, arguments: tuple[Any, ...]) -> Any:
    task = asyncio.ensure_future(_awaited(spec, arguments))
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await task
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


async def _awaited(spec: HandlerSpec, arguments: tuple[Any, ...]) -> Any:
    try:
        return await spec.function(*arguments)
    except (SystemExit, KeyboardInterrupt) as error:  # else they end the loop around the task
        raise HandlerFailed(named(error)) from error


if __name__ == "__main__":
    sys.exit(main())
