"""The bridge: each turn's life as a run of the event source, on a connection of its own (docs/events.md).

The executor tells it what happens; it never raises, blocks or makes a turn wait. Events are bounded here, redacted and
put on disk by the spool's thread, and sent from there in order; an event source that is away costs room on disk,
nothing else.
"""

import asyncio
import os
import re
import secrets
import sqlite3
import uuid
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from hub.delivery.errors import BadSettings
from hub.delivery.settings import ConnectSettings
from hub.events.errors import AgentEventSourceError, EventOverflowError, InvalidInputError, StreamMisconfiguredError
from hub.events.opening import DEFAULT_STREAM, POSTGRES_SCHEMES, open_event_source
from hub.events.records import AgentEventRecord, Ownership, check_json, check_ownership, now_timestamp
from hub.mailbox import Outcome
from hub.mailbox import Turn as Row
from workers.event_content import LINES_MOST, Bounded, cut_texts
from workers.event_spool import EventSpool, RunName, name_of
from workers.redactor import Redact

log = structlog.get_logger(__name__)

EVENT_MOST_BYTES: Final = 60_000  # the source's limit is 64 KiB, with the record around the event
GATHER_SECS: Final = 0.25
DRAIN_SECS: Final = 3.0
APPEND_SECS: Final = 30.0
CANCEL_AGAIN_SECS: Final = 1.0
FIRST_PAUSE_SECS: Final = 0.5
LONGEST_PAUSE_SECS: Final = 30.0

_KIND: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
_RESERVED: Final = frozenset(
    {
        "agent_started",
        "agent_finished",
        "agent_denied",
        "run_limit_exceeded",
        "error",
        "attempt_ended",
        "events_dropped",
    }
)
_OWN: Final = frozenset({"type", "sessionId", "runId"})  # members that an event has itself

FindTurn = Callable[[str, str], Awaitable[Row | None]]


class EventSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where events go.

    Attributes:
        url: NATS or PostgreSQL, see `open_event_source`.
        tenant: whose they are.
        stream: the JetStream stream, or the PostgreSQL schema.
        creds: a credentials file for NATS, of this connection alone.
    """

    url: str
    tenant: str
    stream: str = DEFAULT_STREAM
    creds: str | None = None

    @property
    def connect(self) -> ConnectSettings | None:
        """How to connect to NATS; None: it is PostgreSQL."""
        if self.url.startswith(POSTGRES_SCHEMES):
            return None
        return ConnectSettings(servers=(self.url,), creds=self.creds, url_source="--event-source")


class TurnRecorder:
    """One attempt's events; every method returns at once and none raises."""

    def __init__(self, bridge: "EventBridge", row: Row) -> None:
        self._bridge = bridge
        self._row = row
        self._lines: list[str] = []
        self._size = 0
        self._left_out = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def report(self, event_type: str, data: dict[str, Any]) -> None:
        """What the handler reports: progress is a message delta, everything else an event of its own type."""
        if self._is_closed or event_type == "started":  # the bridge has said that one
            return
        self.flush()
        try:
            kind, members = _told(event_type, data)
        except (TypeError, ValueError, AttributeError):  # a handler of the loop may have called with anything
            kind, members = "tool_event", {"name": event_type, "data": data}
        self._bridge.put(self._row, kind, members)

    def line(self, text: str) -> None:
        """A line of output; what comes within a quarter of a second is one event, and of very much the rest is left
        out."""
        if self._is_closed:
            return
        if self._size >= LINES_MOST:
            self._left_out += 1
            return
        line: Any = text
        if not isinstance(line, str):
            line = f"({type(text).__name__})"
        self._lines.append(line[: LINES_MOST - self._size])
        self._size += len(line) + 1
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GATHER_SECS, self.flush)

    def flush(self) -> None:
        """Put the lines that wait into one event."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._lines:
            members: dict[str, Any] = {"channel": "stdout", "text": "\n".join(self._lines) + "\n"}
            if self._left_out:
                members["left_out"] = f"{self._left_out} lines"
            self._lines, self._size, self._left_out = [], 0, 0
            self._bridge.put(self._row, "message_delta", members)

    def close(self) -> None:
        """The attempt is over: put what waits, and take nothing more (a handler may be left behind and go on)."""
        self.flush()
        self._is_closed = True


class EventBridge:
    """Sends what turns tell to an event source.

    Args:
        settings: where to, and whose events they are.
        worker: the worker's identity.
        handler: its handler's name.
        redact: takes secrets out; called in a thread, one event at a time. One that raises costs the event's content,
            never a secret.
        spool_path: the file of what is not sent yet.

    Attributes:
        refused: events that the source did not take, for good.
        trouble: why nothing is sent now; None when all is well.
    """

    def __init__(self, settings: EventSettings, *, worker: str, handler: str, redact: Redact, spool_path: Path) -> None:
        self.refused = 0
        self.trouble: str | None = None
        self._settings = settings
        self._worker, self._handler = worker, handler
        self._redact = redact
        self._spool = EventSpool(spool_path, finish=self._finish)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Open the spool and begin to send. An event source that is away is waited for in the background.

        Raises:
            sqlite3.Error, OSError: the spool cannot be opened.
        """
        await self._spool.open()
        self._tasks = [
            asyncio.create_task(self._spool.write(), name="event-spool"),
            asyncio.create_task(self._send(), name="event-sender"),
        ]

    @property
    def parts(self) -> "set[asyncio.Task[None]]":
        """Its background tasks; their owner notices when one dies."""
        return set(self._tasks)

    async def stop(self, drain_secs: float = DRAIN_SECS) -> None:
        """Write down what came, send for a moment more, and end; the rest is sent after the next start."""
        if not self._tasks:
            return
        await self._spool.settled(drain_secs)
        if self.trouble is None:
            await self._spool.sent(drain_secs)
        while running := [task for task in self._tasks if not task.done()]:
            for task in running:
                task.cancel()
            await asyncio.wait(running, timeout=CANCEL_AGAIN_SECS)  # a driver may lose one
        self._tasks = []
        if self._spool.waiting:
            log.warning("events stay in the spool until the next start", count=self._spool.waiting)
        await self._spool.close(drain_secs)

    def describe(self) -> dict[str, Any]:
        """Its numbers, for the heartbeat."""
        return {
            "waiting": self._spool.waiting,
            "dropped": self._spool.dropped,
            "refused": self.refused,
            "trouble": self._spool.trouble or self.trouble,
        }

    def begin(self, row: Row, prompt: str) -> TurnRecorder:
        """An attempt begins."""
        members = {
            "worker": self._worker,
            "handler": self._handler,
            "from": row.sender,
            "attempt": row.attempts,
            "prompt": prompt,
        }
        self.put(row, "agent_started", members, opened_by=row.sender)
        return TurnRecorder(self, row)

    def waits(self, row: Row, reason: str) -> None:
        """The attempt is over and the turn waits for another one."""
        self.put(row, "attempt_ended", {"attempt": row.attempts, "reason": reason})

    def ended(self, row: Row, outcome: Outcome) -> None:
        """The turn is over, whatever ended it: the last event of its run."""
        self._end(_run_of(row, self._settings.tenant), outcome)

    async def end_left_open(self, find: FindTurn) -> None:
        """End the runs of an earlier process whose turns are over though their ends were not written down: it was
        killed in between.

        Args:
            find: the turn of a sender's envelope, None where it is not known any more.
        """
        for name, sender in list(self._spool.left_open.items()):
            row = await find(sender, name.run)
            if row is None:
                self._end(name, Outcome.failed("interrupted", "the mailbox of its worker does not know it any more"))
            elif row.outcome is not None and name in self._spool.left_open:
                self._end(name, row.outcome)

    def put(self, row: Row, kind: str, members: dict[str, Any], *, opened_by: str | None = None) -> None:
        """Spool an event of this turn's run.

        Args:
            row: the turn.
            kind: the event's type.
            members: what it says; anything that a handler may have reported.
            opened_by: who asked for the run that begins with it.
        """
        self._put(_run_of(row, self._settings.tenant), kind, members, opened_by=opened_by)

    def _end(self, name: RunName, outcome: Outcome) -> None:
        self._spool.left_open.pop(name, None)
        if outcome.status == "done":
            members = {"status": "done", "result": msgspec.Raw(outcome.result_json)}
            self._put(name, "agent_finished", members)
        elif outcome.status == "cancelled":
            self._put(name, "error", {"code": "cancelled", "error": "cancelled"})
        else:
            self._put(name, "error", {"code": outcome.code, "error": outcome.error or ""})

    def _put(self, name: RunName, kind: str, members: dict[str, Any], *, opened_by: str | None = None) -> None:
        try:
            event = Bounded().members(members)
        except Exception as error:  # noqa: BLE001 - handlers report objects of their own; a turn must not hear of it
            log.warning("an event cannot be read; its content is left out", kind=kind, error=repr(type(error)))
            event = {"left_out": "it could not be read"}
        record = AgentEventRecord(
            id=str(uuid.uuid4()),
            session_id=name.session,
            run_id=name.run,
            type=kind,
            timestamp=now_timestamp(),
            event=event,
            redacted=False,
            tenant_id=name.tenant,
        )
        self._spool.put(record, opened_by=opened_by)

    def _finish(self, record: AgentEventRecord) -> AgentEventRecord:
        """Take the secrets out; in the spool's thread."""
        try:
            told = cut_texts(self._redact(record.event))
            check_json("event", told)
            size = len(msgspec.json.encode(told))
            if size > EVENT_MOST_BYTES:
                told = {"left_out": f"{size} bytes, more than an event holds"}
            event = {f"{name}_" if name in _OWN else name: value for name, value in told.items()}
        except Exception as error:  # noqa: BLE001 - a redactor is somebody else's code
            # Not its text, which may hold what it was to take out.
            log.warning(
                "an event was not redacted; its content is left out", kind=record.type, error=type(error).__name__
            )
            event = {"left_out": "it could not be redacted"}
        event |= {"type": record.type, "sessionId": record.session_id, "runId": record.run_id}
        return msgspec.structs.replace(record, event=event, redacted=True)

    # Sending

    async def _send(self) -> None:
        pause_secs = FIRST_PAUSE_SECS
        while True:
            sent_before = self._spool.sent_count
            try:
                await self._send_while_it_answers()
            except (AgentEventSourceError, BadSettings, TimeoutError, OSError, sqlite3.Error) as error:
                self._is_away(str(error) or "no answer in time")
            except Exception as error:  # a fault of ours or of a driver: loud, but turns go on without their events
                log.exception("sending events failed")
                self._is_away(repr(error)[:200])
            pause_secs = FIRST_PAUSE_SECS if self._spool.sent_count > sent_before else 2 * pause_secs
            await asyncio.sleep(min(pause_secs, LONGEST_PAUSE_SECS))

    def _is_away(self, why: str) -> None:
        if self.trouble is None:
            log.warning("the event source does not take events; they wait on disk", error=why)
        self.trouble = why

    async def _send_while_it_answers(self) -> None:
        settings = self._settings
        # Cursors are made by whoever reads; nothing is read here.
        async with open_event_source(
            settings.url, cursor_secret=secrets.token_bytes(32), stream=settings.stream, settings=settings.connect
        ) as source:
            while True:
                for spooled in await self._spool.page():
                    try:
                        async with asyncio.timeout(APPEND_SECS):
                            await source.append(spooled.record)
                    except AgentEventSourceError as error:
                        if not _is_about_the_event(error):
                            raise
                        self.refused += 1
                        name = name_of(spooled.record)
                        log.error("an event was refused", run=name.run, code=error.code, error=str(error))  # noqa: TRY400
                    if self.trouble is not None:
                        log.info("the event source takes events again")
                        self.trouble = None
                    await self._spool.forget(spooled.seq)


def open_bridge(
    settings: EventSettings, *, worker: str, handler: str, redact: Redact, state_folder: Path
) -> EventBridge:
    """The bridge of a worker, with its spool in the worker's state folder; not started."""
    path = state_folder / "events" / f"{worker}.db"
    return EventBridge(settings, worker=worker, handler=handler, redact=redact, spool_path=path)


def settings_of(
    url: str, tenant: str | None, stream: str | None, environ: Mapping[str, str] = os.environ
) -> EventSettings:
    """Where events go, from what a command line says.

    Raises:
        ValueError: there is no tenant, or one of them cannot be meant.
    """
    if not tenant:
        raise ValueError("--event-source needs --tenant: whose events they are")
    creds = environ.get("NATS_HUB_EVENTS_CREDS") or None
    settings = EventSettings(url=url, tenant=tenant, stream=stream or DEFAULT_STREAM, creds=creds)
    try:
        check_ownership(Ownership(tenant_id=tenant))
        if settings.connect is not None:
            settings.connect.require_valid()
    except (InvalidInputError, BadSettings) as error:
        raise ValueError(f"--event-source: {error}") from error
    return settings


def _run_of(row: Row, tenant: str) -> RunName:
    """A turn's run: named by the task, in the session that it belongs to."""
    session_id = row.session.name.session_id if row.session is not None else row.envelope_id
    return RunName(tenant, session_id, row.envelope_id)


def _told(event_type: str, data: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The type and members of an event that a handler reports."""
    if event_type == "progress":
        more = {name: value for name, value in data.items() if name != "message" and value is not None}
        return "message_delta", {"text": data.get("message"), **more}
    if _KIND.fullmatch(event_type) and event_type not in _RESERVED:
        return event_type, dict(data)
    return "tool_event", {"name": event_type, **data}


def _is_about_the_event(error: AgentEventSourceError) -> bool:
    """Would the source refuse this very event for ever, and take others?"""
    if error.retriable or isinstance(error, StreamMisconfiguredError):
        return False
    if isinstance(error, EventOverflowError):
        return not error.is_whole_place
    return error.code in {"INPUT", "STORED"}
