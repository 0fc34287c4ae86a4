"""The table of inbox modes: what a client does with what it learnt about its durable inbox (contract §5). Pure."""

from enum import StrEnum

import msgspec

from hub.delivery.errors import BadSettings


class Wish(StrEnum):
    """What the user asked for, `NATS_HUB_DURABLE_INBOX`."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


class Answer(StrEnum):
    """What came of asking for the durable inbox."""

    OK = "ok"
    NOT_OK = "not_ok"  # the responder refused, or did not answer in time: the hub is there and has trouble
    NO_HUB_PULL_TAKEN = "no_hub_pull_taken"  # nobody answers, but the consumer is there: the hub is down
    NO_HUB_PULL_REFUSED = "no_hub_pull_refused"  # nobody answers, and there is no consumer: no durable hub


class Way(StrEnum):
    """What to do next."""

    DURABLE = "durable"  # read the consumer that the answer names
    BOUND = "bound"  # read the consumer under the names that were configured
    CORE = "core"  # subscribe live at once; ask again on every reconnect and every 30 s
    RETRY = "retry"  # ask again with backoff; go on as before meanwhile


class Mode(StrEnum):
    """How an inbox is read now.

    waiting: not at all yet, or not any more; it keeps trying. Entered at start and when a consumer is gone.
    durable: from its consumer, as the attach answer said.
    bound: from its consumer, without an answer: the hub is down.
    core: live only; what comes while this process is away is lost.
    stopped: not any more, by its user's wish. Final.
    """

    WAITING = "waiting"
    DURABLE = "durable"
    BOUND = "bound"
    CORE = "core"
    STOPPED = "stopped"


class InboxState(msgspec.Struct, frozen=True):
    """The state of an inbox, for status.

    Attributes:
        mode: how it is read now.
        reason: why, for people.
    """

    mode: Mode
    reason: str


def decide(wish: Wish, answer: Answer) -> Way:
    """What to do with an answer: the table of contract §5."""
    if wish is Wish.OFF:
        return Way.CORE
    if answer is Answer.OK:
        return Way.DURABLE
    if answer is Answer.NO_HUB_PULL_TAKEN:
        return Way.BOUND
    if answer is Answer.NO_HUB_PULL_REFUSED and wish is Wish.AUTO:
        return Way.CORE
    return Way.RETRY


def read_wish(text: str) -> Wish:
    """The wish in a setting's text.

    Raises:
        BadSettings: it is none of `auto`, `on`, `off`.
    """
    try:
        return Wish(text)
    except ValueError:
        raise BadSettings(f"bad durable inbox mode {text!r}: expected auto, on or off") from None
