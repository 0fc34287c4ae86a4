"""The resolver: from files and the environment to exactly what `up` runs, and where each value comes from.

`up`, `check` and the re-read on SIGHUP all go through here.
"""

import difflib
import graphlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from runtime import command_line, dotenv, procfile, settings
from runtime.command_line import Command
from runtime.errors import BadConfig, Problem
from runtime.paths import StateDir, find_state_dir
from runtime.settings import LogSettings, ProcessSettings, ServerSettings

SERVER_NAME: Final = "nats-server"
# What belongs to the supervisor's own supervisor must not reach a child: it would answer for us.
_NOT_INHERITED: Final = (
    "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "MAINPID",
)  # fmt: skip


class ConfigFiles(msgspec.Struct, frozen=True):
    """What the command line said; None looks in the usual place."""

    procfile: str | None = None
    env_file: str | None = None
    config: str | None = None


class ProcessPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One process as it will run.

    Attributes:
        name, line: from the Procfile.
        command: what runs.
        settings: how it is kept running.
        cwd: its folder, absolute.
        environ: its whole environment but for what differs by replica.
        sources: by variable or setting, where its value comes from; inherited variables are left out.
    """

    name: str
    line: int
    command: Command
    settings: ProcessSettings
    cwd: str
    environ: dict[str, str]
    sources: dict[str, str]

    def environ_of(self, index: int) -> dict[str, str]:
        """The environment of one replica."""
        return self.environ | {"PROCESS_NAME": self.name, "PROCESS_INDEX": str(index)}

    def argv_of(self, index: int) -> list[str]:
        """What one replica executes."""
        return self.command.argv(self.environ_of(index))


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `up` runs.

    Attributes:
        processes: in the Procfile's order, which is the order of start.
        state_dir: where state is kept.
        nats_url: the server that was named; None: the supervisor starts its own.
        nats_source: where `nats_url` comes from.
        logs, nats: settings of the whole.
        files: what was read, with why.
        unused: assignments of files that the real environment overrules.
    """

    processes: tuple[ProcessPlan, ...]
    state_dir: StateDir
    nats_url: str | None
    nats_source: str
    logs: LogSettings
    nats: ServerSettings
    files: dict[str, str]
    unused: tuple[str, ...]


def resolve(files: ConfigFiles, environ: Mapping[str, str]) -> Plan:
    """Read the files and put everything together. The files' folder is the Procfile's.

    Raises:
        BadConfig: with every mistake in every file.
    """
    problems: list[Problem] = []
    path, why = _procfile_path(files, environ)
    folder = path.parent
    env_path = Path(files.env_file).absolute() if files.env_file else folder / ".env"
    toml_path = Path(files.config).absolute() if files.config else folder / "runtime.toml"
    lines: tuple[procfile.ProcfileLine, ...] = ()
    assignments: dict[str, dotenv.Assignment] = {}
    given = settings.Settings()
    read = {"Procfile": f"{path} ({why})"}
    try:
        lines = procfile.parse(_read(path, required=True) or b"", path.name)
    except BadConfig as error:
        problems += error.problems
    try:
        if (data := _read(env_path, required=files.env_file is not None)) is not None:
            assignments = dotenv.parse(data, env_path.name)
            read[".env"] = str(env_path)
    except BadConfig as error:
        problems += error.problems
    try:
        if (data := _read(toml_path, required=files.config is not None)) is not None:
            given = settings.parse(data, toml_path.name)
            read["runtime.toml"] = str(toml_path)
    except BadConfig as error:
        problems += error.problems
    if lines:
        problems += _mistakes_between(lines, given, toml_path.name)
    from_env_file = {name: assignment.value for name, assignment in assignments.items()}
    base = from_env_file | dict(environ)
    state_dir = find_state_dir(base)
    processes = []
    for line in lines:
        try:
            processes.append(
                _process(
                    line, given, assignments, environ, state_dir, folder, (path.name, env_path.name, toml_path.name)
                )
            )
        except ValueError as error:
            problems.append(Problem(path.name, line.line, f"{line.name}: {error}"))
    if problems:
        raise BadConfig(problems)
    nats_url = base.get("NATS_URL") or None
    in_file = assignments.get("NATS_URL")
    return Plan(
        processes=tuple(processes),
        state_dir=state_dir,
        nats_url=nats_url,
        nats_source="environment"
        if environ.get("NATS_URL")
        else f"{env_path.name}:{in_file.line}"
        if in_file
        else "default",
        logs=given.logs,
        nats=given.nats,
        files=read,
        unused=tuple(
            f"{env_path.name}:{assignment.line}: {name} (the environment's value holds)"
            for name, assignment in assignments.items()
            if name in environ and environ[name] != assignment.value
        ),
    )


def _procfile_path(files: ConfigFiles, environ: Mapping[str, str]) -> tuple[Path, str]:
    if files.procfile:
        return Path(files.procfile).absolute(), "--procfile"
    if environ.get("PROCFILE"):
        return Path(environ["PROCFILE"]).absolute(), "PROCFILE in the environment"
    return Path("Procfile").absolute(), "default"


def _read(path: Path, *, required: bool) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        if not required:
            return None
        raise BadConfig(
            [Problem(str(path), 0, "expected a file, found none; name one, or change to its folder")]
        ) from None
    except OSError as error:
        raise BadConfig([Problem(str(path), 0, f"expected a file that can be read: {error.strerror}")]) from None


def _mistakes_between(lines: tuple[procfile.ProcfileLine, ...], given: settings.Settings, toml: str) -> list[Problem]:
    """Mistakes that only two files together show."""
    names = [line.name for line in lines]
    problems = []
    for name in given.process:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else f"; it has {', '.join(names)}"
            problems.append(Problem(toml, 0, f"`process.{name}`: the Procfile has no such process{hint}"))
        problems += [
            Problem(
                toml, 0, f"`process.{name}.after`: the Procfile has no process {other!r}; it has {', '.join(names)}"
            )
            for other in given.process[name].after
            if other not in names
        ]
    try:
        graphlib.TopologicalSorter({name: table.after for name, table in given.process.items()}).prepare()
    except graphlib.CycleError as error:
        problems.append(Problem(toml, 0, f"`after`: expected no circle, found {' after '.join(error.args[1])}"))
    return problems


def _process(
    line: procfile.ProcfileLine,
    given: settings.Settings,
    assignments: Mapping[str, dotenv.Assignment],
    environ: Mapping[str, str],
    state_dir: StateDir,
    folder: Path,
    file_names: tuple[str, str, str],
) -> ProcessPlan:
    procfile_name, env_name, toml_name = file_names
    own = given.process.get(line.name, ProcessSettings())
    keys = given.given.get(line.name, frozenset())
    sources = {"command": f"{procfile_name}:{line.line}"}
    sources |= {key: toml_name if key in keys else "default" for key in own.__struct_fields__ if key != "environment"}
    values: dict[str, str] = {"PYTHONUNBUFFERED": "1"}  # a child that dies must not take its last lines with it
    sources["PYTHONUNBUFFERED"] = "default"
    for name, assignment in assignments.items():
        values[name], sources[name] = assignment.value, f"{env_name}:{assignment.line}"
    for name, value in own.environment.items():
        values[name], sources[name] = value, toml_name
    for name, value in environ.items():
        if name in values and values[name] != value:
            sources[name] = "environment"
        elif name in sources:
            sources[name] += ", environment"
        values[name] = value
    for name in _NOT_INHERITED:
        values.pop(name, None)
        sources.pop(name, None)
    if not values.get("NATS_URL"):
        values.pop("NATS_URL", None)  # set to nothing means not set: our own server's address comes here
    values["NATS_HUB_STATE_DIR"], sources["NATS_HUB_STATE_DIR"] = str(state_dir.root), state_dir.source
    # The interpreter that runs the supervisor is the one that `python` means in a Procfile, in a venv or not.
    beside = str(Path(sys.executable).parent)
    search = values.get("PATH", os.defpath)
    if search.split(os.pathsep)[0] != beside:
        values["PATH"], sources["PATH"] = beside + os.pathsep + search, "the interpreter's folder, then the environment"
    cwd = (folder / own.cwd).resolve()
    if not cwd.is_dir():
        raise ValueError(f"cwd: expected a folder, found none at {cwd}")
    plan = ProcessPlan(
        name=line.name,
        line=line.line,
        command=command_line.parse(line.command),
        settings=own,
        cwd=str(cwd),
        environ=values,
        sources=sources,
    )
    if plan.command.is_direct:
        # The embedded server's address is set by then; whatever else is not set is a mistake now.
        plan.command.argv({"NATS_URL": ""} | plan.environ_of(0))
    return plan


def hide_password(url: str | None) -> str | None:
    """An address for people: what stands before the @ is a secret."""
    if url is None:
        return None
    parts = []
    for server in url.split(","):
        scheme, separator, rest = server.rpartition("://")
        parts.append(f"{scheme}{separator}{'***@' if '@' in rest else ''}{rest.rpartition('@')[2]}")
    return ",".join(parts)
