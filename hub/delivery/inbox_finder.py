"""The finder: asks for an identity's durable inbox, and where nobody answers, looks whether its consumer is there."""

from typing import Final

import msgspec

from hub.delivery.attach_request import Attached, NoHub, Refused, request_attach
from hub.delivery.connection import Connection
from hub.delivery.errors import NoResponders, PermissionDenied, RequestTimedOut
from hub.delivery.inbox_mode import Answer
from hub.protocol import subjects

# A pull with a broken body: a consumer that is there answers 400 and delivers nothing, a missing one 503 at once. It
# is the only look at a consumer that an agent may take (no INFO), and costs no message.
PROBE_BODY: Final = b"{"


class Source(msgspec.Struct, frozen=True):
    """Where an inbox is read from.

    Attributes:
        stream, consumer: the consumer and its stream.
        js_prefix: the JetStream API prefix for this client.
        tasks_stream: the stream that keeps task channels.
        ack_wait_secs: after so long an unacked message comes again; None when nobody said.
        stream_created: when the stream was made; empty when nobody said.
    """

    stream: str
    consumer: str
    js_prefix: str
    tasks_stream: str
    ack_wait_secs: float | None = None
    stream_created: str = ""

    @property
    def place(self) -> tuple[str, str, str]:
        """What makes two sources the same one."""
        return (self.stream, self.consumer, self.js_prefix)


class Finding(msgspec.Struct, frozen=True):
    """What one look found.

    Attributes:
        answer: which column of the table it is.
        source: where to read, when there is something to read.
        reason: in words.
    """

    answer: Answer
    source: Source | None
    reason: str


async def find_inbox(
    connection: Connection, identity: str, *, after_seq: int | None, stream_created: str, timeout_secs: float
) -> Finding:
    """Ask for the durable inbox once.

    Args:
        connection: the connection.
        identity: whose inbox.
        after_seq: the reader's own ack floor, used when the consumer must be made; None when it knows none.
        stream_created: which stream that floor is of, when a hub said; else empty.
        timeout_secs: for each of the two questions.
    """
    if not connection.is_connected:
        return Finding(Answer.NOT_OK, None, "disconnected from the NATS server")
    try:
        answer = await request_attach(
            connection, identity, after_seq=after_seq, stream_created=stream_created, timeout_secs=timeout_secs
        )
    except PermissionDenied as error:  # a server whose permissions know of no durable inbox
        return await _look_at_consumer(connection, identity, timeout_secs, str(error))
    if isinstance(answer, Attached):
        data = answer.data
        found = Source(
            data.stream, data.consumer, data.js_prefix, data.tasks_stream, data.ack_wait_secs, data.stream_created
        )
        return Finding(Answer.OK, found, "attached")
    if isinstance(answer, NoHub):
        return await _look_at_consumer(connection, identity, timeout_secs, "no durable hub answers")
    if isinstance(answer, Refused):
        return Finding(Answer.NOT_OK, None, f"the hub refused to attach ({answer.code}): {answer.error}")
    return Finding(Answer.NOT_OK, None, f"the hub did not answer the attach within {timeout_secs:g} s")


async def _look_at_consumer(connection: Connection, identity: str, timeout_secs: float, reason: str) -> Finding:
    settings = connection.settings
    source = Source(settings.inbox_stream, subjects.inbox_consumer(identity), settings.js_prefix, settings.tasks_stream)
    subject = f"{source.js_prefix}.CONSUMER.MSG.NEXT.{source.stream}.{source.consumer}"
    try:
        await connection.request(subject, PROBE_BODY, timeout_secs=timeout_secs)
    except (NoResponders, PermissionDenied):
        return Finding(Answer.NO_HUB_PULL_REFUSED, None, f"{reason}, and there is no consumer {source.consumer}")
    except RequestTimedOut:
        return Finding(Answer.NOT_OK, None, f"{reason}, and JetStream did not answer within {timeout_secs:g} s")
    return Finding(Answer.NO_HUB_PULL_TAKEN, source, f"{reason}; the consumer {source.consumer} is there")
