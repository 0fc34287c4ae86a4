"""Rescue: what becomes of a turn whose process died or stopped in it. Pure."""

from hub.mailbox.records import Outcome, Turn


def after_interruption(turn: Turn, *, idempotent: bool, max_attempts: int) -> Outcome | None:
    """What becomes of a turn whose process died or stopped in it (contract §8).

    Args:
        turn: as it was found; `attempts` are its starts, this one included.
        idempotent: its handler declares that it may be run again.
        max_attempts: how many starts it may have.

    Returns:
        Its outcome, or None: run it again.
    """
    if turn.cancel_requested:
        return Outcome.cancelled()
    if idempotent and turn.attempts < max_attempts:
        return None
    if idempotent:
        return Outcome.failed("interrupted", f"the worker died in it at each of {turn.attempts} attempts")
    return Outcome.failed("interrupted", "the worker died or stopped while it ran; it may have run in part")
