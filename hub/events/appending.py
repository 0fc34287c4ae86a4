"""The append decision: what a log answers to a checked record, given where its run stands. Pure."""

import msgspec

from hub.events.errors import EventOverflowError, InvalidInputError, StoredRecordBrokenError
from hub.events.records import TERMINAL_TYPES, AgentEventRecord, Draft, same_content


def known_record(draft: Draft, stored: AgentEventRecord | None) -> AgentEventRecord:
    """The answer where the run retains a record with this id: the stored original.

    Raises:
        InvalidInputError: it has another content or another sequence than the producer expects.
        StoredRecordBrokenError: it cannot be read, so nobody can say whether the two are the same.
    """
    if stored is None:
        raise StoredRecordBrokenError("the event that is stored under this id cannot be read; use another id")
    if not same_content(draft.record, stored):
        raise InvalidInputError("another event is stored under this id; an id is used once in a run")
    if draft.expected is not None and draft.expected != stored.sequence:
        raise InvalidInputError(f"this event is stored as number {stored.sequence}, not as {draft.expected}")
    return stored


def judge_append(draft: Draft, *, sequence: int, closed: bool, retained: int, most: int) -> AgentEventRecord:
    """The record as it will be stored.

    Args:
        draft: the checked record; its id is not known to the run.
        sequence: the number that it would get.
        closed: the run's last event is terminal.
        retained: how many events the run retains.
        most: `max_run_events`.

    Raises:
        InvalidInputError: the run is closed and the event is not terminal, or another sequence is expected.
        EventOverflowError: the run is full.
    """
    if closed and not draft.record.terminal:
        raise InvalidInputError(
            f"the run has ended; only {', '.join(sorted(TERMINAL_TYPES))} can follow, not {draft.record.type!r}"
        )
    if draft.expected is not None and draft.expected != sequence:
        raise InvalidInputError(f"the next event of this run is number {sequence}, not {draft.expected}")
    if retained >= most:
        raise EventOverflowError(
            f"the run retains {retained} events, which is max_run_events; clean up before appending"
        )
    return msgspec.structs.replace(draft.record, sequence=sequence)
