"""Evictions: what two looks prove, and nothing else, is counted."""

import pytest

from hub.delivery.evictions import EvictionCount
from hub.delivery.report import Finding, Report


def look(oldest: int | None, *, unread: int = 10, delivered: int = 0, last: int = 100) -> Report:
    inbox = {"waiting": unread, "unacked": 0, "delivered_seq": delivered, "oldest_seq": oldest}
    stream = Finding("stream HUB_INBOX", "ok", "", {"role": "inbox", "last_seq": last})
    return Report("durable", (stream, Finding("inbox bob", "warn", "", inbox)))


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [
        (look(5), look(5), 0),
        (look(5), look(6), 1),  # never delivered, and gone
        (look(5, unread=10, last=100), look(101, last=120), 10),  # all that was unread is gone
        (look(5), look(9, delivered=5), 0),  # it was delivered: acked, as far as can be told
        (look(5), look(9, delivered=8), 0),
        (look(None), look(6), 0),
        (look(5), look(None), 0),
    ],
)
def test_only_what_was_never_delivered_and_is_gone_counts(before: Report, after: Report, lost: int) -> None:
    count = EvictionCount()
    assert count.take(before) == 0
    assert count.take(after) == lost
    assert count.total == lost


def test_the_total_goes_on_from_look_to_look() -> None:
    count = EvictionCount()
    for oldest in (5, 6, 7, 7, 8):
        count.take(look(oldest))
    assert count.total == 3


def test_an_inbox_that_is_seen_for_the_first_time_proves_nothing() -> None:
    count = EvictionCount()
    count.take(look(5))
    count.take(Report("durable", ()))
    assert count.take(look(50)) == 0
