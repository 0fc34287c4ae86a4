"""The arithmetic of the benchmarks, and the load's envelopes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.bench.figures import Measurement, Spread, Standard, compare, percentile, summarise
from hub.bench.load import LoadError, Template, sent_ns
from hub.protocol import parse


def measured(messages: int, secs: float, **more: object) -> Measurement:
    return Measurement(messages=messages, secs=secs, cpu_secs={"router": 0.5, "server": 0.25}, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([7.0], 0.5, 7.0),
        ([1.0, 2.0], 0.5, 1.0),
        ([3.0, 1.0, 2.0], 0.5, 2.0),
        ([float(number) for number in range(1, 101)], 0.99, 99.0),
        ([float(number) for number in range(1, 11)], 0.99, 10.0),
    ],
)
def test_a_percentile_is_the_nearest_rank(values: list[float], share: float, expected: float) -> None:
    assert percentile(values, share) == expected


def test_a_percentile_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.floats(0.01, 1))
def test_a_percentile_is_one_of_the_values_and_covers_its_share(values: list[float], share: float) -> None:
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-6


def test_the_ratio_that_counts_is_the_median_of_the_rounds_and_not_the_ratio_of_the_medians() -> None:
    rounds = [
        {"a": measured(100, 1.0), "b": measured(100, 2.0)},  # 2
        {"a": measured(100, 10.0), "b": measured(100, 10.0)},  # 1: a busy round slows both
        {"a": measured(100, 1.0), "b": measured(100, 4.0)},  # 4
    ]
    ratio = compare(Standard(subject="a", comparator="b", quantity="rate", at_least=2.0), rounds)
    assert ratio.ratio == Spread(2.0, 1.0, 4.0)
    assert ratio.is_met


@pytest.mark.parametrize(
    ("bounds", "ratio", "expected"),
    [
        ({}, 0.0, True),
        ({"at_least": 0.3}, 0.3, True),
        ({"at_least": 0.3}, 0.29, False),
        ({"at_most": 3.0}, 3.0, True),
        ({"at_most": 3.0}, 3.1, False),
    ],
)
def test_a_standard_is_met_up_to_its_bound(bounds: dict[str, float], ratio: float, expected: bool) -> None:
    assert Standard(subject="a", comparator="b", quantity="rate", **bounds).is_met(ratio) is expected


def test_processor_time_is_told_for_10_000_messages_and_by_process() -> None:
    rounds = [{"a": measured(2_000, 1.0, latencies_ms=(1.0, 3.0, 2.0), history_secs=1.5)}]
    summary = summarise("a", "the subject", rounds)
    assert summary.cpu_secs_per_10k == {"router": 2.5, "server": 1.25}
    assert rounds[0]["a"].value("cpu_secs") == 3.75
    assert (summary.p50_ms, summary.p99_ms) == (Spread(2.0, 2.0, 2.0), Spread(3.0, 3.0, 3.0))
    assert summary.history_secs == 1.5


@given(st.integers(300, 5_000))
def test_an_envelope_of_the_load_has_the_stated_size_to_the_byte(size: int) -> None:
    template = Template(size, to="reader")
    rendered = [template.render() for _ in range(3)]
    assert [len(body) for body in rendered] == [size] * 3
    assert len({parse(body).meta.id for body in rendered}) == 3
    assert len(template.make().body) == size
    assert sent_ns(template.make().payload) > 0


def test_a_size_below_an_envelopes_head_is_refused_with_the_smallest_one() -> None:
    with pytest.raises(LoadError, match="at least") as refused:
        Template(10, to="reader")
    smallest = int(str(refused.value).split("at least ")[1].split()[0])
    assert len(Template(smallest, to="reader").make().body) == smallest
