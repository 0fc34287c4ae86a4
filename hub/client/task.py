"""The handle of a delegated task: follows its channel to its one result, live and from the store (contract §7)."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Final, Protocol

import structlog

from hub.client.errors import FollowingEnded, TaskTimedOut
from hub.client.history import find_messages
from hub.client.sender import SendReceipt
from hub.client.undelivered import UndeliveredListener
from hub.delivery.connection import Connection
from hub.delivery.dedupe import AckedMemory
from hub.delivery.errors import DeliveryError, NoResponders, PermissionDenied
from hub.delivery.inbox_finder import Source
from hub.delivery.nats_client import Incoming
from hub.delivery.reader import StoredChannelReader
from hub.delivery.sieve import Dropped, Sifted, sift
from hub.protocol import Progress, Result, names, read_progress, read_result, subjects
from hub.protocol.results import cancel_payload

log = structlog.get_logger(__name__)

FIRST_READ_SECS: Final = 0.05  # contract §7: a subscription across accounts may miss what comes within milliseconds
READ_EVERY_SECS: Final = 3.0  # contract §7
READ_DEADLINE_SECS: Final = 10.0  # for one look at the store; a channel of 10 000 messages takes under one second
CANCEL_SECS: Final = 10.0  # a worker stops a handler within 3 s and publishes
PROGRESS_MOST: Final = 1000  # progress is for people; more than this nobody reads back


class _Client(Protocol):
    """What a handle needs of its client."""

    async def send_control(self, to: str, payload: dict[str, str]) -> SendReceipt: ...


class TaskHandle:
    """One delegated task. Made by `HubClient.delegate` and `HubClient.resume`; several may follow one task.

    It listens live, and reads the stored channel 50 ms after the send and then every 3 s, so that a result that came
    during a blip is found. It ends by itself with the result. Only the worker's own result for this delegator counts;
    whatever else is said on the channel is logged and ignored.

    Args:
        connection: the connection.
        client: sends the cancel.
        delegator: who delegated it, and is answered.
        task_id: the task's envelope id; the channel follows from it.
        worker: who works on it.
        undelivered: hears when the task could not be delivered.
        source: the names of the task stream, when the hub has said them.

    Attributes:
        receipt: what became of the send; None for a resumed task.
        status: the last status that the worker reported (`queued`, `working`, …), then the result's; None until then.
        ignored: how many messages on the channel were not this task's.

    Raises:
        BadName: no channel follows from the task id.
    """

    def __init__(
        self,
        connection: Connection,
        client: _Client,
        *,
        delegator: str,
        task_id: str,
        worker: str,
        undelivered: UndeliveredListener,
        source: Callable[[], Source | None],
    ) -> None:
        self.task_id = task_id
        self.worker = worker
        self.channel = names.task_channel(task_id)
        self.receipt: SendReceipt | None = None
        self.status: str | None = None
        self.ignored = 0
        self._connection = connection
        self._client = client
        self._delegator = delegator
        self._undelivered = undelivered
        self._source = source
        self._subject = subjects.channel(self.channel)
        self._reader: StoredChannelReader | None = None
        self._reading = asyncio.Lock()
        self._is_store_silent = False
        self._seen = AckedMemory()
        self._sid: int | None = None
        self._wake = asyncio.Event()
        self._follower: asyncio.Task[None] | None = None
        self._removers: list[Callable[[], None]] = []
        self._past: deque[Progress] = deque(maxlen=PROGRESS_MOST)
        self._listeners: set[asyncio.Queue[Progress | None]] = set()
        self._outcome: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._outcome.add_done_callback(_look_at)

    # Life

    async def listen(self) -> None:
        """Subscribe the task's channel; before the send, so that nothing is missed."""
        self._sid = await self._connection.client.subscribe_direct(self._subject, self._on_live)
        self._removers.append(await self._undelivered.add(self.task_id, self._on_undelivered))

    def follow(self, receipt: SendReceipt | None) -> None:
        """Go on to the result; `receipt` is what became of the send, None when it was sent before."""
        self.receipt = receipt
        self._removers.append(self._connection.on_reconnect(self._on_reconnect))
        self._follower = self._connection.own(self._follow(), name=f"task {self.task_id}")
        self._follower.add_done_callback(self._on_follower_ended)

    async def close(self) -> None:
        """Follow it no more; cancels nothing. Whoever waits gets `FollowingEnded`. Closing twice is fine."""
        self._end_waiting("its handle was closed")
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.wait({self._follower})
        await self._leave()

    async def __aenter__(self) -> "TaskHandle":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # For its user

    @property
    def is_closed(self) -> bool:
        """Is it followed no more, for whatever reason?"""
        return self._outcome.done() and self._sid is None

    @property
    def is_done(self) -> bool:
        """Is there a result?"""
        return self._outcome.done() and self._outcome.exception() is None

    async def result(self, timeout_secs: float | None = None) -> Result:
        """Wait for the result: `done`, `error` or `cancelled`; see its `status`.

        Args:
            timeout_secs: how long; None waits as long as it takes.

        Raises:
            TaskTimedOut: none yet. Nothing is cancelled, and it may be waited for again.
            FollowingEnded: the handle was closed, or the connection ended.
        """
        try:
            async with asyncio.timeout(timeout_secs):
                return await asyncio.shield(self._outcome)
        except TimeoutError:
            assert timeout_secs is not None
            raise TaskTimedOut(self.task_id, self.worker, timeout_secs) from None

    async def poll(self) -> Result | None:
        """Look into the stored channel now; returns the result if there is one."""
        if not self._outcome.done():
            await self._read_stored()
        return self._outcome.result() if self.is_done else None

    async def progress(self) -> AsyncIterator[Progress]:
        """What the worker reports, from the first on; ends with the task. For people: parts may be missing.

        Raises:
            FollowingEnded: the handle was closed, or the connection ended.
        """
        queue: asyncio.Queue[Progress | None] = asyncio.Queue()
        for past in self._past:
            queue.put_nowait(past)
        if self._outcome.done():
            queue.put_nowait(None)
        self._listeners.add(queue)
        try:
            while (report := await queue.get()) is not None:
                yield report
        finally:
            self._listeners.discard(queue)
        self._outcome.result()  # raises why it ended, if that was not the result

    async def cancel(self, timeout_secs: float = CANCEL_SECS) -> Result:
        """Ask the worker to cancel the task and wait for its result, which may still be another one.

        Raises:
            TaskTimedOut: no result in time; the cancel is on its way.
            NotSent, SendUnconfirmed: the cancel could not be sent.
            FollowingEnded: as `result`.
        """
        if not self._outcome.done():
            await self._client.send_control(self.worker, cancel_payload(self.task_id))
        return await self.result(timeout_secs)

    # Following

    async def _follow(self) -> None:
        is_history_due = self.receipt is None  # what has left the stored channel may be in history
        if not is_history_due:
            await self._nap(FIRST_READ_SECS)
        while not self._outcome.done() and not self._connection.is_closed:
            await self._read_stored()
            if is_history_due and not self._outcome.done():
                is_history_due = not await self._read_history()
            if not self._outcome.done():
                await self._nap(READ_EVERY_SECS)
        await self._leave()

    async def _read_history(self) -> bool:
        """Look for a task of long ago; False when history does not answer now, and is to be asked again."""
        found = await find_messages(self._connection, self._delegator, channel=self.channel, sender=self.worker)
        for sifted in found or ():
            self._consider(sifted)
        return found is not None

    async def _nap(self, secs: float) -> None:
        """Sleep until woken by the result or a reconnect, at most `secs`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(secs):
                await self._wake.wait()
        self._wake.clear()

    async def _read_stored(self) -> None:
        """Read what is new in the stored channel. A store that does not answer is no reason to give up."""
        if self.receipt is not None and not self.receipt.is_stored:
            return  # a core hub stores nothing
        if not self._connection.is_connected:
            return
        async with self._reading:
            try:
                async for stored in self._stored_reader().read(deadline_secs=READ_DEADLINE_SECS):
                    self._consider(sift(self._subject, stored.envelope.body))
                    if self._outcome.done():
                        return
                self._is_store_silent = False
            except DeliveryError as error:
                expected = isinstance(error, NoResponders)  # a core hub, or a hole of milliseconds
                is_news = not self._is_store_silent and not expected
                say = log.warning if is_news or isinstance(error, PermissionDenied) else log.debug
                self._is_store_silent = True
                say("the stored channel cannot be read; following live", task_id=self.task_id, error=str(error))

    def _stored_reader(self) -> StoredChannelReader:
        """The reader of the stream that the hub named, or that is configured."""
        if self._reader is None:
            source = self._source()
            self._reader = StoredChannelReader(
                self._connection,
                self.channel,
                tasks_stream=source.tasks_stream if source is not None else None,
                js_prefix=source.js_prefix if source is not None else None,
            )
        return self._reader

    async def _on_reconnect(self) -> None:
        self._wake.set()

    def _on_live(self, incoming: Incoming) -> None:
        self._consider(sift(incoming.subject, incoming.data))

    def _consider(self, sifted: Sifted | Dropped) -> None:
        """Take a message of the channel as the result, as progress, or not at all."""
        if self._outcome.done():
            return
        if isinstance(sifted, Dropped):
            self.ignored += 1
            log.info("ignored on a task's channel", task_id=self.task_id, reason=sifted.reason, detail=sifted.detail)
            return
        if sifted.key in self._seen:
            return
        self._seen.remember(*sifted.key)
        envelope, payload = sifted.envelope, sifted.payload
        about = {"task_id": self.task_id, "worker": self.worker, "delegator": self._delegator}
        result = read_result(envelope, payload, **about)
        if result is not None:
            self._settle(result)
            return
        progress = read_progress(envelope, payload, **about)
        if progress is not None:
            self._report(progress)
            return
        self.ignored += 1
        log.info(
            "ignored on a task's channel",
            task_id=self.task_id,
            sender=envelope.meta.sender,
            kind=envelope.meta.kind,
            id=envelope.meta.id,
        )

    def _report(self, progress: Progress) -> None:
        if progress.type == "status":
            self.status = str(progress.data["status"])
        self._past.append(progress)
        for queue in self._listeners:
            if queue.qsize() < PROGRESS_MOST:
                queue.put_nowait(progress)

    def _on_undelivered(self, reason: str) -> None:
        error = f"the hub could not deliver the task to {self.worker}: {reason}"
        self._settle(Result(status="error", task_id=self.task_id, error=error, code="undelivered"))

    # Ends

    def _settle(self, result: Result) -> None:
        if not self._outcome.done():
            self.status = result.status
            self._outcome.set_result(result)
            self._wake_all()

    def _end_waiting(self, reason: str) -> None:
        if not self._outcome.done():
            self._outcome.set_exception(FollowingEnded(self.task_id, reason))
            self._wake_all()

    def _wake_all(self) -> None:
        self._wake.set()
        for queue in self._listeners:
            queue.put_nowait(None)

    def _on_follower_ended(self, _: "asyncio.Task[None]") -> None:
        self._end_waiting("the connection ended")

    async def _leave(self) -> None:
        """End the subscriptions."""
        for remove in self._removers:
            remove()
        self._removers.clear()
        if self._sid is not None:
            sid, self._sid = self._sid, None
            await self._connection.client.unsubscribe_direct(sid)


def _look_at(outcome: "asyncio.Future[Result]") -> None:
    """An end that nobody waits for is no error of the program."""
    if not outcome.cancelled():
        outcome.exception()
