"""The sieve: which of the messages that came on a `channel.…` subject reach a reader (contract §5)."""

from typing import Any, Final

import msgspec

from hub.protocol import BadEnvelope, Envelope, Meta, names, parse, subjects

UNDECODABLE: Final = "undecodable"
UNFIT: Final = "unfit"


class Sifted(msgspec.Struct, frozen=True):
    """A message that passed.

    Attributes:
        envelope: the decoded envelope.
        payload: its decoded payload; None when it was not asked for.
    """

    envelope: Envelope
    payload: Any = None

    @property
    def key(self) -> tuple[str, str]:
        """What names the envelope: `(from, id)`."""
        return (self.envelope.meta.sender, self.envelope.meta.id)


class Dropped(msgspec.Struct, frozen=True):
    """A message that does not pass.

    Attributes:
        reason: `undecodable`, or `unfit`: its `meta.to` or `meta.channel` is not that of the subject.
        detail: for logs.
    """

    reason: str
    detail: str


def fits(subject: str, meta: Meta) -> bool:
    """Does an envelope belong on the subject that it came on?

    On `channel.inbox.<id>` `meta.to` is that identity (its `meta.channel` may be any); on every other channel it is
    that channel's, and to nobody.
    """
    channel = subjects.channel_of(subject)
    if channel is None:
        return False
    first, _, rest = channel.partition(".")
    if first == "inbox":
        return meta.to == rest
    return meta.to is None and meta.channel == channel


def sift(subject: str, body: bytes, *, judge_payload: bool = True) -> Sifted | Dropped:
    """Decode what came and see whether it may pass.

    Args:
        subject: the subject that it came on.
        body: its bytes.
        judge_payload: decode the payload too and drop what receivers refuse (contract §1). A worker says no: it
            answers such a task with an error instead.
    """
    try:
        envelope = parse(body)
        if not names.is_token(envelope.meta.sender):
            return Dropped(UNFIT, "meta.from is no identity")
        if not fits(subject, envelope.meta):
            shown = f"to {ascii(envelope.meta.to)[:80]}, channel {ascii(envelope.meta.channel)[:80]}"
            return Dropped(UNFIT, f"the envelope is {shown}")
        return Sifted(envelope, envelope.payload if judge_payload else None)
    except BadEnvelope as error:
        return Dropped(UNDECODABLE, str(error))
