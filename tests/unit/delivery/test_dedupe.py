"""The memory of acked messages is bounded and keyed by sender and id."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hub.delivery.dedupe import ACKED_MOST, AckedMemory


def test_a_plain_client_remembers_the_contracts_4096() -> None:
    memory = AckedMemory()
    for number in range(ACKED_MOST + 1):
        memory.remember("alice", str(number))
    assert len(memory) == ACKED_MOST == 4096
    assert ("alice", "0") not in memory
    assert ("alice", "1") in memory


def test_the_same_id_from_another_sender_is_another_message() -> None:
    memory = AckedMemory()
    memory.remember("alice", "1")
    assert ("mallory", "1") not in memory


def test_a_message_that_keeps_coming_is_not_forgotten() -> None:
    memory = AckedMemory(most=2)
    for message_id in ("a", "b", "a", "c"):
        memory.remember("x", message_id)
    assert ("x", "a") in memory
    assert ("x", "b") not in memory


def test_less_than_no_room_is_refused() -> None:
    with pytest.raises(ValueError, match="0 or more"):
        AckedMemory(most=-1)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("12345"))), st.integers(1, 5))
def test_it_holds_exactly_the_most_recent_distinct_ones(acked: list[tuple[str, str]], most: int) -> None:
    memory = AckedMemory(most=most)
    for sender, message_id in acked:
        memory.remember(sender, message_id)
    recent = list(dict.fromkeys(reversed(acked)))[:most]
    assert len(memory) == len(recent)
    assert all(key in memory for key in recent)
    assert not any(key in memory for key in set(acked) - set(recent))
