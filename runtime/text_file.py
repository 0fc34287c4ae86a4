"""A text file as people really write them: BOM, CRLF, lone CR, bytes that are not UTF-8."""

import re
from typing import Final

from runtime.errors import Problem

_LINE_END: Final = re.compile(r"\r\n|\n|\r")


def numbered_lines(data: bytes, file: str) -> tuple[list[tuple[int, str]], list[Problem]]:
    """Cut a file into (line number from 1, text without its end).

    A byte-order mark is dropped; `\\n`, `\\r\\n` and a lone `\\r` end a line; the last line needs no end. A line
    that is not UTF-8 or holds a NUL becomes a problem and is left out.
    """
    lines: list[tuple[int, str]] = []
    problems: list[Problem] = []
    # surrogateescape keeps the line structure, so that a bad byte is reported with its line and hides no other mistake
    text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
    for number, line in enumerate(_LINE_END.split(text), start=1):
        if any("\udc80" <= character <= "\udcff" for character in line):
            problems.append(Problem(file, number, "expected UTF-8 text, found other bytes; save the file as UTF-8"))
        elif "\0" in line:
            problems.append(Problem(file, number, "expected text, found a NUL byte; remove it"))
        else:
            lines.append((number, line))
    return lines, problems
