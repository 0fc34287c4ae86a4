"""The requests of a connection: many under way at once, each answered on a reply subject of its own, or ended in time.

nats-py's own requests take a task and a queue for each answer; here an answer ends its future out of the parser.
"""

import asyncio
from typing import Final

from nats.aio.msg import Msg

from hub.delivery.errors import NoResponders, PermissionDenied, RequestTimedOut
from hub.delivery.headers import parse_headers
from hub.delivery.nats_client import HardenedClient, Incoming

_NO_RESPONDERS: Final = 503


class Requests:
    """Asks and hands answers to those who asked.

    Args:
        client: the client.
    """

    def __init__(self, client: HardenedClient) -> None:
        self._client = client
        self._inbox = ""
        self._subscribing = asyncio.Lock()
        self._number = 0
        self._asking: dict[str, tuple[str, asyncio.Future[Incoming]]] = {}  # token → (subject, who waits)

    async def ask(
        self, subject: str, payload: bytes, *, timeout_secs: float, headers: dict[str, str] | None = None
    ) -> Msg:
        """Ask and wait for one answer.

        Raises:
            NoResponders: nobody listens.
            RequestTimedOut: no answer in time; whether it was taken is unknown.
            PermissionDenied: `deny` was called for its subject.
            nats.errors.Error: as `HardenedClient.publish_now`.
        """
        if not self._inbox:
            await self._subscribe()
        self._number += 1
        token = str(self._number)
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Incoming] = loop.create_future()
        self._asking[token] = (subject, answered)
        deadline = loop.call_later(timeout_secs, self._time_out, token, timeout_secs)
        try:
            self._client.publish_now(subject, payload, reply=f"{self._inbox}.{token}", headers=headers)
            answer = await answered
        finally:
            deadline.cancel()
            self._asking.pop(token, None)
        if answer.status == _NO_RESPONDERS:
            raise NoResponders(subject)
        return Msg(
            _client=self._client,
            subject=answer.subject,
            reply=answer.reply,
            data=answer.data,
            headers=parse_headers(answer.header_block) or None if answer.header_block else None,
        )

    def deny(self, subject: str, identity: str | None) -> None:
        """The server refused a publish on this subject (in lower case, as nats-py tells it): whoever asked hears it."""
        for asked, answered in self._asking.values():
            if asked.lower() == subject and not answered.done():
                answered.set_exception(PermissionDenied("publish", asked, identity))

    async def _subscribe(self) -> None:
        async with self._subscribing:
            if not self._inbox:
                inbox = str(self._client.new_inbox())
                await self._client.subscribe_direct(f"{inbox}.*", self._on_answer)
                self._inbox = inbox

    def _on_answer(self, answer: Incoming) -> None:
        asking = self._asking.get(answer.subject.rpartition(".")[2])
        if asking is not None and not asking[1].done():
            asking[1].set_result(answer)

    def _time_out(self, token: str, timeout_secs: float) -> None:
        subject, answered = self._asking[token]
        if not answered.done():
            answered.set_exception(RequestTimedOut(subject, timeout_secs))
