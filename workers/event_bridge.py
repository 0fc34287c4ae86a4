"""The bridge: each turn's life as a run of the event source, on a connection of its own (docs/events.md).

The executor tells it what happens; it never raises, blocks or makes a turn wait. Events are redacted, put into the
spool, and sent from there in order; an event source that is away costs room on disk, nothing else.
"""

import asyncio
import os
import re
import secrets
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from hub.delivery.settings import ConnectSettings
from hub.events.errors import AgentEventSourceError
from hub.events.opening import DEFAULT_STREAM, POSTGRES_SCHEMES, open_event_source
from hub.events.producing import RunProducer
from hub.events.records import AgentEventRecord, Ownership
from hub.mailbox import Outcome
from hub.mailbox import Turn as Row
from workers.event_spool import EventSpool
from workers.redactor import Redact

log = structlog.get_logger(__name__)

TEXT_MOST: Final = 16_000  # characters of one text; an event holds 64 KiB
EVENT_MOST_BYTES: Final = 60_000  # the source's limit is 64 KiB, with the record around the event
LINES_MOST: Final = 16_000  # characters of output that are gathered into one event
GATHER_SECS: Final = 0.25
DRAIN_SECS: Final = 3.0
APPEND_SECS: Final = 30.0
FIRST_PAUSE_SECS: Final = 0.5
LONGEST_PAUSE_SECS: Final = 30.0
CUT: Final = "… (cut)"

_KIND: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
_RESERVED: Final = frozenset({"agent_started", "agent_finished", "agent_denied", "run_limit_exceeded", "error"})


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


class TurnRecorder:
    """One attempt's events; every method returns at once and none raises."""

    def __init__(self, bridge: "EventBridge", row: Row) -> None:
        self._bridge = bridge
        self._row = row
        self._lines: list[str] = []
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None

    def started(self, prompt: str, worker: str, handler: str) -> None:
        """The handler begins."""
        self._put(
            "agent_started",
            {
                "worker": worker,
                "handler": handler,
                "from": self._row.sender,
                "attempt": self._row.attempts,
                "prompt": _cut(prompt),
            },
        )

    def report(self, event_type: str, data: dict[str, Any]) -> None:
        """What the handler reports: progress is a message delta, everything else an event of its own type."""
        if event_type == "started":
            return  # `started` has said it
        if event_type == "progress":
            more = {name: value for name, value in data.items() if name != "message" and value is not None}
            self._put("message_delta", {"text": str(data.get("message", "")), **more})
        elif _KIND.fullmatch(event_type) and event_type not in _RESERVED:
            self._put(event_type, dict(data))
        else:
            self._put("tool_event", {"name": event_type, **data})

    def line(self, text: str) -> None:
        """A line of output; what comes within a quarter of a second is one event."""
        self._lines.append(text[:LINES_MOST])
        self._size += len(self._lines[-1]) + 1
        if self._size >= LINES_MOST:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GATHER_SECS, self.flush)

    def flush(self) -> None:
        """Put the lines that wait into one event."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._lines:
            text = "\n".join(self._lines) + "\n"
            self._lines, self._size = [], 0
            self._bridge.put(self._row, "message_delta", {"channel": "stdout", "text": text})

    def _put(self, kind: str, members: dict[str, Any]) -> None:
        self.flush()
        self._bridge.put(self._row, kind, members)


class EventBridge:
    """Sends what turns tell to an event source.

    Args:
        settings: where to, and whose events they are.
        worker: the worker's identity.
        handler: its handler's name.
        redact: takes secrets out; one that raises costs the event's content, never a secret.
        spool: what is not sent yet.
    """

    def __init__(
        self, settings: EventSettings, *, worker: str, handler: str, redact: Redact, spool: EventSpool
    ) -> None:
        self.refused = 0
        self.trouble: str | None = None  # why nothing is sent now
        self._settings = settings
        self._worker, self._handler = worker, handler
        self._redact = redact
        self._spool = spool
        self._ownership = Ownership(tenant_id=settings.tenant)
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
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        self._tasks = []
        if self._spool.waiting:
            log.warning("events stay in the spool until the next start", count=self._spool.waiting)
        await self._spool.close()

    def describe(self) -> dict[str, Any]:
        """Its numbers, for the heartbeat."""
        return {
            "waiting": self._spool.waiting,
            "dropped": self._spool.dropped,
            "refused": self.refused,
            "trouble": self.trouble,
        }

    def begin(self, row: Row, prompt: str) -> TurnRecorder:
        """An attempt begins."""
        recorder = TurnRecorder(self, row)
        recorder.started(prompt, self._worker, self._handler)
        return recorder

    def waits(self, row: Row, reason: str) -> None:
        """The attempt is over and the turn waits for another one."""
        self.put(row, "attempt_ended", {"attempt": row.attempts, "reason": _cut(reason)})

    def ended(self, row: Row, outcome: Outcome) -> None:
        """The turn is over: the last event of its run."""
        if outcome.status == "done":
            result = _cut(outcome.result_json.decode("utf-8", "replace"))
            self.put(row, "agent_finished", {"status": "done", "result_json": result})
        elif outcome.status == "cancelled":
            self.put(row, "error", {"code": "cancelled", "error": "cancelled"})
        else:
            self.put(row, "error", {"code": outcome.code, "error": _cut(outcome.error or "")})

    def put(self, row: Row, kind: str, members: dict[str, Any]) -> None:
        """Build an event of this turn's run and spool it."""
        try:
            record = self._record(row, kind, members, self._redact)
            size = len(msgspec.json.encode(record.event))
        except Exception as error:  # noqa: BLE001 - a redactor is somebody else's code; a turn must not hear of it
            log.warning("an event was not redacted; its content is left out", kind=kind, error=repr(error)[:200])
            record, size = self._record(row, kind, {"left_out": "it could not be redacted"}, _as_it_is), 0
        if size > EVENT_MOST_BYTES:
            record = self._record(row, kind, {"left_out": f"{size} bytes, more than an event holds"}, _as_it_is)
        self._spool.put(record)

    def _record(self, row: Row, kind: str, members: dict[str, Any], redact: Redact) -> AgentEventRecord:
        session_id = row.session.name.session_id if row.session is not None else row.envelope_id
        producer = RunProducer(
            _NOWHERE, ownership=self._ownership, session_id=session_id, run_id=row.envelope_id, redact=redact
        )
        return producer.record(kind, **{_member(name): value for name, value in members.items()})

    # Sending

    async def _send(self) -> None:
        pause_secs = FIRST_PAUSE_SECS
        while True:
            sent_before = self._spool.waiting
            try:
                await self._send_while_it_answers()
            except (AgentEventSourceError, TimeoutError, OSError, sqlite3.Error) as error:
                if self.trouble is None:
                    log.warning(
                        "the event source does not take events; they wait on disk", error=str(error) or repr(error)
                    )
                self.trouble = str(error) or "no answer in time"
            pause_secs = (
                FIRST_PAUSE_SECS if self._spool.waiting < sent_before else min(2 * pause_secs, LONGEST_PAUSE_SECS)
            )
            await asyncio.sleep(pause_secs)

    async def _send_while_it_answers(self) -> None:
        settings = self._settings
        connect: ConnectSettings | None = None
        if not settings.url.startswith(POSTGRES_SCHEMES):
            connect = ConnectSettings(servers=(settings.url,), creds=settings.creds, url_source="--event-source")
        # Cursors are made by whoever reads; nothing is read here.
        async with open_event_source(
            settings.url, cursor_secret=secrets.token_bytes(32), stream=settings.stream, settings=connect
        ) as source:
            while True:
                for spooled in await self._spool.page():
                    try:
                        async with asyncio.timeout(APPEND_SECS):
                            await source.append(spooled.record)
                    except AgentEventSourceError as error:
                        if error.retriable or error.code in {"UNAVAILABLE", "CLOSED"}:
                            raise
                        self.refused += 1
                        record = spooled.record
                        log.error("an event was refused", run=record.run_id, error=str(error))  # noqa: TRY400
                    if self.trouble is not None:
                        log.info("the event source takes events again")
                        self.trouble = None
                    await self._spool.forget(spooled.seq)


_NOWHERE: Any = None  # a producer that only builds needs no source


def open_bridge(
    settings: EventSettings, *, worker: str, handler: str, redact: Redact, state_folder: Path
) -> EventBridge:
    """The bridge of a worker, with its spool in the worker's state folder; not started."""
    spool = EventSpool(state_folder / "events" / f"{worker}.db")
    return EventBridge(settings, worker=worker, handler=handler, redact=redact, spool=spool)


def settings_of(
    url: str, tenant: str | None, stream: str | None, environ: Mapping[str, str] = os.environ
) -> EventSettings:
    """Where events go, from what a command line says.

    Raises:
        ValueError: there is no tenant.
    """
    if not tenant:
        raise ValueError("--event-source needs --tenant: whose events they are")
    creds = environ.get("NATS_HUB_EVENTS_CREDS")
    return EventSettings(url=url, tenant=tenant, stream=stream or DEFAULT_STREAM, creds=creds)


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_MOST else text[:TEXT_MOST] + CUT


def _member(name: Any) -> str:
    """Members that the event itself has give way."""
    text = str(name)
    return f"{text}_" if text in {"type", "sessionId", "runId", "event_id", "kind", "self"} else text


def _as_it_is(members: dict[str, Any]) -> dict[str, Any]:
    """What holds no secret."""
    return members
