"""The listener: one connection that hears of new events, opened in the background, again and again.

Nothing waits for it: readers poll from the first moment, and a wake only makes them look earlier. Whenever the
connection is there again everybody is woken, so what was committed in between is seen at once.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_never

from hub.events.errors import BackendUnavailableError
from hub.events.limits import Limits, reconnect_wait
from hub.events.log import Wakes
from hub.events.postgres.errors import backend

CHECK_SECS = 10.0  # a connection whose other end vanished without a word is noticed within this
ANSWER_SECS = 5.0

log = structlog.get_logger()

Open = Callable[[], Awaitable[asyncpg.Connection]]
Release = Callable[[asyncpg.Connection], Awaitable[None]]


class Listener:
    """Hears of events and wakes readers.

    Args:
        open_connection: a dedicated connection.
        release: gives it back.
        channel: the notification channel; payloads are the names of hashed runs.
        wakes: who waits for them.
        limits: how long to wait between attempts.
    """

    def __init__(self, open_connection: Open, release: Release, *, channel: str, wakes: Wakes, limits: Limits) -> None:
        self._open, self._release = open_connection, release
        self._channel, self._wakes, self._limits = channel, wakes, limits
        self._task: asyncio.Task[None] | None = None
        self.connected = asyncio.Event()

    def ensure(self) -> None:
        """Start in the background, once."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._keep_listening(), name="agent-events-listener")
            self._task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """End it; before the start and twice are fine."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            # Readers go on by polling, and the next subscription starts a new one.
            log.error("agent events: the listener ended; readers poll", error=repr(error))

    async def _keep_listening(self) -> None:
        while True:
            retrying = AsyncRetrying(
                retry=retry_if_exception_type(BackendUnavailableError),
                stop=stop_never,
                wait=reconnect_wait(self._limits),
                before_sleep=_say,
                reraise=True,
            )
            connection: asyncpg.Connection = await retrying(self._connect)
            try:
                await self._listen(connection)
            finally:
                self.connected.clear()
                await self._let_go(connection)

    async def _connect(self) -> asyncpg.Connection:
        with backend(self._channel, "listening for events"):
            async with asyncio.timeout(ANSWER_SECS):
                return await self._open()

    async def _listen(self, connection: asyncpg.Connection) -> None:
        """Until the connection is lost."""
        lost = asyncio.Event()
        connection.add_termination_listener(lambda _: lost.set())
        try:
            with backend(self._channel, "listening for events"):
                await connection.add_listener(self._channel, self._heard)
                self.connected.set()
                self._wakes.wake_all()
                while not lost.is_set():
                    try:
                        async with asyncio.timeout(CHECK_SECS):
                            await lost.wait()
                    except TimeoutError:
                        await connection.execute("SELECT 1", timeout=ANSWER_SECS)
        except BackendUnavailableError as error:
            log.warning("agent events: the listener lost its connection; readers poll", error=str(error))

    def _heard(self, connection: Any, pid: int, channel: str, payload: object) -> None:
        self._wakes.wake(payload)

    async def _let_go(self, connection: asyncpg.Connection) -> None:
        try:
            with backend(self._channel, "releasing the listener"):
                async with asyncio.timeout(ANSWER_SECS):
                    if not connection.is_closed():
                        await connection.remove_listener(self._channel, self._heard)
                    await self._release(connection)
        except BackendUnavailableError:
            connection.terminate()


def _say(state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    log.warning("agent events: cannot listen; readers poll", attempt=state.attempt_number, error=str(error))
