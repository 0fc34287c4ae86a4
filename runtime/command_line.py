"""A Procfile command: run directly when it is plain words, by `/bin/sh -c` when it needs a shell. Pure.

Direct is better where it is possible: the process is the program itself and not a shell that has to pass signals on,
and a program that is not there is told apart from one that failed.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

_VARIABLE: Final = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_SHELL_CHARACTERS: Final = frozenset("|&;<>()`*?[]{}")
# Words that only a shell knows; what is a program too (echo, test, true) needs none.
_SHELL_WORDS: Final = frozenset(
    {"!", ".", ":", "case", "cd", "eval", "exec", "exit", "export", "for", "if", "read", "return", "set", "shift"}
    | {"source", "trap", "ulimit", "umask", "unset", "until", "wait", "while"}
)

CHILD_ONLY: Final = frozenset({"NOTIFY_SOCKET", "READY_FD", "WATCHDOG_USEC", "WATCHDOG_PID"})
"""Variables that are made for each start of a child: whoever needs one in the command line has a shell expand it."""


class UnsetVariable(ValueError):
    """A command names a variable that is not set; the name is in `name`."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"${name} is not set; set it in .env or the environment, or write ${{{name}:-default}} (a shell expands it)"
        )


class Variable(msgspec.Struct, frozen=True):
    """A `$NAME` inside a word."""

    name: str


Word = tuple[str | Variable, ...]


class Command(msgspec.Struct, frozen=True):
    """A parsed command.

    Attributes:
        text: as written.
        words: of a direct command, each as its parts; None: a shell runs `text`.
        why_shell: what needs the shell; empty for a direct command.
    """

    text: str
    words: tuple[Word, ...] | None
    why_shell: str = ""

    @property
    def is_direct(self) -> bool:
        """Does it run without a shell?"""
        return self.words is not None

    def argv(self, environ: Mapping[str, str]) -> list[str]:
        """What is executed. A variable's value stays one word, blanks in it or not.

        Raises:
            UnsetVariable: a variable of a direct command is not in `environ`.
        """
        if self.words is None:
            return ["/bin/sh", "-c", self.text]
        return ["".join(_value(part, environ) for part in word) for word in self.words]


def _value(part: str | Variable, environ: Mapping[str, str]) -> str:
    if isinstance(part, str):
        return part
    if part.name not in environ:
        raise UnsetVariable(part.name)
    return environ[part.name]


class _NeedsShell(Exception):
    """The text is for a shell; why is the message."""


def parse(text: str) -> Command:
    """Read a command.

    Raises:
        ValueError: a quote is not closed, or a backslash ends the line.
    """
    try:
        words = _words(text)
    except _NeedsShell as reason:
        return Command(text, None, str(reason))
    first = words[0]
    start = first[0] if first and isinstance(first[0], str) else ""
    if _ASSIGNMENT.match(start):
        return Command(text, None, f"assignment {start.partition('=')[0]}=")
    if first == (start,) and start in _SHELL_WORDS:
        return Command(text, None, f"shell word {start}")
    return Command(text, words)


def _words(text: str) -> tuple[Word, ...]:
    words: list[Word] = []
    parts: list[str | Variable] | None = None
    position = 0
    while position < len(text):
        character = text[position]
        if character.isspace():
            if parts is not None:
                words.append(_joined(parts))
            parts, position = None, position + 1
            continue
        if parts is None and character in "~#":
            raise _NeedsShell(f"character {character}")
        parts = [] if parts is None else parts
        if character == "'":
            end = text.find("'", position + 1)
            if end < 0:
                raise ValueError("expected a closing ' in the command")
            parts.append(text[position + 1 : end])
            position = end + 1
        elif character == '"':
            position = _double_quoted(text, position + 1, parts)
        elif character == "\\":
            if position + 1 == len(text):
                raise ValueError("expected a character behind the last backslash; a command is one line")
            parts.append(text[position + 1])
            position += 2
        elif character == "$":
            position = _variable(text, position, parts)
        elif character in _SHELL_CHARACTERS:
            raise _NeedsShell(f"character {character}")
        else:
            parts.append(character)
            position += 1
    if parts is not None:
        words.append(_joined(parts))
    return tuple(words)


def _double_quoted(text: str, position: int, parts: list[str | Variable]) -> int:
    parts.append("")  # "" is an empty word
    while position < len(text):
        character = text[position]
        if character == '"':
            return position + 1
        if character == "\\" and text[position + 1 : position + 2] in {'"', "\\", "$", "`"}:
            parts.append(text[position + 1])
            position += 2
        elif character == "$":
            position = _variable(text, position, parts)
        elif character == "`":
            raise _NeedsShell("character `")
        else:
            parts.append(character)
            position += 1
    raise ValueError('expected a closing " in the command')


def _variable(text: str, position: int, parts: list[str | Variable]) -> int:
    match = _VARIABLE.match(text, position)
    if match is None:
        raise _NeedsShell(f"expansion {text[position : position + 2]}")
    name = match[1] or match[2]
    if name in CHILD_ONLY:
        raise _NeedsShell(f"${name}, which only the child is given")
    parts.append(Variable(name))
    return match.end()


def _joined(parts: list[str | Variable]) -> Word:
    joined: list[str | Variable] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        else:
            joined.append(part)
    return tuple(joined)
