"""What passes from a subject to a reader."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.delivery.sieve import UNDECODABLE, UNFIT, Dropped, Sifted, sift
from hub.protocol import Envelope, make


def broadcast(channel: str) -> Envelope:
    return make(sender="alice", channel=channel, payload=1)


def dm(to: str, channel: str = "direct") -> Envelope:
    return make(sender="alice", channel=channel, to=to, payload=1)


@pytest.mark.parametrize(
    ("subject", "envelope", "passes"),
    [
        ("channel.inbox.bob", dm("bob"), True),
        ("channel.inbox.bob", dm("bob", "any.channel"), True),
        ("channel.inbox.bob", dm("carol"), False),
        ("channel.inbox.bob", broadcast("direct"), False),
        ("channel.news", broadcast("news"), True),
        ("channel.news", broadcast("news.local"), False),
        ("channel.news", dm("bob", "news"), False),
        ("channel.task.abc", broadcast("task.abc"), True),
        ("channel.task.abc", broadcast("task.abd"), False),
        ("hub.pub.alice.news", broadcast("news"), False),
        ("channel.", broadcast("news"), False),
    ],
)
def test_an_envelope_passes_only_on_the_subject_that_it_names(subject: str, envelope: Envelope, passes: bool) -> None:
    sifted = sift(subject, envelope.body)
    if passes:
        assert isinstance(sifted, Sifted)
        assert sifted.key == ("alice", envelope.meta.id)
        assert sifted.payload == 1
    else:
        assert isinstance(sifted, Dropped)
        assert sifted.reason == UNFIT


def test_a_payload_that_receivers_refuse_is_dropped_unless_the_reader_judges_itself() -> None:
    body = dm("bob").body.replace(b'"payload":1', b'"payload":[1e999]')
    refused = sift("channel.inbox.bob", body)
    assert isinstance(refused, Dropped)
    assert refused.reason == UNDECODABLE
    assert "$.payload[0]" in refused.detail
    passed = sift("channel.inbox.bob", body, judge_payload=False)
    assert isinstance(passed, Sifted)
    assert passed.payload is None


@given(st.binary(max_size=200))
def test_no_bytes_break_it(body: bytes) -> None:
    assert isinstance(sift("channel.inbox.bob", body), Dropped)
