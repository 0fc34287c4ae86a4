"""The restart decision, with a clock that the test turns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.restart import Ending, Finished, GiveUp, History, Restart, backoff, decide, describe
from runtime.settings import ProcessSettings

PERMANENT = ProcessSettings()
CRASH = Ending(exit_code=1, ran_secs=0.1)
FINE = Ending(exit_code=0, ran_secs=0.1)


@pytest.mark.parametrize(
    ("policy", "ending", "kind"),
    [
        ("permanent", FINE, Restart),
        ("permanent", CRASH, Restart),
        ("permanent", Ending(signal=9), Restart),
        ("permanent", Ending(cause="cannot be executed: x"), Restart),
        ("transient", FINE, Finished),
        ("transient", CRASH, Restart),
        ("transient", Ending(signal=15), Restart),
        ("transient", Ending(exit_code=0, cause="not ready within 1 s"), Restart),
        ("temporary", FINE, Finished),
        ("temporary", CRASH, GiveUp),
        ("temporary", Ending(signal=9), GiveUp),
        *(
            (policy, Ending(exit_code=code), GiveUp)
            for policy in ("permanent", "transient")
            for code in (2, 64, 66, 78)
        ),
        *(("permanent", Ending(exit_code=code), Restart) for code in (1, 69, 70, 75, 77, 127)),
        ("permanent", Ending(is_final=True), GiveUp),
    ],
)
def test_what_follows_from_an_ending(policy: str, ending: Ending, kind: type) -> None:
    settings = ProcessSettings(restart=policy)  # type: ignore[arg-type]
    assert isinstance(decide(settings, History(), ending, now=0.0, random=0.0), kind)


def run(settings: ProcessSettings, ending: Ending, every_secs: float, times: int) -> list[object]:
    """The decisions over some endings, each `every_secs` after the start before it."""
    history, now, decisions = History(), 1000.0, []
    for _ in range(times):
        now += every_secs
        decision = decide(settings, history, ending, now=now, random=0.0)
        decisions.append(decision)
        history = decision.history
        if isinstance(decision, Restart):
            now += decision.delay_secs
        else:
            break
    return decisions


def test_a_crash_after_100_ms_is_given_up_at_the_sixth_within_a_minute() -> None:
    decisions = run(PERMANENT, CRASH, 0.1, 20)
    assert [type(decision) for decision in decisions] == [Restart] * 5 + [GiveUp]
    assert [decision.delay_secs for decision in decisions[:5]] == [0.5, 1.0, 2.0, 4.0, 8.0]  # type: ignore[attr-defined]
    assert decisions[5].why == "exit code 1; restarted 5 times within 60 s"  # type: ignore[attr-defined]


def test_a_crash_after_61_s_is_never_given_up_and_its_backoff_starts_anew() -> None:
    decisions = run(PERMANENT, Ending(exit_code=1, ran_secs=61.0), 61.0, 100)
    assert {type(decision) for decision in decisions} == {Restart}
    assert {decision.delay_secs for decision in decisions} == {0.5}  # type: ignore[attr-defined]


def test_a_limit_of_none_gives_up_at_once() -> None:
    settings = ProcessSettings(restart_limit=0)
    assert isinstance(decide(settings, History(), CRASH, now=0.0, random=0.0), GiveUp)


@given(
    st.integers(0, 5),
    st.floats(1.0, 100.0),
    st.lists(st.tuples(st.floats(0.0, 200.0), st.floats(0.0, 200.0)), max_size=50),
)
def test_it_never_restarts_more_often_than_the_limit_within_the_window(
    limit: int, window: float, runs: list[tuple[float, float]]
) -> None:
    settings = ProcessSettings(restart_limit=limit, restart_window_secs=window)
    history, now, restarts = History(), 0.0, []
    for ran, random in runs:
        now += ran
        decision = decide(settings, history, Ending(exit_code=1, ran_secs=ran), now=now, random=random / 200)
        history = decision.history
        if isinstance(decision, Restart):
            restarts.append(now)
            now += decision.delay_secs
        else:
            assert len([at for at in restarts if now - at < window]) >= limit
            return
        assert len([at for at in restarts if now - decision.delay_secs - at < window]) <= limit


@given(st.integers(0, 10_000), st.floats(0.0, 1.0))
def test_the_backoff_stays_within_its_bounds(in_a_row: int, random: float) -> None:
    delay = backoff(PERMANENT, in_a_row, random)
    assert 0.8 * min(0.5 * 2.0 ** min(in_a_row, 30), 30.0) <= delay <= 30.0


@pytest.mark.parametrize(
    ("ending", "text"),
    [
        (Ending(exit_code=3), "exit code 3"),
        (Ending(signal=9), "ended by SIGKILL"),
        (Ending(signal=64), "ended by SIGRTMAX"),
        (Ending(signal=9, cause="not ready within 1 s"), "not ready within 1 s (ended by SIGKILL)"),
        (Ending(cause="cannot be executed: x"), "cannot be executed: x"),
        (Ending(), "did not start"),
    ],
)
def test_an_ending_in_words(ending: Ending, text: str) -> None:
    assert describe(ending) == text
