"""The agent event source: an append-only, durable, replayable log of what agents did (docs/events.md).

Importing connects to nothing and loads no driver: the adapters for NATS JetStream and PostgreSQL load on first use.
"""

from typing import TYPE_CHECKING, Any

from hub.events.base import (
    AgentEventSource,
    CleanupReport,
    EventEnvelope,
    EventPage,
    EventRead,
    EventSubscription,
)
from hub.events.errors import (
    AgentEventSourceError,
    AppendConflictError,
    BackendUnavailableError,
    EventOverflowError,
    InvalidCursorError,
    InvalidInputError,
    RetentionExceededError,
    SourceClosedError,
    StoredRecordBrokenError,
    StreamMisconfiguredError,
)
from hub.events.limits import Limits
from hub.events.memory import MemoryEventSource, MemoryEventStore
from hub.events.records import TERMINAL_TYPES, AgentEventRecord, Ownership

if TYPE_CHECKING:
    from hub.events.jetstream import JetStreamEventSource
    from hub.events.postgres import PostgresEventSource


def __getattr__(name: str) -> Any:
    if name == "JetStreamEventSource":
        from hub.events.jetstream import JetStreamEventSource  # noqa: PLC0415 - loads nats

        return JetStreamEventSource
    if name == "PostgresEventSource":
        from hub.events.postgres import PostgresEventSource  # noqa: PLC0415 - loads asyncpg

        return PostgresEventSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "AgentEventSource",
    "JetStreamEventSource",
    "MemoryEventSource",
    "MemoryEventStore",
    "PostgresEventSource",
    "AgentEventRecord",
    "Ownership",
    "EventRead",
    "EventEnvelope",
    "EventPage",
    "EventSubscription",
    "CleanupReport",
    "Limits",
    "TERMINAL_TYPES",
    "AgentEventSourceError",
    "InvalidInputError",
    "StreamMisconfiguredError",
    "InvalidCursorError",
    "RetentionExceededError",
    "EventOverflowError",
    "SourceClosedError",
    "AppendConflictError",
    "StoredRecordBrokenError",
    "BackendUnavailableError",
]
