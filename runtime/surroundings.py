"""What the replicas of one `up` share."""

from collections.abc import Callable

from runtime.bell import Bell
from runtime.logs.events import EventLog
from runtime.logs.pump import LogPump
from runtime.paths import StateDir
from runtime.reaper import Reaper


class Surroundings:
    """One of each, given to every replica.

    Attributes:
        bell, pump, reaper, log: see there.
        state_dir: where notify sockets are made.
        held_fds: locks that every shim holds.
        is_ready: is a process, by name, ready?
        on_give_up: told of a `stop_all` process that was given up.
        environ: more environment, known only at run time (the embedded server's address).
    """

    def __init__(
        self,
        *,
        pump: LogPump,
        log: EventLog,
        state_dir: StateDir,
        held_fds: tuple[int, ...],
        is_ready: Callable[[str], bool],
        on_give_up: Callable[[str, str], None],
    ) -> None:
        self.bell = Bell()
        self.pump = pump
        self.reaper = Reaper()
        self.log = log
        self.state_dir = state_dir
        self.held_fds = held_fds
        self.is_ready = is_ready
        self.on_give_up = on_give_up
        self.environ: dict[str, str] = {}
        self.starts = 0
