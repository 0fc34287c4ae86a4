"""An agent's own durable state: one SQLite file per identity, with the rules of its states as compare-and-set.

Workers and the MCP server stand on it. It knows nothing of handlers and nothing of the network.

What it guarantees
- **Committed means kept.** A call that returned is on disk: over a `kill -9` always, over a power cut with
  `durability="FULL"` (the default; `NORMAL` can lose the last moments before a power cut, never the file). A call that
  raised wrote nothing, with one exception that every store has: when the process dies in it, it may have.
- **Once.** An envelope is taken in once by `(from, id)`, also across restarts, as long as its record is kept: until the
  inbox stream cannot deliver it any more (`max_age_secs` + 1 day after it came, its turn ended, or was last asked for).
- **One end.** A turn ends once, in one transaction with its outcome and an outbox row for every envelope that stands
  for it, aliases included. An alias that comes later is answered with the recorded outcome. After a cancel is committed
  the only end is `cancelled`.
- **Attempts** are counted on disk before each start. What a dead process left in hand is `interrupted` as soon as the
  mailbox is open.
- **Order.** Turns are claimed in the order in which they were accepted; those of a session one at a time. Outbox rows
  of a turn go out one after the other.
- **Nothing is deleted** that is queued, in hand, unsent or needed to know a repeat; a damaged file is renamed and the
  mailbox refuses to open until it is told to begin anew.
- **Full disk, locked file:** `MailboxUnavailable`, nothing written, the same call may be made again.

What it does not: the file is the only place where a queued turn lives once its envelope is acked, so it belongs on a
local disk that survives, and in backups (`sqlite3 FILE ".backup COPY"` while it is in use; to restore one, first remove
the `-wal` and `-shm` that stand beside the old file). The lock is one machine's.
A wall clock that is wrong by days in the future *when a mailbox is opened* makes records old too soon.
"""

from hub.mailbox.errors import (
    ForeignFile,
    IdentityInUse,
    MailboxBroken,
    MailboxBusy,
    MailboxClosed,
    MailboxDamaged,
    MailboxError,
    MailboxFull,
    MailboxTooNew,
    MailboxUnavailable,
    StateChanged,
)
from hub.mailbox.mailbox import Mailbox
from hub.mailbox.outbox import OutboxRow
from hub.mailbox.records import (
    Accepted,
    Cancelled,
    CancelVerdict,
    Outcome,
    Outgoing,
    Session,
    SessionName,
    Turn,
    TurnKind,
    Verdict,
)
from hub.mailbox.requests import Cancel, Close, Refuse, Request, Send, Start, Task, content_digest
from hub.mailbox.rescue import after_interruption
from hub.mailbox.states import State

__all__ = [
    "Mailbox",
    "Task",
    "Start",
    "Send",
    "Close",
    "Refuse",
    "Cancel",
    "Request",
    "content_digest",
    "Accepted",
    "Verdict",
    "Cancelled",
    "CancelVerdict",
    "Turn",
    "TurnKind",
    "State",
    "Outcome",
    "Outgoing",
    "OutboxRow",
    "Session",
    "SessionName",
    "after_interruption",
    "MailboxError",
    "MailboxUnavailable",
    "MailboxFull",
    "MailboxBusy",
    "MailboxClosed",
    "MailboxBroken",
    "MailboxDamaged",
    "MailboxTooNew",
    "ForeignFile",
    "IdentityInUse",
    "StateChanged",
]
