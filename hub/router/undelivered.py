"""The notice to a sender whose message can never be delivered (contract §3.3). Pure."""

from hub.protocol import Envelope, make, names
from hub.router.rules import Drop


def notice(drop: Drop) -> Envelope | None:
    """The envelope that tells the sender, or None when there is nobody to tell or nothing to name.

    The hub's own messages get no notice: it would answer itself.
    """
    if drop.sender is None or drop.envelope_id is None or drop.sender == names.HUB_IDENTITY:
        return None
    return make(
        sender=names.HUB_IDENTITY,
        to=drop.sender,
        channel=drop.channel or "undelivered",
        kind="event",
        reply_to=drop.envelope_id,
        payload={"event_type": "undelivered", "data": {"id": drop.envelope_id, "reason": drop.reason.value}},
    )
