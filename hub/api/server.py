"""The API server: takes requests on `hub.api.<id>.<op>`, answers each, and lets none hold up another (contract §10)."""

import asyncio
import difflib
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import structlog
from nats import errors as nats_errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from hub.api.admission import Admission
from hub.api.authorisation import Caller, caller_of, require_allowed
from hub.api.errors import BadRequest, ReplyTooLarge, RequestTooLarge, Unavailable, told
from hub.api.operation import Answer, Context, Operation
from hub.api.operations import OPERATIONS
from hub.api.params import decode
from hub.delivery import replies
from hub.delivery.connection import Connection
from hub.delivery.errors import DeliveryError
from hub.protocol import TooLarge, subjects
from hub.storage import StorageUnavailable

log = structlog.get_logger(__name__)

OnOutcome = Callable[[str, str, float], None]
"""Called after each request with the operation, how it ended and how many seconds it took; must not raise."""

UNKNOWN_OP: Final = "unknown"  # what is no operation is not counted by name: callers choose names
STOP_SECS: Final = 5.0  # for what is under way
THREAD_BYTES: Final = 256 * 1024  # a request larger than this is decoded in a thread: it takes milliseconds and more

_INTERNAL: Final = "internal error; the hub's log tells more"


class ApiServer:
    """Answers the query API; any number may run (queue group). `start` and `stop` are idempotent.

    Args:
        connection: the hub's.
        context: what operations work with, as it is at this moment.
        admins: identities that may do everything.
        admission: how many requests may be under way.
        on_outcome: for metrics.
    """

    def __init__(
        self,
        connection: Connection,
        context: Callable[[], Context],
        *,
        admins: frozenset[str],
        admission: Admission | None = None,
        on_outcome: OnOutcome | None = None,
    ) -> None:
        self._connection = connection
        self._context = context
        self._admins = admins
        self._admission = admission or Admission()
        self._on_outcome = on_outcome
        self._subscription: Subscription | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._counts = {"requests": 0, "errors": 0}

    async def start(self) -> None:
        """Listen; when this returns the server knows."""
        if self._subscription is None:
            self._subscription = await self._connection.subscribe(
                subjects.API_ALL, self._take, queue=subjects.QUEUE_API
            )
            await self._connection.flush()

    async def stop(self) -> None:
        """Listen no more, let end what came, at most 5 s, and return when nothing runs."""
        subscription, self._subscription = self._subscription, None
        try:
            async with asyncio.timeout(STOP_SECS):
                if subscription is not None and self._connection.is_connected:
                    await subscription.drain()  # type: ignore[no-untyped-call]
                while self._running:
                    await asyncio.wait(self._running)
        except (TimeoutError, nats_errors.Error) as error:
            log.warning("api requests were cut; their callers ask again", reason=str(error), cut=len(self._running))
        finally:
            for task in self._running:
                task.cancel()
            if self._running:
                await asyncio.wait(self._running)

    @property
    def under_way(self) -> int:
        """Requests that are being answered."""
        return self._admission.under_way

    def describe(self) -> Mapping[str, Any]:
        """Figures since the start."""
        return {**self._counts, "under_way": self.under_way}

    async def _take(self, message: Msg) -> None:
        """Let a request in, or say at once why not; each is answered in a task of its own."""
        began = time.monotonic()
        _, _, identity, *op = message.subject.split(".")
        name = ".".join(op)
        known = name if name in OPERATIONS else UNKNOWN_OP
        if not _may_answer(message, identity):
            log.warning(
                "api request not answered: not its own reply", identity=identity, op=known, reply=message.reply[:200]
            )
            self._count(known, "bad_reply", began)
            return
        try:
            caller = caller_of(identity, self._admins)
            operation = _operation(name)
            self._admission.enter(identity)
        except Exception as error:  # noqa: BLE001 - `_refusal` logs what is not ours; the subscription must live on
            await self._answer(message, _refusal(error, known, identity), known, began)
            return
        task = asyncio.create_task(self._serve(message, caller, operation, began))
        self._running.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("api request failed", error=repr(error), exc_info=error)

    async def _serve(self, message: Msg, caller: Caller, operation: Operation, began: float) -> None:
        reply: tuple[str, bytes] | None = None
        about: Mapping[str, object] = {}
        try:
            context = self._context()
            if operation.needs_storage:
                _ = context.storage  # raises when there is none
            require_allowed(operation.name, caller)
            params = await _decoded(message.data, operation)
            if operation.audited is not None:
                about = operation.audited(params)
            async with asyncio.timeout(operation.deadline_secs):
                answer = await operation.run(context, caller, params)
            reply = "ok", _encoded(answer, context, operation)
        except TimeoutError:
            reply = _refusal(_late(operation), operation.name, caller.identity)
        except Exception as error:  # noqa: BLE001 - the caller must not wait in vain; `_refusal` logs what is our fault
            reply = _refusal(error, operation.name, caller.identity)
        finally:
            self._admission.leave(caller.identity)
            if operation.audited is not None:
                code = reply[0] if reply is not None else "cancelled"
                log.info("audit", op=operation.name, caller=caller.identity, admin=caller.is_admin, code=code, **about)
        await self._answer(message, reply, operation.name, began)

    async def _answer(self, message: Msg, reply: tuple[str, bytes], op: str, began: float) -> None:
        code, body = reply
        try:
            await self._connection.publish(message.reply, body)
        except (DeliveryError, TooLarge) as error:
            log.warning("an api answer could not be sent", op=op, error=str(error))
        self._count(op, code, began)

    def _count(self, op: str, code: str, began: float) -> None:
        self._counts["requests"] += 1
        self._counts["errors"] += code in {"unavailable", "internal"}
        if self._on_outcome is not None:
            self._on_outcome(op, code, time.monotonic() - began)


def _may_answer(message: Msg, identity: str) -> bool:
    """Is the answer's way the asker's own, and does the server say that the asker is who the subject says?"""
    fits = replies.fits_request_info(message.headers or {}, identity)
    return fits and replies.may_answer(message.reply, identity)


def _operation(name: str) -> Operation:
    operation = OPERATIONS.get(name)
    if operation is None:
        close = difflib.get_close_matches(name[:64], OPERATIONS, n=1)
        hint = f"; did you mean {close[0]}?" if close else f"; there are {', '.join(OPERATIONS)}"
        raise BadRequest(f"there is no operation {ascii(name)[:80]}{hint}")
    return operation


async def _decoded(body: bytes, operation: Operation) -> Any:
    if operation.most_bytes is not None and len(body) > operation.most_bytes:
        raise RequestTooLarge(operation.name, len(body), operation.most_bytes)
    if len(body) > THREAD_BYTES:
        return await asyncio.to_thread(decode, body, operation.params)
    return decode(body, operation.params)


def _encoded(answer: Answer, context: Context, operation: Operation) -> bytes:
    body = msgspec.json.encode({"ok": True, "data": answer})
    context.room.require_fit(f"the answer of {operation.name}", body)
    return body


def _late(operation: Operation) -> Unavailable:
    tail = "; it may have been done" if operation.audited is not None else ""
    return Unavailable(f"no answer within {operation.deadline_secs:g} s{tail}: ask again")


def _refusal(error: Exception, op: str, identity: str) -> tuple[str, bytes]:
    """The code and the reply for an error; one that is our fault is logged with all that we know."""
    found = told(error)
    if found is None:
        log.error("api operation failed", op=op, caller=identity, error=repr(error)[:1000], exc_info=error)
        found = "internal", _INTERNAL
    elif isinstance(error, StorageUnavailable | DeliveryError):
        log.warning("api could not answer", op=op, caller=identity, error=found[1])
    else:
        log.debug("api refused", op=op, caller=identity, code=found[0], error=found[1])  # a caller could fill the log
    answer: dict[str, Any] = {"ok": False, "error": found[1], "code": found[0]}
    if isinstance(error, ReplyTooLarge) and error.next_cursor is not None:
        answer["next_cursor"] = error.next_cursor
    return found[0], msgspec.json.encode(answer)
