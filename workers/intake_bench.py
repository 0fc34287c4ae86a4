"""The intake as the benchmarks read through it: a worker's inbox, its judgement and its mailbox, without its turns.

Found by `python -m hub bench` under the entry point group `nats_hub.bench_readers`.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from pathlib import Path

from hub.delivery.connection import Connection
from hub.delivery.inbox import Inbox
from hub.delivery.inbox_message import InboxMessage
from hub.mailbox import Mailbox
from workers.classify import Policy
from workers.intake import Intake
from workers.progress import Announcements
from workers.worker import INBOX_WINDOW


class IntakeReader:
    """Reads an inbox as a worker does.

    Args:
        connection: whose inbox.
        folder: where the mailbox is made; what a sync costs there is measured too.
        on_read: called with each message when it comes.
        on_done: called with each message when it is committed and acked.
    """

    def __init__(
        self,
        connection: Connection,
        folder: Path,
        *,
        on_read: Callable[[InboxMessage], None],
        on_done: Callable[[InboxMessage], None],
    ) -> None:
        self._connection = connection
        self._folder = folder
        self._on_read = on_read
        self._on_done = on_done
        self._under_way: deque[InboxMessage] = deque()  # a mailbox commits in the order in which it is asked
        self._intake: Intake | None = None
        self._inbox: Inbox | None = None

    async def start(self) -> None:
        """Begin to read; once is enough."""
        if self._inbox is not None:
            return
        identity = self._connection.identity
        assert identity is not None
        mailbox = await Mailbox.open(self._folder, identity)
        mailbox.failed.add_done_callback(lambda failed: asyncio.get_running_loop().stop())
        self._intake = Intake(
            mailbox,
            Announcements(self._connection, identity),
            Policy(),
            on_stop=lambda _: None,
            on_step=self._on_step,
        )
        self._inbox = Inbox(
            self._connection, mode="on", sink=self._take, judge_payload=False, window=INBOX_WINDOW, remembered=0
        )
        await self._inbox.start()

    def _take(self, message: InboxMessage) -> None:
        assert self._intake is not None
        self._on_read(message)
        self._under_way.append(message)
        self._intake.take(message)

    def _on_step(self, step: str) -> None:
        if step == "acked":
            self._on_done(self._under_way.popleft())
