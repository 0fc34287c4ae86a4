"""The executor: claims turns, runs their handlers, settles them (contract §8).

One record walks through named steps, top to bottom: claim → run → verify → settle. Each outcome is exactly one terminal
message for each envelope that stands for the turn, in the transaction that ends it.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
import structlog

from hub.client import HubClient
from hub.mailbox import (
    Mailbox,
    Outcome,
    State,
    StateChanged,
    TurnKind,
    after_interruption,
)
from hub.mailbox import Turn as Row
from hub.protocol import parse
from workers import turn_inputs
from workers.attempt import Again, Ended, Interrupted, Runner, Stop, Stopper, attempt
from workers.classify import reply_channel_of
from workers.event_bridge import EventBridge
from workers.handlers import HandlerSpec
from workers.persistence import Persistence
from workers.progress import Addressed, Announcements, TurnReporter, both
from workers.turn import Turn
from workers.verify import run_verification
from workers.workplaces import BadWorkplace, Workplace, Workplaces

log = structlog.get_logger(__name__)

SETTLE_SECS: Final = 12.0  # at a shutdown, after the grace: a handler's patience, and the disk


class Executor:
    """Runs turns, several at once.

    Args:
        mailbox: the queue.
        spec: the handler's declaration.
        runner: calls it.
        announcements: progress.
        client: the worker's client, for handlers that delegate on.
        concurrency: turns at once.
        workplaces: where turns work.
        claimable: the newest turn that may be claimed (its `queued` is out).
        events: told of each turn's life; None: nobody is.
        on_step: for tests: called with `claimed`, `verifying`, `settled`.

    Attributes:
        completed: turns that left its hands.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        spec: HandlerSpec,
        *,
        runner: Runner,
        announcements: Announcements,
        client: HubClient | None,
        concurrency: int,
        workplaces: Workplaces,
        claimable: Callable[[], int],
        events: EventBridge | None = None,
        on_step: Callable[[str], None] | None = None,
    ) -> None:
        self.completed = 0
        self._persist = Persistence()
        self._mailbox = mailbox
        self._spec = spec
        self._runner = runner
        self._announcements = announcements
        self._client = client
        self._concurrency = concurrency
        self._workplaces = workplaces
        self._claimable = claimable
        self._events = events
        self._on_step = on_step or (lambda _: None)
        self._running: dict[int, _Running] = {}
        self._stopped_early: set[int] = set()
        self._is_draining = False

    @property
    def degraded(self) -> str | None:
        """Why an end cannot be written down now; None when all is well."""
        return self._persist.degraded

    @property
    def in_flight(self) -> int:
        """Turns in hand."""
        return len(self._running)

    async def work(self) -> None:
        """Claim and run until `drain`, then return when nothing is in hand; one task group owns every turn."""
        async with asyncio.TaskGroup() as group:
            while not self._is_draining:
                await self._wait_for_work()
                free = self._concurrency - len(self._running)
                if free <= 0 or self._is_draining:
                    continue
                for row in await self._claim(free):
                    self._begin(group, row)
                # A cancel that was committed behind the claim may have been told before we knew the turn.
                self._stopped_early.clear()

    async def _claim(self, limit: int) -> list[Row]:
        return await self._persist.call(lambda: self._mailbox.turns.claim(limit, up_to=self._claimable()))

    def stop_turn(self, seq: int) -> None:
        """A cancel is committed for this turn: end its handler."""
        running = self._running.get(seq)
        if running is None:
            self._stopped_early.add(seq)
        else:
            running.stopper.ask(Stop.CANCEL)

    async def drain(self, grace_secs: float, *, hurry: Awaitable[None]) -> None:
        """Claim no more, let running turns finish within the grace, then cut off and settle what still runs.

        Args:
            grace_secs: how long they may take.
            hurry: ends the grace when it is done.
        """
        self._is_draining = True
        self._mailbox.turns.ready.set()
        hurried = asyncio.ensure_future(hurry)
        try:
            finished = asyncio.ensure_future(self._nothing_in_hand())
            await asyncio.wait({finished, hurried}, timeout=grace_secs, return_when=asyncio.FIRST_COMPLETED)
            for running in self._running.values():
                log.warning("cut off by the shutdown", turn=running.row.seq, task_id=running.row.envelope_id)
                running.stopper.ask(Stop.SHUTDOWN)
            await asyncio.wait({finished}, timeout=SETTLE_SECS)
            finished.cancel()
        finally:
            hurried.cancel()

    async def _nothing_in_hand(self) -> None:
        while tasks := self._tasks():
            await asyncio.wait(tasks)

    def _tasks(self) -> "set[asyncio.Task[None]]":
        return {running.task for running in self._running.values() if running.task is not None}

    async def _wait_for_work(self) -> None:
        """Until there may be something to claim and somebody to do it: a place, a message, or a due time."""
        if len(self._running) >= self._concurrency:
            await asyncio.wait(self._tasks(), return_when=asyncio.FIRST_COMPLETED)
            return
        due_secs = await self._persist.call(self._mailbox.turns.next_due_in_secs)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(due_secs):
                await self._mailbox.turns.ready.wait()

    def _begin(self, group: asyncio.TaskGroup, row: Row) -> None:
        running = _Running(row)
        if row.cancel_requested or row.seq in self._stopped_early:
            running.stopper.ask(Stop.CANCEL)
        self._running[row.seq] = running
        running.task = group.create_task(self._live(running), name=f"turn {row.seq}")

    # The life of one turn

    async def _live(self, running: "_Running") -> None:
        row = running.row
        try:
            self._on_step("claimed")
            await self._run_and_settle(running)
        except StateChanged as error:
            log.error("a turn was changed by another", turn=row.seq, error=str(error))  # noqa: TRY400
        finally:
            del self._running[row.seq]
            self.completed += 1
            self._mailbox.turns.ready.set()

    async def _run_and_settle(self, running: "_Running") -> None:
        row = running.row
        payload = parse(row.body).payload
        session_id = row.session.name.session_id if row.session is not None else None
        whom = Addressed(row.sender, row.envelope_id, reply_channel_of(row.envelope_id, payload, session_id))
        try:
            place = self._place_of(row)
        except BadWorkplace as error:
            await self._settle(running, Outcome.failed("bad_request", str(error)))
            return
        if row.kind is TurnKind.CLOSE:
            self._announcements.status(whom, "closed")
            await self._settle(running, Outcome.done())
            await self._workplaces.clear(place)
            return
        if row.kind is TurnKind.START:
            self._announcements.status(whom, "ready")
        prompt = turn_inputs.prompt_of(row, payload)
        if prompt is None:  # a session that only starts
            await self._settle(running, Outcome.done())
            return
        ended = await self._run(running, payload, prompt, whom, place)
        if ended is None:
            return  # it waits for another attempt
        if ended.outcome.status == "done":
            ended = await self._verify(running, ended, place)
            if ended is None:
                return
        if row.session is not None:
            self._announcements.status(whom, "idle")
        await self._settle(running, ended.outcome, ended.context_json)
        if row.session is None:
            await self._workplaces.clear(place)

    async def _run(
        self, running: "_Running", payload: Any, prompt: str, whom: Addressed, place: Workplace
    ) -> Ended | None:
        """Run the handler once; None when the turn was put back for another attempt."""
        row, session = running.row, running.row.session
        reporter = TurnReporter(self._announcements, whom)
        self._announcements.status(whom, "working")
        recorder = self._events.begin(row, prompt) if self._events is not None else None
        reporter.report("started", {"attempt": row.attempts})
        turn = Turn(
            task_id=row.envelope_id,
            prompt=prompt,
            payload=payload,
            sender=row.sender,
            attempt=row.attempts,
            session_id=session.name.session_id if session is not None else None,
            context=msgspec.json.decode(session.context_json) if session is not None and session.context_json else {},
            workdir=place.path,
            hub=self._client,
            report=reporter.report if recorder is None else both(reporter.report, recorder.report),
            report_line=reporter.line if recorder is None else both(reporter.line, recorder.line),
        )
        try:
            verdict = await attempt(
                self._runner, turn, running.stopper, turn_inputs.timeout_of(row, self._spec.timeout_secs)
            )
        finally:
            reporter.close()
            if recorder is not None:
                recorder.close()
        if isinstance(verdict, Again):
            return await self._again(row, verdict)
        if isinstance(verdict, Interrupted):
            return await self._interrupted(row, verdict)
        return verdict

    async def _again(self, row: Row, again: Again) -> Ended | None:
        if row.attempts >= self._spec.max_attempts:
            reason = again.reason or "the handler asked for another attempt"
            return Ended(Outcome.failed("handler_error", f"gave up after {row.attempts} attempts: {reason}"))
        try:
            state = await self._persist.call(lambda: self._mailbox.turns.delay(row, again.delay_secs))
        except ValueError as error:
            return Ended(Outcome.failed("handler_error", f"bad Retry: {error}"))
        if self._events is not None and state is not State.ENDED:
            self._events.waits(row, again.reason or "the handler asked for another attempt")
        log.info("again later", turn=row.seq, delay_secs=again.delay_secs, reason=again.reason, state=state.value)
        return None

    async def _interrupted(self, row: Row, interrupted: Interrupted) -> Ended | None:
        """Back to the queue when it may run again (a shutdown burns no attempt), else its end."""
        most = row.attempts + 1 if interrupted.is_shutdown else self._spec.max_attempts
        outcome = after_interruption(row, idempotent=self._spec.idempotent, max_attempts=most)
        if outcome is not None:
            return Ended(Outcome.failed("interrupted", interrupted.reason))
        if self._events is not None:
            self._events.waits(row, interrupted.reason)
        await self._run_again(row, give_attempt_back=interrupted.is_shutdown)
        return None

    async def _run_again(self, row: Row, *, give_attempt_back: bool) -> State:
        turns = self._mailbox.turns
        state = await self._persist.call(lambda: turns.run_again(row, give_attempt_back=give_attempt_back))
        log.info("back in the queue", turn=row.seq, state=state.value)
        return state

    async def _verify(self, running: "_Running", ended: Ended, place: Workplace) -> Ended | None:
        """Run the session's `verify_cmd` on success (contract §9); None when it was put back."""
        row = running.row
        command = turn_inputs.start_member(row.session, "verify_cmd")
        if command is None:
            return ended
        await self._persist.call(lambda: self._mailbox.turns.verify(row))
        self._on_step("verifying")
        await asyncio.to_thread(place.path.mkdir, parents=True, exist_ok=True)
        checking = asyncio.ensure_future(run_verification(command, place.path))
        if not await running.stopper.watch(checking, None):
            if running.stopper.reason() is Stop.CANCEL:
                return Ended(Outcome.cancelled())
            return await self._interrupted(row, Interrupted(True, "the worker stopped while its result was verified"))
        verification = checking.result()
        if verification.is_passed:
            return Ended(msgspec.structs.replace(ended.outcome, verify="passed"), ended.context_json)
        return Ended(Outcome.failed("verify_failed", verification.detail, verify="failed"))

    async def _settle(self, running: "_Running", outcome: Outcome, context_json: bytes | None = None) -> None:
        row = running.row
        told = await self._persist.call(lambda: self._mailbox.turns.settle(row, outcome, context_json=context_json))
        self._on_step("settled")
        log.info("settled", turn=row.seq, task_id=row.envelope_id, status=told.status, code=told.code)

    def _place_of(self, row: Row) -> Workplace:
        if row.session is None:
            return self._workplaces.of_task(row.seq)
        is_close = row.kind is TurnKind.CLOSE  # which needs no folder, only to clear a private one
        return self._workplaces.of_session(
            row.session.name, None if is_close else turn_inputs.start_member(row.session, "cwd")
        )


class _Running:
    """A turn in hand."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.task: asyncio.Task[None] | None = None
        self.stopper = Stopper()
