"""The state folder: where this machine's durable parts of the hub live (contract §12)."""

from collections.abc import Mapping
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)

URL_FILE = "nats.url"
"""Written by `runtime up` with the address of the server that it started."""


class BadStateDir(ValueError):
    """The state folder cannot be meant."""


def state_dir(environ: Mapping[str, str]) -> Path:
    """The state folder, absolute; it is not made here.

    `NATS_HUB_STATE_DIR`, else `$XDG_STATE_HOME/nats-hub`, else `~/.local/state/nats-hub`, else `.state` in the current
    folder (with a warning, since the next start may stand elsewhere).

    Raises:
        BadStateDir: `NATS_HUB_STATE_DIR` names the home of a user who does not exist.
    """
    if given := environ.get("NATS_HUB_STATE_DIR"):
        try:
            return Path(given).expanduser().absolute()
        except RuntimeError as error:
            raise BadStateDir(f"bad NATS_HUB_STATE_DIR {given!r}: expected a folder, or ~/… ({error})") from None
    if environ.get("XDG_STATE_HOME"):
        return Path(environ["XDG_STATE_HOME"]).absolute() / "nats-hub"
    home = environ.get("HOME", "")
    if home and Path(home).is_dir():
        return Path(home).absolute() / ".local" / "state" / "nats-hub"
    here = Path(".state").absolute()
    log.warning("no home folder: the state is kept in the current one; set NATS_HUB_STATE_DIR", state_dir=str(here))
    return here
