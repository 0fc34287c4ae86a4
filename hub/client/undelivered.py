"""The listener for the hub's word that a message could not be delivered (contract §3.3)."""

from collections.abc import Callable
from typing import Any

from hub.delivery.connection import Connection
from hub.delivery.nats_client import Incoming
from hub.delivery.sieve import Sifted, sift
from hub.protocol import Envelope, names, subjects

OnUndelivered = Callable[[str], None]


class UndeliveredListener:
    """Hears `undelivered` events to an identity, live, and tells whoever sent the message.

    It listens beside the inbox and takes nothing from it: a delegator that never opens its inbox hears it too. Best
    effort, as the hub's word itself.

    Args:
        connection: the connection.
        identity: whose messages.
    """

    def __init__(self, connection: Connection, identity: str) -> None:
        self._connection = connection
        self._subject = subjects.inbox(identity)
        self._waiting: dict[str, set[OnUndelivered]] = {}
        self._sid: int | None = None

    async def add(self, message_id: str, callback: OnUndelivered) -> Callable[[], None]:
        """Tell `callback` the reason should this message be undeliverable; returns a function that ends that."""
        self._waiting.setdefault(message_id, set()).add(callback)
        if self._sid is None:
            self._sid = 0  # before the wait: two at once make one subscription
            self._sid = await self._connection.client.subscribe_direct(self._subject, self._on_message)

        def remove() -> None:
            callbacks = self._waiting.get(message_id, set())
            callbacks.discard(callback)
            if not callbacks:
                self._waiting.pop(message_id, None)

        return remove

    async def stop(self) -> None:
        """Listen no more."""
        sid, self._sid = self._sid, None
        if sid is not None:
            await self._connection.client.unsubscribe_direct(sid)

    def take(self, envelope: Envelope, payload: Any) -> None:
        """Look at a message of the inbox; anything but an event of ours is none of its business."""
        if envelope.meta.sender != names.HUB_IDENTITY or envelope.meta.kind != "event" or not isinstance(payload, dict):
            return
        data = payload.get("data")
        if payload.get("event_type") != "undelivered" or not isinstance(data, dict):
            return
        for callback in list(self._waiting.get(str(data.get("id")), ())):
            callback(str(data.get("reason")))

    def _on_message(self, message: Incoming) -> None:
        if not self._waiting or b"undelivered" not in message.data:
            return  # the inbox's traffic comes by here: look at little
        sifted = sift(message.subject, message.data)
        if isinstance(sifted, Sifted):
            self.take(sifted.envelope, sifted.payload)
