"""The order of start, whose reverse is the order of stop."""

import graphlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.shutdown import start_order


@pytest.mark.parametrize(
    ("after", "order"),
    [
        ({"a": (), "b": (), "c": ()}, "abc"),
        ({"a": ("c",), "b": (), "c": ()}, "cab"),
        ({"a": ("b",), "b": ("c",), "c": ()}, "cba"),
        ({"a": ("gone",), "b": ("a",)}, "ab"),
        ({}, ""),
    ],
)
def test_as_in_the_procfile_but_behind_what_it_comes_after(after: dict[str, tuple[str, ...]], order: str) -> None:
    assert start_order(after) == list(order)


@given(st.lists(st.sets(st.integers(0, 9)), max_size=10))
def test_everyone_stands_once_and_behind_those_that_it_comes_after(edges: list[set[int]]) -> None:
    # Edges to earlier ones only, in a shuffled naming: without circles.
    after = {
        str(node): tuple(str(other) for other in sorted(others) if other < node) for node, others in enumerate(edges)
    }
    after = dict(reversed(after.items()))
    order = start_order(after)
    assert sorted(order) == sorted(after)
    assert all(order.index(other) < order.index(name) for name, others in after.items() for other in others)
    graphlib.TopologicalSorter(after).prepare()
