"""The composition of a hub process: which parts it runs, in which order they start and stop."""

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final, Literal

import msgspec
import structlog
import uvloop
from prometheus_client import CollectorRegistry

from hub.api.metrics import ApiMetrics
from hub.api.operation import Facts
from hub.api.service import ApiService
from hub.delivery import config as delivery_config
from hub.delivery import streams
from hub.delivery.attach import AttachResponder
from hub.delivery.attach_metrics import AttachMetrics
from hub.delivery.config import DeliveryConfig
from hub.delivery.connection import Connection
from hub.delivery.errors import BadSettings, CannotConnect, DeliveryError
from hub.delivery.health import HealthWatch
from hub.delivery.jetstream import JetStreamApi
from hub.delivery.micro import MicroService
from hub.delivery.refusals import ConfigError, ConfigNotReadable
from hub.delivery.settings import DEFAULT_JS_PREFIX, ConnectSettings, require_js_prefix
from hub.protocol import BadName, names, subjects
from hub.router.metrics import RouterMetrics
from hub.router.service import RouterService
from hub.service import garbage, logs
from hub.service.exits import Exit
from hub.service.http import BadAddress, CannotListen, HttpEndpoint, Readiness, parse_address
from hub.service.notify import WatchdogBeat, notify
from hub.service.paths import BadStateDir, state_dir
from hub.service.signals import StopRequest, stop_on_signals
from hub.service.standard_streams import occupy_standard_descriptors
from hub.service.stopping import stop_at_once
from hub.storage import Storage, open_storage
from hub.storage.errors import BadStorageUrl, StorageMismatch

log = structlog.get_logger(__name__)

VERSION: Final = "0.1.0"
CONNECT_SECS: Final = 30.0  # as long as attach and api wait for the streams (contract §4)
VERIFY_SECS: Final = 30.0

Role = Literal["router", "attach", "api"]


class ServerNotBound(DeliveryError):
    """The server lets anybody in, and the hub was told `--bound`."""

    code = "config"

    def __init__(self, servers: str) -> None:
        super().__init__(
            f"{servers} takes a connection without credentials: on it no identity holds; give the server accounts and "
            "users, or start the hub without --bound"
        )


class HubOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a hub process is told by its command line.

    Attributes:
        roles: the parts that it runs.
        durable: durable delivery over JetStream; else core mode.
        delivery_config: the delivery config's file.
        db: where history is kept; None is a SQLite file in the state folder, `none` keeps none.
        metrics: `host:port` of the HTTP endpoint; None serves none.
        bound: refuse a server that lets the hub be anonymous.
        api_admins: identities that may do everything in the query API; none: what `NATS_HUB_API_ADMINS` says.
        agent_js_prefix: where agents find JetStream's API, as the attach tells them.
        verbose: debug lines too.
        connection: settings of the connection that beat the environment, by their names in `ConnectSettings`.
    """

    roles: tuple[Role, ...]
    durable: bool = False
    delivery_config: str | None = None
    db: str | None = None
    metrics: str | None = None
    bound: bool = False
    api_admins: tuple[str, ...] = ()
    agent_js_prefix: str = DEFAULT_JS_PREFIX
    verbose: bool = False
    connection: Mapping[str, Any] = {}


def run(options: HubOptions, environ: Mapping[str, str] | None = None) -> int:
    """Run a hub process until it is told to stop.

    Returns:
        Its exit code (contract §11).
    """
    occupy_standard_descriptors()
    logs.configure(verbose=options.verbose)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return int(runner.run(serve(options, os.environ if environ is None else environ)))


async def serve(
    options: HubOptions, environ: Mapping[str, str], *, on_step: Callable[[str], None] | None = None
) -> Exit:
    """As `run`, in the loop that is there; `on_step` is for tests, see `DurableRouter`."""
    try:
        settings = ConnectSettings.from_environ(environ, **options.connection)
        settings = msgspec.structs.replace(settings, identity=None)  # the hub is nobody's identity
        config = delivery_config.load(options.delivery_config, environ) if options.durable else None
        address = parse_address(options.metrics) if options.metrics else None
        admins = _api_admins(options, environ)
        require_js_prefix(options.agent_js_prefix, "--agent-js-prefix")
        storage = _storage(options, environ)
    except ConfigNotReadable as error:
        log.error("cannot start", error=str(error))  # noqa: TRY400 - the text says it all, a traceback nothing
        return Exit.NO_INPUT
    except (BadSettings, BadName, ConfigError, BadAddress, BadStateDir, BadStorageUrl) as error:
        log.error("cannot start", error=str(error))  # noqa: TRY400
        return Exit.CONFIG
    with stop_on_signals() as stop:
        process = HubProcess(options, settings, config, storage, address, api_admins=admins, on_step=on_step)
        try:
            return await process.live(stop)
        except CannotListen as error:
            log.error("cannot start", error=str(error))  # noqa: TRY400
            return Exit.UNAVAILABLE
        except StorageMismatch as error:
            log.error("cannot start", error=str(error))  # noqa: TRY400
            return Exit.CONFIG
        except CannotConnect as error:
            log.error("cannot start", error=str(error))  # noqa: TRY400
            return Exit.CONFIG if error.is_final else Exit.UNAVAILABLE
        except DeliveryError as error:
            log.error("cannot start", error=str(error), code=error.code)  # noqa: TRY400
            return Exit.CONFIG if error.code == "config" else Exit.UNAVAILABLE


def _api_admins(options: HubOptions, environ: Mapping[str, str]) -> frozenset[str]:
    given = options.api_admins or environ.get("NATS_HUB_API_ADMINS", "").replace(",", " ").split()
    return frozenset(names.agent_identity(each) for each in given)


def _storage(options: HubOptions, environ: Mapping[str, str]) -> Storage | None:
    url = options.db or environ.get("NATS_HUB_DB")
    if url is None:
        folder = state_dir(environ)
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            hint = "set NATS_HUB_STATE_DIR to a folder that can be made, or --db"
            raise BadSettings(f"cannot make the state folder {folder}: {error.strerror or error}; {hint}") from error
        url = f"sqlite:///{folder / 'hub.db'}"
        log.info("history is kept in the state folder", db=url, state_dir=str(folder))
    return open_storage(url)


class HubProcess:
    """One hub process: its connection and its parts.

    Args:
        options: what it was told.
        settings: where NATS is.
        config: the delivery config; None is core mode.
        storage: where history is kept; None keeps none.
        address: where the HTTP endpoint listens; None serves none.
        api_admins: identities that may do everything in the query API.
        on_step: see `DurableRouter`.
    """

    def __init__(
        self,
        options: HubOptions,
        settings: ConnectSettings,
        config: DeliveryConfig | None,
        storage: Storage | None,
        address: tuple[str, int] | None,
        *,
        api_admins: frozenset[str] = frozenset(),
        on_step: Callable[[str], None] | None = None,
    ) -> None:
        self._options = options
        self._settings = settings
        self._config = config
        self._storage = storage
        self._address = address
        self._api_admins = api_admins
        self._on_step = on_step
        self._registry = CollectorRegistry()
        self._started_at = time.monotonic()
        self._connection: Connection | None = None
        self._router: RouterService | None = None
        self._attach: AttachResponder | None = None
        self._api: ApiService | None = None
        self._health: HealthWatch | None = None
        self._http: HttpEndpoint | None = None
        self._micro: list[MicroService] = []
        self._is_ready = False

    async def live(self, stop: StopRequest) -> Exit:
        """Start, serve until `stop` or until the connection is lost for good, and stop in order."""
        beat = WatchdogBeat()
        beat.start()
        try:
            connection = await self._start(stop)
            if connection is None:
                return Exit.OK  # told to stop while it started
            self._is_ready = True
            garbage.settle()
            notify("READY=1")
            log.info("ready", roles=list(self._options.roles), mode=self.mode)
            return await self._wait(connection, stop)
        finally:
            self._is_ready = False
            notify("STOPPING=1")
            try:
                await self._stop()
            finally:
                beat.stop()

    @property
    def mode(self) -> str:
        """`durable` or `core`."""
        return "core" if self._config is None else "durable"

    async def _start(self, stop: StopRequest) -> Connection | None:
        starting = asyncio.create_task(self._start_parts(), name="start")
        stopping = asyncio.create_task(stop.wait(), name="stop-while-starting")
        try:
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return starting.result() if starting.done() else None
        finally:
            stopping.cancel()
            if not starting.done():
                starting.cancel()
                await asyncio.wait({starting})

    async def _start_parts(self) -> Connection:
        if self._address is not None:
            self._http = HttpEndpoint(*self._address, registry=self._registry, readiness=self.readiness)
            self._http.start()
            host, port = self._http.address
            log.info("serving /metrics, /healthz and /readyz", host=host, port=port)
        connection = await Connection.open(
            self._settings, name=f"hub {'+'.join(self._options.roles)}", timeout_secs=CONNECT_SECS
        )
        self._connection = connection
        if self._options.bound:
            await require_bound(self._settings)
        else:
            log.warning("not bound: identities are self-asserted; for one machine and development only")
        if self._config is None:
            log.info("core mode: nothing is stored for those who are away", server=self._settings.shown_servers)
        if "router" in self._options.roles:
            metrics = RouterMetrics(self._registry)
            self._health = HealthWatch(connection, self._config, on_report=metrics.take)
            self._router = RouterService(
                connection, config=self._config, storage=self._storage, metrics=metrics, on_step=self._on_step
            )
            await self._router.start()
            self._health.start()
            await self._serve_micro(
                "hub-router",
                "Routes envelopes",
                {"ingress": (subjects.INGRESS_ALL, subjects.QUEUE_ROUTER)},
                self.describe,
            )
        if self._config is not None and self._router is None:
            await streams.verify(JetStreamApi(connection), self._config, deadline_secs=VERIFY_SECS)
        if "attach" in self._options.roles and self._config is not None:
            counts = AttachMetrics(self._registry)
            self._attach = AttachResponder(
                connection, self._config, agent_js_prefix=self._options.agent_js_prefix, on_outcome=counts.take
            )
            await self._attach.start()
            await self._serve_micro(
                "hub-attach",
                "Attaches agents to their durable inboxes",
                {"attach": (subjects.ATTACH_ALL, subjects.QUEUE_DELIVERY)},
                self._attach.describe,
            )
        if "api" in self._options.roles:
            self._api = ApiService(
                connection,
                ingress=None if self._config is None else self._config.ingress.name,
                storage=self._storage,
                facts=Facts(version=VERSION, mode=self.mode, started_at=self._started_at),
                admins=self._api_admins,
                metrics=ApiMetrics(self._registry),
            )
            await self._api.start()
            await self._serve_micro(
                "hub-api",
                "Answers queries",
                {"api": (subjects.API_ALL, subjects.QUEUE_API)},
                self._api.describe,
            )
        return connection

    async def _serve_micro(
        self,
        name: str,
        description: str,
        endpoints: Mapping[str, tuple[str, str]],
        stats: Callable[[], Mapping[str, Any]],
    ) -> None:
        assert self._connection is not None
        service = MicroService(
            self._connection,
            name=name,
            version=VERSION,
            description=description,
            endpoints=endpoints,
            stats=stats,
            metadata={"mode": self.mode},
        )
        await service.start()
        self._micro.append(service)

    async def _wait(self, connection: Connection, stop: StopRequest) -> Exit:
        asked = asyncio.create_task(stop.wait(), name="stop")
        lost = asyncio.create_task(connection.wait_closed(), name="lost")
        await asyncio.wait({asked, lost}, return_when=asyncio.FIRST_COMPLETED)
        is_asked = asked.done()
        for task in (asked, lost):
            task.cancel()
        if is_asked:
            log.info("stopping", signal=stop.signal.name if stop.signal else None)
            return Exit.OK
        if isinstance(connection.death, StorageMismatch):
            raise connection.death  # no start will help
        log.error("a part of this process died; leaving, so that it is started anew")
        return Exit.ERROR

    async def _stop(self) -> None:
        """Stop what there is, the last one below first; one that fails does not keep the others from it.

        Parts that may wait for storage wait together: a service manager kills what takes the sum.
        """
        parts = (self._api, self._attach, self._router)
        async with AsyncExitStack() as last_first:
            if self._http is not None:
                last_first.push_async_callback(asyncio.to_thread, self._http.stop)
            if self._connection is not None:
                last_first.push_async_callback(self._connection.close)
            if self._storage is not None:
                last_first.push_async_callback(self._storage.close)
            last_first.push_async_callback(stop_at_once, *(part.stop for part in parts if part is not None))
            last_first.push_async_callback(stop_at_once, *(service.stop for service in self._micro))
            if self._health is not None:
                last_first.push_async_callback(self._health.stop)
        log.info("stopped", uptime_secs=round(time.monotonic() - self._started_at, 1))

    def describe(self) -> dict[str, Any]:
        """The router's numbers and the last look at what it stands on, for `$SRV.STATS`."""
        router = {} if self._router is None else self._router.describe()
        return {**router, "health": None if self._health is None else self._health.describe()}

    def readiness(self) -> Readiness:
        """Does this process do its work? Called from the endpoint's thread: it only reads."""
        broken, lagging = [], []
        if not self._is_ready:
            broken.append("starting or stopping")
        if self._connection is None or not self._connection.is_connected:
            broken.append("not connected to NATS")
        if self._router is not None and self._storage is not None and not self._router.is_recording:
            lagging.append("storage does not answer yet: routing goes on, history waits")
        if self._api is not None and self._storage is not None and not self._api.is_open:
            # Beside a router it is a lag: the router's work goes on.
            reasons = broken if self._router is None else lagging
            reasons.append("storage does not answer yet: the api answers `unavailable`")
        if self._health is not None:
            broken += self._health.failures()
            lagging += self._health.warnings()
        return Readiness(not broken, (*broken, *lagging))


async def require_bound(settings: ConnectSettings) -> None:
    """Refuse a server that lets anybody in: on it no identity holds.

    Raises:
        ServerNotBound: an anonymous connection was taken.
        CannotConnect: nothing said no to it: whether the server lets anybody in is not known.
    """
    try:
        connection = await Connection.open(settings.anonymous(), name="hub bound-check", timeout_secs=5.0)
    except CannotConnect as error:
        # A refused client certificate looks like any lost connection; only where we have one can it be that.
        if error.is_final or settings.certificate is not None:
            return
        raise
    await connection.close()
    raise ServerNotBound(settings.shown_servers)
