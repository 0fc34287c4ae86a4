"""The worker process: one identity, one mailbox, one handler; composed, started and drained here."""

import asyncio
import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
import uvloop

from hub.client import HubClient
from hub.delivery.connection import Connection
from hub.delivery.errors import BadSettings, CannotConnect
from hub.delivery.inbox import Inbox
from hub.delivery.settings import ConnectSettings
from hub.mailbox import (
    ForeignFile,
    IdentityInUse,
    Mailbox,
    MailboxDamaged,
    MailboxError,
    MailboxTooNew,
    MailboxUnavailable,
    after_interruption,
)
from hub.mailbox.opener import Durability
from hub.protocol import BadName, TooLarge, names
from hub.service import logs
from hub.service.exits import Exit
from hub.service.notify import notify
from hub.service.paths import BadStateDir, state_dir
from hub.service.signals import StopRequest, stop_on_signals
from hub.service.standard_streams import occupy_standard_descriptors
from workers import plugins
from workers.attempt import Runner
from workers.classify import Policy
from workers.event_bridge import EventBridge, open_bridge, settings_of
from workers.executor import Executor
from workers.handlers import BadHandler, HandlerSpec
from workers.instances import InstanceWatch, Own, Verdict
from workers.intake import Intake
from workers.loop_runner import LoopRunner
from workers.loop_watchdog import BLOCKED_SECS, LoopWatchdog
from workers.outbox_sender import OutboxSender
from workers.process_runner import ProcessRunner
from workers.progress import Announcements
from workers.redactor import find_redactor
from workers.workplaces import Workplaces

log = structlog.get_logger(__name__)

CONNECT_SECS: Final = 30.0
GRACE_SECS: Final = 30.0  # contract §8
FIRST_DRAIN_SECS: Final = 2.0  # contract §8: a waiting cancel wins over its task
QUIET_SECS: Final = 0.25  # an inbox from which nothing came for so long, once it is read, is empty
POLL_SECS: Final = 0.02
FLUSH_SECS: Final = 5.0  # for the commits under way, and again for the outbox, at a shutdown
ROOM_EVERY_SECS: Final = 5.0
PRUNE_EVERY_SECS: Final = 3600.0
PRUNE_PAUSE_SECS: Final = 0.1  # between small steps, so that work goes on
INBOX_AGE_SECS: Final = 604_800.0  # contract §4, the stream's default; a longer one is the operator's to say
RESULT_ROOM_BYTES: Final = 256  # headers of a result's publish
INBOX_WINDOW: Final = 240  # below the 256 that the consumer lets be unacked

OnStep = Callable[[str], None]


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


class _CannotStart(Exception):
    """It cannot run as it was told."""


def run(options: WorkerOptions, environ: Mapping[str, str] | None = None, *, on_step: OnStep | None = None) -> int:
    """Run a worker until it is told to stop; `on_step` is for tests.

    Returns:
        Its exit code (contract §11).
    """
    occupy_standard_descriptors()
    logs.configure(verbose=options.verbose)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return int(runner.run(serve(options, os.environ if environ is None else environ, on_step=on_step)))


async def serve(options: WorkerOptions, environ: Mapping[str, str], *, on_step: OnStep | None = None) -> Exit:
    """As `run`, in the loop that is there."""
    try:
        settings = ConnectSettings.from_environ(environ, identity=options.identity)
        spec = plugins.find(options.handler)
        plugins.read_options(spec, options.options)
        _check(options, settings)
        folder = state_dir(environ)
        events = _bridge(options, str(settings.identity), spec.name, folder, environ)
        worker = WorkerProcess(options, settings, spec, folder, events=events, on_step=on_step)
        with stop_on_signals() as stop:
            return await worker.live(stop)
    except (
        BadSettings,
        BadName,
        BadHandler,
        BadStateDir,
        plugins.HandlerNotFound,
        IdentityInUse,
        MailboxDamaged,
        MailboxTooNew,
        ForeignFile,
        TooLarge,
        _CannotStart,
    ) as error:
        log.error("cannot start", error=str(error))  # noqa: TRY400 - the text says it all, a traceback nothing
        return Exit.CONFIG
    except CannotConnect as error:
        log.error("cannot start", error=str(error))  # noqa: TRY400
        return Exit.CONFIG if error.is_final else Exit.UNAVAILABLE
    except MailboxUnavailable as error:
        log.error("cannot start", error=str(error))  # noqa: TRY400
        return Exit.TRY_LATER
    except MailboxError as error:
        log.error("the mailbox failed", error=str(error))  # noqa: TRY400
        return Exit.ERROR


def _bridge(
    options: WorkerOptions, identity: str, handler: str, folder: Path, environ: Mapping[str, str]
) -> EventBridge | None:
    if options.event_source is None:
        return None
    try:
        settings = settings_of(options.event_source, options.tenant, options.event_stream, environ)
    except ValueError as error:
        raise _CannotStart(str(error)) from None
    redact = find_redactor(options.redactor, environ)
    return open_bridge(settings, worker=identity, handler=handler, redact=redact, state_folder=folder)


def _check(options: WorkerOptions, settings: ConnectSettings) -> None:
    if settings.identity is None:
        raise _CannotStart("a worker needs an identity: --identity or NATS_HUB_IDENTITY")
    names.agent_identity(settings.identity)
    for name in options.accept_from:
        names.identity(name)
    if options.workdir_root is not None and not options.workdir_root.is_dir():
        raise _CannotStart(f"--workdir-root {options.workdir_root} is no folder")


class WorkerProcess:
    """One worker.

    Args:
        options: what it was told.
        settings: where NATS is, and who it is.
        spec: its handler.
        state_folder: where its mailbox and private folders are.
        on_step: for tests: called at `committed`, `acked`, `claimed`, `verifying`, `settled`, `published`.
    """

    def __init__(
        self,
        options: WorkerOptions,
        settings: ConnectSettings,
        spec: HandlerSpec,
        state_folder: Path,
        *,
        events: EventBridge | None = None,
        on_step: OnStep | None = None,
    ) -> None:
        assert settings.identity is not None
        self.identity = settings.identity
        self._options = options
        self._settings = settings
        self._spec = spec
        self._state_folder = state_folder
        self._events = events
        self._on_step = on_step
        self._concurrency = options.concurrency or spec.concurrency
        self._started_at = time.monotonic()
        self._is_low_on_room = False
        self._is_draining = False
        self._backlog = 0

    async def live(self, stop: StopRequest) -> Exit:
        """Start, work until `stop` or until it cannot go on, and stop in order."""
        async with contextlib.AsyncExitStack() as stack:
            mailbox = await Mailbox.open(
                self._state_folder / "mailboxes",
                self.identity,
                durability=self._options.durability,
                fresh=self._options.fresh_mailbox,
            )
            stack.push_async_callback(mailbox.close)
            if self._events is not None:
                await self._start_events(self._events)
                stack.push_async_callback(self._events.stop)
            runner = await self._start_runner(stack)
            connection = await Connection.open(
                self._settings, name=f"worker {self.identity}", timeout_secs=CONNECT_SECS
            )
            stack.push_async_callback(connection.close)
            return await self._work(mailbox, runner, connection, stop)

    async def _start_events(self, events: EventBridge) -> None:
        try:
            await events.start()
        except (sqlite3.Error, OSError) as error:
            raise _CannotStart(f"the spool of events cannot be opened: {error}") from error

    async def _start_runner(self, stack: contextlib.AsyncExitStack) -> Runner:
        if self._spec.isolation == "loop":
            return LoopRunner(self._spec, plugins.read_options(self._spec, self._options.options))
        runner = ProcessRunner(self._spec, self._options.options)
        stack.push_async_callback(runner.stop)
        await runner.start()
        return runner

    async def _work(self, mailbox: Mailbox, runner: Runner, connection: Connection, stop: StopRequest) -> Exit:
        self._fit_results(mailbox, connection)

        async def fit_again() -> None:
            self._fit_results(mailbox, connection)

        connection.on_reconnect(fit_again)
        client = HubClient(connection)
        announcements = Announcements(connection, self.identity)
        policy = Policy(
            accept_from=frozenset(self._options.accept_from),
            runs_commands=self._spec.runs_commands or self._options.allow_verify,
        )
        executor = Executor(
            mailbox,
            self._spec,
            runner=runner,
            announcements=announcements,
            client=client,
            concurrency=self._concurrency,
            workplaces=Workplaces(self._options.workdir_root, self._state_folder / "work" / self.identity),
            claimable=lambda: intake.announced,
            events=self._events,
            on_step=self._on_step,
        )
        intake = Intake(
            mailbox,
            announcements,
            policy,
            on_stop=executor.stop_turn,
            on_step=self._on_step,
        )
        outbox = OutboxSender(connection, mailbox, on_step=self._on_step)
        intake.announced = await mailbox.turns.last_seq()
        if self._events is not None:
            mailbox.listen_to_ends(self._events.ended)
        await self._rescue(mailbox)
        if self._events is not None:
            await self._events.end_left_open(mailbox.turns.find)
        outbox.start()
        self._backlog = sum((await mailbox.turns.count()).values())
        announcer = client.announce(
            capabilities=[self._spec.name],
            metadata={"handler": self._spec.name, "concurrency": self._concurrency},
            presence=lambda: self._presence(intake, executor),
        )
        watch = InstanceWatch(
            connection, self.identity, Own(announcer.instance, announcer.started_at, self._options.takeover)
        )
        await watch.start()
        # No memory of acked ones: the mailbox knows repeats, and answers them.
        inbox = client.inbox(sink=intake.take, judge_payload=False, window=INBOX_WINDOW, remembered=0)
        await inbox.start()
        await self._first_drain(inbox, intake)
        watchdog = LoopWatchdog(self._options.blocked_secs)
        watchdog.start()
        working = asyncio.create_task(executor.work(), name="executor")
        tending = asyncio.create_task(self._tend(mailbox, inbox), name="tending")
        try:
            notify("READY=1")
            log.info(
                "ready",
                identity=self.identity,
                handler=self._spec.name,
                mode=inbox.state.mode.value,
                concurrency=self._concurrency,
                backlog=self._backlog,
                state_dir=str(self._state_folder),
            )
            code = await self._wait(
                stop, connection, mailbox, watch, {working, tending, *(self._events.parts if self._events else ())}
            )
            # The order of a shutdown: stop pulling, finish what runs, flush, leave.
            self._is_draining = True
            notify("STOPPING=1")
            if code in {Exit.OK, Exit.CONFIG}:
                await inbox.stop()
                await intake.drain(FLUSH_SECS)
                await executor.drain(self._options.grace_secs, hurry=stop.wait_hurried())
                left = await outbox.stop(drain_secs=FLUSH_SECS)
                await connection.flush()  # the acks
                if left:
                    log.warning("results stay in the outbox until the next start", count=left)
            return code
        finally:
            for task in (working, tending):
                task.cancel()
            await asyncio.wait({working, tending})
            watchdog.stop()
            await watch.stop()
            await outbox.stop(drain_secs=0)
            await client.close()
            log.info("stopped", identity=self.identity, uptime_secs=round(time.monotonic() - self._started_at, 1))

    def _fit_results(self, mailbox: Mailbox, connection: Connection) -> None:
        mailbox.most_result_bytes = connection.usable_size - RESULT_ROOM_BYTES

    async def _rescue(self, mailbox: Mailbox) -> None:
        """Settle what the process before this one left in hand: it is dead."""
        spec = self._spec
        rescued = await mailbox.turns.rescue(
            lambda turn: after_interruption(turn, idempotent=spec.idempotent, max_attempts=spec.max_attempts)
        )
        for turn in rescued:
            log.warning("rescued", turn=turn.seq, task_id=turn.envelope_id, state=turn.state.value)

    async def _first_drain(self, inbox: Inbox, intake: Intake) -> None:
        """Take in what waits before the first claim, so that a waiting cancel wins over its task."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_DRAIN_SECS):
                await inbox.wait_ready(FIRST_DRAIN_SECS)
                quiet_since, seen = time.monotonic(), 0
                while True:
                    if intake.received != seen:
                        quiet_since, seen = time.monotonic(), intake.received
                    is_last_seen = seen > 0 and intake.pending == 0
                    is_quiet = time.monotonic() - quiet_since >= QUIET_SECS
                    if (is_last_seen or is_quiet) and intake.in_flight == 0:
                        return
                    await asyncio.sleep(POLL_SECS)

    async def _tend(self, mailbox: Mailbox, inbox: Inbox) -> None:
        """Look after the disk: pull nothing while it is nearly full, forget old records, count the backlog."""
        next_prune = time.monotonic()
        while True:
            has_room = mailbox.has_room()
            if has_room == self._is_low_on_room:
                self._is_low_on_room = not has_room
                if has_room:
                    log.info("the disk has room again; pulling")
                    inbox.resume()
                else:
                    log.error("the disk is nearly full; nothing is pulled", path=str(mailbox.path))
                    inbox.pause()
            try:
                self._backlog = sum((await mailbox.turns.count()).values())
                if time.monotonic() >= next_prune:
                    await self._prune(mailbox)
                    next_prune = time.monotonic() + PRUNE_EVERY_SECS
            except MailboxUnavailable as error:
                log.warning("the mailbox is not tended now", error=str(error))
            await asyncio.sleep(ROOM_EVERY_SECS)

    async def _prune(self, mailbox: Mailbox) -> None:
        while True:
            pruned = await mailbox.prune(self._options.inbox_age_secs)
            if not pruned.total:
                return
            await asyncio.sleep(PRUNE_PAUSE_SECS)

    def _presence(self, intake: Intake, executor: Executor) -> dict[str, Any]:
        reasons = [
            *(["less than 256 MB free: nothing is pulled"] if self._is_low_on_room else []),
            *([intake.degraded] if intake.degraded else []),
            *([executor.degraded] if executor.degraded else []),
        ]
        return {
            "handler": self._spec.name,
            "concurrency": self._concurrency,
            "in_flight": executor.in_flight,
            "completed": executor.completed,
            "backlog": self._backlog,
            "draining": self._is_draining,
            "degraded": "; ".join(reasons) or None,
            **({"events": self._events.describe()} if self._events is not None else {}),
            **({"takeover": True} if self._options.takeover else {}),
        }

    async def _wait(
        self,
        stop: StopRequest,
        connection: Connection,
        mailbox: Mailbox,
        watch: InstanceWatch,
        parts: "set[asyncio.Task[None]]",
    ) -> Exit:
        """Until it is told to stop, is replaced, or cannot go on."""
        asked = asyncio.create_task(stop.wait(), name="stop")
        lost = asyncio.create_task(connection.wait_closed(), name="lost")
        ends: set[asyncio.Future[Any]] = {asked, lost, mailbox.failed, watch.verdict, *parts}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()
            lost.cancel()
        if mailbox.failed.done():
            mailbox.failed.result()
        for part in parts:
            if part.done():
                part.result()
        if stop.is_set:
            log.info("stopping", signal=stop.signal.name if stop.signal else None)
            return Exit.OK
        if watch.verdict.done():
            is_taken_over = watch.verdict.result() is Verdict.TAKEN_OVER
            what = "another instance takes over" if is_taken_over else "another instance was here first"
            log.error("leaving", reason=what, identity=self.identity)
            return Exit.CONFIG
        log.error("a part of this process died; leaving, so that it is started anew")
        return Exit.ERROR
