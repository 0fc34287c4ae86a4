"""The turn as its handler sees it."""

import asyncio
from collections.abc import Callable, Generator, Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog

if TYPE_CHECKING:
    from hub.client import HubClient

Report = Callable[[str, dict[str, Any]], None]
ReportLine = Callable[[str], None]


class NoHubHere(RuntimeError):
    """This turn has no client: it runs in a child process, or in a test without a hub."""


class Reported:
    """What the reporting calls return: they have acted already, so awaiting it is allowed and not needed."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


_REPORTED: Final = Reported()


class Turn:
    """One piece of work in a handler's hands.

    Async handlers write `await turn.progress(…)`, plain ones `turn.progress(…)`: both report at once.

    Attributes:
        task_id: the envelope's id.
        prompt: the text of the task.
        payload: the whole payload as it came.
        sender: who asked.
        attempt: 1 for the first start, 2 for the second, …
        session_id: the session that it belongs to; None for a task of its own.
        context: what the handler keeps from turn to turn of a session, JSON values under text keys; saved when the turn
            succeeds. In a task without a session it is empty and forgotten.
        log: a logger that knows the turn.
    """

    def __init__(
        self,
        *,
        task_id: str,
        prompt: str,
        payload: Any,
        sender: str,
        attempt: int = 1,
        session_id: str | None = None,
        context: MutableMapping[str, Any] | None = None,
        workdir: Path,
        hub: "HubClient | None" = None,
        report: Report,
        report_line: ReportLine,
    ) -> None:
        self.task_id = task_id
        self.prompt = prompt
        self.payload = payload
        self.sender = sender
        self.attempt = attempt
        self.session_id = session_id
        self.context: MutableMapping[str, Any] = {} if context is None else context
        self.log = structlog.get_logger("handler").bind(task_id=task_id, sender=sender)
        self._workdir = workdir
        self._hub = hub
        self._report = report
        self._report_line = report_line
        self._cancelled = asyncio.Event()

    @property
    def workdir(self) -> Path:
        """A folder to work in: the session's `cwd`, the worker's `--workdir-root`, else one that this turn's session
        (or this task alone) has to itself until it ends. Made when it is first asked for."""
        self._workdir.mkdir(parents=True, exist_ok=True)
        return self._workdir

    @property
    def hub(self) -> "HubClient":
        """A client as this worker, to delegate on.

        Raises:
            NoHubHere: in a child process (`isolation="process"`, plain functions), and in tests without a hub.
        """
        if self._hub is None:
            raise NoHubHere("turn.hub is there for async handlers that run in the worker's own process")
        return self._hub

    @property
    def cancelled(self) -> bool:
        """Is it to end, by a cancel, its timeout or a shutdown? An async handler also gets a `CancelledError`."""
        return self._cancelled.is_set()

    @property
    def planned_workdir(self) -> Path:
        """As `workdir`, without making it; for the runtime."""
        return self._workdir

    def relay(self, event_type: str, data: dict[str, Any]) -> None:
        """Report what a handler process said; for the runtime."""
        self._report(event_type, data)

    def progress(self, message: str, *, percent: float | None = None, phase: str | None = None) -> Reported:
        """Tell people how far it is; merged to at most 4 a second, may be dropped.

        Args:
            message: one line.
            percent: 0 to 100.
            phase: a word for the stage.
        """
        data: dict[str, Any] = {"message": message, "phase": phase}
        if percent is not None:
            data["percent"] = percent
        self._report("progress", data)
        return _REPORTED

    def milestone(self, name: str, detail: Mapping[str, Any] | str | None = None) -> Reported:
        """Tell people that something is reached; not merged with other milestones."""
        self._report("milestone", {"name": name} if detail is None else {"name": name, "detail": detail})
        return _REPORTED

    def stdout(self, line: str) -> Reported:
        """Show people a line of output; lines that come fast go out together, and the most are left out."""
        self._report_line(line)
        return _REPORTED

    def mark_cancelled(self) -> None:
        """Called by the runtime."""
        self._cancelled.set()
