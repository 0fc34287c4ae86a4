"""A wave is valid as a whole or refused with the tasks by name."""

import itertools
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.storage.conformance.harness import task
from hub.storage.records import WaveTask
from hub.waves import BadWave, validated


def needs(**dependencies: str) -> list[WaveTask]:
    """Tasks by what they depend on: `b="a c"`."""
    return [task(name, dependencies=given.split()) for name, given in dependencies.items()]


@pytest.mark.parametrize(
    "tasks",
    [
        needs(a=""),
        needs(a="", b="a", c="a", d="b c"),
        needs(d="b c", b="a", c="a", a=""),
        needs(a="", b="a a"),
        [task(str(number), dependencies=[str(number - 1)] if number else []) for number in range(5000)],
    ],
    ids=["one", "diamond", "backwards", "twice", "chain"],
)
def test_what_has_an_order_is_valid(tasks: list[WaveTask]) -> None:
    assert [each.task_id for each in validated(tasks)] == [each.task_id for each in tasks]


@pytest.mark.parametrize(
    ("tasks", "words"),
    [
        ([], "expected 1 to 10000 tasks, got 0"),
        ([task(str(number)) for number in range(10_001)], "got 10001"),
        (needs(a="a"), "task a depends on itself"),
        (needs(a="b", b="a"), "a → b → a"),
        (needs(x="", a="c", b="a", c="b"), "a → c → b → a"),
        (needs(a="", start="a b", b="c", c="b"), "b → c → b"),
        (needs(a="nope"), "task a depends on 'nope', which is no task"),
        ([task("a"), task("b"), task("a")], r"tasks\[0\] and tasks\[2\] have the same id a"),
        ([task("a b")], r"tasks\[0\]: bad task id"),
        ([task("a", worker="w.w")], r"tasks\[0\]: bad identity"),
        ([task("a", worker="hub-orchestrator")], "the hub's own voice"),
        ([task("a", goal="  ")], "task a: expected a goal"),
        ([task("a", write_scope=["../x"])], "leaves the work folder"),
        ([task("a", write_scope=["x/../.."])], "leaves the work folder"),
        ([task("a", write_scope=[""])], "expected a POSIX path"),
        ([task("a", write_scope=["x\0"])], "expected a POSIX path"),
        ([task("a", write_scope=["x" * 2000])], "expected a POSIX path"),
        ([task("a", write_scope=[str(n) for n in range(257)])], "at most 256 write scopes"),
    ],
)
def test_what_cannot_be_run_is_refused_by_name(tasks: list[WaveTask], words: str) -> None:
    with pytest.raises(BadWave, match=words):
        validated(tasks)


def test_a_long_circle_is_shown_cut() -> None:
    tasks = [task(f"t{n}", dependencies=[f"t{(n + 1) % 3000}"]) for n in range(3000)]
    with pytest.raises(BadWave, match=r"t0 → t1 .*… \(3000 tasks\) → t0") as caught:
        validated(tasks)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("first", "second", "clash"),
    [
        ("src", "src", True),
        ("src", "src/", True),
        ("./src//a", "src/a", True),
        ("src", "src/a/b.py", True),
        ("src/a/b.py", "src", True),
        ("src/x/../a", "src/a", True),
        (".", "src", True),
        ("/", "/etc/hosts", True),
        ("//etc", "/etc", True),
        ("src/a", "src/b", False),
        ("src", "srca", False),
        ("src", "Src", False),
        ("src", "/src", False),
        ("é", "e\u0301", False),
    ],
)
def test_two_tasks_at_once_write_to_places_of_their_own(first: str, second: str, clash: bool) -> None:
    apart = [task("a", write_scope=[first]), task("b", write_scope=[second])]
    if clash:
        with pytest.raises(BadWave, match="can run at the same time and both write to"):
            validated(apart)
    else:
        validated(apart)
    validated([apart[0], task("b", write_scope=[second], dependencies=["a"])])


def test_scopes_are_stored_in_one_way_of_writing() -> None:
    assert validated([task("a", write_scope=["./x//y/", "x/y", "z/../w"])])[0].write_scope == ["x/y", "w"]


SMALL = st.integers(2, 6).flatmap(
    lambda count: st.tuples(
        st.lists(
            st.lists(st.sampled_from(["a", "a/b", "a/b/c", "d", "."]), max_size=2), min_size=count, max_size=count
        ),
        st.lists(st.sets(st.integers(0, count - 1)), min_size=count, max_size=count),
    )
)


@given(SMALL)
def test_a_clash_is_found_exactly_when_two_unordered_tasks_overlap(given_: Any) -> None:
    scopes, edges = given_
    count = len(scopes)
    before = [{need for need in edges[place] if need < place} for place in range(count)]
    tasks = [
        task(str(place), write_scope=scopes[place], dependencies=[str(need) for need in before[place]])
        for place in range(count)
    ]
    reach = [set(needs_) for needs_ in before]
    for place in range(count):
        for need in before[place]:
            reach[place] |= reach[need]

    def overlap(one: str, other: str) -> bool:
        return "." in (one, other) or one == other or one.startswith(other + "/") or other.startswith(one + "/")

    clashes = any(
        first not in reach[second] and any(overlap(one, other) for one in scopes[first] for other in scopes[second])
        for first, second in itertools.combinations(range(count), 2)
    )
    try:
        validated(tasks)
    except BadWave:
        assert clashes
    else:
        assert not clashes


def test_the_largest_wave_is_judged_in_a_moment() -> None:
    """A chain in which all write to one folder: every pair overlaps, and every pair is ordered."""
    tasks = [
        task(f"t{n}", dependencies=[f"t{n - 1}"] if n else [], write_scope=["src", f"out/{n}"]) for n in range(10_000)
    ]
    began = time.process_time()
    validated(tasks)
    assert time.process_time() - began < 5  # 0.6 s measured
