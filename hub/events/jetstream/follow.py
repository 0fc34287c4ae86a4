"""Following a run on its stream: what is stored first, then a consumer from the place behind it."""

import contextlib

from hub.events.cursor import Position
from hub.events.errors import BackendUnavailableError
from hub.events.jetstream.reading import RunReader, run_record
from hub.events.jetstream.surface import MessageFeed, StoredMessage, StreamSurface
from hub.events.limits import Limits
from hub.events.log import Item, Slice, Tail
from hub.events.records import RunKey

WINDOW_BYTES = 32 * 1024 * 1024  # most that one reader's unread events may take
WINDOW_MOST = 500


class RunFeed:
    """A reader of one run. Nothing has to be registered in advance: a consumer starts at a place, not at a time."""

    def __init__(self, surface: StreamSurface, reader: RunReader, run: RunKey, *, limits: Limits, subject: str) -> None:
        self._surface, self._reader, self._run, self._subject = surface, reader, run, subject
        self._limits = limits
        self._messages: MessageFeed | None = None

    async def look(self, position: Position) -> Slice:
        await self.close()
        return await self._reader.read(self._run, position, self._limits.max_page_size, want_first=False)

    async def wait(self, position: Position) -> Slice | None:
        if self._messages is None:
            self._messages = await self._surface.feed(
                self._subject,
                position.place + 1,
                window=max(1, min(WINDOW_MOST, WINDOW_BYTES // self._limits.max_event_bytes)),
                heartbeat_secs=self._limits.poll_secs,
            )
        messages = await self._messages.take(self._limits.poll_secs)
        return to_slice(self._run, position, messages) if messages else None

    async def ack(self, position: Position) -> None:
        """Nothing to settle: the reader's cursor is its position."""

    async def close(self) -> None:
        messages, self._messages = self._messages, None
        if messages is not None:
            await messages.close()


class DurableFeed:
    """A named reader of one run, whose position the server keeps: one event in flight, settled before the next."""

    def __init__(
        self,
        surface: StreamSurface,
        reader: RunReader,
        run: RunKey,
        name: str,
        *,
        limits: Limits,
        subject: str,
        ack_wait_secs: float,
    ) -> None:
        self._surface, self._reader, self._run, self._subject, self._name = surface, reader, run, subject, name
        self._limits, self._ack_wait_secs = limits, ack_wait_secs
        self._messages: MessageFeed | None = None
        self._in_hand: StoredMessage | None = None

    async def look(self, position: Position) -> Slice:
        await self._detach()
        self._messages, state = await self._surface.durable(
            self._name,
            self._subject,
            position.place + 1,
            ack_wait_secs=self._ack_wait_secs,
            heartbeat_secs=self._limits.poll_secs,
        )
        more = state.pending + state.unacked > 0
        return Slice(items=[], more=more, tail=None if more else await self._reader.tail(self._run))

    async def wait(self, position: Position) -> Slice | None:
        if self._messages is None:
            raise BackendUnavailableError("the durable reader is not attached")
        messages = await self._messages.take(self._limits.poll_secs)
        if not messages:
            return None
        found = to_slice(self._run, position, messages)
        self._in_hand = messages[-1]
        if not found.items or found.items[-1].sequence <= position.sequence:
            await self._settle()  # broken, or a repeat of what was settled while the server did not hear
        return found

    async def ack(self, position: Position) -> None:
        if self._in_hand is not None and self._in_hand.place <= position.place:
            await self._settle()

    async def close(self) -> None:
        if self._messages is not None and self._in_hand is not None:
            # So that a successor need not wait; unheard, the event comes again after ack_wait_secs.
            with contextlib.suppress(BackendUnavailableError):
                await self._messages.nak(self._in_hand)
        await self._detach()

    async def _settle(self) -> None:
        message, self._in_hand = self._in_hand, None
        if message is None or self._messages is None:
            return
        # Unheard, it comes again after ack_wait_secs, is recognised as a repeat and settled then.
        with contextlib.suppress(BackendUnavailableError):
            await self._messages.ack(message)

    async def _detach(self) -> None:
        messages, self._messages, self._in_hand = self._messages, None, None
        if messages is not None:
            await messages.close()


def to_slice(run: RunKey, position: Position, messages: list[StoredMessage]) -> Slice:
    """What a consumer delivered, as a slice."""
    items: list[Item] = []
    skipped = 0
    for message in messages:
        record = run_record(run, message)
        if record is None or record.sequence is None:
            skipped += 1
        else:
            items.append(Item(record.sequence, message.place, record))
    return Slice(
        items=items,
        more=messages[-1].pending > 0,
        skipped=skipped,
        tail=Tail(position.sequence, closed=False),  # where the reader stands, should everything have been broken
        end=Position(position.sequence, messages[-1].place, position.event),
    )
