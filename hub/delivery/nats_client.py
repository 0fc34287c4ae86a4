"""The nats-py client, hardened: hostile bytes, a dead reader and a refused login never end it silently.

The one place that touches what nats-py keeps private; `HardenedClient` is the only client that we connect with. What it
changes, each measured on nats-py 2.16 and nats-server 2.15:

- A subject, reply or header block that is not UTF-8 killed the read loop while `is_connected` stayed true, and a
  subject with a form feed or a vertical tab (which the server routes and stores) broke the parsing of the line.
- A stored message with an ordinary header named `Status` was taken for the server's own status and lost. Only an inline
  status line is a status here; an ordinary header of that name is kept under `ORDINARY + name`.
- Any `-ERR` but a permission closed the client for good; here it reconnects, as after a lost connection.
- An exception in the reader or the reconnecting task left a client that is connected and deaf.
- A flush that was cancelled or timed out ended the reader when its PONG came after all.
- A cancel that met a flush's PONG was swallowed (`asyncio.wait_for` before Python 3.12), and its task ran on for ever.
- A flush wrote its PING past the frames that waited, so that its PONG proved nothing of a subscription before it.

Besides it adds the two ways by which hot paths enter and leave the process: `subscribe_direct` calls a plain function
out of the parser, `send` appends a ready frame that leaves at the end of the loop's turn.
"""

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any, Final

import structlog
from nats import errors as nats_errors
from nats.aio.client import Client
from nats.aio.subscription import Subscription
from nats.protocol.parser import Parser

from hub.delivery.headers import encode_headers, inline_status, parse_headers

log = structlog.get_logger(__name__)

_LONGEST_CONTROL_LINE: Final = 1_048_576  # an INFO line of a large cluster is long; beyond this it is no NATS server
_SUBJECT_BREAKS = re.compile(r"[ \t\r\n]")


class Incoming:
    """One message as the parser saw it, for direct subscriptions.

    Attributes:
        raw_subject: its subject as it came.
        raw_reply: its reply subject as it came, empty when there is none.
        data: its body.
        header_block: its header bytes, empty when there are none.
    """

    __slots__ = ("data", "header_block", "raw_reply", "raw_subject")

    def __init__(self, raw_subject: bytes, raw_reply: bytes, data: bytes, header_block: bytes) -> None:
        self.raw_subject = raw_subject
        self.raw_reply = raw_reply
        self.data = data
        self.header_block = header_block

    @property
    def subject(self) -> str:
        """Its subject; bytes that are not UTF-8 are escaped (`\\xff`)."""
        return self.raw_subject.decode("utf-8", "backslashreplace")

    @property
    def reply(self) -> str:
        """Its reply subject, escaped in the same way; empty when there is none."""
        return self.raw_reply.decode("utf-8", "backslashreplace")

    @property
    def size(self) -> int:
        """How many bytes the server counts it as in a pull's `max_bytes`."""
        return len(self.data) + len(self.header_block) + len(self.raw_subject) + len(self.raw_reply)

    @property
    def status(self) -> int:
        """The server's inline status (100, 404, 408, 409, 503); 0 for an ordinary message."""
        return inline_status(self.header_block) if self.header_block.startswith(b"NATS/1.0 ") else 0

    def headers(self) -> dict[str, str]:
        """The header block as names and values, see `parse_headers`."""
        return parse_headers(self.header_block)


class _LineParser(Parser):
    """The wire parser: lines split at their blanks alone; messages of direct subscriptions without a coroutine."""

    nc: "HardenedClient"

    async def parse(self, data: bytes = b"") -> None:
        """Take what was read; called by one reader at a time.

        Raises:
            nats.errors.ProtocolError: it is no NATS protocol; the reader reconnects.
        """
        buffer = self.buf
        if buffer:
            buffer += data
            if len(buffer) < self.needed:
                return  # of a large message that comes in many pieces
            data = bytes(buffer)
        nc, subscriptions = self.nc, self.nc.direct
        position = taken = 0
        try:
            while self.buf is buffer:  # a reconnect in the middle of an await starts a new one
                end = data.find(b"\r\n", position)
                if end < 0:
                    if len(data) - position > _LONGEST_CONTROL_LINE:
                        raise nats_errors.ProtocolError("nats: endless control line")
                    self.needed = 0
                    return
                fields = data[position:end].split(b" ")
                start = end + 2
                operation = fields[0]
                if operation == b"MSG" or operation == b"HMSG":  # noqa: PLR1714 - a set hashes, with every message
                    has_header = operation == b"HMSG"
                    count = len(fields) - has_header
                    try:
                        sid, size = int(fields[2]), int(fields[-1])
                        body = start + int(fields[-2]) if has_header else start
                    except (ValueError, IndexError):
                        count = 0
                    if count != 5 and count != 4:  # noqa: PLR1714
                        raise nats_errors.ProtocolError(f"nats: malformed line {data[position:end][:80]!r}")
                    subject, reply = fields[1], fields[3] if count == 5 else b""
                    after = start + size
                    if len(data) < after + 2:
                        self.needed = after + 2 - position
                        return
                    position = after + 2
                    header_block, payload = data[start:body] if has_header else b"", data[body:after]
                    callback = subscriptions.get(sid)
                    if callback is None:
                        await nc._process_msg(sid, subject, reply, payload, header_block)
                        continue
                    taken += 1
                    try:
                        callback(Incoming(subject, reply, payload, header_block))
                    except Exception:
                        # A callback must not raise. One that does loses its message (unacked, it comes again), never
                        # the reader.
                        log.exception("message callback failed", subject=repr(subject))
                else:
                    line, position = data[position:end], start
                    await self._control(line)
        finally:
            nc.stats["in_msgs"] += taken
            if self.buf is buffer:
                buffer[:] = data[position:]

    async def _control(self, line: bytes) -> None:
        operation, _, rest = line.partition(b" ")
        if operation == b"PING":
            await self.nc._process_ping()
        elif operation == b"PONG":
            await self.nc._process_pong()
        elif operation == b"-ERR":
            await self.nc._process_err(rest.strip().decode("utf-8", "backslashreplace").lower())
        elif operation == b"INFO":
            await self.nc._process_info(json.loads(rest))
        elif operation != b"+OK":
            raise nats_errors.ProtocolError(f"nats: unknown protocol line {line[:80]!r}")


class HardenedClient(Client):
    """nats-py's client with the changes that this module's first lines name."""

    def __init__(self) -> None:
        super().__init__()
        self._ps = _LineParser(self)
        self.direct: dict[int, Callable[[Incoming], None]] = {}  # by the subscription's id, for the parser
        self._is_holding = False  # frames wait while a reconnect has not yet replayed the subscriptions
        self._is_write_scheduled = False

    # Messages in

    async def _process_headers(self, headers: bytes) -> dict[str, str] | None:
        return parse_headers(headers) or None if headers else None

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
    ) -> Any:
        return self.msg_class(
            subject=subject.decode("utf-8", "backslashreplace"),
            reply=reply.decode("utf-8", "backslashreplace"),
            data=data,
            headers=headers,
            _client=self,
            _sid=sid,
        )

    async def subscribe_direct(self, subject: str, callback: Callable[[Incoming], None], *, queue: str = "") -> int:
        """Subscribe with a plain function that is called out of the parser, before the next message is parsed.

        Args:
            subject: what to listen on.
            callback: must be short and must not raise; status messages reach it too.
            queue: the queue group, empty for none.

        Returns:
            The subscription's id, for `unsubscribe_direct`. It survives reconnects.
        """
        sid = self._sid + 1  # what `subscribe` takes before it first waits: a message may come while it does
        self.direct[sid] = callback
        try:
            sub = await self.subscribe(subject, queue=queue)
        except BaseException:
            del self.direct[sid]
            raise
        assert sub._id == sid
        return sid

    async def unsubscribe_direct(self, sid: int, *, timeout_secs: float = 5.0) -> None:
        """End a direct subscription; what the server had sent before it saw the end still reaches the callback."""
        if sid not in self.direct:
            return
        try:
            if self.is_connected:
                await self._send_unsubscribe(sid)
                await self.flush(timeout_secs)
        except (nats_errors.Error, OSError, asyncio.InvalidStateError) as error:
            log.debug("unsubscribe not confirmed", sid=sid, error=str(error))
        finally:
            self.direct.pop(sid, None)
            sub: Subscription | None = self._subs.pop(sid, None)
            if sub is not None:
                sub._stop_processing()

    # Messages out

    def send(self, frame: bytes, body: bytes | None = None) -> None:
        """Append a ready protocol frame; it leaves at the end of this turn of the loop, or after the reconnect.

        Args:
            frame: the frame, or its lines up to the body.
            body: the body that follows `frame`, without the line break behind it; saves copying it once more.
        """
        pending = self._pending
        pending.append(frame)
        self._pending_data_size += len(frame)
        if body is not None:
            pending.append(body)
            pending.append(b"\r\n")
            self._pending_data_size += len(body) + 2
        if not self._is_write_scheduled:
            self._is_write_scheduled = True
            asyncio.get_running_loop().call_soon(self._write_pending)

    def publish_now(
        self, subject: str, payload: bytes, *, reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        """As `publish`, without a coroutine and without a flush of its own: it leaves as `send` says.

        Raises:
            nats.errors.BadSubjectError, nats.errors.BadHeaderError: it would break the protocol's line.
            nats.errors.ConnectionClosedError, nats.errors.OutboundBufferLimitError: as `publish`.
        """
        if not subject or _SUBJECT_BREAKS.search(subject) or _SUBJECT_BREAKS.search(reply):
            raise nats_errors.BadSubjectError
        if self.is_closed:
            raise nats_errors.ConnectionClosedError
        if headers:
            block = encode_headers(headers)
            sizes = f"{len(block)} {len(block) + len(payload)}"
            control = f"HPUB {subject} {reply} {sizes}\r\n" if reply else f"HPUB {subject} {sizes}\r\n"
        else:
            block = b""
            control = f"PUB {subject} {reply} {len(payload)}\r\n" if reply else f"PUB {subject} {len(payload)}\r\n"
        frame = b"".join((control.encode(), block, payload, b"\r\n"))
        if not self.is_connected and len(frame) + self._pending_data_size > self._max_pending_size:
            raise nats_errors.OutboundBufferLimitError
        self.stats["out_msgs"] += 1
        self.stats["out_bytes"] += len(payload)
        self.send(frame)

    def _write_pending(self) -> None:
        self._is_write_scheduled = False
        if self._is_holding or not self.is_connected or not self._pending or self._transport is None:
            return  # the reconnect flushes what waits
        frames, self._pending, self._pending_data_size = self._pending, [], 0
        try:
            self._transport.write(b"".join(frames))
        except (OSError, RuntimeError) as error:
            # The transport is closing: the read loop notices the same and reconnects; these frames are lost like those
            # in a socket's buffer, and every sender of ours repeats what was not acknowledged.
            log.debug("write failed", error=str(error))

    async def rtt(self, timeout: float = 10.0) -> float:
        """As nats-py's, and a cancel always arrives.

        Raises:
            nats.errors.TimeoutError, nats.errors.ConnectionClosedError: no round trip.
        """
        if self.is_closed:
            raise nats_errors.ConnectionClosedError
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Any] = loop.create_future()
        began = loop.time()
        await self._send_ping(answered)
        try:
            async with asyncio.timeout(timeout):
                await answered
        except TimeoutError:
            raise nats_errors.TimeoutError from None
        return loop.time() - began

    async def flush(self, timeout: float = 10.0) -> None:
        """As `rtt`; raises `nats.errors.FlushTimeoutError` when the server did not say that it has everything."""
        try:
            await self.rtt(timeout)
        except nats_errors.TimeoutError:
            raise nats_errors.FlushTimeoutError from None

    async def _flush_pending(self, force_flush: bool = False) -> Any:
        # A close of a client that never began to connect (a certificate that is none) has nothing to flush; nats-py's
        # assertion would hide why.
        return await super()._flush_pending(force_flush) if self._flush_queue is not None else None

    async def _process_pong(self) -> None:
        # Each PONG answers the oldest PING, also the one of a flush that nobody waits for any more.
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()

    async def _send_ping(self, future: "asyncio.Future[Any] | None" = None) -> None:
        # nats-py writes the PING at once, past the frames that wait: its PONG would prove nothing of a subscription or
        # a publish just before, and a flush is asked for exactly that.
        self._write_pending()
        await super()._send_ping(future)

    def hold(self) -> None:
        """Keep frames back: the connection is gone."""
        self._is_holding = True

    def release(self) -> None:
        """Let frames go again: the subscriptions stand."""
        self._is_holding = False
        if self._pending and not self._is_write_scheduled:
            self._is_write_scheduled = True
            asyncio.get_running_loop().call_soon(self._write_pending)

    # Staying alive

    async def _process_err(self, err_msg: str) -> None:
        text = (err_msg or "").strip("'")
        if "permissions violation" in text or self.is_connecting:
            await super()._process_err(err_msg)
            return
        error = nats_errors.Error(f"nats: {text or 'unknown error'}")
        self._err = error
        await self._error_cb(error)
        await self._process_op_err(error)

    async def _read_loop(self) -> None:
        await super()._read_loop()
        if self._reading_task is asyncio.current_task() and self.is_connected:
            # The reader ended while the client believes that it is connected: whatever it was, start over.
            error = nats_errors.Error("nats: the reader ended")
            await self._error_cb(error)
            await self._process_op_err(error)

    async def _attempt_reconnect(self) -> None:
        self.hold()
        try:
            await super()._attempt_reconnect()
        except Exception as error:  # noqa: BLE001 - whatever ended the reconnecting, its owner must hear of it
            log.error("reconnecting failed for good", error=repr(error))  # noqa: TRY400 - the cause is in `error`
            await self._error_cb(error)
            await self.close()
