"""Visibility: the one rule of who sees which envelopes (contract §10), and filters that keep to the right index.

A planner guesses by averages. A hub has one channel with half of all envelopes and fifty thousand with ten each, and an
identity that asks sees a hundredth of everything: so what is read in order is told here which index to keep off.
"""

from typing import Final

from sqlalchemy import ColumnElement, or_

from hub.protocol import names
from hub.storage.records import EnvelopeFilter
from hub.storage.sql.checks import check_aware
from hub.storage.sql.schema import envelopes
from hub.storage.sql.types import to_micros, unindexed

E: Final = envelopes.c

Conditions = list[ColumnElement[bool]]


def visible(identity: str | None) -> Conditions:
    """What the identity sent or was sent, and what had no recipient; all of it for None."""
    if identity is None:
        return []
    return [or_(E.sender == identity, E.recipient == identity, E.recipient.is_(None))]


def history_branches(filters: EnvelopeFilter, identity: str | None) -> list[Conditions]:
    """The filters and the rule as alternatives, each with an index of its own to be read by; none: nothing is visible.

    Raises:
        BadValue: a time without an offset.
    """
    check_aware("since", filters.since)
    check_aware("until", filters.until)
    if identity is None or identity in {filters.sender, filters.to}:  # all of that is visible
        return [_conditions(filters)]
    # What one identity sent or was sent is little: read that, whatever the filters are; but a stored channel, which
    # has the envelopes of one task, session or wave, is less.
    is_narrow = filters.channel is not None and names.is_stored_channel(filters.channel)
    kept_off = frozenset({"sender", "recipient", "kind"} if is_narrow else {"sender", "recipient", "kind", "channel"})
    branches: list[Conditions] = []
    if filters.sender is None:
        branches.append([E.sender == identity, *_conditions(filters, kept_off)])
    if filters.to is None:
        branches.append([E.recipient == identity, *_conditions(filters, kept_off)])
        to_all = E.recipient.is_(None) if filters.sender is None else unindexed(E.recipient) == ""
        branches.append([to_all, *_conditions(filters)])
    return branches


def _conditions(filters: EnvelopeFilter, kept_off: frozenset[str] = frozenset()) -> Conditions:
    """The filters as conditions; those on the columns `kept_off` so that no index is taken for them."""
    wanted = {"channel": filters.channel, "sender": filters.sender, "recipient": filters.to, "kind": filters.kind}
    given = {name: value for name, value in wanted.items() if value is not None}
    if len(given) > 1:
        kept_off = kept_off | {"kind"}  # there are five kinds, and hundreds of anything else
    conditions: Conditions = [
        (unindexed(E[name]) if name in kept_off else E[name]) == value for name, value in given.items()
    ]
    if filters.since is not None:
        conditions.append(E.stored_at >= to_micros(filters.since))
    if filters.until is not None:
        conditions.append(E.stored_at < to_micros(filters.until))
    return conditions
