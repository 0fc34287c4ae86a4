"""What a worker is told by its command line."""

from pathlib import Path
from typing import Final

import msgspec

from hub.delivery.settings import ConnectSettings
from hub.mailbox.opener import Durability
from hub.protocol import names
from workers.loop_watchdog import BLOCKED_SECS

GRACE_SECS: Final = 30.0  # contract §8
INBOX_AGE_SECS: Final = 604_800.0  # contract §4, the stream's default; a longer one is the operator's to say


class CannotStart(Exception):
    """It cannot run as it was told."""


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is told by its command line.

    Attributes:
        handler: an entry point's name, or `package.module:attribute`.
        identity: who it is; None: `NATS_HUB_IDENTITY`.
        concurrency: turns at once; None: as the handler says.
        accept_from: whose work it takes; empty: everybody's.
        allow_verify: a `verify_cmd` from the wire may run though the handler runs no commands.
        workdir_root: where turns work; None: each has a folder of its own in the state folder.
        grace_secs: how long running turns may take after SIGTERM.
        takeover: replace an instance of this identity on another machine.
        fresh_mailbox: begin anew when the mailbox was damaged; retained messages can run again.
        durability: `FULL` or `NORMAL`, see `Mailbox`.
        options: the handler's own settings.
        inbox_age_secs: how long the inbox stream keeps a message; records of repeats are kept a day longer.
        blocked_secs: after so long of a blocked loop the process ends; 0: never.
        verbose: debug lines too.
        event_source: where the lives of turns are kept as runs: an address of NATS or PostgreSQL; None: nowhere.
        tenant: whose runs they are.
        event_stream: the JetStream stream, or the PostgreSQL schema; None: the default one.
        redactor: `package.module:name` of what takes secrets out of events; None: the default one.
    """

    handler: str
    identity: str | None = None
    concurrency: int | None = None
    accept_from: tuple[str, ...] = ()
    allow_verify: bool = False
    workdir_root: Path | None = None
    grace_secs: float = GRACE_SECS
    takeover: bool = False
    fresh_mailbox: bool = False
    durability: Durability = "FULL"
    options: dict[str, str] = {}
    inbox_age_secs: float = INBOX_AGE_SECS
    blocked_secs: float = BLOCKED_SECS
    verbose: bool = False
    event_source: str | None = None
    tenant: str | None = None
    event_stream: str | None = None
    redactor: str | None = None


def check(options: WorkerOptions, settings: ConnectSettings) -> None:
    """Refuse what cannot be meant, before anything is opened.

    Raises:
        CannotStart: no identity, or no such folder.
        BadName: an identity that is none.
    """
    if settings.identity is None:
        raise CannotStart("a worker needs an identity: --identity or NATS_HUB_IDENTITY")
    names.agent_identity(settings.identity)
    for name in options.accept_from:
        names.identity(name)
    if options.workdir_root is not None and not options.workdir_root.is_dir():
        raise CannotStart(f"--workdir-root {options.workdir_root} is no folder")
