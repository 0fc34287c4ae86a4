"""The event source on NATS JetStream: one subject a run in a stream that the host provides."""

import asyncio
from typing import TYPE_CHECKING, Any

from hub.events.base import CleanupReport
from hub.events.cursor import CursorSecret, Position
from hub.events.errors import BackendUnavailableError, StreamMisconfiguredError
from hub.events.jetstream.append import Appender
from hub.events.jetstream.cleanup import Cleaner
from hub.events.jetstream.follow import DurableFeed, RunFeed
from hub.events.jetstream.provisioning import problems, stream_config
from hub.events.jetstream.reading import RunReader
from hub.events.jetstream.subjects import DEFAULT_PREFIX, Subjects, check_stream_name, reader_name
from hub.events.jetstream.surface import StreamSurface
from hub.events.limits import Limits, check_number
from hub.events.log import Feed, Slice
from hub.events.records import AgentEventRecord, Draft, Ownership, RunKey
from hub.events.source import LogEventSource, split_limits

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.js import JetStreamContext

ACK_WAIT_SECS = 30.0


class JetStreamLog:
    """The run log over a stream."""

    adapter = "jetstream"

    def __init__(self, surface: StreamSurface, prefix: str, limits: Limits, *, ack_wait_secs: float) -> None:
        self.stream = surface.stream
        self.subjects = Subjects(prefix)
        self.surface = surface
        self._limits = limits
        self._ack_wait_secs = ack_wait_secs
        self._reader = RunReader(surface, self.subjects)
        self._appender = Appender(surface, self.subjects, limits)
        self._verified = False
        self._deletes = False
        self._verifying = asyncio.Lock()

    async def ready(self) -> None:
        if self._verified:
            return
        async with self._verifying:
            if not self._verified:
                await self._verify(cleanup=False)

    async def verify(self) -> None:
        await self._verify(cleanup=True)

    async def _verify(self, *, cleanup: bool) -> None:
        info = await self.surface.info()
        if info is None:
            raise BackendUnavailableError(
                f"there is no stream {self.stream!r}; make one with ensure_stream() or `hub-events verify --create`",
                retriable=False,
            )
        found = problems(info, self.subjects, self._limits, max_payload=self.surface.max_payload, cleanup=cleanup)
        if found:
            raise StreamMisconfiguredError(self.stream, found)
        self._verified = True
        self._deletes = self._deletes or cleanup

    async def append(self, draft: Draft) -> AgentEventRecord:
        return await self._appender.append(draft)

    async def read(self, run: RunKey, position: Position, limit: int, *, want_first: bool) -> Slice:
        return await self._reader.read(run, position, limit, want_first=want_first)

    async def feed(self, run: RunKey, durable: str | None) -> tuple[Feed, Position | None]:
        subject = self.subjects.run(run)
        if durable is None:
            return RunFeed(self.surface, self._reader, run, limits=self._limits, subject=subject), None
        name = reader_name(run, durable)
        wait = self._ack_wait_secs
        return DurableFeed(
            self.surface, self._reader, run, name, limits=self._limits, subject=subject, ack_wait_secs=wait
        ), None

    async def forget(self, run: RunKey, durable: str) -> None:
        await self.surface.forget(reader_name(run, durable))

    async def cleanup(self, owner: Ownership, before: str, limit: int, *, keep_open: bool) -> CleanupReport:
        if not self._deletes:
            await self._verify(cleanup=True)
        cleaner = Cleaner(self.surface, self.subjects, self._reader, owner)
        return await cleaner.clean(before, limit, keep_open=keep_open)

    async def close(self) -> None:
        await self.surface.close()


class JetStreamEventSource(LogEventSource):
    """An event source on a JetStream stream. The connection stays the host's and is never closed.

    Args:
        js: the host's JetStream context or connection, or another `StreamSurface`.
        stream: the stream's name; the host makes it, with `ensure_stream()` or by its own means.
        cursor_secret: signs cursors; replicas share it.
        prefix: what the subjects begin with.
        ack_wait_secs: after how long an event that a durable reader neither settled nor gave back comes again, in
            seconds.
        options: see `Limits`.

    Raises:
        InvalidInputError: an option is out of range; it names it.
    """

    def __init__(
        self,
        js: "JetStreamContext | Client | StreamSurface",
        *,
        stream: str,
        cursor_secret: CursorSecret,
        prefix: str = DEFAULT_PREFIX,
        ack_wait_secs: float = ACK_WAIT_SECS,
        **options: Any,
    ) -> None:
        limits = split_limits(options)
        check_number("ack_wait_secs", ack_wait_secs, 0.1, 3600, whole=False)
        check_stream_name(stream)
        self._js_log = JetStreamLog(_surface(js, stream), prefix, limits, ack_wait_secs=ack_wait_secs)
        super().__init__(self._js_log, cursor_secret=cursor_secret, limits=limits)

    async def ensure_stream(self, *, storage: str = "file", replicas: int = 1, max_age_secs: float = 0) -> None:
        """Make a stream that fits where there is none, then verify it. A stream that is there is never changed.

        Args:
            storage: `file` or `memory`.
            replicas: 1, 3 or 5.
            max_age_secs: how long events are kept, in seconds; 0: until cleanup.

        Raises:
            StreamMisconfiguredError: the stream that is there does not fit.
        """
        surface = self._js_log.surface
        if await surface.info() is None:
            config = stream_config(
                self._js_log.stream,
                self._js_log.subjects,
                storage=storage,
                replicas=replicas,
                max_age_secs=max_age_secs,
            )
            await surface.create(config)
        await self.verify()


def _surface(js: "JetStreamContext | Client | StreamSurface", stream: str) -> StreamSurface:
    from nats.aio.client import Client  # noqa: PLC0415 - a fake needs no client library
    from nats.js import JetStreamContext  # noqa: PLC0415

    from hub.events.jetstream.nats_stream import NatsStream  # noqa: PLC0415

    return NatsStream(js, stream) if isinstance(js, (JetStreamContext, Client)) else js


__all__ = ["JetStreamEventSource"]
