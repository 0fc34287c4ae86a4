"""`hub-watch`: shows live what goes over the hub: a session, a wave, a task, an agent, a channel, or all."""

import asyncio
import sys
from collections import OrderedDict
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final

import msgspec
import typer

from hub.cli.envelope_line import MOST_SHOWN, envelope_line
from hub.cli.line_writer import LineWriter
from hub.cli.options import CONNECT_SECS, As, Connecting, ConnectTimeout, Json, Verbose, connects
from hub.cli.output import harmless, harmless_json, say
from hub.cli.running import CommandError, connection_watched, console_script, run_command
from hub.delivery.connection import Connection
from hub.delivery.errors import PermissionDenied
from hub.delivery.nats_client import Incoming
from hub.protocol import BadEnvelope, Envelope, names, parse, subjects
from hub.service.exits import Exit

HELP: Final = """Show live what goes over the hub.

\b
  session ID     what is said in a session
  wave ID        a wave's events and the traffic of its tasks
  task ID        a task's progress and result, by the id of its envelope
  agent ID       what an identity sends and what is sent to it
  channel NAME   a channel, without the prefix `channel.`
  all            everything

What went by before is not shown: sessions, waves and tasks keep their traffic for a day, ask the history for it. It
takes nothing away from anybody: who reads an inbox still gets what is shown here. After a lost connection it goes on
by itself and says that there is a gap. In bound mode an agent sees its own inbox, task, session and wave traffic and
the channels that it was granted; an operator sees all.

Each message is one line, cut at 2000 characters; what could steer a terminal is shown escaped. With --json it is one
object a line: {"subject", "received_at", "envelope"}.

\b
Exit codes:
  0    --count messages were shown, or the reader of the output has gone
  1    no server, or no permission
  2    wrong usage
  130  ended by Ctrl-C

\b
Examples:
  hub-watch all
  hub-watch agent bob --identity bob
  hub-watch task 7f9c24e8-6a2b-4e5f-9c1d-2b3a4c5d6e7f
  hub-watch wave release-7 --json | jq .envelope.payload
"""

_REMEMBERED: Final = 4096  # a router that retries a publish is heard twice
_END_SECS: Final = 2.0


class What(StrEnum):
    """What is watched."""

    SESSION = "session"
    WAVE = "wave"
    TASK = "task"
    AGENT = "agent"
    CHANNEL = "channel"
    ALL = "all"


class Target(msgspec.Struct, frozen=True):
    """What to listen on.

    Attributes:
        wide: the subjects that show all of it.
        narrow: those that an agent of its own may listen on, when the wide ones are denied.
        agent: only what this identity sends or is sent; empty for no filter.
    """

    wide: tuple[str, ...]
    narrow: tuple[str, ...] = ()
    agent: str = ""

    def takes(self, envelope: Envelope) -> bool:
        """Is this message meant?"""
        return not self.agent or self.agent in (envelope.meta.sender, envelope.meta.to)


def target(what: What, name: str | None) -> Target:
    """The subjects for what is to be watched.

    Raises:
        BadName: the name breaks its rule.
        CommandError: a name is missing, or there is one too many.
    """
    if (name is None) != (what is What.ALL):
        hint = "takes no name" if what is What.ALL else "needs an ID" if what is not What.CHANNEL else "needs a NAME"
        raise CommandError(f"`hub-watch {what}` {hint}: see hub-watch --help", Exit.USAGE)
    if name is None:
        return Target(("channel.>",), subjects.TASKS_ALL)
    if what is What.CHANNEL:
        return Target((subjects.channel(names.channel(name)),))
    if what is What.TASK:
        return Target((subjects.channel(names.task_channel(name)),))
    if what is What.AGENT:
        identity = names.identity(name)
        return Target(("channel.>",), (subjects.inbox(identity), *subjects.TASKS_ALL), identity)
    each = subjects.channel(f"{what}.{names.token(name, f'{what} id')}")
    return Target((each, f"{each}.>") if what is What.WAVE else (each,))


@connects
def watch(
    *,
    connecting: Connecting,
    what: Annotated[What, typer.Argument(metavar="WHAT", help="session, wave, task, agent, channel or all.")],
    name: Annotated[str | None, typer.Argument(metavar="[ID|NAME]", help="Which one; none for all.")] = None,
    identity: As = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", metavar="N", min=1, help="End after so many messages.")
    ] = None,
    connect_timeout: ConnectTimeout = CONNECT_SECS,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    async def work() -> Exit:
        wanted = target(what, name)
        connection = await Connection.open(
            connecting.settings(identity), name="hub-watch", timeout_secs=connect_timeout
        )
        try:
            async with connection_watched(connection):
                return await _Watch(connection, wanted, count=count, as_json=json).run()
        finally:
            await connection.close()

    run_command("hub-watch", work, verbose=verbose)


class _Watch:
    """One watch: what was shown, and until when it goes on."""

    def __init__(self, connection: Connection, wanted: Target, *, count: int | None, as_json: bool) -> None:
        self._connection = connection
        self._target = wanted
        self._left = count
        self._as_json = as_json
        self._shown: OrderedDict[tuple[str, str, str], None] = OrderedDict()
        self._enough = asyncio.Event()
        self._writer: LineWriter | None = None
        self._said_dropped = 0

    async def run(self) -> Exit:
        """Show until there is enough, nobody reads, or the connection ends for good."""
        if sys.stdout is None:
            raise CommandError("stdout is closed: there is nowhere to show anything", Exit.USAGE)
        self._writer = LineWriter(sys.stdout.fileno())
        watched = await self._listen()
        remove = self._connection.on_reconnect(self._on_reconnect)
        say(f"watching {', '.join(watched)} at {self._connection.settings.shown_servers}; Ctrl-C ends")
        waits = {
            asyncio.create_task(self._enough.wait(), name="enough"),
            asyncio.create_task(self._writer.ended.wait(), name="reader-gone"),
            asyncio.create_task(self._connection.wait_closed(), name="lost"),
        }
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if self._connection.is_closed:
                raise CommandError(f"the connection has ended for good: {self._connection.last_error}")
            return Exit.OK
        finally:
            remove()
            for wait in waits:
                wait.cancel()
            if not self._writer.ended.is_set():
                await self._writer.close(within_secs=_END_SECS)

    async def _listen(self) -> tuple[str, ...]:
        denied = await self._subscribe(self._target.wide)
        if not denied:
            return self._target.wide
        narrow = await self._subscribe(self._target.narrow) if self._target.narrow else denied
        allowed = tuple(subject for subject in self._target.narrow if subject not in narrow)
        if not allowed:
            raise PermissionDenied("subscribe", denied[0], self._connection.identity)
        say(f"not all of it: {self._connection.identity or 'this connection'} may not subscribe {', '.join(denied)}")
        return allowed

    async def _subscribe(self, wanted: tuple[str, ...]) -> tuple[str, ...]:
        """Subscribe; returns what the server denied."""
        for subject in wanted:
            await self._connection.client.subscribe_direct(subject, self._on_message)
        if not await self._connection.flush():
            raise CommandError("the server did not confirm the subscription: try again")
        denied = self._connection.denied
        return tuple(subject for subject in wanted if ("subscribe", subject.lower()) in denied)

    def _on_message(self, message: Incoming) -> None:
        if self._enough.is_set():
            return
        now = datetime.now().astimezone()
        try:
            envelope = parse(message.data)
        except BadEnvelope as error:
            if not self._target.agent:
                self._show(self._undecodable(message, now, str(error)))
            return
        if not self._target.takes(envelope) or self._is_repeat(message.subject, envelope):
            return
        if self._as_json:
            # The envelope as it came, member for member; only blanks outside of strings are gone.
            compact = msgspec.json.format(envelope.body, indent=-1).decode()
            head = msgspec.json.encode({"subject": message.subject, "received_at": now}).decode()
            self._show(harmless_json(f'{head[:-1]},"envelope":{compact}}}'))
        else:
            self._show(envelope_line(envelope, at=now))

    def _undecodable(self, message: Incoming, now: datetime, reason: str) -> str:
        data = message.data.decode("utf-8", "backslashreplace")
        if self._as_json:
            shown = {"subject": message.subject, "received_at": now, "undecodable": reason, "data": data}
            return harmless_json(msgspec.json.encode(shown).decode())
        return harmless(f"{now:%H:%M:%S}  {message.subject}  no envelope ({reason}): {data[:MOST_SHOWN]}")

    def _is_repeat(self, subject: str, envelope: Envelope) -> bool:
        key = (subject, envelope.meta.sender, envelope.meta.id)
        if key in self._shown:
            return True
        self._shown[key] = None
        if len(self._shown) > _REMEMBERED:
            self._shown.popitem(last=False)
        return False

    def _show(self, line: str) -> None:
        assert self._writer is not None
        if not self._writer.offer(line):
            if self._writer.dropped >= 2 * self._said_dropped:  # 1, 2, 4, …: not a line a message
                self._said_dropped = self._writer.dropped
                say(f"the reader of the output is too slow: {self._writer.dropped} messages were not shown")
            return
        if self._left is not None:
            self._left -= 1
            if self._left <= 0:
                self._enough.set()

    async def _on_reconnect(self) -> None:
        say("reconnected; what went by meanwhile is missing here")


def hub_watch() -> None:
    """Run the console script `hub-watch`."""
    console_script("hub-watch", watch, HELP)
