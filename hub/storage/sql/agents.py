"""Agent store: sightings become agents, and agents are found by what they can do."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, and_, case, delete, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from hub.protocol import BadName, names
from hub.storage.base import Agents
from hub.storage.records import (
    DEFAULT_LIMIT,
    DEFAULT_PAGE_BYTES,
    MAX_BATCH,
    MAX_CAPABILITIES,
    MAX_METADATA_BYTES,
    Agent,
    BatchReport,
    Page,
    Refused,
    Sighting,
)
from hub.storage.sql import pages
from hub.storage.sql.bulk import insert_for, insert_new
from hub.storage.sql.checks import check_aware
from hub.storage.sql.database import Database
from hub.storage.sql.rows import Unstorable
from hub.storage.sql.schema import agent_capabilities, agents
from hub.storage.sql.types import from_json, from_micros, to_bytes, to_json, to_micros

A: Final = agents.c
DIGEST_BYTES: Final = 16  # 128 bits: no two texts that an agent can find have the same
RECORD_BYTES: Final = 256  # an agent's record without its capabilities and metadata


class SqlAgents(Agents):
    """Agents in SQL."""

    def __init__(self, database: Database, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._clock = clock

    async def record(self, sightings: Sequence[Sighting]) -> BatchReport:
        if len(sightings) > MAX_BATCH:
            raise ValueError(f"expected at most {MAX_BATCH} sightings, got {len(sightings)}")
        now = self._clock()
        good: list[dict[str, Any]] = []
        refused: list[Refused] = []
        for index, sighting in enumerate(sightings):
            try:
                good.append(_values(sighting, now))
            except Unstorable as error:
                refused.append(Refused(index, str(error)))
        # in one order everywhere, so that two writers do not wait for each other
        good.sort(key=lambda values: (values["identity"], values["last_seen"]))

        async def work(connection: AsyncConnection) -> BatchReport:
            if good:
                await connection.execute(_upsert(connection.dialect.name), good)
                described = sorted({values["identity"] for values in good if values["described_at"] is not None})
                await _index_capabilities(connection, described)
            return BatchReport(len(good), 0, tuple(refused))

        return await self._database.write(work)

    async def get(self, identity: str) -> Agent | None:
        async def work(connection: AsyncConnection) -> Agent | None:
            row = (await connection.execute(select(agents).where(A.identity == identity))).one_or_none()
            return None if row is None else _agent(row)

        return await self._database.read(work)

    async def find(
        self,
        *,
        capabilities: Sequence[str] = (),
        seen_since: datetime | None = None,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
        max_bytes: int = DEFAULT_PAGE_BYTES,
    ) -> Page[Agent]:
        check_aware("seen_since", seen_since)
        conditions: list[ColumnElement[bool]] = []
        digests = {_digest(capability) for capability in capabilities}
        if len(digests) > MAX_CAPABILITIES:
            return Page([])  # nobody may have so many
        if digests:
            able = (
                select(agent_capabilities.c.identity)
                .where(agent_capabilities.c.digest.in_(sorted(digests)))
                .group_by(agent_capabilities.c.identity)
                .having(func.count() == len(digests))
            )
            conditions.append(A.identity.in_(able))
        if seen_since is not None:
            conditions.append(A.last_seen >= to_micros(seen_since))
        return await PAGER.read(self._database, [conditions], limit=limit, cursor=cursor, max_bytes=max_bytes)


def _values(sighting: Sighting, now: datetime) -> dict[str, Any]:
    """The columns of a sighting, or `Unstorable`."""
    try:
        names.agent_identity(sighting.identity)
    except BadName as error:
        raise Unstorable(str(error)) from None
    seen_at = sighting.seen_at or now
    if seen_at.tzinfo is None:
        raise Unstorable("bad seen_at: expected a time with an offset")
    is_registration = sighting.capabilities is not None or sighting.metadata is not None
    capabilities = list(dict.fromkeys(sighting.capabilities or []))
    if len(capabilities) > MAX_CAPABILITIES:
        raise Unstorable(f"expected at most {MAX_CAPABILITIES} capabilities, got {len(capabilities)}")
    try:
        described = to_json(capabilities), to_json(sighting.metadata or {})
    except (UnicodeEncodeError, TypeError, OverflowError, RecursionError) as error:
        raise Unstorable(f"capabilities or metadata are no JSON: {error}") from None
    if sum(map(len, described)) > MAX_METADATA_BYTES:
        raise Unstorable(f"expected at most {MAX_METADATA_BYTES} bytes of capabilities and metadata")
    return {
        "identity": sighting.identity,
        "registered_at": to_micros(seen_at),
        "last_seen": to_micros(seen_at),
        "described_at": to_micros(seen_at) if is_registration else None,
        "capabilities": described[0],
        "metadata": described[1],
        "size": RECORD_BYTES + sum(map(len, described)),
    }


def _upsert(dialect: str) -> Any:
    statement = insert_for(dialect, agents)
    new = statement.excluded
    is_newest = and_(new.described_at.is_not(None), or_(A.described_at.is_(None), A.described_at <= new.described_at))
    changes: dict[str, Any] = {
        name: case((is_newest, new[name]), else_=A[name])
        for name in ("capabilities", "metadata", "size", "described_at")
    }
    changes["last_seen"] = case((A.last_seen < new.last_seen, new.last_seen), else_=A.last_seen)
    return statement.on_conflict_do_update(index_elements=[A.identity], set_=changes)


async def _index_capabilities(connection: AsyncConnection, identities: Sequence[str]) -> None:
    """Make the index say what the agents' rows (which this transaction holds) say."""
    if not identities:
        return
    index = agent_capabilities.c
    wanted: dict[str, set[bytes]] = {}
    for row in await connection.execute(select(A.identity, A.capabilities).where(A.identity.in_(identities))):
        wanted[row.identity] = {_digest(capability) for capability in from_json(row.capabilities)}
    present: dict[str, set[bytes]] = defaultdict(set)
    for entry in await connection.execute(select(agent_capabilities).where(index.identity.in_(identities))):
        present[entry.identity].add(bytes(entry.digest))
    for identity, digests in wanted.items():
        gone = present[identity] - digests
        if gone:
            await connection.execute(
                delete(agent_capabilities).where(index.identity == identity, index.digest.in_(sorted(gone)))
            )
        added = [{"digest": digest, "identity": identity} for digest in sorted(digests - present[identity])]
        await insert_new(connection, agent_capabilities, added)


def _digest(capability: str) -> bytes:
    return hashlib.blake2b(to_bytes(capability), digest_size=DIGEST_BYTES).digest()


def _agent(row: Row[Any]) -> Agent:
    return Agent(
        identity=row.identity,
        capabilities=from_json(row.capabilities),
        metadata=from_json(row.metadata),
        registered_at=from_micros(row.registered_at),
        last_seen=from_micros(row.last_seen),
    )


PAGER: Final = pages.Pager(agents, "registered_at", _agent)
