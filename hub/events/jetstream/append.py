"""Appending to a run: numbered by compare-and-set on the run's last message, idempotent by a warm index of its ids.

A publish that expects the run's last message is only stored if nobody else appended, which is also what makes the index
complete at that moment. Whatever else comes back (another last message, no answer at all) makes the run *stale*: it is
read again behind what is known before the next try, so an event whose ack was lost is found by its id.
"""

import asyncio
import contextlib
from collections import OrderedDict
from dataclasses import dataclass, field

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_never, wait_random_exponential

from hub.events.appending import judge_append, known_record
from hub.events.errors import (
    AppendConflictError,
    BackendUnavailableError,
    EventOverflowError,
    InvalidInputError,
)
from hub.events.jetstream.reading import run_record, scan
from hub.events.jetstream.subjects import Subjects, message_id
from hub.events.jetstream.surface import StaleExpectationError, StoredMessage, StreamSurface
from hub.events.limits import Limits
from hub.events.records import AgentEventRecord, Draft, RunKey, with_sequence

WARM_IDS_MOST = 500_000  # ids kept over all runs, some 100 bytes each
WARM_RUNS_MOST = 10_000
RACE_MIN_SECS, RACE_MAX_SECS = 0.002, 0.1  # sixteen producers on one run settle well within


@dataclass(slots=True)
class WarmRun:
    """What this process knows of a run.

    Attributes:
        stale: somebody else may have appended; read on before deciding anything.
        last_place: of the run's last message in the stream, readable or not: what the next publish expects.
        last_sequence: of its last record.
        closed: its last record is terminal.
        retained: how many records it holds, at most (others may have deleted some).
        ids: where each id is stored.
    """

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    stale: bool = True
    last_place: int = 0
    last_sequence: int = 0
    closed: bool = False
    retained: int = 0
    ids: dict[str, int] = field(default_factory=dict)

    def forget(self) -> None:
        self.last_place = self.last_sequence = self.retained = 0
        self.closed = False
        self.ids.clear()

    def note(self, record: AgentEventRecord, place: int) -> None:
        self.last_place = place
        self.last_sequence = max(self.last_sequence, record.sequence or 0)
        self.closed = record.terminal
        self.retained += 1
        self.ids.setdefault(record.id, place)


class Appender:
    """Appends to the runs of one stream."""

    def __init__(self, surface: StreamSurface, subjects: Subjects, limits: Limits) -> None:
        self._surface = surface
        self._subjects = subjects
        self._limits = limits
        self._warm: OrderedDict[RunKey, WarmRun] = OrderedDict()
        self._warm_ids = 0

    async def append(self, draft: Draft) -> AgentEventRecord:
        """See `RunLog.append`."""
        warm = self._run(draft.run)
        failed: list[Exception] = []
        try:
            async with asyncio.timeout(self._limits.append_timeout_secs) as patience, warm.lock:
                known = len(warm.ids)
                try:
                    if warm.stale and not warm.last_place:
                        # Reading a long run for the first time is work, not waiting.
                        patience.reschedule(None)
                        with contextlib.suppress(BackendUnavailableError):  # tried again below, with patience
                            await self._catch_up(draft.run, warm)
                        patience.reschedule(asyncio.get_running_loop().time() + self._limits.append_timeout_secs)
                    return await self._insist(draft, warm, failed)
                finally:
                    self._warm_ids += len(warm.ids) - known
        except TimeoutError as error:
            if failed and isinstance(failed[-1], BackendUnavailableError):
                raise failed[-1] from error
            if failed:
                raise AppendConflictError from error
            raise BackendUnavailableError(
                f"not appended within {self._limits.append_timeout_secs:g} s; append it again"
            ) from error

    async def _insist(self, draft: Draft, warm: WarmRun, failed: list[Exception]) -> AgentEventRecord:
        try:
            return await self._attempt(draft, warm)
        except (StaleExpectationError, BackendUnavailableError) as error:
            if not _passing(error):
                raise
            failed.append(error)
        race = wait_random_exponential(multiplier=RACE_MIN_SECS, max=RACE_MAX_SECS)
        outage = wait_random_exponential(
            multiplier=self._limits.reconnect_min_secs, max=self._limits.reconnect_max_secs
        )

        def pause(state: RetryCallState) -> float:
            error = state.outcome.exception() if state.outcome else None
            if isinstance(error, Exception):
                failed.append(error)
            return (race if isinstance(error, StaleExpectationError) else outage)(state)

        retrying = AsyncRetrying(retry=retry_if_exception(_passing), stop=stop_never, wait=pause, reraise=True)
        return await retrying(self._attempt, draft, warm)

    async def _attempt(self, draft: Draft, warm: WarmRun) -> AgentEventRecord:
        current = warm.stale
        if current:
            await self._catch_up(draft.run, warm)
        stored = await self._known(draft, warm)
        if stored is not None:
            return stored
        try:
            record = await self._judge(draft, warm)
        except (InvalidInputError, EventOverflowError):
            if current:
                raise
            # Somebody else may have moved the run on since this process last looked.
            warm.stale = True
            raise StaleExpectationError from None
        return await self._publish(draft, warm, record)

    async def _known(self, draft: Draft, warm: WarmRun) -> AgentEventRecord | None:
        place = warm.ids.get(draft.record.id)
        if place is None:
            return None
        message = await self._surface.get(place)
        if message is not None:
            return known_record(draft, run_record(draft.run, message))
        del warm.ids[draft.record.id]  # cleaned up meanwhile: the id is free again
        return None

    async def _judge(self, draft: Draft, warm: WarmRun) -> AgentEventRecord:
        most = self._limits.max_run_events
        if warm.retained >= most:
            first = await self._surface.batch(self._subjects.run(draft.run), 1, 1)
            warm.retained = len(first.messages) + first.pending
        return judge_append(
            draft, sequence=warm.last_sequence + 1, closed=warm.closed, retained=warm.retained, most=most
        )

    async def _publish(self, draft: Draft, warm: WarmRun, record: AgentEventRecord) -> AgentEventRecord:
        subject = self._subjects.run(draft.run)
        payload = with_sequence(draft.body, warm.last_sequence + 1)
        warm.stale = True  # until an ack says otherwise, nobody knows
        for attempt in range(3):
            name = message_id(draft.run, draft.record.id, attempt and warm.last_place)
            ack = await self._surface.publish(subject, payload, msg_id=name, expected_last=warm.last_place)
            if not ack.duplicate:
                warm.note(record, ack.place)
                warm.stale = False
                return record
            original = await self._surface.get(ack.place)
            if original is not None:
                return known_record(draft, run_record(draft.run, original))
            # The duplicate window outlived the record: under another message id it is stored anew.
        raise StaleExpectationError

    async def _catch_up(self, run: RunKey, warm: WarmRun) -> None:
        subject = self._subjects.run(run)
        if not await self._read_on(run, subject, warm) and warm.last_place:
            last = await self._surface.last(subject)
            if last is None or last.place < warm.last_place:
                # The run's last message is gone: expired, or the stream was made anew. Start over.
                warm.forget()
                await self._read_on(run, subject, warm)
            elif last.place > warm.last_place:
                raise StaleExpectationError  # a replica that answers reads is behind its leader
        warm.stale = False

    async def _read_on(self, run: RunKey, subject: str, warm: WarmRun) -> bool:
        came = False
        async for message in scan(self._surface, subject, warm.last_place + 1):
            came = True
            self._take(run, warm, message)
        return came

    @staticmethod
    def _take(run: RunKey, warm: WarmRun, message: StoredMessage) -> None:
        record = run_record(run, message)
        if record is None:
            warm.last_place = message.place
            warm.retained += 1
        else:
            warm.note(record, message.place)

    def _run(self, run: RunKey) -> WarmRun:
        warm = self._warm.get(run)
        if warm is None:
            warm = self._warm[run] = WarmRun()
        self._warm.move_to_end(run)
        while len(self._warm) > 1 and (self._warm_ids > WARM_IDS_MOST or len(self._warm) > WARM_RUNS_MOST):
            oldest, cold = next(iter(self._warm.items()))
            if cold.lock.locked():
                self._warm.move_to_end(oldest)
                break
            del self._warm[oldest]
            self._warm_ids -= len(cold.ids)
        return warm


def _passing(error: BaseException) -> bool:
    """Is this worth another try?"""
    return isinstance(error, StaleExpectationError) or (isinstance(error, BackendUnavailableError) and error.retriable)
