"""The attach responder: gives each identity its durable inbox (contract §5)."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
import structlog
from nats import errors as nats_errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from hub.delivery import replies
from hub.delivery.attach_request import AttachData, RefusalCode
from hub.delivery.config import UNLIMITED, DeliveryConfig
from hub.delivery.connection import Connection
from hub.delivery.consumers import ensure_inbox_consumer
from hub.delivery.errors import DeliveryError
from hub.delivery.jetstream import JetStreamApi
from hub.delivery.settings import DEFAULT_JS_PREFIX
from hub.protocol import BadName, names, subjects

log = structlog.get_logger(__name__)

Outcome = Literal["attached", "bad_request", "unavailable", "internal", "bad_reply"]
OnOutcome = Callable[[Outcome, float], None]
"""Called after each request with how it ended and how many seconds it took; must not raise."""

_MOST_AT_ONCE: Final = 32  # requests under way: more would only wait in JetStream's queue instead of ours
_JETSTREAM_TIMEOUT_SECS: Final = 3.0  # for each of two or three requests; the client waits 5 s and asks again
_STOP_SECS: Final = 5.0  # for what is under way; a client whose request is cut asks again
_MOST_BYTES: Final = 1024  # the largest sensible request is 30 bytes
_NANOS: Final = 1_000_000_000


class _Request(msgspec.Struct, forbid_unknown_fields=True):
    after_seq: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] | None = None
    stream_created: str | None = None


_decode_request: Final = msgspec.json.Decoder(_Request).decode


class BadAttachRequest(DeliveryError):
    """An attach request cannot be meant."""

    code = "bad_request"


class AttachResponder:
    """Answers `hub.delivery.<id>.inbox`: makes or updates the identity's pull consumer and says where it is.

    Any number may run (queue group), also with different configs: each looks first, creates once, and updates without
    touching a consumer's position. `start` and `stop` are idempotent; `stop` returns when nothing runs any more.

    Args:
        connection: the hub's.
        config: the delivery config.
        agent_js_prefix: the JetStream prefix that agents use (`--agent-js-prefix`).
        on_outcome: for metrics.
    """

    def __init__(
        self,
        connection: Connection,
        config: DeliveryConfig,
        *,
        agent_js_prefix: str = DEFAULT_JS_PREFIX,
        on_outcome: OnOutcome | None = None,
    ) -> None:
        self._connection = connection
        self._config = config
        self._agent_js_prefix = agent_js_prefix
        self._on_outcome = on_outcome
        self._js = JetStreamApi(connection, timeout_secs=_JETSTREAM_TIMEOUT_SECS)
        self._room = asyncio.Semaphore(_MOST_AT_ONCE)
        self._subscription: Subscription | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._counts: dict[Outcome, int] = {}

    async def start(self) -> None:
        """Listen; when this returns the server knows."""
        if self._subscription is None:
            self._subscription = await self._connection.subscribe(
                subjects.ATTACH_ALL, self._take, queue=subjects.QUEUE_DELIVERY
            )
            await self._connection.flush()

    async def stop(self) -> None:
        """Stop listening and let end what came, at most 5 s; stopping twice, or before the start, is fine."""
        subscription, self._subscription = self._subscription, None
        try:
            async with asyncio.timeout(_STOP_SECS):
                if subscription is not None and self._connection.is_connected:
                    await subscription.drain()  # type: ignore[no-untyped-call]
                while self._running:
                    await asyncio.wait(self._running)
        except (TimeoutError, nats_errors.Error) as error:
            log.warning("attach requests were cut; their clients ask again", reason=str(error), cut=len(self._running))
        finally:
            for task in self._running:
                task.cancel()
            if self._running:
                await asyncio.wait(self._running)

    def describe(self) -> Mapping[str, Any]:
        """Figures since the start: `requests`, `errors`, and how many ended in which way."""
        attached, refused = self._counts.get("attached", 0), self._counts.get("bad_request", 0)
        requests = sum(self._counts.values())
        figures = {"requests": requests, "errors": requests - attached - refused}
        return {**figures, **{str(outcome): count for outcome, count in self._counts.items()}}

    async def _take(self, message: Msg) -> None:
        """Answer in a task of its own, so that a slow one does not hold up the others."""
        await self._room.acquire()
        task = asyncio.create_task(self._serve(message))
        self._running.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        self._room.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            # The answer could not be sent, or a bug of ours: this client asks again, and the others are served.
            log.error("attach request failed", error=repr(error), exc_info=error)

    async def _serve(self, message: Msg) -> None:
        began = time.monotonic()
        outcome: Outcome = "internal"
        try:
            identity = message.subject.split(".")[2]
            if self._may_answer(message, identity):
                outcome, answer = await self._answer(identity, message.data)
                await self._connection.publish(message.reply, msgspec.json.encode(answer))
            else:
                log.warning("attach request not answered: not its own reply", identity=identity, reply=message.reply)
                outcome = "bad_reply"
        finally:
            self._counts[outcome] = self._counts.get(outcome, 0) + 1
            if self._on_outcome is not None:
                self._on_outcome(outcome, time.monotonic() - began)

    def _may_answer(self, message: Msg, identity: str) -> bool:
        fits = replies.fits_request_info(message.headers or {}, identity)
        return fits and replies.may_answer(message.reply, identity)

    async def _answer(self, identity: str, body: bytes) -> tuple[Outcome, dict[str, Any]]:
        try:
            data = await self._attach(names.agent_identity(identity), _decode(body))
        except (BadAttachRequest, BadName) as error:
            return "bad_request", _refusal("bad_request", str(error))
        except DeliveryError as error:
            log.warning("attach failed", identity=identity, error=str(error))
            return "unavailable", _refusal("unavailable", str(error))
        except Exception:  # whatever it is, the client must not wait in vain, and the next one is served
            log.exception("attach failed", identity=identity)
            return "internal", _refusal("internal", "internal error; the hub's log tells more")
        return "attached", {"ok": True, "data": data}

    async def _attach(self, identity: str, request: _Request) -> AttachData:
        info = await self._js.stream_info(self._config.inbox.name)
        after, state, created = request.after_seq, info["state"], info.get("created", "")
        # A floor of a stream that was made at another time, or above the newest sequence, is from a stream that was
        # lost: all that is there is new (contract §4).
        is_same_stream = request.stream_created in {None, created}
        start_seq = after + 1 if after and is_same_stream and after <= state["last_seq"] else None
        was_made = await ensure_inbox_consumer(self._js, self._config, identity, start_seq=start_seq)
        log.info("attached", identity=identity, was_made=was_made)
        max_age = info["config"].get("max_age") or 0
        return AttachData(
            stream=self._config.inbox.name,
            consumer=subjects.inbox_consumer(identity),
            tasks_stream=self._config.tasks.name,
            js_prefix=self._agent_js_prefix,
            max_age_secs=max_age // _NANOS if max_age else UNLIMITED,
            first_seq=state["first_seq"],
            ack_wait_secs=self._config.ack_wait_secs,
            stream_created=created,
        )


def _refusal(code: RefusalCode, error: str) -> dict[str, Any]:
    return {"ok": False, "error": error, "code": code}


def _decode(body: bytes) -> _Request:
    if len(body) > _MOST_BYTES:
        raise BadAttachRequest(f"expected at most {_MOST_BYTES} bytes, got {len(body)}")
    try:
        return _decode_request(body or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadAttachRequest(f'expected {{}} or {{"after_seq": n}}: {error}') from None
