"""The ingress sender: how the API puts a message on its way, as any sender does: through the ingress.

It chooses no destination: the subject is an ingress subject, and routing decides the rest (contract §3).
"""

from typing import Final

import msgspec
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt

from hub.api.errors import Clash, Unavailable
from hub.delivery.connection import Connection
from hub.delivery.errors import NoResponders, StoreRefused
from hub.delivery.publisher import NotStored, StorePublisher

ACK_SECS: Final = 2.0  # for one try; all of them stay below an operation's deadline
MOST_TRIES: Final = 3
_UNKNOWN: Final = "it is not known whether it was sent: ask again, repeats are dropped by their readers"


class _Unanswered(Unavailable):
    """No word from the store in time."""


class _Word(msgspec.Struct):
    ok: bool = False
    error: str = ""


class IngressSender:
    """Publishes into the ingress and waits for the word that it is taken.

    Args:
        connection: the hub's.
        stream: the ingress stream; None in core mode, where a router's answer is the word.
    """

    def __init__(self, connection: Connection, stream: str | None) -> None:
        self._connection = connection
        self._stream = stream
        self._publisher = StorePublisher(connection, deadline_secs=ACK_SECS)

    async def start(self) -> None:
        """Begin. Starting twice is fine."""
        if self._stream is not None:
            await self._publisher.start()

    async def stop(self) -> None:
        """End it; what is under way ends as unknown. Stopping twice is fine."""
        await self._publisher.stop()

    async def send(self, subject: str, body: bytes, *, message_id: str, trace: dict[str, str] | None = None) -> None:
        """Send one message; it is stored (durable) or routed (core) when this returns.

        Args:
            subject: an ingress subject, made of validated names.
            body: the envelope.
            message_id: the ingress stream drops a second one within its window; so a retry is safe.
            trace: trace headers to carry on, checked.

        Raises:
            TooLarge: it fits into no message.
            Unavailable, StoreRefused: it was not taken, or it is not known; the text says which.
            Clash: a router refused it.
        """
        if self._stream is None:
            await self._ask_router(subject, body, trace)
            return
        lines = b"".join(b"%b: %b\r\n" % (name.encode(), value.encode()) for name, value in (trace or {}).items())
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type(_Unanswered), stop=stop_after_attempt(MOST_TRIES), reraise=True
        ):
            with attempt:
                outcome = await self._publisher.publish_and_wait(
                    subject, body, message_id=message_id, stream=self._stream, more_headers=lines
                )
                if not isinstance(outcome, NotStored):
                    return
                if outcome.reason == "timeout":
                    raise _Unanswered(f"{self._stream} did not answer; {_UNKNOWN}")
                raise StoreRefused(self._stream, outcome.err_code, outcome.description)

    async def _ask_router(self, subject: str, body: bytes, trace: dict[str, str] | None) -> None:
        try:
            answer = await self._connection.request(subject, body, timeout_secs=ACK_SECS, headers=trace or None)
            word = msgspec.json.decode(answer.data, type=_Word)
        except NoResponders:
            raise Unavailable("no router runs; nothing was sent") from None
        except msgspec.DecodeError:
            raise Unavailable(f"the router's answer is none; {_UNKNOWN}") from None
        if not word.ok:
            raise Clash(f"the router refused it: {word.error[:200]}")
