"""The caretaker of a worker's disk: pulls nothing while it is nearly full, forgets old records, counts the backlog."""

import asyncio
import time
from typing import Final

import structlog

from hub.delivery.inbox import Inbox
from hub.mailbox import Mailbox, MailboxUnavailable

log = structlog.get_logger(__name__)

LOOK_EVERY_SECS: Final = 5.0
PRUNE_EVERY_SECS: Final = 3600.0
PRUNE_PAUSE_SECS: Final = 0.1  # between small steps, so that work goes on


class Caretaker:
    """Looks after one mailbox.

    Args:
        mailbox: whose disk and records.
        inbox_age_secs: how long the inbox stream keeps a message; records of repeats are kept a day longer.

    Attributes:
        is_low_on_room: nothing is pulled now.
        backlog: turns that have not ended, when it last looked.
    """

    def __init__(self, mailbox: Mailbox, inbox_age_secs: float) -> None:
        self.is_low_on_room = False
        self.backlog = 0
        self._mailbox = mailbox
        self._inbox_age_secs = inbox_age_secs

    async def count(self) -> None:
        """Count the backlog anew."""
        self.backlog = sum((await self._mailbox.turns.count()).values())

    async def work(self, inbox: Inbox) -> None:
        """Look again and again, until it is cancelled; `inbox` is paused and resumed."""
        next_prune = time.monotonic()
        while True:
            self.look_at_room(inbox)
            try:
                await self.count()
                if time.monotonic() >= next_prune:
                    await self._prune()
                    next_prune = time.monotonic() + PRUNE_EVERY_SECS
            except MailboxUnavailable as error:
                log.warning("the mailbox is not tended now", error=str(error))
            await asyncio.sleep(LOOK_EVERY_SECS)

    def look_at_room(self, inbox: Inbox) -> None:
        """Pause the inbox when the disk is nearly full, and resume it when it has room; also before it is started."""
        has_room = self._mailbox.has_room()
        if has_room != self.is_low_on_room:
            return
        self.is_low_on_room = not has_room
        if has_room:
            log.info("the disk has room again; pulling")
            inbox.resume()
        else:
            log.error("the disk is nearly full; nothing is pulled", path=str(self._mailbox.path))
            inbox.pause()

    async def _prune(self) -> None:
        while True:
            pruned = await self._mailbox.prune(self._inbox_age_secs)
            if not pruned.total:
                return
            await asyncio.sleep(PRUNE_PAUSE_SECS)
