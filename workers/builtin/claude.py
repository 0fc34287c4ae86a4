"""`claude`: a turn of Claude Code, headless. A session's next turn goes on with the same conversation."""

from typing import Any, Final

import msgspec

from workers.builtin.json_lines_cli import Heard, ask, session_of, shown, words
from workers.handlers import handler
from workers.turn import Turn

INSTALL: Final = "Install Claude Code (npm install -g @anthropic-ai/claude-code) and log in once"


class ClaudeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of `claude`.

    Attributes:
        command: the program, in shell words.
        model: which model; None: its own choice.
        permission_mode: what it may do unasked (`acceptEdits`, `plan`, `bypassPermissions`, …); None: its own choice.
            Nobody is there to be asked: what it would have to ask for, it does not do.
        args: more arguments, in shell words.
    """

    command: str = "claude"
    model: str | None = None
    permission_mode: str | None = None
    args: str = ""

    def __post_init__(self) -> None:
        if not words(self.command, option="command"):
            raise ValueError("command: expected a program, got nothing")
        words(self.args, option="args")


@handler("claude", options=ClaudeOptions)
async def claude(turn: Turn, options: ClaudeOptions) -> str:
    """Have Claude Code work on the prompt in the turn's folder, and return its answer.

    Raises:
        as `json_lines_cli.ask`.
    """
    arguments = [*words(options.command, option="command"), "-p", "--output-format", "stream-json", "--verbose"]
    if (session := session_of(turn)) is not None:
        arguments += ["--resume", session]
    if options.model is not None:
        arguments += ["--model", options.model]
    if options.permission_mode is not None:
        arguments += ["--permission-mode", options.permission_mode]
    arguments += words(options.args, option="args")
    return await ask(turn, arguments, hear, stdin_words=(), install=INSTALL)


def hear(event: dict[str, Any], heard: Heard, turn: Turn) -> None:
    """Read one line of its `stream-json`. Unknown kinds are passed over: new versions bring new ones."""
    match event:
        case {"type": "system", "subtype": "init", "session_id": str(session)}:
            heard.session = session
        case {"type": "assistant", "message": {"content": list(blocks)}}:
            for block in blocks:
                _show(block, turn)
        case {"type": "result"}:
            _end(event, heard)


def _show(block: Any, turn: Turn) -> None:
    match block:
        case {"type": "text", "text": str(text)} if text.strip():
            turn.progress(shown(text), phase="message")
        case {"type": "thinking"}:
            turn.progress("thinking", phase="thinking")
        case {"type": "tool_use", "name": str(name)}:
            turn.milestone(f"tool {name}", shown(block.get("input")))


def _end(event: dict[str, Any], heard: Heard) -> None:
    heard.is_over = True
    if isinstance(session := event.get("session_id"), str):
        heard.session = session
    subtype, result = event.get("subtype", "success"), event.get("result")
    if event.get("is_error") is True or subtype != "success":
        errors = event.get("errors")
        said = [result] if result else errors if isinstance(errors, list) else []
        heard.result, heard.error = None, ": ".join([str(subtype), *map(str, said)])
    else:
        heard.result, heard.error = result if isinstance(result, str) else "", None
