"""Case `intake`: a stored backlog into a worker's mailbox on disk, against the same pull without a disk."""

from typing import Final

from hub.bench.figures import Standard
from hub.bench.inbox_case import reading
from hub.bench.rounds import Case

INTAKE: Final = Case(
    name="intake",
    title="A stored backlog into a worker's mailbox",
    contenders=(
        reading("intake", "intake: decode, classify, commit (FULL), ack", is_timed=True),
        reading("inbox", "inbox: decode, drop repeats, ack", is_timed=True),
        reading("pull", "bare pull loop: ack", is_timed=True),
    ),
    standards=(
        Standard(subject="intake", comparator="inbox", quantity="rate", at_least=0.4),
        Standard(subject="intake", comparator="pull", quantity="rate", at_least=0.4),
        Standard(subject="intake", comparator="pull", quantity="cpu_secs"),
        Standard(subject="intake", comparator="pull", quantity="p50_ms"),
        Standard(subject="intake", comparator="pull", quantity="p99_ms"),
    ),
)
