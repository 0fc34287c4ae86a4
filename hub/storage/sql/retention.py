"""Pruner: removes what the retention rules no longer keep, oldest first, a small step at a time."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from sqlalchemy import ColumnElement, Table, delete, false, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from hub.storage.errors import BadValue
from hub.storage.records import RetentionRule, RetentionStep
from hub.storage.sql.rows import KINDS
from hub.storage.sql.schema import agents, dead_letters, envelopes, sessions, wave_tasks, waves
from hub.storage.sql.types import to_micros


class _Kept(NamedTuple):
    """A kind of record.

    Attributes:
        age: the time by which it ages; what has none is not over yet, and stays.
        weight: what goes with one of it, in bytes.
        share: how many of the records of a step it stands for.
    """

    table: Table
    age: ColumnElement[int]
    weight: ColumnElement[int]
    share: int = 1


_WAVE_TASKS_BYTES: Final = func.coalesce(
    select(func.sum(wave_tasks.c.size)).where(wave_tasks.c.wave_id == waves.c.wave_id).scalar_subquery(), 0
)
_OTHERS: Final = {
    "dead": _Kept(dead_letters, dead_letters.c.received_at, dead_letters.c.size),
    "agent": _Kept(agents, agents.c.last_seen, agents.c.size),
    "session": _Kept(sessions, sessions.c.closed_at, sessions.c.size),
    # a wave takes up to 10 000 tasks with it
    "wave": _Kept(waves, waves.c.closed_at, waves.c.size + _WAVE_TASKS_BYTES, share=100),
}
_ENVELOPE: Final = _Kept(envelopes, envelopes.c.stored_at, envelopes.c.size)
MAX_RULE: Final = 10**12  # 30 000 years, a terabyte: beyond any, and far from where numbers end
RULE_KINDS: Final = frozenset(KINDS | set(_OTHERS))


def check_rules(rules: Sequence[RetentionRule]) -> None:
    """`BadValue` for a rule about something else, or without sense."""
    for rule in rules:
        for name in ("max_age_secs", "max_bytes"):
            value = getattr(rule, name)
            if value is not None and not 0 <= value <= MAX_RULE:
                raise BadValue(name, value, f"a number from 0 to {MAX_RULE}, or none")
        if rule.kind not in RULE_KINDS:
            raise BadValue("kind of record", rule.kind, f"one of {', '.join(sorted(RULE_KINDS))}")


async def excesses(connection: AsyncConnection, rules: Sequence[RetentionRule]) -> list[int]:
    """For each rule, how many bytes of its kind are too many. All records count, those too that may not leave yet."""
    found: list[int] = []
    for rule in rules:
        if rule.max_bytes is None:
            found.append(0)
            continue
        kept = _OTHERS.get(rule.kind, _ENVELOPE)
        tables = [waves, wave_tasks] if kept.table is waves else [kept.table]
        weight = 0
        for table in tables:
            statement = select(func.coalesce(func.sum(table.c.size), 0))
            weight += int((await connection.execute(statement.where(*_of_kind(rule, table)))).scalar_one())
        found.append(max(0, weight - rule.max_bytes))
    return found


async def prune(
    connection: AsyncConnection,
    rules: Sequence[RetentionRule],
    excess_bytes: Sequence[int],
    *,
    now: datetime,
    most: int,
) -> RetentionStep:
    """One step: at most about `most` records, in the order of the rules."""
    removed: dict[str, int] = {}
    room = most
    for rule, excess in zip(rules, excess_bytes, strict=True):
        if room <= 0:
            break
        kept = _OTHERS.get(rule.kind, _ENVELOPE)
        size = max(1, room // kept.share)
        gone = await _remove_some(connection, rule, excess=excess, now=now, most=size)
        if gone:
            removed[rule.kind] = removed.get(rule.kind, 0) + gone
        room = 0 if gone >= size else room - gone * kept.share
    return RetentionStep(removed, room > 0)


async def _remove_some(
    connection: AsyncConnection, rule: RetentionRule, *, excess: int, now: datetime, most: int
) -> int:
    kept = _OTHERS.get(rule.kind, _ENVELOPE)
    table = kept.table
    oldest = (
        select(table.c.seq, kept.age.label("age"), kept.weight.label("weight"))
        .where(kept.age.is_not(None), *_of_kind(rule, table))
        .order_by(kept.age, table.c.seq)
        .limit(most)
    ).subquery()
    too_old: ColumnElement[bool] = false()
    if rule.max_age_secs is not None:
        too_old = oldest.c.age < to_micros(now) - int(rule.max_age_secs * 1_000_000)
    # the weight of what is older: a record leaves while what left before it was not enough
    older = func.sum(oldest.c.weight).over(order_by=[oldest.c.age, oldest.c.seq]) - oldest.c.weight
    judged = select(oldest.c.seq, (or_(too_old, older < excess)).label("leaves")).subquery()
    leaving = select(judged.c.seq).where(judged.c.leaves)
    return (await connection.execute(delete(table).where(table.c.seq.in_(leaving)))).rowcount


def _of_kind(rule: RetentionRule, table: Table) -> list[ColumnElement[bool]]:
    return [envelopes.c.kind == rule.kind] if table is envelopes else []
