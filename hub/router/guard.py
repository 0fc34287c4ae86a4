"""The replay guard: what a server was tricked into sending is told from what an agent sent (contract §6). Pure.

A JetStream request names its own reply subject, and nats-server does not check that against the requester's
permissions. So an agent can have a stored message sent to another's ingress subject, where it would pass as that one's.
What gives such a message away is what the server leaves on it.
"""

import re
from collections.abc import Iterable
from typing import Final

from hub.protocol import subjects

ROUTER_ID_PREFIX: Final = "hub-router:"
"""How every message id begins that a router gives (contract §3.2, 3): none of these comes from an agent."""

_SERVER_PREFIXES: Final = ("nats-", "kv-")
_ALLOWED: Final = frozenset({"Nats-Msg-Id", "Nats-Expected-Stream", "Nats-Request-Info"})
_STATUS_NAMES: Final = frozenset({"status", "description"})


# The value's first sign is no blank, so that what follows the colon is the value that `check` sees.
_ORDINARY: Final = re.compile(
    rb"NATS/1\.0\r\n(?:Nats-Msg-Id: (?!hub-router:)[!-~]+\r\n|Nats-Expected-Stream: [!-~]+\r\n)*\r\n"
)


def is_ordinary(header_block: bytes) -> bool:
    """Is this what clients send, nothing else, so that `check` finds nothing in it and nothing of it is carried on?

    One look at the bytes for nearly every message; False says only that the headers must be read.
    """
    return _ORDINARY.fullmatch(header_block) is not None


def check(subject: str, headers: Iterable[tuple[str, str]]) -> str | None:
    """Judge an ingress message.

    Args:
        subject: the subject that it was stored under.
        headers: its ordinary headers, repeated ones included.

    Returns:
        None when an agent sent it, else what gave it away, for the log and the dead letter.
    """
    if subjects.split_publish(subject) is None:
        return f"stored under {subject[:80]!r}, which is no ingress subject"
    for name, value in headers:
        if name in _ALLOWED:
            if name == "Nats-Msg-Id" and value.startswith(ROUTER_ID_PREFIX):
                return "carries a message id that only a router gives"
            continue
        lowered = name.lower().lstrip(":")
        if lowered.startswith(_SERVER_PREFIXES):
            return f"carries the header {name[:80]!r}, which only a server writes"
        if lowered in _STATUS_NAMES:
            return f"carries the header {name.lstrip(':')!r}, which only a server writes"
    return None
