"""A reader's own ack floor: the stream sequence up to which everything is settled (contract §5, `after_seq`).

When its consumer was deleted, the reader asks for a new one that begins behind this floor. Too low a floor costs
repeats, which the dedupe drops; too high a one costs messages. So it stands still while anything may be under way that
this reader has not seen: after each attach and each lost delivery, until the server has had time to deliver again.
"""

from typing import Final

HOLD_ACK_WAITS: Final = 2.0  # what was lost on the way comes again after one ack wait; the second one is for the margin


class AckFloor:
    """Tracks which deliveries of one consumer are settled; pure, the time is passed in.

    Times are seconds on a monotonic clock; sequences begin at 1, and a floor of 0 means "nothing is known".
    """

    def __init__(self) -> None:
        self._open: set[int] = set()  # delivered and not settled
        self._highest = 0
        self._consumer_sequence = 0  # of the last delivery; 0 until the attached consumer's first one came
        self._held_floor = 0
        self._held_until: float | None = None

    def attached(self, now: float, ack_wait_secs: float) -> None:
        """A consumer was attached; what an earlier reader left unacked on it comes within an ack wait."""
        self._consumer_sequence = 0
        self._hold(now, ack_wait_secs)

    def delivered(
        self, sequence: int, consumer_sequence: int, *, is_first: bool, now: float, ack_wait_secs: float
    ) -> None:
        """A message came.

        Args:
            sequence: its place in the stream.
            consumer_sequence: the number of this delivery, counted by the consumer; a gap is a delivery that was lost.
            is_first: whether the server delivers it for the first time.
        """
        if consumer_sequence > self._consumer_sequence + 1:
            self._hold(now, ack_wait_secs)
        self._consumer_sequence = max(self._consumer_sequence, consumer_sequence)
        if is_first and sequence < self._highest:
            # The consumer was made again further back, or the stream is another one: what stood ahead says nothing.
            self._highest = sequence
            self._held_floor = min(self._held_floor, sequence - 1)
        self._highest = max(self._highest, sequence)
        self._open.add(sequence)

    def settled(self, sequence: int) -> None:
        """A message was acked."""
        self._open.discard(sequence)

    def floor(self, now: float) -> int:
        """Everything up to this sequence is settled; 0 when nothing is known."""
        if self._held_until is not None:
            if now < self._held_until:
                return self._held_floor
            self._held_until = None
        return self._reached()

    def _reached(self) -> int:
        return min(self._highest, min(self._open) - 1) if self._open else self._highest

    def _hold(self, now: float, ack_wait_secs: float) -> None:
        self._held_floor = self.floor(now)
        self._held_until = now + HOLD_ACK_WAITS * ack_wait_secs
