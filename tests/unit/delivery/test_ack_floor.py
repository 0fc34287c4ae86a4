"""A reader's own ack floor: never above anything that is not settled."""

import random

from hypothesis import given
from hypothesis import strategies as st

from hub.delivery.ack_floor import AckFloor

ACK_WAIT_SECS = 1.0
LATER = 100.0


def deliver(floor: AckFloor, sequence: int, consumer_sequence: int, *, now: float, is_first: bool = True) -> None:
    floor.delivered(sequence, consumer_sequence, is_first=is_first, now=now, ack_wait_secs=ACK_WAIT_SECS)


def test_it_is_the_last_sequence_below_the_first_unsettled_one() -> None:
    floor = AckFloor()
    for number, sequence in enumerate((10, 20, 30), start=1):
        deliver(floor, sequence, number, now=0)
    floor.settled(20)
    floor.settled(30)
    assert floor.floor(0) == 9
    floor.settled(10)
    assert floor.floor(0) == 30


def test_nothing_is_known_before_the_first_delivery() -> None:
    floor = AckFloor()
    floor.attached(0, ACK_WAIT_SECS)
    assert floor.floor(LATER) == 0


def test_after_an_attach_it_stands_still_until_an_earlier_readers_unacked_ones_must_have_come() -> None:
    floor = AckFloor()
    floor.attached(0, ACK_WAIT_SECS)
    deliver(floor, 7, 1, now=0.1)
    floor.settled(7)
    assert floor.floor(1.9) == 0
    assert floor.floor(2.1) == 7


def test_after_a_lost_delivery_it_stands_still_until_that_must_have_come_again() -> None:
    floor = AckFloor()
    deliver(floor, 1, 1, now=0)
    floor.settled(1)
    deliver(floor, 3, 3, now=10)  # the delivery of 2 was lost on its way
    floor.settled(3)
    assert floor.floor(11) == 1
    deliver(floor, 2, 4, now=11.5, is_first=False)
    assert floor.floor(12.1) == 1
    floor.settled(2)
    assert floor.floor(12.1) == 3


def test_a_new_stream_that_counts_from_one_again_pulls_it_down() -> None:
    floor = AckFloor()
    for sequence in range(1, 501):
        deliver(floor, sequence, sequence, now=0)
        floor.settled(sequence)
    floor.attached(1, ACK_WAIT_SECS)
    deliver(floor, 1, 1, now=2)
    assert floor.floor(2) == 0
    floor.settled(1)
    assert floor.floor(LATER) == 1


def test_what_an_old_stream_left_unsettled_never_lifts_it() -> None:
    floor = AckFloor()
    deliver(floor, 400, 1, now=0)
    floor.attached(1, ACK_WAIT_SECS)
    deliver(floor, 1, 1, now=2)
    floor.settled(1)
    assert floor.floor(LATER) == 1


@given(st.integers(0, 2**32), st.sets(st.integers(1, 40)), st.sets(st.integers(1, 40)))
def test_whatever_is_lost_and_acked_it_never_passes_an_unsettled_message(
    seed: int, lost: set[int], unacked: set[int]
) -> None:
    """Deliver 1..40 in order, lose some on the way (they come again an ack wait later), leave some unacked."""
    order = random.Random(seed)
    floor = AckFloor()
    floor.attached(0, ACK_WAIT_SECS)
    settled: set[int] = set()
    consumer_sequence = 0
    now = 10.0

    def receive(sequence: int, *, is_first: bool) -> None:
        deliver(floor, sequence, consumer_sequence, now=now, is_first=is_first)
        if sequence not in unacked:
            floor.settled(sequence)
            settled.add(sequence)

    pending: list[tuple[float, int]] = []
    for sequence in range(1, 41):
        now += order.random() * 0.3
        while pending and pending[0][0] <= now:
            consumer_sequence += 1
            receive(pending.pop(0)[1], is_first=False)
        consumer_sequence += 1
        if sequence in lost:
            pending.append((now + ACK_WAIT_SECS, sequence))
        else:
            receive(sequence, is_first=True)
        reached = floor.floor(now)
        # A loss shows at the next delivery; until then nobody can know of it, and nothing above it was settled.
        assert all(number in settled for number in range(1, reached + 1))
    for _, sequence in pending:
        now += ACK_WAIT_SECS
        consumer_sequence += 1
        receive(sequence, is_first=False)
    assert floor.floor(now + LATER) == (min(unacked) - 1 if unacked else 40)
