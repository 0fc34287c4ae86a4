"""The command line: `python -m runtime COMMAND`. argparse and late imports, so that `status` is quick.

Exit codes: those of contract §11 for `up`; the other commands end with 0 done, 1 error, 2 usage, 3 timed out.
"""

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from runtime import dotenv
from runtime.client import ControlClient, TimedOut
from runtime.errors import BadConfig, SupervisorError
from runtime.exits import Exit
from runtime.paths import StateDir, find_state_dir
from runtime.stop_signals import EarlySignals

_QUICK_SECS: Final = 10.0
_LONG_SECS: Final = 3600.0  # a rolling restart or a drain: the supervisor's own deadlines come first


def main(arguments: list[str], early: EarlySignals) -> int:
    """Run one command; returns its exit code."""
    options = _parser().parse_args(arguments)
    try:
        return int(_COMMANDS[options.command](options, early))
    except TimedOut as error:
        return _complain(options, error, Exit.TIMED_OUT)
    except SupervisorError as error:
        return _complain(options, error, Exit.ERROR)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # `status | head`: the reader has what it wants. Python must not complain at its own end either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return Exit.OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m runtime", description="The supervisor: runs a Procfile and keeps it up."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in (
        ("up", "run the Procfile until it is stopped"),
        ("dev", "as up, and restart what runs when a source file changes"),
        ("check", "show exactly what up would run, with the source of each value"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("--procfile", metavar="FILE", help="default: $PROCFILE, else ./Procfile")
        command.add_argument("--env-file", metavar="FILE", help="default: .env beside the Procfile")
        command.add_argument("--config", metavar="FILE", help="default: runtime.toml beside the Procfile")
        if name == "check":
            command.add_argument("--json", action="store_true", help="as JSON")
        else:
            command.add_argument("--no-color", action="store_true", help="no colours at a terminal")
        if name == "dev":
            command.add_argument(
                "--watch", metavar="DIR", action="append", help="default: the Procfile's folder; repeatable"
            )
    _with_name(commands, "status", "what runs, and why what does not", required=False).add_argument(
        "--lines", type=int, default=0, metavar="N", help="show the last N lines of each too (at most 100)"
    )
    _with_name(commands, "top", "status, again and again", required=False).add_argument(
        "--interval", type=float, default=1.0, metavar="SECS", help="between two looks (default 1)"
    )
    _with_name(commands, "start", "start what was stopped or given up")
    _timeout(_with_name(commands, "stop", "stop; it stays stopped until start or down"), "its stop_timeout_secs")
    _with_name(commands, "restart", "restart, one replica after another")
    _timeout(_with_name(commands, "drain", "stop intake, work off what is queued, then stop"), "300")
    scale = commands.add_parser("scale", help="run N replicas; what is removed is drained first")
    scale.add_argument("target", metavar="NAME=N")
    _timeout(scale, "its drain_timeout_secs")
    scale.add_argument("--json", action="store_true", help="as JSON")
    logs = _with_name(commands, "logs", "show what they logged", required=False)
    logs.add_argument("-f", "--follow", action="store_true", help="go on as they log")
    logs.add_argument(
        "-n", "--lines", type=int, default=100, metavar="N", help="the last N lines (default 100; 0: all)"
    )
    commands.add_parser("reload", help="read the configuration again and apply the difference").add_argument(
        "--json", action="store_true", help="as JSON"
    )
    down = commands.add_parser("down", help="stop everything, and return when up is gone")
    down.add_argument("--json", action="store_true", help="as JSON")
    _timeout(down, "120")
    return parser


def _with_name(commands: Any, command: str, text: str, *, required: bool = True) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(command, help=text)
    parser.add_argument("name", metavar="NAME", nargs=None if required else "?")
    parser.add_argument("--json", action="store_true", help="as JSON")
    return parser


def _timeout(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument("--timeout", type=float, metavar="SECS", help=f"(default {default})")


def _up(options: argparse.Namespace, early: EarlySignals) -> int:
    from runtime import up  # noqa: PLC0415
    from runtime.plan import ConfigFiles  # noqa: PLC0415

    companion = None
    if options.command == "dev":
        from runtime import dev  # noqa: PLC0415

        companion = dev.watcher(options.watch or [], options.procfile, os.environ)
    return up.run(
        ConfigFiles(procfile=options.procfile, env_file=options.env_file, config=options.config),
        os.environ,
        early,
        colours=False if options.no_color else None,
        companion=companion,
    )


def _check(options: argparse.Namespace, _: EarlySignals) -> int:
    from runtime import check  # noqa: PLC0415
    from runtime.plan import ConfigFiles, resolve  # noqa: PLC0415

    try:
        plan = resolve(
            ConfigFiles(procfile=options.procfile, env_file=options.env_file, config=options.config), os.environ
        )
    except BadConfig as error:
        return _complain(options, error, Exit.CONFIG)
    described = check.describe(plan)
    _say(msgspec.json.encode(described).decode() if options.json else check.render(described))
    return Exit.OK


def _status(options: argparse.Namespace, _: EarlySignals) -> int:
    from runtime import tables  # noqa: PLC0415

    data = _client().ask("status", within_secs=_QUICK_SECS, name=options.name, lines=options.lines)
    _answer(options, data, tables.status)
    return Exit.OK


def _top(options: argparse.Namespace, _: EarlySignals) -> int:
    import time  # noqa: PLC0415

    from runtime import tables  # noqa: PLC0415

    client = _client()
    is_terminal = sys.stdout.isatty()
    while True:
        data = client.ask("status", within_secs=_QUICK_SECS, name=options.name)
        if is_terminal and not options.json:
            sys.stdout.write("\x1b[H\x1b[2J")
        _answer(options, data, tables.status)
        sys.stdout.flush()
        time.sleep(max(0.1, options.interval))


def _start(options: argparse.Namespace, _: EarlySignals) -> int:
    data = _client().ask("start", within_secs=_LONG_SECS, name=options.name)
    _answer(options, data, lambda data: f"ready: {', '.join(data['started'])}")
    return Exit.OK


def _stop(options: argparse.Namespace, _: EarlySignals) -> int:
    data = _client().ask("stop", within_secs=_LONG_SECS, name=options.name, **_given_timeout(options))
    _answer(options, data, lambda data: f"stopped: {', '.join(data['stopped'])}")
    return Exit.OK


def _restart(options: argparse.Namespace, _: EarlySignals) -> int:
    data = _client().ask("restart", within_secs=_LONG_SECS, name=options.name)
    _answer(options, data, lambda data: f"restarted: {', '.join(data['restarted'])}")
    return Exit.OK


def _drain(options: argparse.Namespace, _: EarlySignals) -> int:
    data = _client().ask("drain", within_secs=_LONG_SECS, name=options.name, **_given_timeout(options))
    _answer(options, data, lambda data: f"drained: {', '.join(data['drained'])}")
    return Exit.OK


def _scale(options: argparse.Namespace, _: EarlySignals) -> int:
    name, _equals, number = options.target.partition("=")
    if not (name and number.isascii() and number.isdigit()):
        sys.stderr.write(f"expected NAME=N as in worker=3, found {options.target!r}\n")
        return Exit.USAGE
    data = _client().ask("scale", within_secs=_LONG_SECS, name=name, replicas=int(number), **_given_timeout(options))
    _answer(options, data, lambda data: "\n".join([f"{name}: {data['replicas']} replicas", *data["not_drained"]]))
    return Exit.OK


def _logs(options: argparse.Namespace, _: EarlySignals) -> int:
    from runtime import log_view  # noqa: PLC0415

    view = log_view.LogView(_state_dir().logs, options.name)
    lines = view.history(max(0, options.lines))
    width = max((len(line.process) for line in lines), default=8)

    def show(line: log_view.ShownLine) -> None:
        text = msgspec.json.encode(line).decode() if options.json else log_view.render(line, width)
        sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace") + b"\n")

    for line in lines:
        show(line)
    sys.stdout.flush()
    for line in view.follow() if options.follow else ():
        show(line)
        sys.stdout.flush()
    return Exit.OK


def _reload(options: argparse.Namespace, _: EarlySignals) -> int:
    data = _client().ask("reload", within_secs=_LONG_SECS)
    _answer(options, data, lambda data: "\n".join(data["changes"]) or "nothing changed")
    return Exit.OK


def _down(options: argparse.Namespace, _: EarlySignals) -> int:
    _client().down(timeout_secs=options.timeout or 120.0)
    _answer(options, {"down": True}, lambda _: "down")
    return Exit.OK


_COMMANDS: Final[Mapping[str, Callable[[argparse.Namespace, EarlySignals], int]]] = {
    "up": _up,
    "dev": _up,
    "check": _check,
    "status": _status,
    "top": _top,
    "start": _start,
    "stop": _stop,
    "restart": _restart,
    "drain": _drain,
    "scale": _scale,
    "logs": _logs,
    "reload": _reload,
    "down": _down,
}


def _state_dir() -> StateDir:
    """Where `up` would keep its state, also when only `.env` says so."""
    folder = Path(os.environ.get("PROCFILE", "Procfile")).absolute().parent
    try:
        assignments = dotenv.parse((folder / ".env").read_bytes())
    except (OSError, BadConfig):
        assignments = {}
    return find_state_dir({name: given.value for name, given in assignments.items()} | dict(os.environ))


def _client() -> ControlClient:
    return ControlClient(_state_dir())


def _given_timeout(options: argparse.Namespace) -> dict[str, float]:
    return {} if options.timeout is None else {"timeout_secs": options.timeout}


def _answer(options: argparse.Namespace, data: Any, render: Callable[[Any], str]) -> None:
    _say(msgspec.json.encode(data).decode() if options.json else render(data))


def _say(text: str) -> None:
    sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace") + b"\n")
    sys.stdout.flush()


def _complain(options: argparse.Namespace, error: SupervisorError, code: Exit) -> int:
    if getattr(options, "json", False):
        _say(msgspec.json.encode({"error": str(error), "code": error.code}).decode())
    else:
        sys.stderr.write(f"{error}\n")
    return code
