"""Cases of the statistics."""

from datetime import UTC, datetime, timedelta

from hub.storage.conformance.harness import Harness, envelope, refusal
from hub.storage.errors import BadValue
from hub.storage.records import Activity, Hotspot, Latency


async def rates_have_a_bucket_for_every_interval(harness: Harness) -> None:
    error = b'{"task_id":"t","status":"error","error":"no"}'
    await harness.store(
        envelope("old", after_secs=-3700),
        envelope("a", after_secs=-119, payload=error),
        envelope("b", after_secs=-61),
        envelope("c", after_secs=-60, payload=b'{"task_id":"t","status":"done","error":null,"x":"error"}'),
        envelope("d", after_secs=0, payload=error, kind="event"),
        envelope("e", after_secs=-5, payload=b'"error" "task_id"'),
        envelope("future", after_secs=1000),
    )
    buckets = await harness.storage.stats.message_rate(secs=120)
    assert [(bucket.timestamp, bucket.count) for bucket in buckets] == [
        (datetime(2030, 1, 2, 3, 2, tzinfo=UTC), 1),
        (datetime(2030, 1, 2, 3, 3, tzinfo=UTC), 2),
        (datetime(2030, 1, 2, 3, 4, tzinfo=UTC), 2),
    ]
    errors = await harness.storage.stats.error_rate(secs=120)
    assert [bucket.count for bucket in errors] == [1, 0, 0]
    days = await harness.storage.stats.message_rate(secs=2 * 86400, interval="day")
    assert [bucket.count for bucket in days] == [0, 0, 6]
    hours = await harness.storage.stats.message_rate(secs=7200, interval="hour")
    assert [bucket.count for bucket in hours] == [0, 1, 5]


async def windows_and_intervals_are_checked(harness: Harness) -> None:
    stats = harness.storage.stats
    for secs in (0, -1, float("nan"), float("inf"), 1e12):
        await refusal(BadValue, stats.message_rate(secs=secs))
        await refusal(BadValue, stats.latency(secs=secs))
        await refusal(BadValue, stats.channel_hotspots(secs=secs))
        await refusal(BadValue, stats.agent_activity("a", secs=secs))
    await refusal(BadValue, stats.message_rate(interval="week"))
    await refusal(BadValue, stats.error_rate(secs=86400 * 30, interval="minute"))


async def latency_is_from_a_message_to_its_first_reply(harness: Harness) -> None:
    assert await harness.storage.stats.latency() == Latency(samples=0)
    rows = []
    for index in range(1, 101):
        rows.append(envelope(f"q{index}", after_secs=-1000 + index))
        # the answer that counts, a later one, and one by somebody else
        rows.append(
            envelope(f"a{index}", after_secs=-1000 + 1.5 * index, sender="bob", to="alice", reply_to=f"q{index}")
        )
        rows.append(envelope(f"b{index}", after_secs=-100, sender="bob", to=None, reply_to=f"q{index}"))
        rows.append(envelope(f"c{index}", after_secs=-1000 + index, sender="carol", to=None, reply_to=f"q{index}"))
    rows.append(envelope("to-all", after_secs=-500, to=None, channel="news"))
    rows.append(envelope("re-all", after_secs=-499, sender="carol", to="alice", channel="news", reply_to="to-all"))
    rows.append(envelope("early", after_secs=-300, channel="clock"))
    rows.append(envelope("re-early", after_secs=-301, sender="bob", to="alice", channel="clock", reply_to="early"))
    await harness.store(*rows)
    found = await harness.storage.stats.latency(channel="general")
    assert (found.samples, found.min_ms, found.max_ms) == (100, 500.0, 50_000.0)
    assert (found.p50_ms, found.p99_ms) == (25_000.0, 49_500.0)
    assert found.avg_ms is not None
    assert abs(found.avg_ms - 25_250) < 0.001
    news = await harness.storage.stats.latency(channel="news")
    assert news == Latency(samples=1, avg_ms=1000.0, min_ms=1000.0, max_ms=1000.0, p50_ms=1000.0, p99_ms=1000.0)
    clock = await harness.storage.stats.latency(channel="clock")
    assert (clock.samples, clock.max_ms) == (1, 0.0)
    assert (await harness.storage.stats.latency(secs=10)).samples == 0


async def activity_counts_what_one_identity_did_and_got(harness: Harness) -> None:
    await harness.store(
        envelope("1", after_secs=-10),
        envelope("2", after_secs=-9, to=None, kind="event"),
        envelope("3", after_secs=-8, sender="bob", to="alice", reply_to="1"),
        envelope("4", after_secs=-7, sender="bob", to="alice"),
        envelope("ancient", after_secs=-100_000, sender="bob", to="alice"),
    )
    activity = harness.storage.stats.agent_activity
    assert await activity("alice") == Activity(sent=2, received_dm=2, events=1, pending=3)
    assert await activity("bob") == Activity(sent=2, received_dm=1, events=0, pending=0)
    assert await activity("nobody\0") == Activity(sent=0, received_dm=0, events=0, pending=0)


async def hotspots_are_the_busiest_channels(harness: Harness) -> None:
    counts = {"b": 3, "a": 3, "c": 5, "d": 1}
    await harness.store(
        *(
            envelope(f"{channel}{index}", channel=channel)
            for channel, count in counts.items()
            for index in range(count)
        ),
        envelope("old", channel="old", after_secs=-timedelta(days=1).total_seconds()),
    )
    found = await harness.storage.stats.channel_hotspots(limit=3)
    assert found == [Hotspot("c", 5), Hotspot("a", 3), Hotspot("b", 3)]


CASES = [
    rates_have_a_bucket_for_every_interval,
    windows_and_intervals_are_checked,
    latency_is_from_a_message_to_its_first_reply,
    activity_counts_what_one_identity_did_and_got,
    hotspots_are_the_busiest_channels,
]
