"""The worker process: one identity, one mailbox, one handler; composed and started here, ended by `Shutdown`."""

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import structlog

from hub.client import HubClient
from hub.delivery.connection import Connection
from hub.delivery.inbox import Inbox
from hub.delivery.settings import ConnectSettings
from hub.mailbox import (
    Mailbox,
    after_interruption,
)
from hub.service.exits import Exit
from hub.service.notify import WatchdogBeat, notify
from hub.service.signals import StopRequest
from workers import plugins
from workers.attempt import Runner
from workers.caretaker import Caretaker
from workers.classify import Policy
from workers.event_bridge import EventBridge
from workers.executor import Executor
from workers.handlers import HandlerSpec
from workers.instances import InstanceWatch, Own
from workers.intake import Intake
from workers.loop_runner import LoopRunner
from workers.loop_watchdog import LoopWatchdog
from workers.options import CannotStart, WorkerOptions
from workers.outbox_sender import OutboxSender
from workers.process_runner import ProcessRunner
from workers.progress import Announcements
from workers.shutdown import Shutdown
from workers.workplaces import Workplaces

log = structlog.get_logger(__name__)

CONNECT_SECS: Final = 30.0
FIRST_DRAIN_SECS: Final = 2.0  # contract §8: a waiting cancel wins over its task
QUIET_SECS: Final = 0.25  # an inbox from which nothing came for so long, once it is read, is empty
POLL_SECS: Final = 0.02
RESULT_ROOM_BYTES: Final = 256  # headers of a result's publish
INBOX_WINDOW: Final = 240  # below the 256 that the consumer lets be unacked

OnStep = Callable[[str], None]


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

    async def live(self, stop: StopRequest) -> Exit:
        """Start, work until `stop` or until it cannot go on, and stop in order."""
        async with contextlib.AsyncExitStack() as stack:
            beat = WatchdogBeat()
            beat.start()
            stack.callback(beat.stop)
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
            connection = await self._connect(stop)
            if connection is None:
                return Exit.OK
            stack.push_async_callback(connection.close)
            return await self._work(mailbox, runner, connection, stop)

    async def _connect(self, stop: StopRequest) -> Connection | None:
        """Connect; None when it was told to stop while no server answered."""
        opening = asyncio.create_task(
            Connection.open(self._settings, name=f"worker {self.identity}", timeout_secs=CONNECT_SECS), name="connect"
        )
        stopping = asyncio.create_task(stop.wait(), name="stop while connecting")
        try:
            await asyncio.wait({opening, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return opening.result() if opening.done() else None
        finally:
            stopping.cancel()
            if not opening.done():
                opening.cancel()
                await asyncio.wait({opening})

    async def _start_events(self, events: EventBridge) -> None:
        try:
            await events.start()
        except (sqlite3.Error, OSError) as error:
            raise CannotStart(f"the spool of events cannot be opened: {error}") from error

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
        caretaker = Caretaker(mailbox, self._options.inbox_age_secs)
        await caretaker.count()
        # No memory of acked ones: the mailbox knows repeats, and answers them.
        inbox = client.inbox(sink=intake.take, judge_payload=False, window=INBOX_WINDOW, remembered=0)
        shutdown = Shutdown(
            stop,
            connection=connection,
            mailbox=mailbox,
            inbox=inbox,
            intake=intake,
            executor=executor,
            outbox=outbox,
        )
        announcer = client.announce(
            capabilities=[self._spec.name],
            metadata={"handler": self._spec.name, "concurrency": self._concurrency},
            presence=lambda: self._presence(intake, executor, caretaker, shutdown),
        )
        watch = InstanceWatch(
            connection, self.identity, Own(announcer.instance, announcer.started_at, self._options.takeover)
        )
        await watch.start()
        caretaker.look_at_room(inbox)
        await inbox.start()
        await self._first_drain(inbox, intake)
        watchdog = LoopWatchdog(self._options.blocked_secs)
        watchdog.start()
        working = asyncio.create_task(executor.work(), name="executor")
        tending = asyncio.create_task(caretaker.work(inbox), name="caretaker")
        try:
            notify("READY=1")
            log.info(
                "ready",
                identity=self.identity,
                handler=self._spec.name,
                mode=inbox.state.mode.value,
                concurrency=self._concurrency,
                backlog=caretaker.backlog,
                state_dir=str(self._state_folder),
            )
            code = await shutdown.wait(watch, {working, tending, *(self._events.parts if self._events else ())})
            notify("STOPPING=1")
            if code in {Exit.OK, Exit.CONFIG}:
                await shutdown.carry_out(self._options.grace_secs)
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

    def _presence(self, intake: Intake, executor: Executor, caretaker: Caretaker, shutdown: Shutdown) -> dict[str, Any]:
        reasons = [
            *(["less than 256 MB free: nothing is pulled"] if caretaker.is_low_on_room else []),
            *([intake.degraded] if intake.degraded else []),
            *([executor.degraded] if executor.degraded else []),
        ]
        return {
            "handler": self._spec.name,
            "concurrency": self._concurrency,
            "in_flight": executor.in_flight,
            "completed": executor.completed,
            "backlog": caretaker.backlog,
            "draining": shutdown.is_draining,
            "degraded": "; ".join(reasons) or None,
            **({"events": self._events.describe()} if self._events is not None else {}),
            **({"takeover": True} if self._options.takeover else {}),
        }
