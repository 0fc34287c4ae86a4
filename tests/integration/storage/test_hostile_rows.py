"""Whatever a row holds, the batch around it is stored."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hub.storage import open_storage
from hub.storage.conformance.harness import envelope, ids
from hub.storage.records import NewDeadLetter, NewEnvelope, Sighting
from hub.storage.sql import envelopes as store

any_text = st.text(alphabet=st.characters(exclude_categories=[]), max_size=200)  # surrogates and NUL too
any_time = st.datetimes(timezones=st.just(UTC) | st.none())

rows = st.builds(
    NewEnvelope,
    id=any_text | st.just("same"),
    sender=any_text | st.just("alice"),
    destination=any_text | st.just("channel.inbox.bob"),
    channel=any_text | st.just("general"),
    to=st.none() | any_text | st.just("bob"),
    timestamp=any_time,
    kind=any_text | st.just("message"),
    reply_to=st.none() | any_text,
    payload=st.binary(max_size=300),
    stored_at=st.none() | any_time,
)
letters = st.builds(
    NewDeadLetter,
    reason=any_text | st.just("expired"),
    detail=any_text,
    subject=any_text,
    sender=st.none() | any_text,
    envelope_id=st.none() | any_text,
    headers=st.lists(st.tuples(any_text, any_text), max_size=3),
    data=st.binary(max_size=300),
    size=st.none() | st.integers(0, 2**40),
    received_at=st.none() | any_time,
    dead_id=st.none() | any_text,
)
json_values = st.recursive(
    any_text | st.none() | st.floats() | st.integers(), lambda inner: st.lists(inner, max_size=3)
)
sightings = st.builds(
    Sighting,
    identity=any_text | st.just("alice"),
    seen_at=st.none() | any_time,
    capabilities=st.none() | st.lists(any_text, max_size=4),
    metadata=st.none() | st.dictionaries(any_text, json_values, max_size=3),
)


@given(batch=st.lists(rows, max_size=8), dead=st.lists(letters, max_size=4), seen=st.lists(sightings, max_size=4))
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
async def test_no_row_holds_up_its_batch(
    storage_url: str, batch: list[NewEnvelope], dead: list[NewDeadLetter], seen: list[Sighting]
) -> None:
    storage = open_storage(storage_url)
    assert storage is not None
    async with storage:
        good = envelope(f"good-{datetime.now(UTC).timestamp()}")
        report = await storage.envelopes.insert_mirrored([*batch, good])
        assert report.stored + report.duplicates + len(report.refused) == len(batch) + 1
        assert len(batch) not in {row.index for row in report.refused}
        assert await storage.envelopes.get(good.id) is not None
        kept = await storage.dead_letters.insert(dead)
        assert kept.stored + kept.duplicates + len(kept.refused) == len(dead)
        heard = await storage.agents.record([*seen, Sighting(identity="good")])
        assert heard.stored + len(heard.refused) == len(seen) + 1
        assert await storage.agents.get("good") is not None
        for listed in (storage.envelopes.query(), storage.dead_letters.find(), storage.agents.find()):
            await listed  # what was stored can be read


async def test_a_row_that_only_the_database_refuses_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check before the database may miss something: the database's own refusal is the row's alone."""
    real = store.envelope_values

    def careless(row: NewEnvelope, now: datetime) -> dict[str, object]:
        values = real(row, now)
        if row.id == "too-big":
            values["stored_at"] = 2**70
        elif row.id == "no-kind":
            values["kind"] = None
        return values

    monkeypatch.setattr(store, "envelope_values", careless)
    storage = open_storage(f"sqlite:///{tmp_path}/hub.db")
    assert storage is not None
    async with storage:
        batch = [envelope("a"), envelope("too-big"), envelope("b"), envelope("no-kind"), envelope("a")]
        report = await storage.envelopes.insert_mirrored(batch)
        assert (report.stored, report.duplicates, [row.index for row in report.refused]) == (2, 1, [1, 3])
        assert ids(await storage.envelopes.query()) == ["b", "a"]


async def test_a_row_that_only_postgresql_refuses_is_left_out(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = store.envelope_values

    def careless(row: NewEnvelope, now: datetime) -> dict[str, object]:
        values = real(row, now)
        changes: dict[str, dict[str, object]] = {
            "too-big": {"stored_at": 2**70},
            "no-kind": {"kind": None},
            "nul": {"channel": "\0"},
            "long": {"channel": "".join(str(number) for number in range(5000))},  # no index entry is that long
        }
        return values | changes.get(row.id, {})

    monkeypatch.setattr(store, "envelope_values", careless)
    storage = open_storage(postgres_database)
    assert storage is not None
    async with storage:
        names = ["pg-a", "too-big", "pg-b", "no-kind", "nul", "long", "pg-a"]
        report = await storage.envelopes.insert_mirrored([envelope(name) for name in names])
        assert (report.stored, report.duplicates, [row.index for row in report.refused]) == (2, 1, [1, 3, 4, 5])
