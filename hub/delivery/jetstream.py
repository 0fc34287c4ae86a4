"""The JetStream API as plain JSON: every field of a config in our hands, every error by name.

nats-py's manager leaves out what it does not know, and cannot say "create, but do not change": both matter here.
"""

import re
from typing import Any, Final

import msgspec
import structlog

from hub.delivery.connection import Connection
from hub.delivery.errors import NoResponders
from hub.delivery.refusals import (
    ConsumerMissing,
    JetStreamDisabled,
    JetStreamError,
    QuotaExceeded,
    ServerTooOld,
    StreamMissing,
)

log = structlog.get_logger(__name__)

SERVER_FLOOR: Final = (2, 14, 0)
SERVER_FLOOR_REASON: Final = (
    "before it a refused create of a consumer could destroy the state of the one that was there"
)

_VERSION: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)")

# JetStream's error codes that we tell apart.
NOT_ENABLED: Final = frozenset({10035, 10039, 10076})
STREAM_MISSING: Final = 10059
CONSUMER_MISSING: Final = frozenset({10014, 10149})  # the second answers an update
NO_MESSAGE: Final = 10037
STREAM_EXISTS: Final = 10058  # with another config
SUBJECTS_OVERLAP: Final = 10065
CONSUMER_EXISTS: Final = 10148  # with another config
WORK_QUEUE_TAKEN: Final = frozenset({10099, 10100})  # another consumer reads (some of) these messages

QUOTAS: Final[dict[int, tuple[str, str]]] = {
    10002: ("account_resources", "raise the account's JetStream limits or give its streams a smaller max_bytes"),
    10023: ("server_resources", "the server has no room left: raise max_file_store or free some"),
    10026: ("max_consumers", "raise the account's max_consumers; each identity's inbox takes one"),
    10027: ("max_streams", "raise the account's max_streams; the hub takes three"),
    10028: ("memory", "raise the account's max_mem or store in files"),
    10047: ("storage", "raise the account's max_file or set a smaller max_bytes in the delivery config"),
    10077: ("stream_full", "the stream is full: raise its limits in the delivery config or let it be read"),
    10113: ("max_bytes_required", "the account requires it: set max_bytes for each stream in the delivery config"),
    10121: ("max_ack_pending", "lower router_max_ack_pending and inbox_max_ack_pending in the delivery config"),
    10122: ("max_stream_bytes", "set a smaller max_bytes in the delivery config"),
}
"""JetStream's quota errors: code → (name, what to do). The same names stand in logs, metrics and `status`."""


class JetStreamApi:
    """Management requests to JetStream over a connection.

    Each raises what the connection's `request` raises but `NoResponders`, and: `JetStreamDisabled`, `QuotaExceeded`,
    `StreamMissing`, `ConsumerMissing`, `JetStreamError` for any other refusal.
    """

    def __init__(self, connection: Connection, *, timeout_secs: float = 5.0) -> None:
        self._connection = connection
        self._timeout_secs = timeout_secs

    def require_server(self) -> None:
        """Refuse a server that durable delivery cannot stand on.

        Raises:
            ServerTooOld: it is older than 2.14.
        """
        said = self._connection.server_version
        found = _VERSION.search(said)
        if found is None:
            log.warning("the server does not say a version that can be read", version=said)
        elif tuple(map(int, found.groups())) < SERVER_FLOOR:
            raise ServerTooOld(found.group(), ".".join(map(str, SERVER_FLOOR)), SERVER_FLOOR_REASON)

    async def stream_info(self, stream: str) -> dict[str, Any]:
        """Config, state and creation time of a stream."""
        return await self._ask(f"STREAM.INFO.{stream}", None, f"stream {stream}: look up")

    async def create_stream(self, config: dict[str, Any]) -> dict[str, Any]:
        """Make a stream; one that is there with the same config is left as it is, with another one is an error."""
        stream = config["name"]
        return await self._ask(f"STREAM.CREATE.{stream}", config, f"stream {stream}: create")

    async def update_stream(self, config: dict[str, Any]) -> dict[str, Any]:
        """Give a stream a config; what is left out of it is reset."""
        stream = config["name"]
        return await self._ask(f"STREAM.UPDATE.{stream}", config, f"stream {stream}: update")

    async def streams_on(self, subject: str) -> list[str]:
        """The names of the streams that capture (some of) a subject."""
        answer = await self._ask("STREAM.NAMES", {"subject": subject}, f"streams on {subject}: list")
        return list(answer.get("streams") or ())

    async def consumer_info(self, stream: str, consumer: str) -> dict[str, Any]:
        """Config and state of a consumer."""
        return await self._ask(
            f"CONSUMER.INFO.{stream}.{consumer}", None, f"consumer {consumer} on stream {stream}: look up"
        )

    async def consumer_names(self, stream: str) -> list[str]:
        """The names of a stream's consumers, the first 1024 of them."""
        answer = await self._ask(f"CONSUMER.NAMES.{stream}", {"offset": 0}, f"consumers on stream {stream}: list")
        return list(answer.get("consumers") or ())

    async def consumer_page(self, stream: str, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
        """Config and state of a stream's consumers, 256 from `offset` on, and how many there are in all."""
        answer = await self._ask(
            f"CONSUMER.LIST.{stream}", {"offset": offset}, f"consumers on stream {stream}: look up"
        )
        return list(answer.get("consumers") or ()), int(answer.get("total") or 0)

    async def subject_counts(self, stream: str, subject_filter: str) -> dict[str, int]:
        """How many messages a stream holds for each subject of a filter, the first 100 000 subjects of it."""
        request = {"subjects_filter": subject_filter}
        answer = await self._ask(f"STREAM.INFO.{stream}", request, f"subjects of stream {stream}: count")
        return dict(answer["state"].get("subjects") or {})

    async def next_message(self, stream: str, subject: str, start_seq: int) -> dict[str, Any] | None:
        """The first stored message of a subject from a sequence on (`seq`, `time`, …); None when there is none."""
        request = {"seq": max(1, start_seq), "next_by_subj": subject}
        try:
            answer = await self._ask(f"STREAM.MSG.GET.{stream}", request, f"stream {stream}: read {subject}")
        except JetStreamError as error:
            if error.err_code == NO_MESSAGE:
                return None
            raise
        return dict(answer["message"])

    async def create_consumer(self, stream: str, config: dict[str, Any]) -> dict[str, Any]:
        """Make a durable consumer; one that is there with another config is an error and stays as it is."""
        return await self._put_consumer(stream, config, "create")

    async def update_consumer(self, stream: str, config: dict[str, Any]) -> dict[str, Any]:
        """Give a durable consumer a config; what is left out of it is reset; one that is not there is an error."""
        return await self._put_consumer(stream, config, "update")

    async def delete_consumer(self, stream: str, consumer: str) -> None:
        """Delete a consumer; one that is not there is fine."""
        try:
            await self._ask(
                f"CONSUMER.DELETE.{stream}.{consumer}", None, f"consumer {consumer} on stream {stream}: delete"
            )
        except ConsumerMissing:
            return

    async def _put_consumer(self, stream: str, config: dict[str, Any], action: str) -> dict[str, Any]:
        name, subject_filter = config["name"], config.get("filter_subject")
        subject = f"CONSUMER.CREATE.{stream}.{name}" + (f".{subject_filter}" if subject_filter else "")
        request = {"stream_name": stream, "config": config, "action": action}
        return await self._ask(subject, request, f"consumer {name} on stream {stream}: {action}")

    async def _ask(self, subject: str, request: dict[str, Any] | None, what: str) -> dict[str, Any]:
        body = b"" if request is None else msgspec.json.encode(request)
        prefix = self._connection.settings.js_prefix
        try:
            answer = await self._connection.request(f"{prefix}.{subject}", body, timeout_secs=self._timeout_secs)
        except NoResponders:
            raise JetStreamDisabled(what, f"nobody answers on {prefix}") from None
        try:
            decoded = msgspec.json.decode(answer.data)
        except msgspec.DecodeError as error:
            raise JetStreamError(what, 0, 0, f"expected JSON, got something else ({error})") from error
        if not isinstance(decoded, dict):
            raise JetStreamError(what, 0, 0, f"expected a JSON object, got {type(decoded).__name__}")
        refusal = decoded.get("error")
        if isinstance(refusal, dict):
            raise _named(what, refusal)
        return decoded


def _named(what: str, refusal: dict[str, Any]) -> JetStreamError | JetStreamDisabled:
    """JetStream's error object as the error of ours that it is."""
    status, err_code = int(refusal.get("code") or 0), int(refusal.get("err_code") or 0)
    description = str(refusal.get("description") or "refused without a word")
    if err_code in NOT_ENABLED:
        return JetStreamDisabled(what, f"{description} ({err_code})")
    if err_code in QUOTAS:
        return QuotaExceeded(what, status, err_code, description, QUOTAS[err_code][1])
    if err_code == STREAM_MISSING:
        return StreamMissing(what, status, err_code, description)
    if err_code in CONSUMER_MISSING:
        return ConsumerMissing(what, status, err_code, description)
    return JetStreamError(what, status, err_code, description)
