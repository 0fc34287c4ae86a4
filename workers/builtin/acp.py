"""`acp`: a turn of any agent that speaks the Agent Client Protocol on its stdin and stdout."""

import asyncio
import importlib
from typing import Final, Literal

import msgspec

from workers.builtin.json_lines_cli import words
from workers.handlers import Reject, handler
from workers.turn import Turn

INSTALL: Final = "Install the agent"


class AcpMissing(Exception):
    """The library of the protocol is not installed: pip install 'nats-hub[acp]'."""


class AcpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of `acp`.

    Attributes:
        command: the agent's program and its arguments, in shell words.
        permission: what it is told when it asks for one. `reject`: the option to reject this once, or else always;
            `allow`: the option to allow this once, or else always. An agent that offers none of these is told that the
            question was cancelled.
        mode: the session mode that it is set to, by the id that the agent gives it; None: its own choice.
    """

    command: str
    permission: Literal["reject", "allow"] = "reject"
    mode: str | None = None

    def __post_init__(self) -> None:
        if not words(self.command, option="command"):
            raise ValueError("command: expected a program, got nothing")


@handler("acp", options=AcpOptions)
async def acp(turn: Turn, options: AcpOptions) -> str:
    """Have an agent work on the prompt in the turn's folder, and return what it said.

    Raises:
        Reject: there is no prompt.
        AcpMissing: the library is not installed.
        AgentMissing, AgentFailed, TooLarge: as `json_lines_cli.ask`.
    """
    if not turn.prompt.strip():
        raise Reject("expected a prompt")
    try:
        # A second of reading schemas, by those alone who use it, and not in the loop.
        conversation = await asyncio.to_thread(importlib.import_module, "workers.builtin.acp_conversation")
    except ModuleNotFoundError as error:
        if error.name != "acp":
            raise
        raise AcpMissing("the Agent Client Protocol's library is missing: pip install 'nats-hub[acp]'") from error
    answer: str = await conversation.hold(turn, options)
    return answer
