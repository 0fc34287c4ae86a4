"""The agent event source: an append-only, durable, replayable log of what agents did (docs/events.md).

Importing connects to nothing.
"""

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

__all__ = [
    "AgentEventSource",
    "MemoryEventSource",
    "MemoryEventStore",
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
