"""Storage: the interface that history, the mirror, the API and the waves stand on; its docstrings are the contract.

What holds everywhere:
- **Atomic:** one call is one transaction. It is done, or nothing of it is.
- **Inserts insert:** a name that is taken is `Conflict`, never an overwrite. Where a repeat is the normal case (the
  mirror, dead letters, sightings) the method says what it does.
- **Updates are compare-and-set** and say when nothing matched (None, False or `Stale`).
- **Nothing poisons a batch:** a row that can never be stored is refused by its index, the others are stored.
- **Lists** are newest first; equal times in the order in which they were stored, newest first. `limit` is 1 to 1000
  (`BadValue` otherwise). A page ends early before `max_bytes` (but holds at least one record), and then has a
  `next_cursor` too. A cursor stays good during inserts: what was there when the first page was read and is still there
  comes once.
- **`visible_to`** is the identity for which a list or a record is read, None for an API admin. The filter works inside
  the query, before the limit; what the identity may not see is as if it were not there.
- **Names** in lookups may be any text; one that no record can have finds nothing.
- **Failure:** `StorageUnavailable` when the database does not answer (or its lock could not be had within the
  deadline): the same call may succeed later. `StorageFailed`, a kind of it, when the database refuses what it should
  not: somebody must look. A cancelled call may still have its effect.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from hub.storage.orchestration import Leases, Sessions, Waves
from hub.storage.records import (
    DEFAULT_LIMIT,
    DEFAULT_PAGE_BYTES,
    MAX_THREAD_DEPTH,
    Activity,
    Agent,
    BatchReport,
    Bucket,
    DeadLetter,
    EnvelopeFilter,
    EnvelopeRecord,
    Hotspot,
    Latency,
    NewDeadLetter,
    NewEnvelope,
    Page,
    Position,
    RetentionRule,
    RetentionStep,
    Sighting,
    Thread,
)


class Agents(ABC):
    """Who was heard, and what they said about themselves."""

    @abstractmethod
    async def record(self, sightings: Sequence[Sighting]) -> BatchReport:
        """Take presences and registrations, in any order and from several routers.

        The first sighting makes the agent (`registered_at`); `last_seen` never goes back; capabilities and metadata
        are those of the newest registration by `seen_at`. Repeats change nothing but count as stored. Refused: a bad
        identity, more than 256 capabilities, more than 64 KiB of metadata, text that UTF-8 cannot hold.
        """

    @abstractmethod
    async def get(self, identity: str) -> Agent | None:
        """The agent, or None when it was never heard."""

    @abstractmethod
    async def find(
        self,
        *,
        capabilities: Sequence[str] = (),
        seen_since: datetime | None = None,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
        max_bytes: int = DEFAULT_PAGE_BYTES,
    ) -> Page[Agent]:
        """Agents that have all these capabilities and were seen at `seen_since` or later; newest `registered_at`
        first, which does not move while somebody turns pages."""


class Envelopes(ABC):
    """History: what was sent. An envelope is named by `(from, id, destination)`."""

    @abstractmethod
    async def insert_mirrored(self, rows: Sequence[NewEnvelope], positions: Sequence[Position] = ()) -> BatchReport:
        """Store a batch and how far the streams were read, in one transaction (contract §3.2).

        Args:
            rows: at most 256 (`ValueError` above), of one stream in its order, or best-effort ones. Duplicates are
                left as they were and counted.
            positions: the last sequence that the batch covers, refused and undecodable messages included. It is
                written also when `rows` is empty. Within one creation time the highest sequence stays; a later
                creation time replaces an earlier one; an earlier one is ignored.

        A row is refused when its id, sender, channel, recipient, kind or time breaks contract §1, its destination
        is longer than 2048 characters of printable ASCII, or the database refuses it by itself. `reply_to` may be any
        text: it is indexed when it is a message id; a NUL comes back as it was, a lone surrogate as U+FFFD.
        """

    @abstractmethod
    async def mirror_position(self, stream: str) -> Position | None:
        """How far the stream was mirrored, by this storage's own word; None when it never was.

        Several routers share one consumer, so batches below this sequence may still be on their way to it (they are
        not acked). Whoever makes a consumer again from here starts as far back as batches can be outstanding.
        """

    @abstractmethod
    async def query(
        self,
        filters: EnvelopeFilter | None = None,
        *,
        visible_to: str | None = None,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
        max_bytes: int = DEFAULT_PAGE_BYTES,
    ) -> Page[EnvelopeRecord]:
        """Envelopes by filter, newest `stored_at` first.

        Visible are those that the identity sent or was sent, and those that had no recipient.
        """

    @abstractmethod
    async def get(
        self,
        envelope_id: str,
        *,
        sender: str | None = None,
        to: str | None = None,
        visible_to: str | None = None,
    ) -> EnvelopeRecord | None:
        """The newest visible envelope of that id (ids are chosen by senders: several may have one), or None."""

    @abstractmethod
    async def thread(
        self,
        root_id: str,
        *,
        sender: str | None = None,
        resolve: bool = False,
        max_depth: int = MAX_THREAD_DEPTH,
        limit: int = DEFAULT_LIMIT,
        visible_to: str | None = None,
        max_bytes: int = DEFAULT_PAGE_BYTES,
    ) -> Thread | None:
        """The newest visible envelope `root_id` (of `sender`) and what replies to it, directly or not.

        Root first, then level by level, each oldest first; each envelope once, whatever circles its replies make.
        Replies that can only be reached through an invisible envelope are not found.

        Args:
            resolve: first walk up from `root_id` along `reply_to`, at most `max_depth` visible steps, and take where
                that ends as the root.
            max_depth: levels below the root, 0 to 64.

        Returns:
            The thread, or None when there is no visible envelope `root_id`.
        """

    @abstractmethod
    async def pending(
        self,
        identity: str,
        *,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
        max_bytes: int = DEFAULT_PAGE_BYTES,
    ) -> Page[EnvelopeRecord]:
        """Envelopes of kind `message` and `human` to the identity that no `message` of that identity replies to.

        It does not matter which of the two was stored first. One that was answered stays answered, also when the
        answer has left by retention.
        """


class Stats(ABC):
    """Figures over what is stored, computed in the database, up to now.

    A window of `secs` seconds is at least 1 and at most 10 years (`BadValue`).
    """

    @abstractmethod
    async def message_rate(self, *, secs: float = 3600, interval: str = "minute") -> list[Bucket]:
        """Envelopes stored in each `minute`, `hour` or `day` (UTC) of the window, oldest first, empty ones included.

        At most 10 000 buckets (`BadValue`: take a longer interval).
        """

    @abstractmethod
    async def error_rate(self, *, secs: float = 3600, interval: str = "minute") -> list[Bucket]:
        """As `message_rate`, of results with the status `error` (contract §7)."""

    @abstractmethod
    async def latency(self, *, secs: float = 3600, channel: str | None = None) -> Latency:
        """From a `message` or `human` stored in the window to its first `message` reply.

        For a direct message only its recipient's reply counts. Percentiles are by nearest rank. Of more than 50 000
        messages in the window the newest 50 000 are looked at.
        """

    @abstractmethod
    async def agent_activity(self, identity: str, *, secs: float = 86400) -> Activity:
        """What the identity sent (`events`: of kind `event`) and was sent in the window, and what is pending now."""

    @abstractmethod
    async def channel_hotspots(self, *, secs: float = 3600, limit: int = 10) -> list[Hotspot]:
        """The channels with the most envelopes in the window, most first, then by name."""


class DeadLetters(ABC):
    """What could not be delivered."""

    @abstractmethod
    async def insert(self, letters: Sequence[NewDeadLetter]) -> BatchReport:
        """Keep dead letters (at most 256; `ValueError` above). One whose `dead_id` is there already is a duplicate."""

    @abstractmethod
    async def find(
        self,
        *,
        reason: str | None = None,
        since: datetime | None = None,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
        max_bytes: int = DEFAULT_PAGE_BYTES,
    ) -> Page[DeadLetter]:
        """Dead letters received at `since` or later, newest `received_at` first."""

    @abstractmethod
    async def get(self, dead_id: str) -> DeadLetter | None:
        """The dead letter, or None."""

    @abstractmethod
    async def mark_replayed(self, dead_id: str, at: datetime | None = None) -> bool:
        """Note that it is sent again; False when it is not there or was replayed before (so: once)."""


class Storage(ABC):
    """One database. Made by `hub.storage.open_storage`; `await open()` before use; one object a process and loop.

    `open` and `close` may be called twice; `close` before `open` is fine; a closed storage is not opened again, and
    answers `StorageUnavailable`.
    `async with` opens and closes.
    """

    agents: Agents
    envelopes: Envelopes
    stats: Stats
    dead_letters: DeadLetters
    sessions: Sessions
    waves: Waves
    leases: Leases

    @property
    @abstractmethod
    def url(self) -> str:
        """Where it is, without a password."""

    @property
    @abstractmethod
    def storage_id(self) -> str:
        """8 hex digits made with the database, the same for all that share it and in its backups (contract §3.2).

        Known after `open` (`RuntimeError` before).
        """

    @abstractmethod
    async def open(self) -> None:
        """Connect, and bring the database to this version's schema, under a lock that all who open it share.

        Raises:
            StorageUnavailable: it does not answer; try again later.
            StorageMismatch: it is no database of ours, or a newer version's; trying again does not help.
        """

    @abstractmethod
    async def close(self) -> None:
        """Finish what runs, and let go of the database."""

    @abstractmethod
    async def check_health(self) -> float:
        """Ask the database something; the seconds that its answer took. Raises `StorageUnavailable`."""

    @abstractmethod
    async def apply_retention(self, rules: Sequence[RetentionRule], *, most: int = 500) -> RetentionStep:
        """Remove at most about `most` records that the rules no longer keep, oldest first, in one short transaction.

        Call it again until `done`, with a pause between steps. A wave goes with its tasks, and counts for a hundred.
        Two processes that do so at once may remove one step more than a rule by size asks for.
        """

    @abstractmethod
    async def backup(self, target: Path) -> None:
        """Write a consistent, verified copy to a new file while others read and write.

        Raises:
            BadValue: the file exists, or the backend is copied with its own tools (the message says which).
        """

    @abstractmethod
    async def restore(self, source: Path) -> None:
        """Replace all content with a backup's, at once, also while others have the database open.

        The storage id is the backup's, so mirrors find their consumers ahead of the restored position and read again
        what the streams still hold; routers notice at their next start. `open` migrates an older backup.

        Raises:
            BadValue: the file is no backup of ours, or the backend is restored with its own tools.
        """

    @abstractmethod
    async def vacuum(self) -> None:
        """Give space that deletions left back to the system, and refresh the query planner's statistics."""

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
