"""States of a turn and the ways between them. Pure.

`TRANSITIONS` is the whole truth: every write of a state names the states that it expects, and is checked against it.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class State(StrEnum):
    """Where a turn stands."""

    HELD = "held"
    """Behind an earlier turn of its session that has not ended. In: accepted. Out: `queued` when it is the session's
    first, `ended` by a cancel or a close."""

    QUEUED = "queued"
    """May be claimed, in the order of `seq`. In: accepted, `held`, `delayed` (due), `interrupted` and `running` (run
    again), `verifying` (given back at a shutdown). Out: `running` by a claim, `ended` by a cancel or a close."""

    RUNNING = "running"
    """Its attempt is counted on disk; its handler may have started. In: a claim. Out: `verifying`, `delayed` (retry),
    `queued` (run again), `interrupted` (the process died), `ended`."""

    VERIFYING = "verifying"
    """Its handler succeeded, its `verify_cmd` runs. In: `running`. Out: `queued`, `interrupted`, `ended`."""

    DELAYED = "delayed"
    """Waits for its next attempt until a due time on disk; holds its session. In: `running`. Out: `queued` when due,
    `ended` by a cancel or a close."""

    INTERRUPTED = "interrupted"
    """The process that ran it is dead. In: `running` and `verifying`, all at once when a mailbox is opened. Out:
    `queued` or `ended`, as `after_interruption` decides; `ended` by a cancel."""

    ENDED = "ended"
    """Its result is recorded and every envelope that stands for it has its row in the outbox. In: every other state,
    or at once when accepted (refused, or cancelled before it came). Out: none; pruned when old."""


TRANSITIONS: Final[Mapping[State, frozenset[State]]] = {
    State.HELD: frozenset({State.QUEUED, State.ENDED}),
    State.QUEUED: frozenset({State.RUNNING, State.ENDED}),
    State.RUNNING: frozenset({State.VERIFYING, State.DELAYED, State.QUEUED, State.INTERRUPTED, State.ENDED}),
    State.VERIFYING: frozenset({State.QUEUED, State.INTERRUPTED, State.ENDED}),
    State.DELAYED: frozenset({State.QUEUED, State.ENDED}),
    State.INTERRUPTED: frozenset({State.QUEUED, State.ENDED}),
    State.ENDED: frozenset(),
}

IN_HAND: Final = (State.RUNNING, State.VERIFYING)
"""A process works on it."""

WAITING: Final = (State.HELD, State.QUEUED, State.DELAYED)
"""Nobody works on it: a cancel ends it on the spot."""
