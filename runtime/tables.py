"""`status` for people: a table, and below it what needs words. Pure."""

from typing import Any, Final

from runtime.logs.rendering import without_control

_HEAD: Final = ("PROCESS", "STATE", "PID", "UP", "RESTARTS", "MEMORY", "CPU", "LAST EXIT", "REPORTS")


def status(report: dict[str, Any]) -> str:
    """The whole report."""
    rows = [_HEAD, *(_row(replica) for replica in report["replicas"])]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    ready = report["ready_after_secs"]
    head = (
        f"up is {report['state']}: pid {report['pid']}, {duration(report['uptime_secs'])}"
        f", {size(report['memory_bytes'])}" + (f", all ready after {ready:.2f} s" if ready is not None else "")
    )
    lines = [
        head,
        f"state {report['state_dir']}, NATS {report['nats_url']} ({report['nats_source']})",
        "",
        *("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows),
    ]
    for replica in report["replicas"]:
        if replica.get("why"):
            lines += ["", f"{replica['label']} is {replica['state']}: {without_control(replica['why'])}"]
        if replica.get("tail"):
            lines += ["", f"{replica['label']}, last lines:"]
            lines += [f"  {without_control(line)}" for line in replica["tail"]]
    return "\n".join(lines)


def _row(replica: dict[str, Any]) -> tuple[str, ...]:
    figures = [f"{name}={value}" for name, value in replica.get("figures", {}).items()]
    last = replica.get("last_exit", "")
    if last:
        last = f"{last}, {duration(replica['last_exit_ago_secs'])} ago"
    if "next_start_in_secs" in replica:
        last += f", next start in {replica['next_start_in_secs']:.1f} s"
    return (
        replica["label"],
        replica["state"],
        str(replica.get("pid", "-")),
        duration(replica["uptime_secs"]) if "uptime_secs" in replica else "-",
        f"{replica.get('restarts_in_window', 0)}/{replica.get('restart_limit', 0)}",
        size(replica["memory_bytes"]) if "memory_bytes" in replica else "-",
        f"{replica['cpu_percent']:.1f}%" if "cpu_percent" in replica else "-",
        _cut(last),
        _cut(" ".join(filter(None, [replica.get("reports", ""), *figures])), 80),
    )


def _cut(text: str, characters: int = 48) -> str:
    """A cell; what does not fit stands below the table."""
    text = without_control(text) or "-"
    return text if len(text) <= characters else text[: characters - 1] + "…"


def duration(secs: float) -> str:
    """`8.2s`, `12m05s`, `3h07m`, `5d02h`."""
    if secs < 60:
        return f"{secs:.1f}s"
    minutes, seconds = divmod(int(secs), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d{hours:02}h"
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{seconds:02}s"


def size(count: int) -> str:
    """In MiB."""
    return f"{count / 1048576:.1f}M"
