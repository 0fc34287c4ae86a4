"""`dev`: `up`, with a restart of everything that runs from source when a source file changes."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from runtime.errors import Refused, SupervisorError
from runtime.plan import SERVER_NAME

if TYPE_CHECKING:
    from runtime.supervisor import Supervisor
    from runtime.up import Companion

_CONFIG = frozenset({"Procfile", ".env", "runtime.toml"})


class NoWatchfiles(SupervisorError):
    """`dev` needs watchfiles: install the extra `reload` (pip install 'nats-hub[reload]'), or use `up`."""

    code = "config"


def watcher(folders: list[str], procfile: str | None, environ: Mapping[str, str]) -> "Companion":
    """What runs beside the supervisor.

    Args:
        folders: to watch; none: the Procfile's.
        procfile: as the command line named it.
        environ: the environment.

    Raises:
        NoWatchfiles: the extra is not installed.
    """
    try:
        import watchfiles  # noqa: PLC0415 - an extra
    except ImportError:
        raise NoWatchfiles from None
    procfile_path = Path(procfile or environ.get("PROCFILE") or "Procfile").absolute()
    watched = [Path(folder).absolute() for folder in folders] or [procfile_path.parent]

    def matters(_: object, path: str) -> bool:
        name = Path(path).name
        # Dot folders hold our own state, a venv's packages and git's files: none is a source.
        parts = next((Path(path).relative_to(root).parts for root in watched if Path(path).is_relative_to(root)), ())
        is_hidden = any(part.startswith(".") or part == "__pycache__" for part in parts[:-1])
        return not is_hidden and (name.endswith(".py") or name in _CONFIG or name == procfile_path.name)

    async def watch(supervisor: "Supervisor") -> None:
        async for changes in watchfiles.awatch(*watched, watch_filter=matters, rust_timeout=1000):
            names = sorted({Path(path).name for _, path in changes})
            supervisor.log.info("changed", files=names[:10])
            await _restart_all(supervisor, config_changed=any(name in _CONFIG for name in names))

    return watch


async def _restart_all(supervisor: "Supervisor", *, config_changed: bool) -> None:
    try:
        if config_changed:
            await supervisor.reload()
        for name, group in list(supervisor.groups.items()):
            if name != SERVER_NAME and not group.is_stopped and not supervisor.is_stopping:
                await group.restart()
    except (Refused, SupervisorError) as error:
        # A half-saved file is every day's business: say it and wait for the next change.
        supervisor.log.error("not restarted", error=str(error))  # noqa: TRY400
