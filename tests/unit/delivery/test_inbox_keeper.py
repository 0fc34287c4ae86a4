"""The keeper of an inbox's mode: how often what goes on being wrong wakes it."""

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

from hub.delivery.inbox_keeper import Keeper
from hub.delivery.inbox_mode import Wish


async def test_a_consumer_that_stays_away_ends_one_pause_and_not_each() -> None:
    counters: Counter[str] = Counter()
    nothing = cast("Any", SimpleNamespace())
    keeper = Keeper(
        nothing,
        identity="bob",
        wish=Wish.ON,
        ledger=nothing,
        counters=counters,
        window=1,
        attach_timeout_secs=1,
        retry_secs=1,
    )
    keeper._on_gone("it is not there")
    await keeper._nap(0.001)  # is woken
    for _ in range(3):
        keeper._on_gone("it is not there")  # as the pull says every second

    assert not keeper._wake.is_set()
    assert counters["consumer_gone"] == 1
