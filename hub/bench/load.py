"""The load: envelopes of a stated size, sent as fast as a window lets them or at a stated rate."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import msgspec

from hub.delivery.publisher import NotStored, Outcome, StorePublisher
from hub.protocol import Envelope, make, names

SENDER: Final = "bench"
CHANNEL: Final = "bench"
SENT_KEY: Final = "sent_ns"

_SPREAD: Final = 0x9E3779B97F4A7C15  # odd, so that numbers stay apart: ids come in no order, as UUIDs do
_SPREAD_DIGITS: Final = 16


class LoadError(RuntimeError):
    """The load could not be brought out as it was asked for."""


class Message(msgspec.Struct, frozen=True):
    """One message to store."""

    subject: str
    body: bytes


def sent_ns(payload: Any) -> int:
    """When an envelope of the load was made, by the machine's monotonic clock."""
    return int(payload[SENT_KEY])


class Template:
    """Envelopes of a stated size to one recipient.

    Args:
        size: bytes of an envelope.
        to: the recipient.

    Raises:
        LoadError: an envelope cannot be so small.
    """

    def __init__(self, size: int, *, to: str) -> None:
        self._to = to
        self._filler = ""
        missing = size - len(self.make().body)
        if missing < 0:
            raise LoadError(f"expected at least {size - missing} bytes an envelope, got {size}")
        self._filler = "x" * missing
        envelope = self.make()
        self._before, _, self._after = envelope.body.partition(envelope.meta.id.encode())
        self._ending = envelope.meta.id[_SPREAD_DIGITS:].encode()
        self._number = 0

    def payload(self) -> dict[str, Any]:
        """A payload that says when it was made: a task, so that a worker takes it too."""
        return {SENT_KEY: time.monotonic_ns(), "prompt": self._filler}

    def make(self) -> Envelope:
        """The next envelope, made as a client makes one."""
        return make(sender=SENDER, channel=CHANNEL, to=self._to, payload=self.payload())

    def render(self) -> bytes:
        """The next envelope by its id alone, for a sender that should cost next to nothing."""
        self._number += 1
        spread = self._number * _SPREAD % 2**64
        return b"%b%0*x%b%b" % (self._before, _SPREAD_DIGITS, spread, self._ending, self._after)


async def send_all(publisher: StorePublisher, stream: str, messages: Iterable[Message], *, window: int) -> None:
    """Send as fast as acks come back, at most `window` in flight; returns when all are stored.

    Raises:
        LoadError: one was not stored.
    """
    source = iter(messages)
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    flying = 0
    is_out = False

    def send_next() -> None:
        nonlocal flying, is_out
        message = next(source, None)
        if message is None:
            is_out = True
            return
        flying += 1
        publisher.publish(
            message.subject, message.body, message_id=names.new_publish_id(), stream=stream, on_outcome=settle
        )

    def settle(outcome: Outcome) -> None:
        nonlocal flying
        flying -= 1
        if isinstance(outcome, NotStored):
            if not done.done():
                done.set_exception(_not_stored(outcome))
            return
        if not is_out:
            send_next()
        if is_out and not flying and not done.done():
            done.set_result(None)

    for _ in range(window):
        if not is_out:
            send_next()
    if is_out and not flying:
        return
    await done


async def send_at(send: Callable[[], Awaitable[object]], count: int, rate: float) -> None:
    """Call `send` at `rate` a second, whatever the calls before it do; returns when all have returned."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    async with asyncio.TaskGroup() as sending:
        for number in range(count):
            await asyncio.sleep(started + number / rate - loop.time())
            sending.create_task(_await(send()))


async def _await(sent: Awaitable[object]) -> None:
    await sent


def _not_stored(outcome: NotStored) -> LoadError:
    return LoadError(f"a message was not stored: {outcome.reason} {outcome.description}")
