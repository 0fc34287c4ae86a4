"""The client: what agents and tools import."""

from hub.client.channel import ChannelSubscription
from hub.client.client import HubClient
from hub.client.errors import (
    ClientError,
    FollowingEnded,
    InboxIsOpen,
    NoHub,
    NotSent,
    SendRefused,
    SendUnconfirmed,
    TaskTimedOut,
)
from hub.client.queries import NoApi, Queries, QueryRefused
from hub.client.sender import SendReceipt
from hub.client.task import TaskHandle

__all__ = [
    "HubClient",
    "SendReceipt",
    "TaskHandle",
    "ChannelSubscription",
    "Queries",
    "ClientError",
    "NotSent",
    "NoHub",
    "SendRefused",
    "SendUnconfirmed",
    "TaskTimedOut",
    "FollowingEnded",
    "InboxIsOpen",
    "QueryRefused",
    "NoApi",
]
