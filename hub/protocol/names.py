"""Validators of names: the one place that says what may become a subject, a consumer, a file or a config entry.

Names are refused, never repaired: a stripped or escaped name would let two senders share one. What a validator returns
is a plain `str`, also for a subclass that formats as something else, as a member of `class Team(str, Enum)` does.
"""

import re
import secrets
from typing import Final

from hub.protocol.errors import BadName

HUB_IDENTITY: Final = "hub-orchestrator"
"""The hub's own voice. Never minted for an agent (contract §1)."""

MAX_CHANNEL_TOKENS: Final = 16
MAX_MESSAGE_ID_BYTES: Final = 128
TASK_PREFIX_LENGTH: Final = 8  # contract §7: the task channel carries the first 8 characters of the envelope id

TOKEN_RULE: Final = "1 to 64 characters of A-Z a-z 0-9 _ -"
CHANNEL_RULE: Final = f"1 to {MAX_CHANNEL_TOKENS} tokens ({TOKEN_RULE}) joined by dots"
MESSAGE_ID_RULE: Final = f"1 to {MAX_MESSAGE_ID_BYTES} printable ASCII characters without a space"
RESERVED_RULE: Final = "task.<id>, session.<id>, wave.<wave id> or wave.<wave id>.task.<task id>"

_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,64}")
_CHANNEL = re.compile(rf"[A-Za-z0-9_-]{{1,64}}(?:\.[A-Za-z0-9_-]{{1,64}}){{0,{MAX_CHANNEL_TOKENS - 1}}}")
_MESSAGE_ID = re.compile(rf"[!-~]{{1,{MAX_MESSAGE_ID_BYTES}}}")
_RESERVED_FIRST = frozenset({"inbox", "task", "session", "wave"})
_VARIANTS: Final = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))  # RFC 9562: the two highest bits are 10
_TASK_TOKEN = re.compile(rf"[A-Za-z0-9_-]{{1,{TASK_PREFIX_LENGTH}}}")


def is_token(value: object) -> bool:
    """Is this one subject token of the contract's alphabet?"""
    return isinstance(value, str) and _TOKEN.fullmatch(value) is not None


def token(value: object, what: str = "name") -> str:
    """Return `value` when it is one token (`[A-Za-z0-9_-]{1,64}`), else raise `BadName`.

    Args:
        value: what came.
        what: the kind of name, for the error (`wave id`, `stream`, …).
    """
    if isinstance(value, str) and _TOKEN.fullmatch(value):
        return str.__str__(value)
    raise BadName(what, value, TOKEN_RULE)


def identity(value: object) -> str:
    """Return a valid identity, else raise `BadName`. The hub's own identity is valid; minting it is not."""
    return token(value, "identity")


def agent_identity(value: object) -> str:
    """Return an identity that an agent may have: not the hub's own voice."""
    name = identity(value)
    if name == HUB_IDENTITY:
        raise BadName("identity", value, f"another name; {HUB_IDENTITY} is the hub's own voice")
    return name


def is_message_id(value: object) -> bool:
    """Is this a message id: 1..128 bytes of printable ASCII without a space (contract §1)?"""
    return isinstance(value, str) and _MESSAGE_ID.fullmatch(value) is not None


def message_id(value: object) -> str:
    """Return a valid message id, else raise `BadName`."""
    if isinstance(value, str) and _MESSAGE_ID.fullmatch(value):
        return str.__str__(value)
    raise BadName("message id", value, MESSAGE_ID_RULE)


def channel(value: object) -> str:
    """Return a channel that may be published to, else raise `BadName` (contract §1).

    A first token `task`, `session` or `wave` must have exactly one of the stored forms, so that a stream captures it;
    `inbox` is no channel: an inbox is reached with `to`.
    """
    if not isinstance(value, str) or _CHANNEL.fullmatch(value) is None:
        raise BadName("channel", value, CHANNEL_RULE)
    name = str.__str__(value)
    first, _, rest = name.partition(".")
    if first not in _RESERVED_FIRST:
        return name
    if first == "inbox":
        raise BadName("channel", value, "no `inbox.…`: an inbox is reached with `to`")
    tokens = rest.split(".") if rest else []
    is_stored_form = len(tokens) == 1 or (first == "wave" and len(tokens) == 3 and tokens[1] == "task")
    if is_stored_form:
        return name
    raise BadName("channel", value, RESERVED_RULE)


def is_stored_channel(value: str) -> bool:
    """Does a stream keep what is published to this (valid) channel (contract §3.2, 3)?"""
    return value.partition(".")[0] in _RESERVED_FIRST


def task_channel(envelope_id: str) -> str:
    """The task channel that follows from a task's envelope id (contract §7).

    Raises:
        BadName: the id's first 8 characters are not all of `[A-Za-z0-9_-]`, so that no channel follows from it.
    """
    head = message_id(envelope_id)[:TASK_PREFIX_LENGTH]
    if _TASK_TOKEN.fullmatch(head) is None:
        raise BadName("task id", envelope_id, f"its first {TASK_PREFIX_LENGTH} characters of A-Z a-z 0-9 _ -")
    return f"task.{head}"


def new_message_id() -> str:
    """A fresh message id: UUID v4 text, from the operating system's randomness (safe over fork and `random.seed`)."""
    digits = secrets.token_hex(16)  # `uuid.uuid4` takes three times as long, with every message
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{_VARIANTS[digits[16]]}{digits[17:20]}-{digits[20:]}"


def new_publish_id() -> str:
    """A fresh `Nats-Msg-Id` for one publish to the ingress: 128 random bits, hex.

    Not `meta.id`: all agents share the ingress stream's duplicate window, and whoever knows another's id could squat
    on it and have its message dropped.
    """
    return secrets.token_hex(16)
