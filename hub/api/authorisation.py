"""Authorisation: who may call which operation, and about whom (contract §10). Pure.

What a record's own members decide (who sent it, whose session it is) is decided inside the storage's queries, by
`Caller.sees`; what the operation and its parameters decide is decided here.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from hub.api.errors import Forbidden
from hub.protocol import names


class Rule(StrEnum):
    """What a caller that is no API admin may do with an operation."""

    OPEN = "open"  # everybody
    VISIBLE = "visible"  # everybody, who gets what it sent or was sent, and what had no recipient
    SELF = "self"  # about the caller's own identity only
    PARTY = "party"  # on what the caller orchestrates or works for
    OWNER = "owner"  # on what the caller orchestrates
    ADMIN = "admin"  # nobody


RULES: Final[Mapping[str, Rule]] = {
    "ping": Rule.OPEN,
    "agent.find": Rule.OPEN,
    "agent.get": Rule.OPEN,
    "history.query": Rule.VISIBLE,
    "envelope.get": Rule.VISIBLE,
    "thread.get": Rule.VISIBLE,
    "thread.pending": Rule.SELF,
    "session.create": Rule.OWNER,
    "session.get": Rule.PARTY,
    "session.list": Rule.PARTY,
    "session.update_status": Rule.PARTY,
    "session.set_backend_ctx": Rule.PARTY,
    "wave.create": Rule.OWNER,
    "wave.spawn": Rule.OWNER,
    "wave.cancel": Rule.OWNER,
    "wave.status": Rule.PARTY,
    "wave.get": Rule.PARTY,
    "wave.list": Rule.PARTY,
    "wave.list_tasks": Rule.PARTY,
    "wave.get_task": Rule.PARTY,
    "task.cancel": Rule.ADMIN,
    "stats.message_rate": Rule.OPEN,
    "stats.error_rate": Rule.OPEN,
    "stats.latency": Rule.OPEN,
    "stats.channel_hotspots": Rule.OPEN,
    "stats.agent_activity": Rule.SELF,
    "dead.list": Rule.ADMIN,
    "dead.get": Rule.ADMIN,
    "dead.replay": Rule.ADMIN,
}
"""The rule of each operation: one that is not here does not exist."""


class Caller(msgspec.Struct, frozen=True):
    """Who asks.

    Attributes:
        identity: by the request's subject, validated.
        is_admin: an API admin: every rule lets it pass.
    """

    identity: str
    is_admin: bool = False

    @property
    def sees(self) -> str | None:
        """For whom storage filters (its `visible_to`); None sees everything."""
        return None if self.is_admin else self.identity

    def owner(self, named: str | None) -> str:
        """Who owns what this caller creates: itself, whatever the request says, unless an admin names another."""
        return named if named is not None and self.is_admin else self.identity


def caller_of(identity: str, admins: frozenset[str]) -> Caller:
    """The caller that a request's subject names.

    Raises:
        BadName: it is no identity.
        Forbidden: it is the hub's own voice, which is never minted and asks nothing (contract §1).
    """
    if names.identity(identity) == names.HUB_IDENTITY:
        raise Forbidden(f"{names.HUB_IDENTITY} is the hub's own voice and calls no operation: use an identity of yours")
    return Caller(identity, identity in admins)


def require_allowed(op: str, caller: Caller) -> None:
    """Refuse an operation that is for admins only, before anything of the request is looked at."""
    if RULES[op] is Rule.ADMIN and not caller.is_admin:
        raise Forbidden(f"{op} is for API admins (--api-admin), and {caller.identity} is none")


def require_about(op: str, caller: Caller, identity: str) -> None:
    """Refuse a question about another identity, where the rule allows one's own only."""
    if RULES[op] is Rule.SELF and not caller.is_admin and identity != caller.identity:
        raise Forbidden(f"{op} is about the caller's own identity, {caller.identity}: expected it, got {identity}")


def require_owner(op: str, caller: Caller, owner: str, what: str) -> None:
    """Refuse to act on what the caller sees but does not orchestrate."""
    if RULES[op] is Rule.OWNER and not caller.is_admin and owner != caller.identity:
        raise Forbidden(f"{op} is for the orchestrator of the {what}, and {caller.identity} only works for it")
