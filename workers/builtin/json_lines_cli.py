"""The runner of agents that are command lines: a process a turn, JSON lines on stdout, a result at the end."""

import shlex
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from hub.protocol import TooLarge
from workers import commands
from workers.handlers import Reject
from workers.turn import Turn

LINE_MOST_BYTES: Final = 16 * 1024 * 1024  # a tool's output may be in one; the largest message of ours is half of it
RESULT_MOST_BYTES: Final = 8 * 1024 * 1024  # the largest message that any server of ours takes
ARGUMENT_MOST_BYTES: Final = 100_000  # Linux takes 128 KiB in one argument; a longer prompt goes to stdin
SHOWN_CHARACTERS: Final = 300  # of a text or of a tool's input, for people

SESSION_KEY: Final = "agent_session"  # in the turn's context: the agent's own id of the conversation


class AgentFailed(Exception):
    """The agent ended without an answer."""


class AgentMissing(Exception):
    """The agent's program is not there."""


class Heard(msgspec.Struct):
    """What an agent has said so far.

    Attributes:
        session: its own id of the conversation.
        result: its answer.
        error: why it has none.
        is_over: it said that the turn is over.
    """

    session: str | None = None
    result: str | None = None
    error: str | None = None
    is_over: bool = False


Hear = Callable[[dict[str, Any], Heard, Turn], None]


class JsonLines:
    """Makes objects of a stream's pieces. What is no object, or too long, is left out and counted.

    Args:
        on_other: called with the text of a line that is no JSON object.

    Attributes:
        left_out: how many lines were no JSON object, or too long.
    """

    def __init__(self, on_other: Callable[[str], Any], line_most_bytes: int = LINE_MOST_BYTES) -> None:
        self.left_out = 0
        self._on_other = on_other
        self._most = line_most_bytes
        self._line = bytearray()
        self._is_too_long = False

    def take(self, chunk: bytes) -> list[dict[str, Any]]:
        """Take a piece; returns the objects that it completes."""
        found = []
        *whole, rest = chunk.split(b"\n")
        for part in whole:
            self._add(part)
            found += self._finish()
        self._add(rest)
        return found

    def end(self) -> list[dict[str, Any]]:
        """The stream has ended: a last line may have no end of its own."""
        return self._finish()

    def _add(self, part: bytes) -> None:
        if len(self._line) + len(part) > self._most:
            self._is_too_long = True
            self._line.clear()
        if not self._is_too_long:
            self._line += part

    def _finish(self) -> list[dict[str, Any]]:
        line, is_too_long = bytes(self._line).strip(), self._is_too_long
        self._line.clear()
        self._is_too_long = False
        if is_too_long:
            self.left_out += 1
            self._on_other(f"(a line of more than {self._most} bytes is left out)")
            return []
        if not line:
            return []
        try:
            return [msgspec.json.decode(line, type=dict[str, Any])]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self.left_out += 1
            self._on_other(line[: 4 * SHOWN_CHARACTERS].decode(errors="replace")[:SHOWN_CHARACTERS])
            return []


async def ask(turn: Turn, arguments: Sequence[str], hear: Hear, *, stdin_words: Sequence[str], install: str) -> str:
    """Run an agent's program for one turn, in the turn's folder; its session goes to the turn's context.

    Args:
        turn: whose prompt it gets, after `--`; one that no argument can hold goes to its stdin.
        arguments: the program and all that stands before the prompt.
        hear: reads one event into what was heard, and tells people of it.
        stdin_words: what stands in the place of the prompt when that is on stdin.
        install: what to do when the program is missing.

    Raises:
        Reject: there is no prompt.
        AgentMissing: the program cannot be started.
        AgentFailed: it said so, ended with another code than 0, or without a result.
        TooLarge: its answer fits into no message.
    """
    if not turn.prompt.strip():
        raise Reject("expected a prompt")
    prompt = turn.prompt.encode()
    is_argument = len(prompt) <= ARGUMENT_MOST_BYTES and b"\0" not in prompt
    heard = Heard()
    lines = JsonLines(turn.stdout)
    faults: list[Exception] = []

    def take(chunk: bytes) -> None:
        try:
            for event in lines.take(chunk):
                hear(event, heard, turn)
        except Exception as error:  # noqa: BLE001 - raised below: here it would only end the reading of the pipe
            faults.append(error)

    finished = await commands.run(
        [*arguments, *(["--", turn.prompt] if is_argument else stdin_words)],
        cwd=turn.workdir,
        stdin=b"" if is_argument else prompt,
        on_chunk=take,
        stdout_most=0,
    )
    for event in lines.end():
        hear(event, heard, turn)
    if faults:
        raise faults[0]
    _check(finished, heard, lines, shlex.join(arguments[:1]), install)
    result = heard.result or ""
    if (size := len(result.encode())) > RESULT_MOST_BYTES:
        raise TooLarge("what the agent answered", size, RESULT_MOST_BYTES)
    if heard.session is not None:
        turn.context[SESSION_KEY] = heard.session
    return result


def session_of(turn: Turn) -> str | None:
    """The agent's id of the conversation that this turn goes on with."""
    session = turn.context.get(SESSION_KEY)
    return session if isinstance(session, str) and session else None


def words(text: str, *, option: str) -> list[str]:
    """Shell words of a setting.

    Raises:
        ValueError: a quote in it is not closed.
    """
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ValueError(f"{option}: expected shell words, got {text!r}: {error}") from None


def shown(value: Any) -> str:
    """A text, or anything else as JSON, on one line and cut, for people."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    text = " ".join(text[: 4 * SHOWN_CHARACTERS].split())
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


def missing(program: str, why: str, install: str) -> AgentMissing:
    """The error for a program that is not there."""
    return AgentMissing(f"{why or f'cannot start {program}'}. {install}; or say where it is: --option command=…")


def _check(finished: commands.Finished, heard: Heard, lines: JsonLines, program: str, install: str) -> None:
    if finished.exit_code == commands.CANNOT_START and finished.tail.startswith("cannot start "):
        raise missing(program, finished.tail, install)
    if finished.exit_code != 0:
        said = f"{heard.error}; stderr: " if heard.error else ""
        raise AgentFailed(f"{program} ended with {finished.exit_code}: {said}{finished.tail}")
    if heard.error is not None:
        raise AgentFailed(f"{program}: {heard.error}" + (f"; stderr: {finished.tail}" if finished.tail else ""))
    if not heard.is_over:
        left_out = f" ({lines.left_out} lines were no JSON objects or too long)" if lines.left_out else ""
        raise AgentFailed(f"{program} ended without a result{left_out}: {finished.tail}")
