"""Persistence: what only this process knows is written, however long the disk is full or the file locked."""

import contextlib
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_exponential

from hub.mailbox import MailboxUnavailable

log = structlog.get_logger(__name__)

T = TypeVar("T")

FIRST_PAUSE_SECS: Final = 0.2
LONGEST_PAUSE_SECS: Final = 5.0  # how late a disk that has room again is noticed


class Persistence:
    """Repeats calls that the mailbox could not carry out.

    Attributes:
        degraded: why nothing can be written now; None when all is well.
    """

    def __init__(self) -> None:
        self.degraded: str | None = None

    async def call(self, call: Callable[[], Awaitable[T]]) -> T:
        """Have something written; a full disk or a locked file is waited for."""
        with contextlib.suppress(MailboxUnavailable):
            return await call()  # nearly always; the machinery of retries costs more than the call

        async def again() -> T:
            return await call()

        written: T = await AsyncRetrying(
            retry=retry_if_exception_type(MailboxUnavailable),
            wait=wait_exponential(FIRST_PAUSE_SECS, LONGEST_PAUSE_SECS),
            before_sleep=self._complain,
        )(again)
        self.degraded = None
        return written

    def _complain(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        if self.degraded is None:
            log.error("the mailbox cannot be written; tried again", error=str(error))
        self.degraded = str(error)
