"""The table of a report, for people."""

from rich.console import Console
from rich.table import Table

from hub.bench.figures import Ratio, Report, Spread, Summary

_QUANTITIES = {"rate": "rate", "p50_ms": "p50", "p99_ms": "p99", "cpu_secs": "CPU"}


def show(console: Console, report: Report) -> None:
    """Print a report."""
    load = report.load
    console.print(f"\n[bold]{report.case}[/bold]: {report.title}")
    console.print(
        f"{load.messages} messages of {load.size} bytes, window {load.window}, {load.rounds} rounds in turn; "
        f"latency at {load.rate:g}/s. Medians (range)."
    )
    console.print(report.machine, style="dim")
    has_latency = any(one.p50_ms for one in report.contenders)
    has_history = any(one.history_secs is not None for one in report.contenders)
    table = Table("", "messages/s", "CPU s / 10 000", show_lines=True)
    if has_latency:
        table.add_column("p50 ms")
        table.add_column("p99 ms")
    if has_history:
        table.add_column("history after s")
    for one in report.contenders:
        cells = [f"{one.title}\n{one.messages} messages", _cell(one.rate, ".0f"), _cpu(one)]
        if has_latency:
            cells += [_cell(one.p50_ms, ".2f"), _cell(one.p99_ms, ".2f")]
        if has_history:
            cells.append("" if one.history_secs is None else f"{one.history_secs:.1f}")
        table.add_row(*cells)
    console.print(table)
    for ratio in report.ratios:
        console.print(_ratio(ratio))


def _cell(spread: Spread | None, form: str) -> str:
    return "" if spread is None else f"{spread.median:{form}}\n{spread.least:{form}}..{spread.most:{form}}"


def _cpu(one: Summary) -> str:
    parts = [f"{secs:.2f} {process}" for process, secs in one.cpu_secs_per_10k.items()]
    return "\n".join([f"{sum(one.cpu_secs_per_10k.values()):.2f}", *(parts if len(parts) > 1 else [])])


def _ratio(ratio: Ratio) -> str:
    standard = ratio.standard
    asked = ""
    if standard.at_least is not None:
        asked = f", at least {standard.at_least:g}"
    elif standard.at_most is not None:
        asked = f", at most {standard.at_most:g}"
    if asked:
        asked += ": [green]met[/green]" if ratio.is_met else ": [red]missed[/red]"
    spread = ratio.ratio
    return (
        f"{_QUANTITIES[standard.quantity]} {standard.subject} / {standard.comparator}: "
        f"[bold]{spread.median:.2f}[/bold] ({spread.least:.2f}..{spread.most:.2f}){asked}"
    )
