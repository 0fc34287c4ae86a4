"""Reader of the project's documents, for tests that compare what they say with what the code does."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def section(document: str, heading: str) -> str:
    """The text below a heading (any level), up to the next one of its level or higher."""
    text = (DOCS / document).read_text()
    found = re.search(rf"^(#+) {re.escape(heading)}[^\n]*\n(.*?)(?=^#{{1,6}} |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"{document} has no heading {heading!r}"
    level = len(found[1])
    body = text[found.start(2) :]
    end = re.search(rf"^#{{1,{level}}} ", body, re.MULTILINE)
    return body[: end.start()] if end else body


def table(document: str, heading: str) -> list[list[str]]:
    """The rows of the first table below a heading, without its head; cells as they are written."""
    lines = section(document, heading).splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("|---"))
    rows: list[list[str]] = []
    for line in lines[start + 1 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def words(text: str) -> list[str]:
    """What stands between backquotes."""
    return re.findall(r"`([^`\n]+)`", text)
