"""The decision over another instance's presence (contract §2)."""

from typing import Any

import pytest

from workers.instances import Own, Verdict, judge

OWN = Own("m", "2026-01-01T00:00:10.000000Z", takes_over=False)
OLDER, YOUNGER = "2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:20.000000Z"


@pytest.mark.parametrize(
    ("payload", "age_secs", "verdict"),
    [
        ({"instance": "m", "started_at": OLDER}, 1, Verdict.NOTHING),
        ({"instance": "a", "started_at": OLDER}, 1, Verdict.DUPLICATE),
        ({"instance": "a", "started_at": OLDER}, 36, Verdict.NOTHING),
        ({"instance": "a", "started_at": OLDER, "takeover": True}, 36, Verdict.NOTHING),
        ({"instance": "a", "started_at": YOUNGER}, 1, Verdict.NOTHING),
        ({"instance": "a", "started_at": YOUNGER, "takeover": True}, 1, Verdict.TAKEN_OVER),
        ({"instance": "a", "started_at": YOUNGER, "takeover": True}, 3600, Verdict.TAKEN_OVER),
        ({"instance": "a", "started_at": OWN.started_at}, 1, Verdict.DUPLICATE),
        ({"instance": "z", "started_at": OWN.started_at}, 1, Verdict.NOTHING),
        ({"instance": "a", "started_at": "yesterday"}, 1, Verdict.NOTHING),
        ({"instance": "a"}, 1, Verdict.NOTHING),
        ([], 1, Verdict.NOTHING),
    ],
)
def test_who_leaves(payload: Any, age_secs: float, verdict: Verdict) -> None:
    assert judge(payload, OWN, age_secs=age_secs) is verdict


def test_a_takeover_does_not_leave_for_the_one_that_it_replaces() -> None:
    own = Own("m", OWN.started_at, takes_over=True)
    assert judge({"instance": "a", "started_at": OLDER}, own, age_secs=1) is Verdict.NOTHING
