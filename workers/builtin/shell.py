"""`shell`: a command a turn. The prompt goes to its stdin, or to where its arguments say `{prompt}`."""

import shlex
from typing import Final

import msgspec

from hub.protocol import TooLarge
from workers import commands
from workers.handlers import handler
from workers.turn import Turn

STDOUT_MOST_BYTES: Final = 8 * 1024 * 1024  # the largest message that any server of ours takes


class ShellOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of `shell`.

    Attributes:
        command: program and arguments in shell words; `{prompt}` in an argument is replaced by the prompt.
        use_shell: give the whole text to `sh -c` instead; the prompt then only goes to stdin, never into the text.
    """

    command: str
    use_shell: bool = False


class CommandFailed(Exception):
    """The command ended with an error."""


@handler("shell", concurrency=4, options=ShellOptions, runs_commands=True)
async def shell(turn: Turn, options: ShellOptions) -> str:
    """Run the command and return what it writes to stdout.

    Raises:
        CommandFailed: it ended with another code than 0; the text has the last 2000 characters of its stderr.
    """
    if options.use_shell:
        command: str | list[str] = options.command
        takes_stdin = True
    else:
        words = shlex.split(options.command)
        takes_stdin = not any("{prompt}" in word for word in words)
        command = [word.replace("{prompt}", turn.prompt) for word in words]
    finished = await commands.run(
        command,
        cwd=turn.workdir,
        stdin=turn.prompt.encode() if takes_stdin else b"",
        on_line=turn.stdout,
        stdout_most=STDOUT_MOST_BYTES,
    )
    if finished.exit_code != 0:
        raise CommandFailed(f"the command ended with {finished.exit_code}: {finished.tail}")
    if finished.stdout_bytes > STDOUT_MOST_BYTES:
        raise TooLarge("what the command wrote to stdout", finished.stdout_bytes, STDOUT_MOST_BYTES)
    text = finished.stdout.decode(errors="replace")
    return text.removesuffix("\n")
