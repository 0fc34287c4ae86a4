"""Output of commands: results on stdout, all else on stderr; harmless at a terminal, quiet when a pipe breaks."""

import contextlib
import os
import sys
from typing import Any, TextIO

import msgspec


def harmless(text: str, *, keep: str = "") -> str:
    """The text with everything escaped that could steer a terminal or hide what stands there.

    Control characters, direction marks, lone surrogates and all else that does not print: `\\x1b`, `\\u202e`.

    Args:
        text: from wherever.
        keep: characters that stay, as `"\\n\\t"` where lines are wanted.
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign in keep else _escaped(sign) for sign in text)


def _escaped(sign: str) -> str:
    code = ord(sign)
    if sign == "\n":
        return "\\n"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def harmless_json(text: str) -> str:
    """JSON text with what does not print as `\\uXXXX`: the same JSON, and no terminal obeys it."""
    if text.isprintable():
        return text
    parts = []
    for sign in text:
        if sign.isprintable():
            parts.append(sign)
        else:
            units = sign.encode("utf-16-be", "surrogatepass")
            parts += [f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2)]
    return "".join(parts)


class Output:
    """A stream of a command; once its reader has gone, it takes everything and writes nothing.

    Attributes:
        is_terminal: somebody looks at it.
        is_broken: its reader has gone.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.is_terminal = stream is not None and stream.isatty()
        self.is_broken = stream is None  # started with a closed stdout

    def line(self, text: str) -> None:
        """Write a line, and write it now."""
        self.write(text + "\n")

    def json(self, value: Any) -> None:
        """Write a value as one line of JSON."""
        self.line(harmless_json(msgspec.json.encode(value).decode()))

    def write(self, text: str) -> None:
        """Write text as it is."""
        if self.is_broken or self._stream is None:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except UnicodeEncodeError:
            self._stream.write(text.encode("ascii", "backslashreplace").decode())
            self._stream.flush()
        except BrokenPipeError:
            self._break(self._stream)
        except OSError as error:
            self._break(self._stream)
            say(f"cannot write the output: {error.strerror or error}")

    def _break(self, stream: TextIO) -> None:
        """Let the interpreter's flush at exit end quietly too."""
        self.is_broken = True
        with contextlib.suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())


def stdout() -> Output:
    """Where results go."""
    return Output(sys.stdout)


def say(text: str) -> None:
    """A line for people on stderr."""
    Output(sys.stderr).line(harmless(text))
