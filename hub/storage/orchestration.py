"""Storage of orchestration: sessions, waves with the engine's effects and position, and leases.

A part of the interface of `hub.storage.base`; what holds everywhere is said there.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from hub.storage.records import (
    DEFAULT_LIMIT,
    DEFAULT_PAGE_BYTES,
    Effect,
    Lease,
    Page,
    Position,
    Session,
    SessionStatus,
    TaskChange,
    TaskCount,
    TaskStatus,
    Wave,
    WaveChange,
    WaveStatus,
    WaveTask,
)


class Sessions(ABC):
    """Bookkeeping of orchestrators: sessions named by `(orchestrator, session_id)`.

    Visible to its orchestrator and its worker.
    """

    @abstractmethod
    async def create(self, session: Session) -> None:
        """Store a new session. Raises `Conflict` when its orchestrator has one of that id, `BadValue` on a bad name."""

    @abstractmethod
    async def get(
        self, session_id: str, *, orchestrator: str | None = None, visible_to: str | None = None
    ) -> Session | None:
        """The newest visible session of that id (of that orchestrator), or None."""

    @abstractmethod
    async def find(
        self,
        *,
        status: SessionStatus | None = None,
        worker: str | None = None,
        orchestrator: str | None = None,
        visible_to: str | None = None,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
        max_bytes: int = DEFAULT_PAGE_BYTES,
    ) -> Page[Session]:
        """Sessions, newest `created_at` first."""

    @abstractmethod
    async def update_status(
        self,
        orchestrator: str,
        session_id: str,
        status: SessionStatus,
        *,
        expected: Sequence[SessionStatus] = ("active",),
        at: datetime | None = None,
    ) -> Session | None:
        """Set the status when it is one of `expected`; `closed_at` is set with `closed` and `failed`.

        Returns:
            The session as it is now; None when nothing matched.
        """

    @abstractmethod
    async def set_backend_ctx(
        self, orchestrator: str, session_id: str, backend_ctx: dict[str, Any] | None, *, at: datetime | None = None
    ) -> Session | None:
        """Replace what the backend keeps, whatever the status. Returns the session; None when it is not there."""


class Waves(ABC):
    """Waves, their tasks, what the engine owes the wire, and how far it has read.

    A wave is visible to its orchestrator and to the workers of its tasks.
    """

    @abstractmethod
    async def create(self, wave: Wave, tasks: Sequence[WaveTask]) -> None:
        """Store a wave with all its tasks, at once. Raises `Conflict` when the id is taken, `BadValue` on a bad name.

        The creator compares `digest` to tell the same wave again from another one under its id.
        """

    @abstractmethod
    async def get(self, wave_id: str, *, visible_to: str | None = None) -> Wave | None:
        """The wave, or None."""

    @abstractmethod
    async def find(
        self,
        *,
        status: WaveStatus | None = None,
        visible_to: str | None = None,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
        max_bytes: int = DEFAULT_PAGE_BYTES,
    ) -> Page[Wave]:
        """Waves, newest `created_at` first."""

    @abstractmethod
    async def get_task(self, wave_id: str, task_id: str, *, visible_to: str | None = None) -> WaveTask | None:
        """One task of a wave, or None."""

    @abstractmethod
    async def find_tasks(
        self,
        wave_id: str,
        *,
        status: TaskStatus | None = None,
        visible_to: str | None = None,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
        max_bytes: int = DEFAULT_PAGE_BYTES,
    ) -> Page[WaveTask]:
        """Tasks of a wave in the order in which they were given (all of one wave are created at one time)."""

    @abstractmethod
    async def tasks(self, wave_id: str) -> list[WaveTask]:
        """All tasks of a wave, in the order in which they were given, without their `result`: the engine's view."""

    @abstractmethod
    async def counts(self, wave_id: str) -> list[TaskCount]:
        """How many tasks have which state and which outcome of their verification."""

    @abstractmethod
    async def running(self) -> list[str]:
        """Ids of the waves whose status is `running`, oldest first."""

    @abstractmethod
    async def commit(
        self,
        *,
        waves: Sequence[WaveChange] = (),
        tasks: Sequence[TaskChange] = (),
        effects: Sequence[Effect] = (),
        position: Position | None = None,
        fence: Lease | None = None,
    ) -> None:
        """One decision of the engine, all of it or nothing: changes of state, effects, and the position behind them.

        Args:
            effects: appended in this order.
            position: replaces the engine's position in that stream.
            fence: the lease under which this is decided; None for what needs none (a cancel by its owner).

        Raises:
            LeaseLost: the lease has another holder or token by now.
            Stale: a wave or a task was not in an expected state (or is not there).
            Conflict: an effect's `meta_id` is there already.
        """

    @abstractmethod
    async def effects(self, *, limit: int = 1000) -> list[Effect]:
        """What the wire is owed, oldest first, of ended waves too."""

    @abstractmethod
    async def remove_effects(self, meta_ids: Sequence[str]) -> int:
        """Forget effects that the ingress has; how many were there."""

    @abstractmethod
    async def engine_position(self, stream: str) -> Position | None:
        """How far the engine has read that stream; None when it never did."""


class Leases(ABC):
    """Leases without clocks (contract §9): a challenger watches the beat by its own monotonic clock."""

    @abstractmethod
    async def read(self, name: str) -> Lease | None:
        """The lease as it is; None when nobody ever held it."""

    @abstractmethod
    async def take(self, name: str, holder: str, *, seen: Lease | None) -> Lease | None:
        """Become the holder with the next token, if the lease still is exactly what was `seen` (None: not there).

        Returns:
            The lease; None when it changed meanwhile (the holder lives, or another challenger was first).
        """

    @abstractmethod
    async def beat(self, lease: Lease) -> Lease | None:
        """Show that the holder lives: the beat goes up by one. None when the lease was lost."""

    @abstractmethod
    async def release(self, lease: Lease) -> bool:
        """Give it back, so that the next need not wait. False when it was lost before."""
