"""runtime.toml: what a Procfile cannot say. Pure, from bytes to values; every mistake with the path of its key."""

import difflib
import re
import tomllib
from typing import Any, Final, Literal

import msgspec

from runtime.errors import BadConfig, Problem

Restart = Literal["permanent", "transient", "temporary"]
GiveUp = Literal["park", "stop_all"]
Readiness = Literal["started", "notify", "fd"]

MAX_REPLICAS: Final = 256  # a typing mistake should not start ten thousand processes
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ProcessSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `[process.NAME]`. Times are in seconds.

    Attributes:
        replicas: how many run.
        restart: `permanent` always, `transient` after a failure only, `temporary` never.
        stop_timeout_secs: from SIGTERM to SIGKILL; above a worker's grace of 30 s (contract §8).
        readiness: `started` ready as soon as it is executed; `notify` by READY=1; `fd` by a line on `$READY_FD`.
        ready_timeout_secs: not ready by then is a failed start: killed, and restarted as after a crash.
        watchdog_secs: killed when WATCHDOG=1 did not come for this long; 0 is off.
        environment: more variables; the real environment wins.
        cwd: its folder, relative to the Procfile's.
        after: processes that must be ready first.
        after_timeout_secs: they are not ready by then: a failed start.
        restart_limit: more restarts than this within `restart_window_secs` and it is given up.
        restart_window_secs: see there; also the healthy time that resets the backoff.
        on_give_up: `park`: the others go on; `stop_all`: `up` ends with 70.
        overlap: at a restart the new one is ready before the old one is stopped.
        backoff_secs: the first delay before a restart; doubled each time.
        backoff_max_secs: the longest delay.
        drain_timeout_secs: from SIGUSR1 to a stop, when `scale` removes it.
    """

    replicas: int = 1
    restart: Restart = "permanent"
    stop_timeout_secs: float = 35.0
    readiness: Readiness = "started"
    ready_timeout_secs: float = 60.0
    watchdog_secs: float = 0.0
    environment: dict[str, str] = {}
    cwd: str = "."
    after: tuple[str, ...] = ()
    after_timeout_secs: float = 60.0
    restart_limit: int = 5
    restart_window_secs: float = 60.0
    on_give_up: GiveUp = "park"
    overlap: bool = False
    backoff_secs: float = 0.5
    backoff_max_secs: float = 30.0
    drain_timeout_secs: float = 300.0


class LogSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `[logs]`: a file is turned over at `max_mb` MiB, and `keep` old ones stay."""

    max_mb: float = 32.0
    keep: int = 3


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `[nats]`: the embedded server.

    Attributes:
        sync_interval: how often JetStream calls fsync: `always`, or a time as `10s`; what a power cut can cost.
        max_payload: the largest message.
    """

    sync_interval: str = "10s"
    max_payload: str = "8MB"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """A whole runtime.toml."""

    process: dict[str, ProcessSettings] = {}
    logs: LogSettings = LogSettings()
    nats: ServerSettings = ServerSettings()
    given: dict[str, frozenset[str]] = {}
    """By process: the keys that the file has; the rest are defaults."""


def parse(data: bytes, file: str = "runtime.toml") -> Settings:
    """Read a runtime.toml.

    Raises:
        BadConfig: with every mistake in it (a syntax error hides the others).
    """
    try:
        document = tomllib.loads(data.decode("utf-8-sig"))
    except tomllib.TOMLDecodeError as error:
        at_line = re.search(r"at line (\d+)", str(error))
        raise BadConfig([Problem(file, int(at_line[1]) if at_line else 0, f"expected TOML: {error}")]) from None
    except UnicodeDecodeError:
        raise BadConfig([Problem(file, 0, "expected UTF-8 text, found other bytes; save the file as UTF-8")]) from None
    problems = [Problem(file, 0, text) for text in _unknown(document, ("process", "logs", "nats"), "")]
    tables = document.get("process", {})
    if not isinstance(tables, dict):
        problems.append(Problem(file, 0, "`process`: expected tables `[process.NAME]`"))
        tables = {}
    processes: dict[str, ProcessSettings] = {}
    for name, table in tables.items():
        settings, found = _table(table, ProcessSettings, f"process.{name}")
        problems += [Problem(file, 0, text) for text in found]
        if settings is not None:
            problems += [Problem(file, 0, f"`process.{name}.{text}`") for text in _out_of_range(settings)]
            processes[name] = settings
    logs, log_problems = _table(document.get("logs", {}), LogSettings, "logs")
    nats, nats_problems = _table(document.get("nats", {}), ServerSettings, "nats")
    problems += [Problem(file, 0, text) for text in log_problems + nats_problems]
    if logs is not None and not (logs.max_mb > 0 and logs.keep >= 0):
        problems.append(Problem(file, 0, "`logs`: expected max_mb above 0 and keep from 0"))
    if nats is not None and not re.fullmatch(r"always|\d+(ms|s|m)", nats.sync_interval):
        problems.append(
            Problem(file, 0, f"`nats.sync_interval`: expected always or a time as 10s, found {nats.sync_interval!r}")
        )
    if nats is not None and not re.fullmatch(r"\d+(KB|MB)?", nats.max_payload):
        problems.append(Problem(file, 0, f"`nats.max_payload`: expected a size as 8MB, found {nats.max_payload!r}"))
    if problems:
        raise BadConfig(problems)
    given = {name: frozenset(table) for name, table in tables.items()}
    return Settings(process=processes, logs=logs or LogSettings(), nats=nats or ServerSettings(), given=given)


def _table(table: object, kind: type[Any], path: str) -> tuple[Any, list[str]]:
    if not isinstance(table, dict):
        return None, [f"`{path}`: expected a table `[{path}]`, found {table!r}"]
    known = kind.__struct_fields__
    problems = _unknown(table, known, f"{path}.")
    values = {}
    # One key at a time, so that every mistake is told and not only the first.
    for key, value in table.items():
        if key in known:
            try:
                values[key] = getattr(msgspec.convert({key: value}, kind), key)
            except msgspec.ValidationError as error:
                problems.append(f"`{path}.{key}`: {str(error).partition(' - at ')[0]}")
    return (None if problems else kind(**values)), problems


def _unknown(table: dict[str, Any], known: tuple[str, ...], path: str) -> list[str]:
    problems = []
    for key in table:
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(known)}"
            problems.append(f"`{path}{key}`: unknown{hint}")
    return problems


def _out_of_range(settings: ProcessSettings) -> list[str]:
    problems = []
    if not 0 <= settings.replicas <= MAX_REPLICAS:
        problems.append(f"replicas`: expected 0 to {MAX_REPLICAS}, found {settings.replicas}")
    if settings.restart_limit < 0:
        problems.append(f"restart_limit`: expected 0 or more, found {settings.restart_limit}")
    if settings.backoff_max_secs < settings.backoff_secs:
        problems.append(f"backoff_max_secs`: expected at least backoff_secs ({settings.backoff_secs})")
    may_be_zero = {"watchdog_secs", "backoff_secs", "stop_timeout_secs", "drain_timeout_secs"}
    for key in settings.__struct_fields__:
        value = getattr(settings, key)
        if isinstance(value, float) and not (0 < value < 1e9 or (value == 0 and key in may_be_zero)):
            problems.append(
                f"{key}`: expected seconds, {'0' if key in may_be_zero else 'above 0'} or more, found {value}"
            )
    problems += [
        f"environment.{name}`: expected a name of A-Z a-z 0-9 _ that begins with no digit, and a value without NUL"
        for name, value in settings.environment.items()
        if not _VARIABLE.fullmatch(name) or "\0" in value
    ]
    return problems
