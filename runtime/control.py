"""The control server: answers the operator's commands on a Unix socket in the state directory.

One JSON object a line in, one out: `{"command": "stop", "name": "router", …}` → `{"ok": true, "data": …}` or
`{"ok": false, "error": TEXT, "code": WORD}`. The socket is the user's own (mode 0600): who opens it may do it all.
"""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from runtime.errors import Refused, SupervisorError
from runtime.group import Group
from runtime.paths import socket_path
from runtime.report import Reporter
from runtime.slot import RESTING, State
from runtime.supervisor import Supervisor

_REQUEST_BYTES: Final = 65536
_DRAIN_SECS: Final = 300.0


class Request(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A command.

    Attributes:
        command: `status` `restart` `stop` `start` `scale` `drain` `reload` `down`.
        name: of the process.
        replicas: for `scale`.
        timeout_secs: for `stop`, `drain` and `scale`.
        lines: for `status`.
    """

    command: str
    name: str | None = None
    replicas: int | None = None
    timeout_secs: float | None = None
    lines: int = 0


class ControlServer:
    """Serves one supervisor.

    Args:
        supervisor: whom.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._reporter = Reporter(supervisor)
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()
        self._commands: dict[str, Callable[[Request], Awaitable[Any]]] = {
            "status": self._status,
            "restart": self._restart,
            "stop": self._stop,
            "start": self._start,
            "scale": self._scale,
            "drain": self._drain,
            "reload": self._reload,
            "down": self._down,
        }

    async def start(self) -> None:
        """Begin to answer. The lock is ours, so a socket that is there is a dead one's."""
        path = self._supervisor.plan.state_dir.control_socket
        path.unlink(missing_ok=True)
        old = os.umask(0o177)
        try:
            with socket_path(path) as address:
                self._server = await asyncio.start_unix_server(self._serve, address, limit=_REQUEST_BYTES)
        finally:
            os.umask(old)

    async def stop(self) -> None:
        """Answer no more; open connections end, which tells `down` that all is down. Stopping twice is fine."""
        if self._server is None:
            return
        self._server.close()
        for writer in self._connections:
            writer.close()
        self._server = None
        self._supervisor.plan.state_dir.control_socket.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            while line := await reader.readline():
                writer.write(msgspec.json.encode(await self._answer(line)) + b"\n")
                await writer.drain()
        except (OSError, ValueError):
            pass  # gone, or a line without end: nobody to tell
        finally:
            self._connections.discard(writer)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = msgspec.json.decode(line, type=Request)
            command = self._commands.get(request.command)
            if command is None:
                raise Refused(f"no command {request.command!r}; there are {', '.join(self._commands)}")
            return {"ok": True, "data": await command(request)}
        except msgspec.DecodeError as error:
            return {"ok": False, "error": f"expected a command as JSON: {error}", "code": "bad_request"}
        except SupervisorError as error:
            return {"ok": False, "error": str(error), "code": error.code}

    async def _status(self, request: Request) -> Any:
        if request.name is not None:
            self._exists(request.name)
        return self._reporter.status(asyncio.get_running_loop().time(), lines=request.lines, name=request.name)

    async def _restart(self, request: Request) -> Any:
        group = self._group(request)
        await group.restart()
        self._supervisor.note_stopped()
        return {"restarted": [slot.label for slot in group.slots]}

    async def _stop(self, request: Request) -> Any:
        group = self._group(request)
        group.stop(request.timeout_secs)
        self._supervisor.note_stopped()
        await self._wait(group, lambda: group.is_down, group.plan.settings.stop_timeout_secs + 10)
        return {"stopped": [slot.label for slot in group.slots]}

    async def _start(self, request: Request) -> Any:
        group = self._group(request)
        group.start()
        self._supervisor.note_stopped()
        settings = group.plan.settings
        await self._wait(
            group,
            lambda: all(slot.is_up or slot.state in RESTING or slot.state is State.BACKOFF for slot in group.slots),
            settings.after_timeout_secs + settings.ready_timeout_secs,
        )
        wrong = [
            f"{slot.label} is {slot.state}: {slot.why}"
            for slot in group.slots
            if not slot.is_up and slot.state is not State.FINISHED
        ]
        if wrong:
            raise Refused("; ".join(wrong))
        return {"started": [slot.label for slot in group.slots]}

    async def _scale(self, request: Request) -> Any:
        if request.name is None or request.replicas is None:
            raise Refused("expected NAME=N")
        left = await self._supervisor.scale(request.name, request.replicas, request.timeout_secs)
        return {"replicas": request.replicas, "not_drained": left}

    async def _drain(self, request: Request) -> Any:
        group = self._group(request)
        secs = _DRAIN_SECS if request.timeout_secs is None else request.timeout_secs
        group.drain(secs)
        self._supervisor.note_stopped()
        await self._wait(group, lambda: group.is_down, secs + group.plan.settings.stop_timeout_secs + 10)
        ends = {slot.label: slot.last.exit_code if slot.last else None for slot in group.slots}
        return {"drained": [slot.label for slot in group.slots], "exit_codes": ends}

    async def _reload(self, _: Request) -> Any:
        return {"changes": await self._supervisor.reload()}

    async def _down(self, _: Request) -> Any:
        self._supervisor.ask_to_stop("down", forget=True)
        return {"stopping": True}

    def _group(self, request: Request) -> Group:
        if request.name is None:
            raise Refused(f"expected the name of a process: {', '.join(self._supervisor.groups)}")
        return self._supervisor.named(request.name)

    def _exists(self, name: str) -> None:
        if name not in self._supervisor.groups:
            raise Refused(f"no process {name!r}; there are {', '.join(self._supervisor.groups)}")

    async def _wait(self, group: Group, condition: Callable[[], bool], secs: float) -> None:
        bell = group.bell
        if not await bell.until(condition, bell.now() + secs):
            states = ", ".join(f"{slot.label} is {slot.state}" for slot in group.everyone)
            raise Refused(f"not within {secs:g} s: {states}")
