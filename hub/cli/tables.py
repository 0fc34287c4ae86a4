"""Tables of commands: at a terminal by its width, in a pipe one aligned line a row; harmless either way."""

import io
import shutil
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hub.cli.output import Output, harmless

MOST_CELL = 2000  # characters of one cell; `--json` shows all of it


def show_table(out: Output, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Write a table; without rows it writes only its head, and that only at a terminal."""
    cells = [[_cell(value) for value in row] for row in rows]
    if out.is_terminal:
        table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
        for column in columns:
            table.add_column(Text(column), overflow="fold")
        for row in cells:
            table.add_row(*(Text(cell) for cell in row))
        out.write(_rendered(table))
        return
    if not cells:
        return
    widths = [max(len(line[place]) for line in [list(columns), *cells]) for place in range(len(columns))]
    for line in [list(columns), *cells]:
        out.line("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def show_members(out: Output, members: Sequence[tuple[str, object]]) -> None:
    """Write the members of one record, a line each; those that are None are left out."""
    known = [(name, value) for name, value in members if value is not None]
    width = max((len(name) for name, _ in known), default=0)
    for name, value in known:
        out.line(f"{name:{width}}  {harmless(str(value))}")


def _cell(value: object) -> str:
    text = harmless("" if value is None else str(value))
    return text if len(text) <= MOST_CELL else f"{text[:MOST_CELL]}…"


def _rendered(table: Table) -> str:
    buffer = io.StringIO()
    width = shutil.get_terminal_size().columns
    Console(file=buffer, force_terminal=True, width=width, highlight=False).print(table)
    return buffer.getvalue()
