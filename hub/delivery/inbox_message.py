"""A direct message in its user's hands."""

from typing import Any, Protocol

from hub.delivery.pull import ContinuousPull
from hub.protocol import Envelope


class Settler(Protocol):
    """Who takes back what a user says of a message."""

    def settle(self, message: "InboxMessage", *, is_acked: bool, delay_secs: float = 0.0) -> None: ...


class InboxMessage:
    """One direct message; its user calls `ack` once it has taken it, or `nak` to have it again.

    Until then it is extended as long as the process lives, and comes again when the process dies. Both calls return at
    once, may be repeated (the first one counts) and are best effort: where an ack is lost, the message comes again and
    is dropped as known.

    Attributes:
        envelope: the decoded envelope.
        payload: its decoded payload (None when the inbox does not judge payloads; use `envelope.payload` then).
        delivered: how often the server delivered it, this time included; 1 when it came live. No proof of anything.
        pending: how many the server had behind it for this identity when it delivered it; 0 when it came live.
    """

    __slots__ = (
        "_settler",
        "delivered",
        "envelope",
        "is_handed",
        "is_settled",
        "payload",
        "pending",
        "pull",
        "reply",
        "sequence",
        "size",
    )

    def __init__(self, settler: Settler, envelope: Envelope, payload: Any) -> None:
        self.envelope = envelope
        self.payload = payload
        self.delivered = 1
        self.pending = 0
        self.is_handed = False  # given to its user; False while it waits in the inbox
        self.is_settled = False
        # Of the inbox: where an ack goes (empty: nowhere), its place in the stream, its bytes, and the pull
        # whose window it fills.
        self.reply = b""
        self.sequence = 0
        self.size = 0
        self.pull: ContinuousPull | None = None
        self._settler = settler

    @property
    def key(self) -> tuple[str, str]:
        """What names it: `(from, id)`."""
        return (self.envelope.meta.sender, self.envelope.meta.id)

    @property
    def is_durable(self) -> bool:
        """Does a store have it until it is acked? In core mode `ack` and `nak` reach nobody."""
        return bool(self.reply)

    def ack(self) -> None:
        """It is taken: never hand it out again."""
        self._settler.settle(self, is_acked=True)

    def nak(self, delay_secs: float = 0.0) -> None:
        """It is not taken: hand it out again, after `delay_secs`. In core mode it is gone."""
        self._settler.settle(self, is_acked=False, delay_secs=delay_secs)

    def __repr__(self) -> str:
        meta = self.envelope.meta
        return f"<InboxMessage {meta.id} from {meta.sender}, kind {meta.kind}>"
