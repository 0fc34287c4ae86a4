"""What a reader takes from an answer: in order, whatever the bytes are."""

from hypothesis import given, settings
from hypothesis import strategies as st

from hub.delivery.errors import DeliveryError
from hub.delivery.nats_client import Incoming
from hub.delivery.reader import _Answer

NUMBERS = st.one_of(st.integers(-3, 9).map(str), st.sampled_from(["", "x", "1e3", "9" * 30, "\N{SUPERSCRIPT TWO}"]))
HEADERS = st.lists(
    st.tuples(
        st.sampled_from(["Nats-Sequence", "Nats-Num-Pending", "Nats-Last-Sequence", "Status", "nats-sequence"]), NUMBERS
    ),
    max_size=4,
)
FIRST_LINES = st.sampled_from(["NATS/1.0"] * 6 + ["NATS/1.0 204 EOB", "NATS/1.0 404", "NATS/1.0 503", "NATS/1.0 99x"])
BLOCKS = st.one_of(
    st.binary(max_size=30),
    st.tuples(FIRST_LINES, HEADERS).map(
        lambda block: "\r\n".join([block[0], *(f"{name}: {value}" for name, value in block[1]), "", ""]).encode()
    ),
)


@settings(max_examples=200)
@given(st.lists(BLOCKS, max_size=8), st.integers(1, 5))
def test_an_answer_is_in_order_behind_the_start_and_leads_forward(blocks: list[bytes], start: int) -> None:
    answer = _Answer(start, lambda: 0.0)
    for block in blocks:
        answer.take(Incoming(b"_INBOX.x", b"", b"", block))
    try:
        batch = answer.batch("subject")
    except DeliveryError:
        return  # refused, or nothing was said
    sequences = [message.sequence for message in batch.messages]
    assert sequences == sorted(set(sequences))
    assert all(sequence >= start for sequence in sequences)
    assert batch.last_sequence >= max([start - 1, *sequences])
    assert not batch.has_more or batch.last_sequence >= start
