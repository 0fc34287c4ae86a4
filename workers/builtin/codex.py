"""`codex`: a turn of the Codex CLI, headless. A session's next turn goes on with the same thread."""

from typing import Any, Final, Literal

import msgspec

from workers.builtin.json_lines_cli import Heard, ask, session_of, shown, words
from workers.handlers import handler
from workers.turn import Turn

INSTALL: Final = "Install the Codex CLI (npm install -g @openai/codex) and log in once"

Sandbox = Literal["read-only", "workspace-write", "danger-full-access"]


class CodexOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of `codex`.

    Attributes:
        command: the program, in shell words.
        model: which model; None: its own choice.
        sandbox: what the commands that it runs may do; None: its own choice. Nobody is there to be asked for more.
        skip_git_repo_check: work also where there is no Git repository, as in a task's own folder.
        args: more arguments, in shell words; they stand before `resume`.
    """

    command: str = "codex"
    model: str | None = None
    sandbox: Sandbox | None = None
    skip_git_repo_check: bool = True
    args: str = ""

    def __post_init__(self) -> None:
        if not words(self.command, option="command"):
            raise ValueError("command: expected a program, got nothing")
        words(self.args, option="args")


@handler("codex", options=CodexOptions)
async def codex(turn: Turn, options: CodexOptions) -> str:
    """Have Codex work on the prompt in the turn's folder, and return its last message.

    Raises:
        as `json_lines_cli.ask`.
    """
    arguments = [*words(options.command, option="command"), "exec", "--json"]
    if options.skip_git_repo_check:
        arguments.append("--skip-git-repo-check")
    if options.model is not None:
        arguments += ["--model", options.model]
    if options.sandbox is not None:
        arguments += ["--sandbox", options.sandbox]
    arguments += words(options.args, option="args")
    if (thread := session_of(turn)) is not None:
        arguments += ["resume", thread]
    return await ask(turn, arguments, hear, stdin_words=("-",), install=INSTALL)


def hear(event: dict[str, Any], heard: Heard, turn: Turn) -> None:
    """Read one line of its `--json`. Unknown kinds are passed over: new versions bring new ones."""
    match event:
        case {"type": "thread.started", "thread_id": str(thread)}:
            heard.session = thread
        case {"type": "item.started" | "item.completed" as kind, "item": {"type": str(item_type)} as item}:
            _show(item_type, item, turn, heard, is_started=kind == "item.started")
        case {"type": "turn.completed"}:
            heard.is_over, heard.error = True, None  # errors before it were overcome, as a lost connection
        case {"type": "turn.failed"}:
            error = event.get("error")
            said = error.get("message") if isinstance(error, dict) else None
            heard.is_over, heard.error = True, str(said or heard.error or "the turn failed")
        case {"type": "error", "message": str(message)}:
            heard.error = message


def _show(item_type: str, item: dict[str, Any], turn: Turn, heard: Heard, *, is_started: bool) -> None:
    match item_type:
        case "agent_message" if not is_started and isinstance(text := item.get("text"), str):
            heard.result = text
            turn.progress(shown(text), phase="message")
        case "reasoning" if not is_started:
            turn.progress(shown(item.get("text") or "thinking"), phase="thinking")
        case "command_execution" if is_started:
            turn.milestone("tool command", shown(item.get("command")))
        case "mcp_tool_call" if is_started:
            turn.milestone(f"tool {item.get('server')}.{item.get('tool')}", shown(item.get("arguments")))
        case "web_search" if is_started:
            turn.milestone("tool web_search", shown(item.get("query")))
        case "file_change" if not is_started:
            turn.milestone("file_change", shown(item.get("changes")))
