"""The control client: one command to the running `up`, one answer. Blocking; imports little: `status` is quick."""

import errno
import socket
import time
from typing import Any, Final

import msgspec

from runtime.errors import NotRunning, Refused, SupervisorError
from runtime.locks import is_free, read_holder
from runtime.paths import StateDir, socket_path

_CONNECT_SECS: Final = 5.0
_LEAVE_SECS: Final = 10.0
_LEAVE_POLL_SECS: Final = 0.02


class TimedOut(SupervisorError):
    """The supervisor did not answer in time."""

    code = "timed_out"


class ControlClient:
    """Talks to the `up` of a state directory.

    Args:
        state_dir: whose.
    """

    def __init__(self, state_dir: StateDir) -> None:
        self._state_dir = state_dir

    def ask(self, command: str, *, within_secs: float, **fields: Any) -> Any:
        """Send a command and return the answer's data.

        Raises:
            NotRunning: no `up` runs there.
            Refused: it said no.
            TimedOut: no answer within `within_secs`.
        """
        with self._connect() as channel:
            return self._ask(channel, command, within_secs, fields)

    def down(self, *, timeout_secs: float) -> None:
        """Stop everything, and return when `up` is gone.

        Raises: as `ask`.
        """
        holder = read_holder(self._state_dir.lock_file)
        with self._connect() as channel:
            self._ask(channel, "down", timeout_secs, {})
            channel.settimeout(timeout_secs)
            try:
                while channel.recv(4096):
                    pass
            except TimeoutError:
                raise TimedOut(f"not all is down within {timeout_secs:g} s; see `python -m runtime status`") from None
            except OSError:
                pass
        deadline = time.monotonic() + _LEAVE_SECS
        while time.monotonic() < deadline and not is_free(self._state_dir.lock_file):
            if read_holder(self._state_dir.lock_file) != holder:
                return  # the next `up` has it already
            time.sleep(_LEAVE_POLL_SECS)

    def _ask(self, channel: socket.socket, command: str, timeout_secs: float, fields: dict[str, Any]) -> Any:
        request = {"command": command} | {key: value for key, value in fields.items() if value is not None}
        channel.settimeout(timeout_secs)
        try:
            channel.sendall(msgspec.json.encode(request) + b"\n")
            answer = b""
            while not answer.endswith(b"\n"):
                data = channel.recv(1 << 20)
                if not data:
                    raise NotRunning("`up` ended before it answered")
                answer += data
        except TimeoutError:
            raise TimedOut(f"no answer to {command} within {timeout_secs:g} s") from None
        except OSError as error:
            raise NotRunning(f"`up` went away: {error.strerror}") from None
        decoded = msgspec.json.decode(answer)
        if not decoded["ok"]:
            raise Refused(decoded["error"])
        return decoded["data"]

    def _connect(self) -> socket.socket:
        channel = socket.socket(socket.AF_UNIX)
        channel.settimeout(_CONNECT_SECS)
        try:
            with socket_path(self._state_dir.control_socket) as address:
                channel.connect(address)
        except OSError as error:
            channel.close()
            if error.errno in {errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR}:
                raise NotRunning(
                    f"no `up` runs on {self._state_dir.root} ({self._state_dir.source}); start one with "
                    "`python -m runtime up`, or name its NATS_HUB_STATE_DIR"
                ) from None
            raise NotRunning(f"{self._state_dir.control_socket}: {error.strerror or error}") from None
        return channel
