"""The conversation of one turn with an agent of the Agent Client Protocol: start, session, prompt, end."""

import asyncio
import contextlib
from typing import Any, Final, cast

import acp
import msgspec
import structlog
from acp.client.connection import ClientSideConnection
from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    AllowedOutcome,
    ClientCapabilities,
    DeniedOutcome,
    Implementation,
    PermissionOption,
    RequestPermissionResponse,
    TextContentBlock,
    ToolCallStart,
    ToolCallUpdate,
)
from pydantic import ValidationError

from hub.protocol import TooLarge
from workers import commands
from workers.builtin.acp import INSTALL, AcpOptions
from workers.builtin.json_lines_cli import (
    RESULT_MOST_BYTES,
    SESSION_KEY,
    AgentFailed,
    JsonLines,
    missing,
    session_of,
    shown,
    words,
)
from workers.turn import Turn

log = structlog.get_logger(__name__)

OPEN_SECS: Final = 60.0  # for its start and its session; an agent that loads a long one takes a while
CANCEL_SECS: Final = 1.0  # to end a prompt that is cancelled, before its process gets SIGTERM
LEAVE_SECS: Final = 2.0  # to leave by itself when its stdin closes

_WANTED: Final = {"reject": ("reject_once", "reject_always"), "allow": ("allow_once", "allow_always")}


class Stdio:
    """Messages on the stdin and stdout of an agent: a `Transport` of the library that also stands lines of no JSON."""

    def __init__(self, process: asyncio.subprocess.Process, turn: Turn) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout
        self._lines = JsonLines(turn.stdout)
        self._waiting: list[dict[str, Any]] = []

    async def send(self, message: dict[str, Any]) -> None:
        """Write one."""
        self._stdin.write(msgspec.json.encode(message) + b"\n")
        await self._stdin.drain()

    async def receive(self) -> dict[str, Any] | None:
        """The next one; None at the end."""
        while not self._waiting:
            chunk = await self._stdout.read(commands.CHUNK_BYTES)
            if not chunk:
                self._waiting = self._lines.end()
                break
            self._waiting = self._lines.take(chunk)
        return self._waiting.pop(0) if self._waiting else None

    async def close(self) -> None:
        """End its stdin, which is how it is told to leave."""
        self._stdin.close()


class Listener:
    """What the agent tells and asks us.

    Attributes:
        text: its answer so far.
        is_listening: False while it repeats what was said in an older turn.
    """

    def __init__(self, turn: Turn, permission: str) -> None:
        self.text: list[str] = []
        self.is_listening = False
        self._turn = turn
        self._wanted = _WANTED[permission]
        self._size = 0

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        """`session/update`."""
        if not self.is_listening:
            return
        match update:
            case AgentMessageChunk(content=TextContentBlock(text=text)):
                self._size += len(text.encode())
                if self._size <= RESULT_MOST_BYTES:
                    self.text.append(text)
                if text.strip():
                    self._turn.progress(shown(text), phase="message")
            case AgentThoughtChunk():
                self._turn.progress("thinking", phase="thinking")
            case ToolCallStart(title=title):
                self._turn.milestone(f"tool {shown(title)}")
            case AgentPlanUpdate(entries=entries):
                self._turn.milestone("plan", shown("; ".join(entry.content for entry in entries)))
            case _:
                pass

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **_: Any
    ) -> RequestPermissionResponse:
        """`session/request_permission`: answered at once, by the handler's setting."""
        chosen = next((one for kind in self._wanted for one in options if one.kind == kind), None)
        what = tool_call.title or tool_call.tool_call_id
        self._turn.milestone(f"permission {shown(what)}", chosen.kind if chosen is not None else "cancelled")
        if chosen is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen.option_id))

    def answer(self) -> str:
        """Its whole answer.

        Raises:
            TooLarge: it fits into no message.
        """
        if self._size > RESULT_MOST_BYTES:
            raise TooLarge("what the agent answered", self._size, RESULT_MOST_BYTES)
        return "".join(self.text)


async def hold(turn: Turn, options: AcpOptions) -> str:
    """Start the agent, hold one turn's conversation, end it with all that it started.

    Raises:
        as `workers.builtin.acp.acp`.
    """
    command = words(options.command, option="command")
    pipe = asyncio.subprocess.PIPE
    guarded = await commands.Guarded.start(command, cwd=turn.workdir, stdin=pipe, stdout=pipe, stderr=pipe)
    tail = commands.Tail()
    errors = asyncio.create_task(commands.read_all(guarded.process.stderr, tail.take))
    listener = Listener(turn, options.permission)
    connection = acp.connect_to_agent(cast("acp.Client", listener), Stdio(guarded.process, turn))
    try:
        answer = await _converse(connection, listener, turn, options)
    except (acp.RequestError, ConnectionError, ValidationError) as error:
        await guarded.end()
        await asyncio.wait({errors}, timeout=commands.DRAIN_SECS)
        code, said = guarded.process.returncode, tail.text()
        if code == commands.CANNOT_START and said.startswith("cannot start "):
            raise missing(command[0], said, INSTALL) from error
        raise AgentFailed(f"{command[0]}: {_reason(error)}" + (f"; stderr: {said}" if said else "")) from error
    else:
        await connection.close()  # an agent may have to write its session down before it leaves
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECS):
                await guarded.process.wait()
        return answer
    finally:
        await connection.close()
        await guarded.end()
        errors.cancel()
        await asyncio.gather(errors, return_exceptions=True)


async def _converse(connection: ClientSideConnection, listener: Listener, turn: Turn, options: AcpOptions) -> str:
    try:
        async with asyncio.timeout(OPEN_SECS):
            session = await _open(connection, turn, options)
    except TimeoutError:
        raise AgentFailed(f"the agent did not begin a session within {OPEN_SECS:g} s") from None
    listener.is_listening = True
    prompt = asyncio.ensure_future(
        connection.prompt(session_id=session, prompt=[TextContentBlock(type="text", text=turn.prompt)])
    )
    try:
        response = await asyncio.shield(prompt)
    except asyncio.CancelledError:
        await _cancel(connection, session, prompt)
        raise
    if response.stop_reason != "end_turn":
        raise AgentFailed(f"the agent stopped before its end: {response.stop_reason}")
    answer = listener.answer()
    turn.context[SESSION_KEY] = session
    return answer


async def _open(connection: ClientSideConnection, turn: Turn, options: AcpOptions) -> str:
    """Get to know each other, and begin the session or go on with it; returns its id."""
    agent = await connection.initialize(
        protocol_version=acp.PROTOCOL_VERSION,
        client_capabilities=ClientCapabilities(),
        client_info=Implementation(name="nats-hub", version="1"),
    )
    if agent.protocol_version != acp.PROTOCOL_VERSION:
        raise AgentFailed(f"expected protocol version {acp.PROTOCOL_VERSION}, the agent has {agent.protocol_version}")
    cwd = str(turn.workdir.resolve())
    session = session_of(turn)
    can_load = agent.agent_capabilities is not None and agent.agent_capabilities.load_session
    if session is not None and can_load:
        await connection.load_session(cwd=cwd, session_id=session, mcp_servers=[])
    else:
        if session is not None:
            turn.milestone("new conversation", "this agent cannot load an older one")
        session = (await connection.new_session(cwd=cwd, mcp_servers=[])).session_id
    if options.mode is not None:
        await connection.set_session_mode(session_id=session, mode_id=options.mode)
    return session


async def _cancel(connection: ClientSideConnection, session: str, prompt: "asyncio.Future[Any]") -> None:
    """Ask the agent to stop, and give it a moment; its process is ended afterwards in any case."""
    try:
        async with asyncio.timeout(CANCEL_SECS):
            await connection.cancel(session_id=session)
            await asyncio.wait({prompt})
    except (TimeoutError, ConnectionError) as error:
        log.info("the agent did not answer its cancel", error=str(error))
    prompt.cancel()
    await asyncio.gather(prompt, return_exceptions=True)


def _reason(error: Exception) -> str:
    if isinstance(error, acp.RequestError):
        login = " (log in with its own program first)" if error.code == acp.RequestError.auth_required().code else ""
        details = f": {shown(error.data)}" if error.data else ""
        return f"{error}{login}{details}"
    if isinstance(error, ConnectionError):
        return "the agent ended in the middle of the conversation"
    return f"the agent's answer does not fit the protocol: {shown(str(error))}"
