"""The producer: turns what happens in a run into records of one owner, redacted on the way."""

import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from hub.events.base import AgentEventSource
from hub.events.records import AgentEventRecord, Ownership, now_timestamp

Redact = Callable[[dict[str, Any]], dict[str, Any]]


class RunProducer:
    """Builds and appends the events of one run.

    Building is apart from appending, so that records can be kept (on disk, in a queue) and appended later or again: the
    id is given when a record is built, which makes a repeated append change nothing.

    Args:
        source: where the events go.
        ownership: whose run it is.
        session_id: the run's session.
        run_id: the run.
        redact: gets an event's members and returns them without secrets. The source refuses what was not redacted, so
            there is no default; `lambda members: members` says that there are none.
        clock: the current time.
    """

    def __init__(
        self,
        source: AgentEventSource,
        *,
        ownership: Ownership,
        session_id: str,
        run_id: str,
        redact: Redact,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._source = source
        self._ownership, self._session_id, self._run_id = ownership, session_id, run_id
        self._redact = redact
        self._clock = clock

    def record(self, kind: str, /, *, event_id: str | None = None, **members: Any) -> AgentEventRecord:
        """An event as a record.

        Args:
            kind: the event's type, e.g. `agent_started`, `message_delta`, `agent_finished`.
            event_id: its id; None: a random one.
            members: what the event says beside its type, session and run.
        """
        event = {**self._redact(members), "type": kind, "sessionId": self._session_id, "runId": self._run_id}
        return AgentEventRecord(
            id=event_id or str(uuid.uuid4()),
            session_id=self._session_id,
            run_id=self._run_id,
            type=kind,
            timestamp=now_timestamp(self._clock()),
            event=event,
            redacted=True,
            tenant_id=self._ownership.tenant_id,
            account_id=self._ownership.account_id,
            user_id=self._ownership.user_id,
        )

    async def append(self, kind: str, /, *, event_id: str | None = None, **members: Any) -> AgentEventRecord:
        """Build an event and append it; see `record` and `AgentEventSource.append`."""
        return await self._source.append(self.record(kind, event_id=event_id, **members))
