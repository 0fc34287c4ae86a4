"""The stage of one measurement: a server with an empty store, the hub's streams, and processes that end with it."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec

from hub.bench.actors import ActorSettings, Role
from hub.bench.children import READY_SECS, ActorChild, Child
from hub.bench.load import Message, send_all
from hub.bench.nats_server import NatsServer
from hub.delivery import streams
from hub.delivery.config import UNLIMITED, DeliveryConfig
from hub.delivery.connection import Connection
from hub.delivery.jetstream import JetStreamApi
from hub.delivery.publisher import StorePublisher
from hub.delivery.settings import ConnectSettings

POLL_SECS: Final = 0.02  # one request to the server each: next to nothing beside the load
SLOWEST_RATE: Final = 200.0  # messages a second: what is slower than this is stuck


class Stuck(RuntimeError):
    """What was waited for did not come."""


def deadline_secs(messages: int) -> float:
    """How long so many messages may take."""
    return 30.0 + messages / SLOWEST_RATE


class Stage:
    """One measurement's world; made by `set_up`.

    Attributes:
        home: the folder of all its files.
        server: its nats-server.
        connection: for what is done between the measured parts.
        js: JetStream's management on it.
        config: the delivery config.
    """

    def __init__(self, home: Path, server: NatsServer, connection: Connection, config: DeliveryConfig) -> None:
        self.home = home
        self.server = server
        self.connection = connection
        self.js = JetStreamApi(connection)
        self.config = config
        self._exits = AsyncExitStack()

    @classmethod
    @asynccontextmanager
    async def set_up(cls, config: DeliveryConfig | None = None) -> AsyncIterator["Stage"]:
        """Start the server and make the hub's streams; everything is gone at the end."""
        async with AsyncExitStack() as exits:
            home = Path(exits.enter_context(TemporaryDirectory(prefix="hub-bench-")))
            server = NatsServer(home / "nats")
            exits.push_async_callback(server.kill)
            await server.start()
            connection = await Connection.open(
                ConnectSettings(servers=(server.url,), identity=None), name="bench stage"
            )
            exits.push_async_callback(connection.close)
            stage = cls(home, server, connection, config or DeliveryConfig())
            await exits.enter_async_context(stage._exits)
            await streams.ensure(stage.js, stage.config)
            yield stage

    # Processes

    async def start_router(self) -> Child:
        """Start a router as an operator does, with history in SQLite; returns when it routes and records."""
        config = self.home / "delivery.json"
        config.write_bytes(msgspec.json.encode(self.config))
        router = await Child.start(
            "router",
            ["-m", "hub", "router", "--durable", "--db", f"sqlite:///{self.home / 'hub.db'}"],
            home=self.home,
            environ={
                "NATS_URL": self.server.url,
                "NATS_HUB_STATE_DIR": str(self.home / "state"),
                "NATS_HUB_DELIVERY_CONFIG": str(config),
            },
        )
        self._exits.push_async_callback(router.stop)

        async def is_pulling() -> bool:
            router.require_alive()
            mirrors = await self._mirrors()
            if len(mirrors) < 2 or not all(info["num_waiting"] for info in mirrors):
                return False
            info = await self.js.consumer_info(self.config.ingress.name, self.config.router_consumer)
            return bool(info["num_waiting"])

        await self.eventually(is_pulling, within_secs=READY_SECS, what="the router routes and records")
        return router

    async def start_actor(self, role: Role, *, consumer: str = "", size: int = 400, window: int) -> ActorChild:
        """Start an actor; returns when it is ready."""
        settings = ActorSettings(
            role=role,
            url=self.server.url,
            ingress=self.config.ingress.name,
            inbox=self.config.inbox.name,
            consumer=consumer,
            size=size,
            window=window,
            folder=str(self.home / "mailboxes"),
        )
        actor = await ActorChild.begin(role, settings, home=self.home)
        self._exits.push_async_callback(actor.stop)
        return actor

    # Streams

    async def fill(self, stream: str, messages: Iterable[Message], *, window: int) -> None:
        """Store messages, outside of what is measured."""
        publisher = StorePublisher(self.connection)
        await publisher.start()
        try:
            await send_all(publisher, stream, messages, window=window)
        finally:
            await publisher.stop()

    async def hold_routing(self) -> None:
        """Have the server deliver no ingress message until `let_routing`; the router stays at its pull."""
        await self._pause(datetime.now(UTC) + timedelta(hours=1))

    async def let_routing(self) -> None:
        """Have the server deliver."""
        await self._pause(None)

    async def _pause(self, until: datetime | None) -> None:
        config = self.config
        subject = f"{self.connection.settings.js_prefix}.CONSUMER.PAUSE.{config.ingress.name}.{config.router_consumer}"
        request = {} if until is None else {"pause_until": until}
        answer = await self.connection.request(subject, msgspec.json.encode(request), timeout_secs=5.0)
        if b'"error"' in answer.data:
            raise Stuck(f"the server does not pause a consumer: {answer.data.decode()}")

    async def state(self, stream: str) -> dict[str, Any]:
        """A stream's state as the server tells it."""
        info = await self.js.stream_info(stream)
        return dict(info["state"])

    async def stored_secs(self, stream: str) -> float:
        """From the first to the last message of a stream, by the clock of the server that stamped them."""
        state = await self.state(stream)
        first, last = (msgspec.convert(state[key], datetime) for key in ("first_ts", "last_ts"))
        return (last - first).total_seconds()

    async def wait_stored(self, stream: str, count: int, *, alive: Child | None = None) -> None:
        """Wait until a stream has taken so many messages."""

        async def is_there() -> bool:
            if alive is not None:
                alive.require_alive()
            return int((await self.state(stream))["last_seq"]) >= count

        await self.eventually(is_there, within_secs=deadline_secs(count), what=f"{count} messages in {stream}")

    async def wait_history(self, count: int) -> float:
        """Wait until the mirrors have committed everything; returns seconds since the call."""
        began = time.monotonic()

        async def is_through() -> bool:
            return all(not info["num_pending"] and not info["num_ack_pending"] for info in await self._mirrors())

        await self.eventually(is_through, within_secs=deadline_secs(count), what="history has everything")
        return time.monotonic() - began

    async def _mirrors(self) -> list[dict[str, Any]]:
        found = []
        for stream in (self.config.inbox.name, self.config.tasks.name):
            names = [name for name in await self.js.consumer_names(stream) if name.startswith("mirror-")]
            found += [await self.js.consumer_info(stream, name) for name in names]
        return found

    async def eventually(self, condition: Callable[[], Awaitable[bool]], *, within_secs: float, what: str) -> None:
        """Wait for a condition.

        Raises:
            Stuck: it was not met in time.
        """
        try:
            async with asyncio.timeout(within_secs):
                while not await condition():  # noqa: ASYNC110 - the server is asked, it does not tell
                    await asyncio.sleep(POLL_SECS)
        except TimeoutError:
            raise Stuck(f"waited {within_secs:g} s in vain for this: {what}") from None


def keeping_all() -> DeliveryConfig:
    """The default config, but nothing leaves an inbox: a reader that lags must not change what is measured."""
    default = DeliveryConfig()
    return msgspec.structs.replace(
        default, inbox=msgspec.structs.replace(default.inbox, max_msgs_per_subject=UNLIMITED)
    )
