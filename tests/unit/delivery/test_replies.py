"""Where the hub may send an answer."""

import pytest

from hub.delivery.headers import parse_headers
from hub.delivery.replies import REQUEST_INFO, fits_request_info, may_answer

REPLIES = [
    ("_INBOX_alice.x", True),
    ("_INBOX_alice.x.y-Z_9", True),
    ("_INBOX.x", True),
    ("_R_.I7sYj1.nL9QyL", True),
    ("", False),
    ("_INBOX", False),
    ("_INBOX.", False),
    ("_INBOX_alice.", False),
    ("_INBOX_alice", False),
    ("_INBOX_bob.x", False),
    ("_INBOX_alice2.x", False),
    ("_inbox_alice.x", False),
    ("hub.pub.bob.x", False),
    ("channel.inbox.bob", False),
    ("$JS.API.STREAM.DELETE.HUB_TASKS", False),
    ("$SYS.REQ.x", False),
    ("_INBOX.*", False),
    ("_INBOX.a.>", False),
    ("_INBOX.a..b", False),
    ("_INBOX..a", False),
    ("_INBOX.a.", False),
    ("_INBOX.a b", False),
    ("_INBOX.a\r\nPUB x 0", False),
    ("_INBOX.\x00", False),
    ("_INBOX.\N{LATIN SMALL LETTER E WITH ACUTE}", False),
    ("_INBOX.a,b", True),
]


@pytest.mark.parametrize(("reply", "is_fine"), REPLIES)
def test_an_answer_goes_to_the_askers_own_inbox_and_nowhere_else(reply: str, *, is_fine: bool) -> None:
    assert may_answer(reply, "alice") is is_fine


@pytest.mark.parametrize("identity", ["*", ">", "a.*"])
def test_an_identity_that_is_a_wildcard_opens_nothing(identity: str) -> None:
    assert not may_answer(f"_INBOX_{identity}.x", identity)


INFOS = [
    (None, True),
    ('{"acc":"A_alice","rtt":626767}', True),
    ('{"acc":"A_bob","rtt":626767}', False),
    ('{"acc":"AGENTS"}', True),
    ('{"acc":"OPS"}', True),
    ("{}", True),
    ("forged", False),
    ('{"acc":1}', False),
]


@pytest.mark.parametrize(("header", "is_fine"), INFOS)
def test_a_request_comes_from_the_account_of_the_identity_in_its_subject(header: str | None, *, is_fine: bool) -> None:
    headers = {"traceparent": "x"} | ({} if header is None else {REQUEST_INFO: header})
    assert fits_request_info(headers, "alice") is is_fine


def test_headers_that_were_not_read_fit_nobody() -> None:
    block = b"NATS/1.0\r\n" + b"a: b\r\n" * 100_000 + b'Nats-Request-Info: {"acc":"A_bob"}\r\n\r\n'
    assert not fits_request_info(parse_headers(block), "alice")
