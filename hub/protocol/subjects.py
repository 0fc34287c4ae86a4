"""Builders of subjects: the one place where one is made (contract §2).

Each takes names that were validated at the edge.
"""

from functools import lru_cache
from typing import Final

INGRESS_ALL: Final = "hub.pub.>"
REGISTER_ALL: Final = "hub.register.*"
PRESENCE_ALL: Final = "hub.presence.*"
ATTACH_ALL: Final = "hub.delivery.*.inbox"
API_ALL: Final = "hub.api.*.>"

INBOX_ALL: Final = "channel.inbox.>"
TASKS_ALL: Final = ("channel.task.>", "channel.session.>", "channel.wave.>")

QUEUE_ROUTER: Final = "hub-router"
QUEUE_PRESENCE: Final = "hub-presence"
QUEUE_DELIVERY: Final = "hub-delivery"
QUEUE_API: Final = "hub-api"

_INGRESS_PREFIX: Final = "hub.pub."
_CHANNEL_PREFIX: Final = "channel."


def publish(identity: str, channel: str) -> str:
    """Where an agent sends an envelope."""
    return f"hub.pub.{identity}.{channel}"


@lru_cache(maxsize=1024)  # a router sees the same few subjects again and again, and asks twice for each message
def split_publish(subject: str) -> tuple[str, str] | None:
    """`(identity, channel)` of an ingress subject, neither validated; None when it is none."""
    if not subject.startswith(_INGRESS_PREFIX):
        return None
    identity, dot, channel = subject[len(_INGRESS_PREFIX) :].partition(".")
    return (identity, channel) if dot else None


def register(identity: str) -> str:
    """Where an agent registers."""
    return f"hub.register.{identity}"


def presence(identity: str) -> str:
    """Where an agent's heartbeat goes."""
    return f"hub.presence.{identity}"


def attach(identity: str) -> str:
    """Where an agent asks for its durable inbox."""
    return f"hub.delivery.{identity}.inbox"


def api(identity: str, op: str) -> str:
    """Where an agent calls an operation of the query API."""
    return f"hub.api.{identity}.{op}"


def inbox(identity: str) -> str:
    """Where an identity's direct messages arrive."""
    return f"channel.inbox.{identity}"


def channel(name: str) -> str:
    """Where a channel's messages arrive."""
    return f"channel.{name}"


def channel_of(subject: str) -> str | None:
    """The channel's name of a `channel.…` subject; None when it is none."""
    return subject[len(_CHANNEL_PREFIX) :] if subject.startswith(_CHANNEL_PREFIX) else None


def inbox_consumer(identity: str) -> str:
    """The durable consumer that reads an identity's inbox."""
    return f"inbox-{identity}"


def private_inbox(identity: str) -> str:
    """The prefix of an identity's own reply subjects (without the dot behind it)."""
    return f"_INBOX_{identity}"
