"""Admission: bounds for one and for all, and no count that drifts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.api.admission import MOST_OF_ALL, MOST_OF_ONE, Admission
from hub.api.errors import Unavailable


def test_one_caller_has_eight_and_takes_nothing_from_the_others() -> None:
    admission = Admission()
    for _ in range(MOST_OF_ONE):
        admission.enter("greedy")
    with pytest.raises(Unavailable, match="greedy has 8 requests"):
        admission.enter("greedy")
    admission.enter("modest")
    admission.leave("greedy")
    admission.enter("greedy")


def test_all_together_are_bounded_too() -> None:
    admission = Admission()
    for number in range(MOST_OF_ALL):
        admission.enter(f"caller-{number}")
    with pytest.raises(Unavailable, match="busy"):
        admission.enter("one-more")
    admission.leave("caller-0")
    admission.enter("one-more")


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=200))
def test_whatever_comes_and_goes_the_count_is_what_is_inside(moves: list[tuple[str, bool]]) -> None:
    admission = Admission(of_one=3, of_all=5)
    inside: list[str] = []
    for caller, enters in moves:
        if enters:
            fits = inside.count(caller) < 3 and len(inside) < 5
            try:
                admission.enter(caller)
            except Unavailable:
                assert not fits
            else:
                assert fits
                inside.append(caller)
        elif caller in inside:
            admission.leave(caller)
            inside.remove(caller)
        assert admission.under_way == len(inside)
