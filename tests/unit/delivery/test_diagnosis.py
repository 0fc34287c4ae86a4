"""What JetStream's answers mean: each state of a stream, a consumer, an inbox has its finding."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hub.delivery import diagnosis
from hub.delivery.diagnosis import ConsumerState
from hub.delivery.inspector import StreamFinding
from hub.delivery.refusals import FieldDrift
from hub.delivery.report import Finding, Report, counted, shown_secs

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def state(**changes: Any) -> ConsumerState:
    quiet = {
        "name": "inbox-bob",
        "waiting": 0,
        "unacked": 0,
        "most_unacked": 256,
        "pulls": 1,
        "floor_seq": 0,
        "delivered_seq": 0,
        "idle_secs": 0.0,
        "quiet_secs": changes.get("idle_secs", 0.0),
        "redelivered": 0,
    }
    return ConsumerState(**(quiet | changes))


def info(**changes: Any) -> dict[str, Any]:
    stream = {"messages": 0, "bytes": 0, "first_seq": 0, "last_seq": 0, "first_ts": "0001-01-01T00:00:00Z"}
    return {"state": stream | changes, "config": {"max_bytes": 1000, "max_msgs": -1, "discard": "new"}}


def test_a_consumers_state_is_read_from_its_info_by_the_servers_clock() -> None:
    read = diagnosis.consumer_state(
        {
            "name": "inbox-bob",
            "created": "2026-03-01T11:00:00.000000000Z",
            "config": {"max_ack_pending": 3},
            "delivered": {"stream_seq": 9, "last_active": "2026-03-01T11:59:20Z"},
            "ack_floor": {"stream_seq": 6, "last_active": "2026-03-01T11:59:30.123456789Z"},
            "num_pending": 4,
            "num_ack_pending": 3,
            "num_waiting": 2,
        },
        NOW,
    )
    assert (read.waiting, read.unacked, read.most_unacked, read.pulls) == (4, 3, 3, 2)
    assert (read.floor_seq, read.delivered_seq) == (6, 9)
    assert read.idle_secs == pytest.approx(29.877, abs=0.01)
    assert read.quiet_secs == 40
    assert read.is_stalled


def test_without_any_ack_idle_counts_from_the_consumers_making() -> None:
    read = diagnosis.consumer_state({"created": "2026-03-01T11:59:00Z", "ack_floor": {"stream_seq": 0}}, NOW)
    assert read.idle_secs == 60


@pytest.mark.parametrize("text", [None, "", "0001-01-01T00:00:00Z"])
def test_jetstreams_zero_time_is_no_time(text: str | None) -> None:
    assert diagnosis.moment(text) is None


@pytest.mark.parametrize(
    ("changes", "is_stalled"),
    [
        ({"unacked": 256, "idle_secs": 10.0}, True),
        ({"unacked": 300, "idle_secs": 10.0}, True),  # the limit was lowered meanwhile
        ({"unacked": 256, "idle_secs": 0.5}, False),  # at its limit under load, and acks come
        ({"unacked": 256, "idle_secs": 3600.0, "quiet_secs": 0.5}, False),  # has just taken its first window
        ({"unacked": 256, "idle_secs": 10.0, "quiet_secs": 0.5, "redelivered": 256}, True),  # hangs, and gets it again
        ({"unacked": 255, "idle_secs": 60.0}, False),
        ({"unacked": 256, "most_unacked": 0, "idle_secs": 60.0}, False),  # no limit
        ({"unacked": 256, "most_unacked": -1, "idle_secs": 60.0}, False),
        ({"unacked": 0, "idle_secs": 60.0}, False),
    ],
)
def test_stalled_is_who_is_at_the_limit_and_gets_no_ack(changes: dict[str, Any], is_stalled: bool) -> None:
    assert state(**changes).is_stalled is is_stalled


def test_a_stalled_inbox_says_how_many_and_how_old() -> None:
    stalled = state(unacked=256, waiting=7, idle_secs=90, oldest_secs=125.0)
    finding = diagnosis.judge_inbox("bob", stalled, limit=10_000, max_age_secs=604_800)
    assert (finding.name, finding.level) == ("inbox bob", "warn")
    assert finding.text.startswith("stalled: 256 un-acked, oldest 2 min")
    assert finding.data["stalled"] is True
    assert finding.data["oldest_secs"] == 125.0


@pytest.mark.parametrize(
    ("inbox", "level", "words"),
    [
        (state(), "ok", "nothing unread, read now"),
        (state(waiting=3, pulls=0, oldest_secs=130), "ok", "3 unread, the oldest waits 2 min, nobody reads now"),
        (state(waiting=90, pulls=0), "warn", "soon each new message drops"),
        (state(waiting=97, unacked=3), "warn", "full: 100 unread is the limit"),
        (state(waiting=100, unacked=0, pulls=0), "warn", "full: 100 unread is the limit"),
        (state(waiting=1, oldest_secs=950.0), "warn", "the oldest is dropped in 50 s"),
    ],
)
def test_an_inbox_is_judged_by_what_it_will_lose(inbox: ConsumerState, level: str, words: str) -> None:
    finding = diagnosis.judge_inbox("bob", inbox, limit=100, max_age_secs=1000)
    assert finding.level == level
    assert words in finding.text


def test_an_unlimited_inbox_is_never_full() -> None:
    finding = diagnosis.judge_inbox("bob", state(waiting=10**6, oldest_secs=1e9), limit=-1, max_age_secs=-1)
    assert finding.level == "ok"


@pytest.mark.parametrize(
    ("router", "level", "words"),
    [
        (state(name="router"), "ok", "0 waiting, 0 in flight, 1 pull open"),
        (state(name="router", waiting=5, pulls=0), "fail", "5 messages wait and nobody pulls"),
        (state(name="router", waiting=5, pulls=0, unacked=2), "ok", "5 waiting, 2 in flight"),
        (
            state(name="router", unacked=256, idle_secs=9, oldest_secs=9.5),
            "warn",
            "stalled: 256 un-acked, oldest 9.5 s",
        ),
    ],
)
def test_the_routers_consumer_tells_whether_anybody_routes(router: ConsumerState, level: str, words: str) -> None:
    finding = diagnosis.judge_router(router)
    assert (finding.name, finding.level) == ("consumer router", level)
    assert words in finding.text


@pytest.mark.parametrize(
    ("messages", "age_secs", "level"), [(0, 99, "ok"), (3, 2, "ok"), (3, 10, "warn"), (1, 86_000, "warn")]
)
def test_what_waits_long_in_the_ingress_is_a_warning(messages: int, age_secs: int, level: str) -> None:
    first = (NOW - timedelta(seconds=age_secs)).isoformat()
    finding = diagnosis.judge_ingress_age(info(messages=messages, first_ts=first), NOW)
    assert finding.level == level
    assert finding.data["waiting"] == messages
    assert finding.data["oldest_secs"] == (age_secs if messages else 0)


def test_a_stream_that_is_missing_or_unsafe_fails_and_another_limit_warns() -> None:
    missing = diagnosis.judge_stream(StreamFinding("inbox", "HUB_INBOX", is_missing=True), None)
    unsafe = StreamFinding("inbox", "HUB_INBOX", drift=(FieldDrift("allow_rollup_hdrs", found=True, wanted=False),))
    limit = StreamFinding("inbox", "HUB_INBOX", drift=(FieldDrift("max_bytes", 10, -1),))
    assert missing.level == "fail"
    assert "start a router" in missing.text
    judged = diagnosis.judge_stream(unsafe, info())
    assert (judged.level, judged.data["drift"][0]["field"]) == ("fail", "allow_rollup_hdrs")
    assert "allow_rollup_hdrs is true, asked was false" in judged.text
    assert diagnosis.judge_stream(limit, info()).level == "warn"


@pytest.mark.parametrize(("held", "level"), [(0, "ok"), (899, "ok"), (900, "warn"), (1000, "warn")])
def test_a_stream_near_its_limit_is_a_warning_that_says_what_happens_then(held: int, level: str) -> None:
    finding = diagnosis.judge_stream(StreamFinding("ingress", "HUB_INGRESS"), info(bytes=held))
    assert finding.level == level
    assert level == "ok" or "refuses new messages" in finding.text


@pytest.mark.parametrize(
    ("mirror", "level"),
    [
        (state(name="mirror-0a1b2c3d"), "ok"),
        (state(waiting=500, idle_secs=1), "ok"),
        (state(waiting=500, pulls=0, idle_secs=60), "warn"),
        (state(unacked=256, idle_secs=60), "warn"),
    ],
)
def test_a_mirror_that_takes_nothing_is_a_warning(mirror: ConsumerState, level: str) -> None:
    finding = diagnosis.judge_mirror("HUB_INBOX", mirror)
    assert (finding.level, finding.data["lag"]) == (level, mirror.unread)


def test_mail_for_those_who_never_attached_is_shown_and_full_inboxes_warn() -> None:
    shown, full = diagnosis.judge_unattached({"carol": 3, "dave": 10}, limit=10)
    assert (shown.level, full.level) == ("ok", "warn")
    assert "carol (3), dave (10)" in shown.text
    assert full.data["identities"] == ["dave"]
    assert diagnosis.judge_unattached({}, limit=10) == []


def test_a_report_is_as_bad_as_its_worst_finding() -> None:
    fine, warned, failed = Finding("a", "ok", ""), Finding("b", "warn", ""), Finding("c", "fail", "")
    assert Report("core", ()).level == "ok"
    assert Report("core", (fine, warned)).level == "warn"
    assert Report("core", (warned, failed, fine)).level == "fail"
    assert Report("core", (fine, warned)).named("b") is warned


@pytest.mark.parametrize(
    ("secs", "shown"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (12, "12 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (200_000, "2 d")],
)
def test_durations_are_short_for_people(secs: float, shown: str) -> None:
    assert shown_secs(secs) == shown


def test_one_is_singular() -> None:
    assert (counted(1, "message"), counted(0, "inbox", "inboxes")) == ("1 message", "0 inboxes")
