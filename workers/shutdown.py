"""The end of a worker: what makes it leave, and in which order it does (contract §8)."""

import asyncio
from typing import Any, Final

import structlog

from hub.delivery.connection import Connection
from hub.delivery.inbox import Inbox
from hub.mailbox import Mailbox, MailboxUnavailable
from hub.service.exits import Exit
from hub.service.notify import notify
from hub.service.signals import StopRequest
from workers.executor import Executor
from workers.instances import InstanceWatch, Verdict
from workers.intake import Intake
from workers.outbox_sender import OutboxSender

log = structlog.get_logger(__name__)

FLUSH_SECS: Final = 5.0  # for the commits under way, and again for the outbox
LOOK_SECS: Final = 0.2  # how late the end of a drain is noticed


class Shutdown:
    """Waits for the end of a worker, and carries it out.

    Stopping: pull nothing, finish what runs, flush, leave. Draining (SIGUSR1): pull nothing, finish all that is
    queued, leave.

    Args:
        stop: what the operator asks for.
        connection: the worker's.
        mailbox: its queue.
        inbox: what it pulls.
        intake: what takes it.
        executor: what runs it.
        outbox: what sends the results.

    Attributes:
        is_draining: nothing is taken in any more.
    """

    def __init__(
        self,
        stop: StopRequest,
        *,
        connection: Connection,
        mailbox: Mailbox,
        inbox: Inbox,
        intake: Intake,
        executor: Executor,
        outbox: OutboxSender,
    ) -> None:
        self.is_draining = False
        self._stop = stop
        self._connection = connection
        self._mailbox = mailbox
        self._inbox = inbox
        self._intake = intake
        self._executor = executor
        self._outbox = outbox
        self._stopping_intake: asyncio.Task[None] | None = None

    async def wait(self, watch: InstanceWatch, parts: "set[asyncio.Task[None]]") -> Exit:
        """Until the worker is told to stop, has drained, is replaced, or cannot go on.

        Args:
            watch: tells of other instances.
            parts: tasks that end only when something is broken.

        Raises:
            MailboxError, or what a part died of.
        """
        asked = asyncio.create_task(self._stop.wait(), name="stop")
        drained = asyncio.create_task(self._drain_when_asked(), name="drain")
        lost = asyncio.create_task(self._connection.wait_closed(), name="lost")
        ends: set[asyncio.Future[Any]] = {asked, drained, lost, self._mailbox.failed, watch.verdict, *parts}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (asked, drained, lost):
                task.cancel()
        if self._mailbox.failed.done():
            self._mailbox.failed.result()
        for part in parts:
            if part.done():
                part.result()
        if self._stop.is_set:
            log.info("stopping", signal=self._stop.signal.name if self._stop.signal else None)
            return Exit.OK
        if drained.done() and not drained.cancelled():
            drained.result()
            log.info("drained")
            return Exit.OK
        if watch.verdict.done():
            is_taken_over = watch.verdict.result() is Verdict.TAKEN_OVER
            what = "another instance takes over" if is_taken_over else "another instance was here first"
            log.error("leaving", reason=what)
            return Exit.CONFIG
        log.error("a part of this process died; leaving, so that it is started anew")
        return Exit.ERROR

    async def carry_out(self, grace_secs: float) -> None:
        """Stop in order: nothing that was acked is lost, nothing that can be told stays untold.

        Args:
            grace_secs: how long running turns may take.
        """
        await self._stop_intake()
        await self._executor.drain(grace_secs, hurry=self._stop.wait_hurried())
        left = await self._outbox.stop(drain_secs=FLUSH_SECS)
        await self._connection.flush()  # the acks
        if left:
            log.warning("results stay in the outbox until the next start", count=left)

    async def _stop_intake(self) -> None:
        """Once, also when a stop overtakes a drain in the middle of it."""
        self.is_draining = True
        if self._stopping_intake is None:
            self._stopping_intake = asyncio.create_task(self._end_intake(), name="end of the intake")
        await asyncio.shield(self._stopping_intake)

    async def _end_intake(self) -> None:
        await self._inbox.stop()
        await self._intake.drain(FLUSH_SECS)

    async def _drain_when_asked(self) -> None:
        """Work off what is on the disk, retries that wait included, until every result has left."""
        await self._stop.wait_drain()
        log.info("draining: nothing is taken in any more, what is queued runs to its end")
        await self._stop_intake()
        told = None
        while True:
            try:
                turns, results = sum((await self._mailbox.turns.count()).values()), await self._mailbox.outbox.count()
            except MailboxUnavailable as error:
                log.warning("the queue cannot be counted now", error=str(error))
            else:
                if not turns and not results and not self._executor.in_flight:
                    return
                if told != (turns, results):
                    told = (turns, results)
                    notify(
                        f"STATUS=draining: {turns} turns to end, {results} results to send\n"
                        f"X_BACKLOG={turns}\nX_RESULTS={results}",
                        wait_secs=0,
                    )
            await asyncio.sleep(LOOK_SECS)
