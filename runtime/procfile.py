"""Procfile parser: pure, from bytes to named lines; every mistake with its line number."""

import re
from typing import Final

import msgspec

from runtime.errors import BadConfig, Problem
from runtime.text_file import numbered_lines

NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")  # also a file's name: 64 keeps `<name>.<index>.log` short everywhere
RESERVED: Final = {
    "nats-server": "the supervisor's own server has this name",
    "runtime": "the supervisor's own log has this name",
}


class ProcfileLine(msgspec.Struct, frozen=True):
    """One process of a Procfile.

    Attributes:
        name: its name.
        command: the command as written, without surrounding blanks.
        line: where it stands, from 1.
    """

    name: str
    command: str
    line: int


def parse(data: bytes, file: str = "Procfile") -> tuple[ProcfileLine, ...]:
    """Read a Procfile: `name: command`, blank lines, and lines that begin with `#`.

    Args:
        data: the file's bytes.
        file: its name in messages.

    Raises:
        BadConfig: with every mistake in it.
    """
    numbered, problems = numbered_lines(data, file)
    found: dict[str, ProcfileLine] = {}
    by_folded: dict[str, ProcfileLine] = {}
    for number, text in numbered:
        stripped = text.strip()
        if not stripped or stripped.startswith("#"):
            continue
        name, colon, command = (part.strip() for part in stripped.partition(":"))
        if problem := _mistake(name, colon, command):
            problems.append(Problem(file, number, problem))
        elif (earlier := by_folded.get(name.lower())) is not None:
            same = (
                "the same name" if earlier.name == name else f"{earlier.name!r}, the same but for upper and lower case"
            )
            problems.append(
                Problem(
                    file, number, f"expected each name once, but line {earlier.line} has {same} as {name!r}; rename one"
                )
            )
        else:
            found[name] = by_folded[name.lower()] = ProcfileLine(name, command, number)
    if not found and not problems:
        problems.append(Problem(file, 0, "expected at least one line `name: command`, found none"))
    if problems:
        raise BadConfig(sorted(problems, key=lambda problem: problem.line))
    return tuple(found.values())


def _mistake(name: str, colon: str, command: str) -> str | None:
    if not colon:
        return f"expected `name: command`, found {name!r} without a colon"
    if not NAME.fullmatch(name):
        return f"expected a name of 1 to 64 characters of A-Z a-z 0-9 _ -, found {name!r}"
    if name in RESERVED:
        return f"expected another name than {name!r}: {RESERVED[name]}"
    if not command:
        return f"expected a command behind `{name}:`, found none"
    return None
