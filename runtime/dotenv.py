""".env parser: pure, from bytes to assignments. The rules are in docs/supervisor.md; nothing is expanded."""

import re
from typing import Final

import msgspec

from runtime.errors import BadConfig, Problem
from runtime.text_file import numbered_lines

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EXPORT: Final = re.compile(r"export\s+")
_COMMENT: Final = re.compile(r"\s#.*$|^#.*$")  # `#` begins a comment only at the start or after a blank
_AFTER_QUOTE: Final = re.compile(r"\s*(?:$|\s#.*$)")
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "$": "$"}


class Assignment(msgspec.Struct, frozen=True):
    """One `NAME=value` and the line on which it stands."""

    name: str
    value: str
    line: int


def parse(data: bytes, file: str = ".env") -> dict[str, Assignment]:
    """Read a `.env` file; of a name that is assigned twice the last one holds.

    Raises:
        BadConfig: with every mistake in it.
    """
    numbered, problems = numbered_lines(data, file)
    found: dict[str, Assignment] = {}
    for number, text in numbered:
        stripped = text.strip()
        if not stripped or stripped.startswith("#"):
            continue
        try:
            name, value = _assignment(stripped)
        except ValueError as error:
            problems.append(Problem(file, number, str(error)))
        else:
            found[name] = Assignment(name, value, number)
    if problems:
        raise BadConfig(sorted(problems, key=lambda problem: problem.line))
    return found


def _assignment(text: str) -> tuple[str, str]:
    name, equals, raw = _EXPORT.sub("", text, count=1).partition("=") if _EXPORT.match(text) else text.partition("=")
    name, raw = name.strip(), raw.strip()
    if not equals:
        raise ValueError(f"expected NAME=value, found {_cut(text)} without `=`")
    if not NAME.fullmatch(name):
        raise ValueError(f"expected a name of A-Z a-z 0-9 _ that begins with no digit, found {_cut(name)}")
    if raw[:1] in {"'", '"'}:
        return name, _quoted(raw)
    return name, _COMMENT.sub("", raw).rstrip()


def _quoted(raw: str) -> str:
    quote, position, value = raw[0], 1, []
    while position < len(raw) and raw[position] != quote:
        character = raw[position]
        if character == "\\" and quote == '"' and position + 1 < len(raw):
            position += 1
            value.append(_ESCAPES.get(raw[position], "\\" + raw[position]))
        else:
            value.append(character)
        position += 1
    if position >= len(raw):
        raise ValueError(
            f"expected a closing {quote} on the same line; a line break inside is written \\n in double quotes"
        )
    if not _AFTER_QUOTE.match(raw[position + 1 :]):
        raise ValueError(
            f"expected nothing but a comment behind the closing {quote}, found {_cut(raw[position + 1 :])}"
        )
    return "".join(value)


def _cut(text: str) -> str:
    return repr(text if len(text) <= 20 else text[:20] + "…")  # a value may be a secret: enough to find the place
