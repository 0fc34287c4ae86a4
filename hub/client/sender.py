"""The sender: publishes envelopes and knows of each whether it is stored (contract §2)."""

import time
from typing import Final

import msgspec
import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_exponential

from hub.client.errors import NoHub, NotSent, SendRefused, SendUnconfirmed
from hub.client.publish_answer import TOO_LARGE_ERRORS, StoreError, decode_publish_answer
from hub.delivery.connection import Connection, header_size
from hub.delivery.errors import NoResponders, NotConnected, RequestTimedOut
from hub.protocol import Envelope, TooLarge, names, subjects

log = structlog.get_logger(__name__)

SEND_TIMEOUT_SECS: Final = 10.0  # for all tries of one message; longer than a server's restart takes
TRY_TIMEOUT_SECS: Final = (
    2.0  # a store acks within milliseconds; what takes longer was lost, mostly with its connection
)
NO_HUB_SECS: Final = 2.0  # a reload makes a hole of milliseconds in service imports, a router's restart one of a second
FIRST_PAUSE_SECS: Final = 0.05
LONGEST_PAUSE_SECS: Final = 0.5

_HEADER_BYTES: Final = header_size({"Nats-Msg-Id": names.new_publish_id()})  # all publish ids are of one length
_UNAVAILABLE_STATUS: Final = 503  # JetStream for the moment has no leader or no resources


class SendReceipt(msgspec.Struct, frozen=True):
    """What became of a message that was sent.

    Attributes:
        envelope: what was sent.
        mode: `durable`: the ingress stream has it, also while no router runs; `core`: a router passed it on, and
            whoever was not there to hear it has lost it.
        stream: the stream that has it, None in core mode.
        stream_seq: its place there, None in core mode.
        tries: how often it was published.
    """

    envelope: Envelope
    mode: str
    stream: str | None
    stream_seq: int | None
    tries: int

    @property
    def is_stored(self) -> bool:
        """Does a store have it?"""
        return self.mode == "durable"


class _TryAgain(Exception):
    """Not sent this time; another try may do."""


class Sender:
    """Sends the envelopes of one identity.

    Args:
        connection: the connection.
        timeout_secs: for all tries of one message together.
        no_hub_secs: after so long without anybody listening there is no hub.
    """

    def __init__(
        self, connection: Connection, *, timeout_secs: float = SEND_TIMEOUT_SECS, no_hub_secs: float = NO_HUB_SECS
    ) -> None:
        self._connection = connection
        self._timeout_secs = timeout_secs
        self._no_hub_secs = no_hub_secs

    async def send(self, envelope: Envelope) -> SendReceipt:
        """Send an envelope as its `meta.from`; returns once it is known to be stored, or passed on by a core router.

        It is tried again under the same publish id while an answer is missing, so that a stream stores it once.

        Raises:
            TooLarge: it is above the usable size; nothing was sent.
            NoHub, SendRefused, NotSent: nothing was sent.
            SendUnconfirmed: nobody said in time; it may be stored.
            PermissionDenied: this identity may not publish there.
            NotConnected: the connection is closed.
        """
        return await _Sending(self._connection, envelope, self._timeout_secs, self._no_hub_secs).run()


class _Sending:
    """One message on its way."""

    def __init__(self, connection: Connection, envelope: Envelope, timeout_secs: float, no_hub_secs: float) -> None:
        self._connection = connection
        self._envelope = envelope
        self._timeout_secs = timeout_secs
        self._no_hub_secs = no_hub_secs
        self._subject = subjects.publish(envelope.meta.sender, envelope.meta.channel)
        self._publish_id = names.new_publish_id()
        self._is_first_use = True  # of the publish id
        self._tries = 0
        self._is_unknown = False  # some try may have been stored
        self._began = time.monotonic()
        self._nobody_since: float | None = None

    async def run(self) -> SendReceipt:
        self._require_fit()
        try:
            return await self._try()  # nearly always the only one: the machinery of retries costs more than a send
        except (_TryAgain, NoResponders, RequestTimedOut) as error:
            return await self._try_again(error)

    async def _try_again(self, first_error: Exception) -> SendReceipt:
        failed: Exception | None = first_error

        async def attempt() -> SendReceipt:
            nonlocal failed
            if failed is not None:
                error, failed = failed, None
                raise error
            return await self._try()

        tries = AsyncRetrying(
            retry=retry_if_exception_type((_TryAgain, NoResponders, RequestTimedOut)),
            wait=wait_exponential(FIRST_PAUSE_SECS, LONGEST_PAUSE_SECS),
            stop=self._is_over,
            reraise=True,
        )
        try:
            return await tries(attempt)
        except (_TryAgain, NoResponders, RequestTimedOut) as error:
            waited_secs = round(time.monotonic() - self._began, 1)
            if self._is_unknown:
                raise SendUnconfirmed(self._envelope, waited_secs, "no answer") from error
            if isinstance(error, NoResponders):
                raise NoHub(self._envelope) from None
            raise NotSent(self._envelope, f"{error} for {waited_secs:g} s") from None

    def _require_fit(self) -> None:
        meta = self._envelope.meta
        size = len(self._envelope.body) + _HEADER_BYTES
        limit = self._connection.usable_size
        if size > limit:
            target = f"to {meta.to}" if meta.to is not None else f"on channel {meta.channel}"
            raise TooLarge(f"message {meta.id} {target}", size, limit)

    @property
    def _headers(self) -> dict[str, str]:
        return {"Nats-Msg-Id": self._publish_id}

    def _is_over(self, _: RetryCallState) -> bool:
        now = time.monotonic()
        if self._nobody_since is not None and now - self._nobody_since >= self._no_hub_secs:
            return True
        return now - self._began >= self._timeout_secs

    async def _try(self) -> SendReceipt:
        if self._connection.is_closed:
            raise NotConnected
        if not self._connection.is_connected:
            self._nobody_since = None
            raise _TryAgain("disconnected from the NATS server")
        is_first_use, self._is_first_use = self._is_first_use, False
        self._tries += 1
        remaining_secs = self._timeout_secs - (time.monotonic() - self._began)
        try:
            answer = await self._connection.request(
                self._subject,
                self._envelope.body,
                timeout_secs=max(0.1, min(TRY_TIMEOUT_SECS, remaining_secs)),
                headers=self._headers,
            )
        except NoResponders:
            self._nobody_since = time.monotonic() if self._nobody_since is None else self._nobody_since
            raise
        except RequestTimedOut:
            self._is_unknown = True
            self._nobody_since = None
            raise
        self._nobody_since = None
        return self._read(answer.data, is_first_use=is_first_use)

    def _read(self, body: bytes, *, is_first_use: bool) -> SendReceipt:
        try:
            answer = decode_publish_answer(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            log.warning("an answer to a send that is none", subject=self._subject, size=len(body))
            self._is_unknown = True
            raise _TryAgain("the answer could not be read") from None
        if isinstance(answer.error, StoreError):
            raise self._refused_by_store(answer.error)
        if answer.ok is False:
            raise SendRefused(self._envelope, str(answer.error or "no reason given"), code=answer.code or "internal")
        if answer.stream:
            if answer.duplicate and is_first_use:
                # 128 random bits were taken before they were used once: whatever that is, this message is not stored.
                log.warning("a fresh publish id was known to the stream already; sending under a new one")
                self._publish_id, self._is_first_use = names.new_publish_id(), True
                raise _TryAgain("the publish id was taken")
            return SendReceipt(self._envelope, "durable", answer.stream, answer.seq, self._tries)
        if answer.ok:
            return SendReceipt(self._envelope, answer.mode or "core", None, None, self._tries)
        self._is_unknown = True
        raise _TryAgain("the answer says nothing")

    def _refused_by_store(self, error: StoreError) -> Exception:
        if error.code == _UNAVAILABLE_STATUS and error.err_code != 0 and error.err_code not in _FULL_ERRORS:
            return _TryAgain(f"the store is not available ({error.description})")
        code = "too_large" if error.err_code in TOO_LARGE_ERRORS else "unavailable"
        return SendRefused(self._envelope, error.description, code=code, err_code=error.err_code)


_FULL_ERRORS: Final = frozenset({10077, 10047, 10023})  # a quota is reached: more tries now do not help
