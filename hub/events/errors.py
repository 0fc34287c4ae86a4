"""Errors of the event source: one family, one word each (docs/events.md, "Errors")."""

from collections.abc import Sequence
from typing import ClassVar


class AgentEventSourceError(Exception):
    """The event source failed.

    Attributes:
        code: the word that programs decide by: `INPUT`, `CURSOR`, `RETENTION`, `OVERFLOW`, `CLOSED`, `CONFLICT`,
            `STORED` or `UNAVAILABLE`.
        retriable: whether the same call can succeed later without anybody changing anything.
    """

    code: ClassVar[str] = "UNAVAILABLE"
    retriable: bool = False

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip().splitlines()[0])


class InvalidInputError(AgentEventSourceError):
    """An argument, a record or an option is not what the event source takes."""

    code = "INPUT"


class StreamMisconfiguredError(InvalidInputError):
    """The stream cannot carry agent events.

    Attributes:
        stream: the stream's name.
        problems: one line for each setting that does not fit: what it is, what is needed.
    """

    def __init__(self, stream: str, problems: Sequence[str]) -> None:
        self.stream = stream
        self.problems = tuple(problems)
        super().__init__(f"stream {stream!r} cannot carry agent events: {'; '.join(problems)}")


class InvalidCursorError(AgentEventSourceError):
    """The cursor was not made by this source for this run and owner."""

    code = "CURSOR"


class RetentionExceededError(AgentEventSourceError):
    """Events behind the cursor are gone before they were delivered.

    Attributes:
        earliest_cursor: reading from here on yields everything that is still retained.
    """

    code = "RETENTION"

    def __init__(self, message: str | None = None, *, earliest_cursor: str | None = None) -> None:
        self.earliest_cursor = earliest_cursor
        super().__init__(message)


class EventOverflowError(AgentEventSourceError):
    """A limit is reached: the run's retained events, the subscribers, or what the backend stores.

    Attributes:
        is_whole_place: the backend is full, for every run alike.
    """

    code = "OVERFLOW"

    def __init__(self, message: str | None = None, *, is_whole_place: bool = False) -> None:
        self.is_whole_place = is_whole_place
        super().__init__(message)


class SourceClosedError(AgentEventSourceError):
    """The event source is closed."""

    code = "CLOSED"


class AppendConflictError(AgentEventSourceError):
    """Other producers were faster each time; the event was not stored. Append it again."""

    code = "CONFLICT"
    retriable = True


class StoredRecordBrokenError(AgentEventSourceError):
    """A stored record cannot be read."""

    code = "STORED"


class BackendUnavailableError(AgentEventSourceError):
    """The backend did not answer; whether an append was stored is unknown until it is repeated under the same id.

    Attributes:
        retriable: False where waiting does not help (no such stream, not permitted).
    """

    code = "UNAVAILABLE"

    def __init__(self, message: str | None = None, *, retriable: bool = True) -> None:
        self.retriable = retriable
        super().__init__(message)
