"""The query API as tests see it: a service on a real server and a real storage, and callers of any name."""

import json
import time
from collections.abc import Sequence
from typing import Any

from prometheus_client import CollectorRegistry

from hub.api.metrics import ApiMetrics
from hub.api.operation import Facts
from hub.api.service import ApiService
from hub.delivery.connection import Connection
from hub.protocol import subjects
from hub.storage import Storage, open_storage
from hub.storage.conformance.harness import Clock
from hub.storage.records import NewDeadLetter, NewEnvelope, Session, Sighting, Wave, WaveTask
from tests.support.bus import connect
from tests.support.waiting import eventually

ADMIN = "ops"


class ApiWorld:
    """A query API under test.

    Attributes:
        storage: what it answers from; None: it has none.
        clock: the time that it and the storage take for now.
        registry: its metrics.
    """

    def __init__(self, url: str, storage_url: str | None, *, ingress: str | None = None) -> None:
        self.url = url
        self.clock = Clock()
        self.storage: Storage | None = None if storage_url is None else open_storage(storage_url, clock=self.clock)
        self.registry = CollectorRegistry()
        self.ingress = ingress
        self.hub: Connection | None = None
        self.service: ApiService | None = None
        self._connections: dict[str, Connection] = {}

    async def __aenter__(self) -> "ApiWorld":
        self.hub = await connect(self.url)
        self.service = ApiService(
            self.hub,
            ingress=self.ingress,
            storage=self.storage,
            facts=Facts(version="1.2.3", mode="durable" if self.ingress else "core", started_at=time.monotonic()),
            admins=frozenset({ADMIN}),
            metrics=ApiMetrics(self.registry),
            clock=self.clock,
        )
        await self.service.start()
        if self.storage is not None:
            await eventually(lambda: self.service is not None and self.service.is_open, what="the api has its storage")
        return self

    async def __aexit__(self, *_: object) -> None:
        for connection in self._connections.values():
            await connection.close()
        assert self.service is not None
        await self.service.stop()
        if self.storage is not None:
            await self.storage.close()
        assert self.hub is not None
        await self.hub.close()

    async def connection(self, identity: str) -> Connection:
        """A connection of that caller."""
        if identity not in self._connections:
            self._connections[identity] = await connect(self.url, identity)
        return self._connections[identity]

    async def raw(self, caller: str, op: str, body: bytes) -> dict[str, Any]:
        """Ask with any bytes; the reply as Python values."""
        connection = await self.connection(caller)
        reply = await connection.request(subjects.api(caller, op), body, timeout_secs=20)
        assert reply.data
        decoded: dict[str, Any] = json.loads(reply.data)
        return decoded

    async def ask(self, caller: str, op: str, **params: Any) -> dict[str, Any]:
        """Ask; `from_` stands for `from`. The reply, whatever it is."""
        given = {name.rstrip("_"): value for name, value in params.items()}
        return await self.raw(caller, op, json.dumps({"params": given}).encode())

    async def data(self, caller: str, op: str, **params: Any) -> dict[str, Any]:
        """Ask; the data of a reply that must be good."""
        reply = await self.ask(caller, op, **params)
        assert reply["ok"], reply
        data: dict[str, Any] = reply["data"]
        return data

    async def code(self, caller: str, op: str, **params: Any) -> str:
        """Ask; `ok`, or the code of the refusal."""
        reply = await self.ask(caller, op, **params)
        return "ok" if reply["ok"] else reply["code"]

    async def store(self, *rows: NewEnvelope) -> None:
        assert self.storage is not None
        report = await self.storage.envelopes.insert_mirrored(rows)
        assert report.stored == len(rows), report

    async def bury(self, *letters: NewDeadLetter) -> None:
        assert self.storage is not None
        report = await self.storage.dead_letters.insert(letters)
        assert report.stored == len(letters), report

    async def see(self, *sightings: Sighting) -> None:
        assert self.storage is not None
        await self.storage.agents.record(sightings)

    async def hold(self, session: Session) -> None:
        assert self.storage is not None
        await self.storage.sessions.create(session)

    async def plan(self, wave: Wave, tasks: Sequence[WaveTask]) -> None:
        assert self.storage is not None
        await self.storage.waves.create(wave, tasks)
