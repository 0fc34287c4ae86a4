"""The check of reply subjects: nothing that an agent sends chooses where the hub publishes."""

from hub.protocol import subjects


def may_answer(reply: str, identity: str) -> bool:
    """May the hub answer a request of `identity` on this reply subject?

    Only on the asker's own private inbox, on an unbound client's `_INBOX.`, or on the `_R_.` by which the server maps a
    reply across accounts; and on no subject with a wildcard.
    """
    own = subjects.private_inbox(identity) + "."
    return reply.startswith((own, "_INBOX.", "_R_.")) and not any(sign in reply for sign in "*> \t\r\n")
