"""HubClient: what agents and tools import to talk through a hub."""

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import structlog

from hub.client.announcer import Announcer
from hub.client.channel import ChannelSubscription, OnEnvelope
from hub.client.errors import InboxIsOpen
from hub.client.queries import Queries
from hub.client.sender import SEND_TIMEOUT_SECS, Sender, SendReceipt
from hub.client.task import TaskHandle
from hub.client.undelivered import UndeliveredListener
from hub.delivery.connection import Connection
from hub.delivery.errors import BadSettings
from hub.delivery.inbox import Callback, Inbox
from hub.delivery.inbox_finder import Source
from hub.delivery.inbox_message import InboxMessage
from hub.delivery.inbox_mode import Mode
from hub.delivery.settings import ConnectSettings, split_servers
from hub.protocol import Envelope, make, names, subjects
from hub.protocol.envelope import Kind
from hub.protocol.results import task_payload

log = structlog.get_logger(__name__)

DIRECT: Final = "direct"  # what the recipient of a direct message sees as its channel when the sender names none


class HubClient:
    """One agent's way to the others: messages, channels, its inbox, delegated tasks.

    Made by `connect`, or around a connection that its caller keeps. It reconnects by itself, for ever; when that is
    over (`wait_closed` returns), whoever waits on anything of it hears of it.

    Args:
        connection: a connection with an identity; closed by `close` only when `connect` made it.
        send_timeout_secs: for all tries of one message.

    Attributes:
        identity: who this is.
        connection: its connection.
        queries: history, agents, sessions, waves and figures (contract §10).

    Raises:
        BadSettings: the connection has no identity.
        BadName: the identity is the hub's own.
    """

    def __init__(self, connection: Connection, *, send_timeout_secs: float = SEND_TIMEOUT_SECS) -> None:
        if connection.identity is None:
            raise BadSettings("a client needs an identity: set NATS_HUB_IDENTITY or pass identity=")
        self.identity = names.agent_identity(connection.identity)
        self.connection = connection
        self.queries = Queries(connection)
        self._sender = Sender(connection, timeout_secs=send_timeout_secs)
        self._undelivered = UndeliveredListener(connection, self.identity)
        self._announcer: Announcer | None = None
        self._inbox: Inbox | None = None
        self._handles: list[TaskHandle] = []
        self._channels: list[ChannelSubscription] = []
        self._owns_connection = False

    @classmethod
    async def connect(
        cls,
        settings: ConnectSettings | None = None,
        *,
        url: str | None = None,
        environ: Mapping[str, str] | None = None,
        capabilities: Iterable[str] = (),
        metadata: Mapping[str, Any] | None = None,
        announce: bool = True,
        timeout_secs: float = 10.0,
        send_timeout_secs: float = SEND_TIMEOUT_SECS,
        **overrides: Any,
    ) -> "HubClient":
        """Connect and announce.

        Args:
            settings: where and as whom; read from `environ` when None.
            url: the server, `nats://host:port`, several with commas; beats the environment.
            environ: the environment, this process's when None.
            overrides: single settings that beat the environment (`identity="bob"`, `servers=(…,)`).
            capabilities, metadata: what this agent registers with.
            announce: False stays unseen: a tool that only sends or looks.
            timeout_secs: for the connecting.
            send_timeout_secs: for all tries of one message.

        Raises:
            BadSettings, BadName: the settings cannot be meant, or there is no identity.
            CannotConnect: no server in time, and why.
        """
        if url is not None:
            overrides["servers"] = split_servers(url)
        if settings is None:
            settings = ConnectSettings.from_environ(os.environ if environ is None else environ, **overrides)
        elif overrides:
            raise BadSettings(f"expected settings or {', '.join(overrides)}, got both")
        if settings.identity is None:
            raise BadSettings("a client needs an identity: set NATS_HUB_IDENTITY or pass identity=")
        name = f"hub-client {names.agent_identity(settings.identity)}"
        connection = await Connection.open(settings, name=name, timeout_secs=timeout_secs)
        try:
            self = cls(connection, send_timeout_secs=send_timeout_secs)
            self._owns_connection = True
            if announce:
                self.announce(capabilities=capabilities, metadata=metadata)
        except BaseException:
            await connection.close()
            raise
        return self

    async def close(self) -> None:
        """End everything; what was acked and announced is written out. Closing twice is fine."""
        for handle in list(self._handles):
            await handle.close()
        for channel in list(self._channels):
            await channel.close()
        if self._inbox is not None:
            await self._inbox.stop()
        if self._announcer is not None:
            await self._announcer.stop()
        await self._undelivered.stop()
        if self._owns_connection:
            await self.connection.flush()
            await self.connection.close()

    async def __aenter__(self) -> "HubClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def wait_closed(self) -> None:
        """Return when the connection has ended for good."""
        await self.connection.wait_closed()

    def announce(
        self,
        *,
        capabilities: Iterable[str] = (),
        metadata: Mapping[str, Any] | None = None,
        presence: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None,
    ) -> Announcer:
        """Begin to announce this agent, once a client; see `Announcer`."""
        if self._announcer is None:
            self._announcer = Announcer(
                self.connection, self.identity, capabilities=capabilities, metadata=metadata, presence=presence
            )
            self._announcer.start()
        return self._announcer

    # Sending: each raises as `Sender.send`, and BadName, BadPayload or TooLarge before anything is sent

    async def send_envelope(self, envelope: Envelope) -> SendReceipt:
        """Send an envelope that was made with `hub.protocol.make`; its `meta.from` must be this identity."""
        if envelope.meta.sender != self.identity:
            raise BadSettings(f"cannot send as {envelope.meta.sender}: this client is {self.identity}")
        return await self._sender.send(envelope)

    async def send(
        self,
        channel: str,
        payload: Any = None,
        *,
        kind: Kind = "message",
        reply_to: str | None = None,
        message_id: str | None = None,
    ) -> SendReceipt:
        """Send to a channel: whoever listens hears it; task, session and wave channels are kept by a durable hub.

        Args:
            channel: its name, without `channel.`.
            payload: any JSON value.
            kind: what it is.
            reply_to: the id of the message that it answers.
            message_id: its id, a fresh one when None.
        """
        return await self._send(channel, payload, None, kind, reply_to, message_id)

    async def send_to(
        self,
        to: str,
        payload: Any = None,
        *,
        channel: str = DIRECT,
        kind: Kind = "message",
        reply_to: str | None = None,
        message_id: str | None = None,
    ) -> SendReceipt:
        """Send a direct message to one identity.

        Args:
            to: the recipient.
            payload: any JSON value.
            channel: what the recipient sees as its channel.
            kind, reply_to, message_id: as `send`.
        """
        return await self._send(channel, payload, to, kind, reply_to, message_id)

    async def reply(self, envelope: Envelope, payload: Any = None, *, kind: Kind = "message") -> SendReceipt:
        """Answer a message: a direct one goes back to its sender, one of a channel to the same channel."""
        meta = envelope.meta
        to = meta.sender if meta.to is not None else None
        return await self._send(meta.channel, payload, to, kind, meta.id, None)

    async def publish_event(
        self, channel: str, event_type: str, data: Mapping[str, Any] | None = None, *, reply_to: str | None = None
    ) -> SendReceipt:
        """Send an event to a channel: kind `event`, `{"event_type": …, "data": {…}}`."""
        payload = {"event_type": event_type, "data": dict(data or {})}
        return await self._send(channel, payload, None, "event", reply_to, None)

    async def send_control(self, to: str, payload: Mapping[str, Any]) -> SendReceipt:
        """Send a control message to one identity (`cancel`, `session_start`, …; contract §7, §9)."""
        return await self._send(DIRECT, dict(payload), to, "control", None, None)

    async def _send(
        self, channel: str, payload: Any, to: str | None, kind: Kind, reply_to: str | None, message_id: str | None
    ) -> SendReceipt:
        envelope = make(
            sender=self.identity, channel=channel, payload=payload, to=to, kind=kind, reply_to=reply_to, id=message_id
        )
        return await self._sender.send(envelope)

    # Hearing

    async def subscribe(self, channel: str, callback: OnEnvelope | None = None) -> ChannelSubscription:
        """Hear a channel live: iterate what comes back, or pass a callback. Close it when done.

        Raises:
            BadName: it is no channel. An inbox is read with `inbox`.
        """
        subscription = ChannelSubscription(self.connection, subjects.channel(names.channel(channel)), callback)
        self._channels = [known for known in self._channels if not known.is_closed]
        self._channels.append(subscription)
        return await subscription.start()

    def inbox(self, callback: Callback | None = None, **options: Any) -> Inbox:
        """This identity's inbox: iterate it, or pass a callback and `start` it; see `Inbox`, also for the options.

        Raises:
            InboxIsOpen: this client reads it already.
        """
        if self._inbox is not None and self._inbox.state.mode is not Mode.STOPPED:
            raise InboxIsOpen(self.identity)
        self._inbox = Inbox(self.connection, callback=callback, observer=self._observe, **options)
        return self._inbox

    def _observe(self, message: InboxMessage) -> None:
        self._undelivered.take(message.envelope, message.payload)

    def _source(self) -> Source | None:
        return self._inbox.source if self._inbox is not None else None

    # Tasks

    async def delegate(
        self, to: str, prompt: str, *, payload: Mapping[str, Any] | None = None, task_id: str | None = None
    ) -> TaskHandle:
        """Give a worker a task; returns once the task is sent.

        Args:
            to: the worker.
            prompt: what it is to do.
            payload: more members for its handler.
            task_id: the task's id, a fresh one when None; its first 8 characters must be of `A-Z a-z 0-9 _ -`.

        Raises:
            BadName, BadPayload, TooLarge, NotSent, PermissionDenied, NotConnected: nothing was sent.
            SendUnconfirmed: it may be sent: `resume(error.envelope.meta.id, to)` follows it.
        """
        envelope_id = names.new_message_id() if task_id is None else names.message_id(task_id)
        envelope = make(
            sender=self.identity,
            channel=DIRECT,
            to=to,
            payload=task_payload(prompt, envelope_id, payload),
            id=envelope_id,
        )
        handle = await self._follow(envelope_id, to)
        try:
            handle.follow(await self._sender.send(envelope))
        except BaseException:
            await handle.close()
            raise
        return handle

    async def resume(self, task_id: str, to: str) -> TaskHandle:
        """Follow a task that was delegated before, by this process or another one, from its start.

        Args:
            task_id: the task's envelope id.
            to: the worker that it was delegated to.

        Raises:
            BadName: one of the two cannot be.
            NotConnected: the connection is closed.
        """
        handle = await self._follow(task_id, names.identity(to))
        handle.follow(None)
        return handle

    async def _follow(self, task_id: str, worker: str) -> TaskHandle:
        handle = TaskHandle(
            self.connection,
            self,
            delegator=self.identity,
            task_id=task_id,
            worker=worker,
            undelivered=self._undelivered,
            source=self._source,
        )
        self._handles = [known for known in self._handles if not known.is_closed]
        self._handles.append(handle)
        await handle.listen()
        return handle
