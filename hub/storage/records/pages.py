"""Pages and reports of batches, and the limits that storage keeps."""

from typing import Final, Generic, TypeVar

import msgspec

MAX_BATCH: Final = 256  # contract §3.2: a mirror's batch
MAX_LIMIT: Final = 1000  # contract §10: the longest page
DEFAULT_LIMIT: Final = 100
MAX_THREAD_DEPTH: Final = 64  # contract §10.1
DEFAULT_PAGE_BYTES: Final = 4 * 1024 * 1024  # half of the 8 MB that every server config of ours allows a message
DEAD_DATA_BYTES: Final = 64 * 1024  # contract §3.3: a dead letter's bytes are cut here
MAX_CAPABILITIES: Final = 256  # an agent that announces more is a mistake or an attack; each is a row
MAX_METADATA_BYTES: Final = 64 * 1024  # announced every 30 s by every agent, and read in lists of them

T = TypeVar("T")


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A part of a list, newest first.

    Attributes:
        items: the records.
        next_cursor: what to pass as `cursor` for the next part; None when this was the last.
    """

    items: list[T]
    next_cursor: str | None = None


class Refused(msgspec.Struct, frozen=True):
    """A row of a batch that cannot be stored; the rest was.

    Attributes:
        index: its place in the batch.
        reason: what is wrong with it.
    """

    index: int
    reason: str


class BatchReport(msgspec.Struct, frozen=True):
    """What became of a batch; the three add up to its length.

    Attributes:
        stored: rows that are new.
        duplicates: rows that were there already (or twice in the batch), and were left as they are.
        refused: rows that can never be stored. Trying them again gives the same answer.
    """

    stored: int
    duplicates: int = 0
    refused: tuple[Refused, ...] = ()


class RetentionRule(msgspec.Struct, frozen=True, kw_only=True):
    """How long one kind of record is kept; None is without limit.

    Attributes:
        kind: an envelope's kind (`message`, `control`, `human`, `status`, `event`), or `dead`, `session`, `wave`,
            `agent`.
        max_age_secs: older ones leave: envelopes by `stored_at`, dead letters by `received_at`, agents by
            `last_seen`; sessions and waves by `closed_at`, so that one that is not over stays.
        max_bytes: the oldest leave until the rest is within it (approximate size of the records; for sessions and
            waves those that are over make room, the others only count).
    """

    kind: str
    max_age_secs: float | None = None
    max_bytes: int | None = None


class RetentionStep(msgspec.Struct, frozen=True):
    """What one small step removed.

    Attributes:
        removed: records by kind; a wave's tasks are not counted.
        done: True when nothing is left that the rules would remove now.
    """

    removed: dict[str, int]
    done: bool
