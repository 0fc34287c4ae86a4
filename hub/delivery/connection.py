"""The connection: the only way by which a process of ours talks to NATS."""

import asyncio
import contextlib
import ssl
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

import structlog
from nats import errors as nats_errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext

from hub.delivery.errors import (
    CannotConnect,
    DeliveryError,
    NotConnected,
    RequestTimedOut,
)
from hub.delivery.nats_client import HardenedClient
from hub.delivery.requests import Requests
from hub.delivery.settings import ConnectSettings
from hub.protocol import TooLarge
from hub.service import logs

log = structlog.get_logger(__name__)

RESERVED_BYTES: Final = 8192  # contract §1: the router's copy carries more headers than the sender's message
PING_INTERVAL_SECS: Final = 10  # a dead peer is noticed within 30 s (two unanswered pings), not in 6 minutes
RECONNECT_WAIT_SECS: Final = 0.5  # nats-py's 2 s lets every restart of a server cost 2 s
CONNECT_TIMEOUT_SECS: Final = 5  # for one try of one server
TROUBLE_AGAIN_SECS: Final = 30.0  # how often the same trouble is told; it is tried twice a second
CANCEL_AGAIN_SECS: Final = 0.05
WRITE_BUFFER_BYTES: Final = 16 * 1024 * 1024  # two of the largest messages; nats-py's 2 MiB refuses one offline

ReconnectCallback = Callable[[], Awaitable[None]]


class Connection:
    """A connection that reconnects for ever and says what it knows.

    Made by `open`; `close` is final and may be called twice. Callbacks of `on_reconnect` run in a task of their own.
    """

    def __init__(self, settings: ConnectSettings) -> None:
        self.settings = settings
        self.client = HardenedClient()
        self.last_error: str | None = None
        self.denied: dict[tuple[str, str], int] = {}  # (action, subject) → times, for the doctor
        self.reconnects = 0
        self.death: BaseException | None = None  # of a background task, which ended it
        self._closed = asyncio.Event()
        self._is_closing = False
        self._refused_login = asyncio.Event()
        self._refusal: str | None = None
        self._told_trouble: str | None = None
        self._told_trouble_at = 0.0
        self._requests = Requests(self.client)
        self._reconnect_callbacks: list[ReconnectCallback] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(cls, settings: ConnectSettings, *, name: str, timeout_secs: float = 10.0) -> "Connection":
        """Connect.

        Args:
            settings: where and as whom.
            name: shown in the server's monitoring.
            timeout_secs: for all tries together.

        Raises:
            BadSettings: the settings cannot be meant.
            CannotConnect: with what the last try said; at once when the credentials are refused.
        """
        logs.keep_stdout_clean()
        settings.require_valid()  # an empty list of servers would keep nats-py busy for ever, past any timeout
        self = cls(settings)
        connecting = asyncio.create_task(self._connect(name))
        refused = asyncio.create_task(self._refused_login.wait())
        try:
            await asyncio.wait({connecting, refused}, timeout=timeout_secs, return_when=asyncio.FIRST_COMPLETED)
            if connecting.done():
                connecting.result()
                return self
            # After its refusal the server hangs up, which may be the last error.
            reason = self._refusal or self.last_error or f"no answer within {timeout_secs:g} s"
            raise CannotConnect(
                settings.shown_servers, reason, source=settings.url_source, is_final=self._refused_login.is_set()
            )
        except (OSError, nats_errors.Error, ValueError) as error:
            reason = str(error) or repr(error)
            raise CannotConnect(settings.shown_servers, reason, source=settings.url_source) from error
        finally:
            refused.cancel()
            if not (connecting.done() and connecting.exception() is None):
                while not connecting.done():
                    # One cancel may be lost: Python 3.11's `wait_for`, which the client connects with, drops it when
                    # the try fails in the same moment, and the client goes on trying for ever.
                    connecting.cancel()
                    await asyncio.wait({connecting}, timeout=CANCEL_AGAIN_SECS)
                await self.close()

    async def _connect(self, name: str) -> None:
        settings = self.settings
        options: dict[str, Any] = {
            "servers": list(settings.servers),
            "name": name,
            "inbox_prefix": settings.inbox_prefix,
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": RECONNECT_WAIT_SECS,
            "connect_timeout": CONNECT_TIMEOUT_SECS,
            "ping_interval": PING_INTERVAL_SECS,
            "pending_size": WRITE_BUFFER_BYTES,
            "token": settings.token,
            "user": settings.user,
            "password": settings.password,
            "user_credentials": settings.creds,
            "nkeys_seed": settings.nkey_seed,
            "error_cb": self._on_error,
            "disconnected_cb": self._on_disconnect,
            "reconnected_cb": self._on_reconnect,
            "closed_cb": self._on_closed,
        }
        context = _tls_context(settings)
        if context is not None:
            options["tls"] = context
        try:
            await self.client.connect(**options)
        except Exception as error:
            if not type(error).__module__.startswith("nkeys"):  # optional, and with errors of its own
                raise
            detail = str(error) or type(error).__name__
            raise ValueError(f"{settings.nkey_seed or settings.creds} holds no NKey seed ({detail})") from error
        log.info("connected", server=settings.shown_servers, identity=settings.identity, name=name)

    # What it knows

    @property
    def identity(self) -> str | None:
        """Who we are, None for the hub itself."""
        return self.settings.identity

    @property
    def is_connected(self) -> bool:
        """Is there a server at the other end, as far as is known?"""
        return bool(self.client.is_connected)

    @property
    def is_closed(self) -> bool:
        """Has it ended for good?"""
        return self._closed.is_set()

    @property
    def usable_size(self) -> int:
        """The largest message in bytes, headers included, that a sender may send (contract §1)."""
        return int(self.client.max_payload) - RESERVED_BYTES

    @property
    def server_version(self) -> str:
        """The server's version as it says, `2.15.1`."""
        return repr(self.client.connected_server_version).removeprefix("<nats server v").removesuffix(">")

    async def wait_closed(self) -> None:
        """Return when the connection has ended for good; the owner of a process ends it then."""
        await self._closed.wait()

    async def check_health(self, timeout_secs: float = 5.0) -> float:
        """The round trip to the server and back in seconds; through the reader, so that a deaf client is noticed.

        Raises:
            RequestTimedOut, NotConnected: no round trip.
        """
        try:
            return await self.client.rtt(timeout_secs)
        except nats_errors.TimeoutError:
            raise RequestTimedOut("PING", timeout_secs) from None
        except nats_errors.Error as error:
            raise NotConnected(f"no round trip: {error}") from error

    # Sending and receiving

    async def publish(
        self, subject: str, payload: bytes, *, reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        """Publish. While disconnected it waits in a buffer; that it returned proves nothing.

        Raises:
            TooLarge: payload and headers are above the server's limit (it would end the connection).
            NotConnected: the connection is closed, or the buffer is full.
        """
        self._require_fit(subject, payload, headers)
        try:
            self.client.publish_now(subject, payload, reply=reply, headers=headers)
        except nats_errors.OutboundBufferLimitError:
            raise NotConnected("disconnected, and the buffer is full; nothing was sent") from None
        except nats_errors.ConnectionClosedError:
            raise NotConnected from None

    async def request(
        self, subject: str, payload: bytes, *, timeout_secs: float, headers: dict[str, str] | None = None
    ) -> Msg:
        """Ask and wait for one answer.

        Raises:
            NoResponders: nobody listens.
            RequestTimedOut: no answer in time; whether it was taken is unknown.
            PermissionDenied: the server refused the publish; at once, not after the timeout.
            TooLarge, NotConnected: as `publish`.
        """
        self._require_fit(subject, payload, headers)
        try:
            return await self._requests.ask(subject, payload, timeout_secs=timeout_secs, headers=headers)
        except nats_errors.OutboundBufferLimitError:
            raise NotConnected("disconnected, and the buffer is full; nothing was sent") from None
        except nats_errors.ConnectionClosedError:
            raise NotConnected from None

    async def subscribe(
        self, subject: str, callback: Callable[[Msg], Awaitable[None]], *, queue: str = ""
    ) -> Subscription:
        """Subscribe with a callback that runs in a task of the subscription's own, one message at a time."""
        try:
            return await self.client.subscribe(subject, queue=queue, cb=callback)
        except nats_errors.ConnectionClosedError:
            raise NotConnected from None

    def new_reply_subject(self) -> str:
        """A fresh subject under this connection's private prefix."""
        return str(self.client.new_inbox())

    def jetstream(self, *, timeout_secs: float = 5.0) -> JetStreamContext:
        """JetStream's management calls under this connection's prefix; not for hot paths."""
        return self.client.jetstream(prefix=self.settings.js_prefix, timeout=timeout_secs)

    def on_reconnect(self, callback: ReconnectCallback) -> Callable[[], None]:
        """Call `callback` after every reconnect, in a task of its own; returns a function that ends that."""
        self._reconnect_callbacks.append(callback)

        def remove() -> None:
            with contextlib.suppress(ValueError):
                self._reconnect_callbacks.remove(callback)

        return remove

    def own(self, work: Coroutine[Any, Any, None], *, name: str) -> "asyncio.Task[None]":
        """Run a background task that this connection's parts live by; should it die, the connection ends loudly.

        The owner of a process waits for `wait_closed` and ends the process then, so that a supervisor starts it anew.
        """
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background task died", task=task.get_name(), error=repr(error))
            self.death = self.death or error
            self._closed.set()

    async def flush(self, *, timeout_secs: float = 5.0) -> bool:
        """Write out what waits and hear the server say so; False when that could not be (say what was lost)."""
        if not self.is_connected:
            return False
        try:
            await self.client.flush(timeout_secs)
        except (nats_errors.Error, OSError):
            return False
        return True

    async def close(self) -> None:
        """End it. What still waits in the buffer is written if there is a server; use `flush` first to know."""
        self._is_closing = True
        tasks = {task for task in self._tasks if task is not asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            _, running = await asyncio.wait(tasks, timeout=CONNECT_TIMEOUT_SECS)
            for task in running:
                log.error("a background task does not end", task=task.get_name())
        if not self.client.is_closed:
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_SECS):
                    await self.client.close()
            except (TimeoutError, OSError, nats_errors.Error) as error:
                log.debug("close was not clean", error=str(error))
        self._closed.set()

    def _require_fit(self, subject: str, payload: bytes, headers: dict[str, str] | None) -> None:
        size = len(payload) + header_size(headers)
        limit = int(self.client.max_payload)
        if size > limit:
            raise TooLarge(f"message for {subject}", size, limit)

    # What nats-py tells; none of these may raise: they run inside its read loop

    async def _on_error(self, error: Exception) -> None:
        text = str(error) or repr(error)
        self.last_error = text
        lowered = text.lower()
        if "permissions violation" in lowered:
            self._on_denied(text)
        elif "authorization violation" in lowered or "authentication" in lowered:
            self._refusal = text
            self._refused_login.set()
            log.error("the server refuses these credentials", server=self.settings.shown_servers, error=text)
        elif isinstance(error, nats_errors.SlowConsumerError):
            log.error("slow consumer: messages were dropped", subject=error.subject)
        elif not self._is_closing:
            self._tell_trouble(text)

    def _tell_trouble(self, text: str) -> None:
        """Each try of a server that is away says the same: tell it when it changes, and every half minute."""
        now = time.monotonic()
        if text == self._told_trouble and now - self._told_trouble_at < TROUBLE_AGAIN_SECS:
            return
        self._told_trouble, self._told_trouble_at = text, now
        settings = self.settings
        log.warning(
            "no connection to NATS; trying again", server=settings.shown_servers, error=text, source=settings.url_source
        )

    def _on_denied(self, text: str) -> None:
        """`nats: permissions violation for publish to "hub.pub.x"` (nats-py lowers the subject's case)."""
        action = "subscribe" if "subscription" in text.lower() else "publish"
        subject = text.partition('"')[2].partition('"')[0]
        self.denied[action, subject] = self.denied.get((action, subject), 0) + 1
        log.error("permission denied by the server", action=action, subject=subject, identity=self.identity)
        if action == "publish":
            self._requests.deny(subject.lower(), self.identity)

    async def _on_disconnect(self) -> None:
        if not self._is_closing:
            log.warning("disconnected; reconnecting", server=self.settings.shown_servers)

    async def _on_reconnect(self) -> None:
        self.client.release()
        self._told_trouble = None
        self.reconnects += 1
        log.info("reconnected", server=self.settings.shown_servers)
        for callback in list(self._reconnect_callbacks):
            self.own(self._call(callback), name="after-reconnect")

    async def _call(self, callback: ReconnectCallback) -> None:
        try:
            await callback()
        except DeliveryError as error:
            log.warning("after the reconnect", error=str(error))

    async def _on_closed(self) -> None:
        self._closed.set()
        if not self._is_closing:
            log.error("connection closed for good", error=self.last_error)


def header_size(headers: dict[str, str] | None) -> int:
    """How many bytes these headers take on the wire."""
    if not headers:
        return 0
    size = 12
    for name, value in headers.items():
        size += len(name.encode()) + len(value.encode()) + 4
    return size


def _tls_context(settings: ConnectSettings) -> ssl.SSLContext | None:
    if settings.ca is None and settings.certificate is None:
        return None
    context = ssl.create_default_context(cafile=settings.ca)
    if settings.certificate is not None:
        context.load_cert_chain(settings.certificate, settings.key)
    return context
