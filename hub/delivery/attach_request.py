"""The request for a durable inbox, as a client makes it (contract §5)."""

from typing import Any, Final, Literal, TypeAlias

import msgspec

from hub.delivery.connection import Connection
from hub.delivery.errors import NoResponders, RequestTimedOut
from hub.delivery.settings import require_js_prefix
from hub.protocol import BadName, names, subjects

RefusalCode = Literal["bad_request", "unavailable", "internal"]

_CODES: Final[dict[str, RefusalCode]] = {
    "bad_request": "bad_request",
    "unavailable": "unavailable",
    "internal": "internal",
}


class AttachData(msgspec.Struct, frozen=True):
    """What an attached client needs to know.

    Attributes:
        stream: the inbox stream.
        consumer: the identity's consumer on it.
        tasks_stream: the stream of task, session and wave traffic.
        js_prefix: where the client's JetStream API requests go.
        max_age_secs: how long the inbox stream keeps a message; -1 is for ever.
        first_seq: the oldest sequence of the inbox stream.
        stream_created: when the inbox stream was made, as the server writes it; empty when the hub does not say.
        ack_wait_secs: after how long an unacked message comes again; the contract's 30 when the hub does not say.
    """

    stream: str
    consumer: str
    tasks_stream: str
    js_prefix: str
    max_age_secs: int
    first_seq: int
    ack_wait_secs: float = 30
    stream_created: str = ""


class Attached(msgspec.Struct, frozen=True):
    """The inbox is there."""

    data: AttachData


class Refused(msgspec.Struct, frozen=True):
    """A responder answered and did not attach. `bad_request` will not get better by asking again."""

    code: RefusalCode
    error: str


class TimedOut(msgspec.Struct, frozen=True):
    """No answer in time; somebody listens, or listened."""

    timeout_secs: float


class NoHub(msgspec.Struct, frozen=True):
    """Nobody listens: the hub is down, or it is a core hub."""


AttachResult: TypeAlias = Attached | Refused | TimedOut | NoHub


class _Answer(msgspec.Struct):
    ok: bool
    data: AttachData | None = None
    error: str = ""
    code: str = "internal"


async def request_attach(
    connection: Connection,
    identity: str,
    *,
    after_seq: int | None = None,
    stream_created: str = "",
    timeout_secs: float = 5.0,
) -> AttachResult:
    """Ask the hub for the durable inbox of `identity`.

    Args:
        connection: the client's, with this identity.
        identity: whose inbox.
        after_seq: the client's own ack floor in the inbox stream; used only when the consumer is made, so that one that
            went away does not deliver again what was done.
        stream_created: what an earlier answer said of the stream that the floor is of; a floor means nothing in another
            stream (contract §4). Empty when it is not known.
        timeout_secs: how long to wait.

    Raises:
        BadName: `identity` is none.
        PermissionDenied: this connection may not attach as `identity`.
        NotConnected: the connection is closed.
    """
    subject = subjects.attach(names.identity(identity))
    body: dict[str, Any] = {} if after_seq is None else {"after_seq": after_seq}
    if body and stream_created:
        body["stream_created"] = stream_created
    try:
        answer = await connection.request(subject, msgspec.json.encode(body), timeout_secs=timeout_secs)
    except NoResponders:
        return NoHub()
    except RequestTimedOut:
        return TimedOut(timeout_secs)
    return _read(answer.data, identity)


def _read(text: bytes, identity: str) -> AttachResult:
    try:
        answer = msgspec.json.decode(text, type=_Answer)
        if not answer.ok:
            return Refused(_CODES.get(answer.code, "internal"), answer.error or "refused without a word")
        if answer.data is None:
            return Refused("internal", "the hub's answer has no data")
        _require_valid(answer.data, identity)
    except (msgspec.DecodeError, UnicodeDecodeError, BadName) as error:
        return Refused("internal", f"the hub's answer cannot be read: {error}")
    return Attached(answer.data)


def _require_valid(data: AttachData, identity: str) -> None:
    """These names become subjects that we publish to."""
    names.token(data.stream, "stream")
    names.token(data.tasks_stream, "stream")
    if data.consumer != subjects.inbox_consumer(identity):
        raise BadName("consumer", data.consumer, subjects.inbox_consumer(identity))
    if not data.ack_wait_secs > 0:
        raise BadName("ack wait", data.ack_wait_secs, "seconds, more than 0")
    require_js_prefix(data.js_prefix, "JetStream prefix")
