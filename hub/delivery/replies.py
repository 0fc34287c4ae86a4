"""The check of who asks and where the answer goes: nothing that an agent sends chooses where the hub publishes."""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from hub.delivery.headers import TOO_MANY_LINES
from hub.protocol import subjects

REQUEST_INFO: Final = "Nats-Request-Info"

_AGENT_ACCOUNT: Final = "A_"
_TOKEN: Final = r"[^\x00-\x20.*>\x7f-\U0010ffff]+"  # printable ASCII without the dot and the wildcards
_SUBJECT: Final = re.compile(rf"{_TOKEN}(?:\.{_TOKEN})*")


def may_answer(reply: str, identity: str) -> bool:
    """May the hub answer a request of `identity` on this reply subject?

    Only on the asker's own private inbox, on an unbound client's `_INBOX.`, or on the `_R_.` by which the server maps a
    reply across accounts; and on no subject with a wildcard.
    """
    own = subjects.private_inbox(identity) + "."
    return reply.startswith((own, "_INBOX.", "_R_.")) and _SUBJECT.fullmatch(reply) is not None


class _RequestInfo(msgspec.Struct):
    acc: str = ""


def fits_request_info(headers: Mapping[str, str], identity: str) -> bool:
    """Does the server's `Nats-Request-Info`, among these headers, fit the identity in the subject?

    Where agents live in accounts of their own (`A_<identity>`), the server itself writes there from which account a
    request came, over whatever the asker put; without service imports there is none, and nothing to compare.
    """
    if TOO_MANY_LINES in headers:
        return False  # it may stand in what was not read
    header = headers.get(REQUEST_INFO)
    if header is None:
        return True
    try:
        account = msgspec.json.decode(header, type=_RequestInfo).acc
    except msgspec.DecodeError:
        return False
    return not account.startswith(_AGENT_ACCOUNT) or account == f"{_AGENT_ACCOUNT}{identity}"
