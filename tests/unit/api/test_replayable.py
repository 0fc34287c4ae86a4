"""Which dead letters may be sent again: those whose sender is beyond doubt, whole, and only where they can go."""

from typing import Any

import pytest

from hub.api.dead_letters import require_replayable
from hub.api.errors import Clash
from hub.protocol import make
from hub.router.rules import Reason
from hub.storage.conformance.harness import START
from hub.storage.records import DeadLetter

BODY = make(sender="alice", channel="room", payload=1, to="bob").body


def letter(**members: Any) -> DeadLetter:
    usual = {
        "dead_id": "d", "reason": "exhausted", "detail": "", "subject": "hub.pub.alice.room", "sender": "alice",
        "envelope_id": "m", "headers": [], "data": BODY, "size": len(members.get("data", BODY)), "received_at": START,
        "replayed_at": None,
    }  # fmt: skip
    return DeadLetter(**{**usual, **members})


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason is not Reason.REPLAYED])
def test_whatever_the_reason_was_what_can_be_routed_now_is_sent_again(reason: Reason) -> None:
    require_replayable(letter(reason=reason.value))
    require_replayable(letter(reason=reason.value, headers=[("Nats-Msg-Id", "x"), ("traceparent", "00-1")]))


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"reason": "replayed"}, "never sent again"),
        ({"replayed_at": START}, "once only"),
        ({"size": len(BODY) + 1}, "was cut"),
        ({"subject": "channel.inbox.bob"}, "dropped again as replayed"),
        ({"subject": "$JS.API.STREAM.DELETE.HUB_TASKS"}, "dropped again as replayed"),
        ({"subject": "hub.api.alice.dead.list"}, "dropped again as replayed"),
        ({"subject": "hub.pub.alice"}, "dropped again as replayed"),
        ({"subject": "hub.pub.a*.room"}, "dropped again as bad_identity"),
        ({"subject": "hub.pub.alice.>"}, "dropped again as bad_channel"),
        ({"subject": "hub.pub.alice.inbox.bob"}, "dropped again as bad_channel"),
        ({"subject": "hub.pub.alice.room\r\nPUB x 1"}, "dropped again as bad_channel"),
        ({"headers": [("Nats-Stream", "HUB_INBOX")]}, "dropped again as replayed"),
        ({"headers": [("nats-subject", "x")]}, "dropped again as replayed"),
        (
            {"headers": [("Nats-Msg-Id", "hub-router:alice:m:channel.inbox.bob"), ("Nats-Msg-Id", "x")]},
            "dropped again as replayed",
        ),
        ({"data": b"{"}, "dropped again as undecodable"),
        ({"subject": "hub.pub.hub-orchestrator.room"}, "the hub's own message"),
    ],
)
def test_what_is_doubtful_cut_or_hopeless_is_not(members: dict[str, Any], words: str) -> None:
    with pytest.raises(Clash, match=words):
        require_replayable(letter(**members))


def test_the_sender_is_the_subjects_whatever_the_message_says() -> None:
    require_replayable(letter(data=make(sender="mallory", channel="other", payload=1).body))
