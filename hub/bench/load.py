"""The load: envelopes of a stated size, sent as fast as a window lets them or at a stated rate."""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from hub.delivery.publisher import NotStored, Outcome, StorePublisher
from hub.protocol import Envelope, make, names

SENDER: Final = "bench"
CHANNEL: Final = "bench"
SENT_KEY: Final = "sent_ns"


class LoadError(RuntimeError):
    """The load could not be brought out as it was asked for."""


class Message(msgspec.Struct, frozen=True):
    """One message to store."""

    subject: str
    body: bytes


def envelope_of(size: int, *, to: str, channel: str = CHANNEL) -> Envelope:
    """An envelope of this many bytes that says when it was made, by the machine's monotonic clock.

    Raises:
        LoadError: it cannot be so small.
    """
    payload = {SENT_KEY: time.monotonic_ns(), "filler": ""}
    missing = size - len(make(sender=SENDER, channel=channel, to=to, payload=payload).body)
    if missing < 0:
        raise LoadError(f"expected at least {size - missing} bytes an envelope, got {size}")
    payload["filler"] = "x" * missing
    return make(sender=SENDER, channel=channel, to=to, payload=payload)


def sent_ns(envelope: Envelope) -> int:
    """When an envelope of the load was made."""
    return int(envelope.payload[SENT_KEY])


class Template:
    """Envelopes that differ in their id alone, for a sender that should cost next to nothing."""

    def __init__(self, size: int, *, to: str, channel: str = CHANNEL) -> None:
        envelope = envelope_of(size, to=to, channel=channel)
        self._before, self._id, self._after = envelope.body.partition(envelope.meta.id.encode())
        self._number = 0

    def render(self) -> bytes:
        """The next envelope."""
        self._number += 1
        return b"%b%0*x%b" % (self._before, len(self._id), self._number, self._after)


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


async def send_at(
    publisher: StorePublisher, stream: str, make_one: Callable[[], Message], count: int, rate: float
) -> None:
    """Send `count` messages at `rate` a second, each made when its time has come; returns when all are stored.

    Raises:
        LoadError: one was not stored.
    """
    loop = asyncio.get_running_loop()
    started = loop.time()
    waiting = []
    for number in range(count):
        await asyncio.sleep(started + number / rate - loop.time())
        message = make_one()
        sending = publisher.publish_and_wait(
            message.subject, message.body, message_id=names.new_publish_id(), stream=stream
        )
        waiting.append(asyncio.ensure_future(sending))
    for outcome in await asyncio.gather(*waiting):
        if isinstance(outcome, NotStored):
            raise _not_stored(outcome)


def _not_stored(outcome: NotStored) -> LoadError:
    return LoadError(f"a message was not stored: {outcome.reason} {outcome.description}")
