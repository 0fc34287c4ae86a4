"""The inputs of commands: text and JSON from options, files and stdin."""

import sys
from pathlib import Path
from typing import Any, Final

import typer

from hub.cli.running import CommandError
from hub.protocol import BadPayload, decode_payload
from hub.service.exits import Exit

STDIN: Final = "-"
_MOST_BYTES: Final = 64 * 1024 * 1024  # eight of the largest messages: what is larger is a mistake, not a message


def text_of(given: str, option: str) -> str:
    """The text that an option or argument gives; `-` reads all of stdin.

    Args:
        given: what stands there.
        option: its name, for errors.

    Raises:
        CommandError: stdin is closed, too long, or no UTF-8.
    """
    if given != STDIN:
        return given
    if sys.stdin is None:
        raise CommandError(f"{option} -: expected text on stdin, and stdin is closed", Exit.USAGE)
    try:
        data = sys.stdin.buffer.read(_MOST_BYTES + 1)
    except KeyboardInterrupt:
        raise typer.Exit(int(Exit.INTERRUPTED)) from None
    return _decoded(data, f"{option} -: stdin")


def text_of_file(path: str, option: str) -> str:
    """The text of a file.

    Raises:
        CommandError: it cannot be read, is too long, or no UTF-8.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CommandError(f"{option} {path}: cannot read the file: {reason}", Exit.USAGE) from None
    return _decoded(data, f"{option} {path}")


def json_of(text: str, option: str) -> Any:
    """The JSON value that an option gives.

    Raises:
        CommandError: it is no JSON, or what no receiver would take.
    """
    try:
        return decode_payload(text.encode())
    except UnicodeEncodeError:
        raise CommandError(f"{option}: expected UTF-8 text, got other bytes", Exit.USAGE) from None
    except BadPayload as error:
        hint = "" if text.lstrip()[:1] in set('{["') else "; a text needs quotes in JSON, or goes without the option"
        raise CommandError(f"{option}: bad JSON: {error.path}: {error.detail}{hint}", Exit.USAGE) from None


def _decoded(data: bytes, source: str) -> str:
    if len(data) > _MOST_BYTES:
        raise CommandError(f"{source}: expected at most {_MOST_BYTES} bytes, got more", Exit.USAGE)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CommandError(f"{source}: expected UTF-8 text, got other bytes at {error.start}", Exit.USAGE) from None
