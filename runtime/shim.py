"""The resident shim: one small process a child, so that nothing of the child outlives its supervisor, ever.

    python -I -S runtime/shim.py FD GRACE_SECS leader|group WORD...      (or: python -m runtime.shim …)

It runs WORD… as the leader of a new session and stays until nothing of it is left. FD is its end of a stream socket
pair; the other end is the supervisor's alone: when it closes, for whatever reason, the child and all that came from it
get SIGTERM and after GRACE_SECS SIGKILL. No lock, no file: the kernel closes that end also after a kill -9.

The supervisor writes single bytes: `t` SIGTERM, `i` SIGINT, `u` SIGUSR1, `h` SIGHUP, `k` kill everything now. `leader`
sends them to the leader alone, `group` to its process group (for a shell, which does not pass them on).
The shim writes lines: `pid N`, or `error ERRNO TEXT` when the command cannot be executed; `exit STATUS` (as wait gives
it) when the leader ended; `empty` when nothing is left; then it leaves. When the leader ends by itself, the rest gets
SIGTERM and after GRACE_SECS SIGKILL; after a `t` in group mode the rest may finish until `k`.

Linux: the shim is a subreaper, so orphans become its children however often they fork or leave their session, and the
leader dies with the shim (parent-death signal). Elsewhere it walks over the descendants that it can still see, and the
group: there, what leaves its session and loses its parent while nobody looks escapes.

The leader gets the three standard descriptors, and `$READY_FD` (as 3) when that is set; other descriptors that the shim
inherits stay with the shim until all is gone: a lock that it is given is held as long.

It imports as little as it can, because one stays in memory for every child; it never blocks on its supervisor.
"""

import _signal as sig  # the module `signal` costs enum, a megabyte
import errno
import fcntl
import os
import select
import sys
import time

_LINUX = sys.platform == "linux"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_READY_FD = 3  # one digit: plain shells know no others
_KILL_AGAIN_SECS = 0.05  # what forked while we looked is found by looking again
_SIGNALS = {b"t": sig.SIGTERM, b"i": sig.SIGINT, b"u": sig.SIGUSR1, b"h": sig.SIGHUP}

Pids = dict[int, tuple[int, int]]


def _prctl(option: int, value: int) -> None:
    """Best effort: where it is refused (another libc, a sandbox), the walk remains."""
    try:
        import ctypes  # noqa: PLC0415 - half a megabyte that only Linux needs

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        pass


def become_subreaper() -> None:
    """Linux: orphans below this process become its children. Elsewhere nothing happens."""
    if _LINUX:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def parents() -> Pids:
    """Every process that can be seen: pid → (parent, process group). Zombies are left out."""
    return _parents_from_proc() if _LINUX else _parents_from_ps()


def _parents_from_proc() -> Pids:
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    # pid (comm) state ppid pgrp …; comm may hold blanks and brackets
                    state, parent, group = file.read().rpartition(b")")[2].split()[:3]
            except OSError:
                continue
            if state not in b"ZX":
                found[int(name)] = (int(parent), int(group))
    return found


def _parents_from_ps() -> Pids:
    found = {}
    with os.popen("ps -A -o pid= -o ppid= -o pgid= -o stat=") as out:  # noqa: S605, S607 - a fixed command
        for line in out:
            pid, parent, group, state = line.split(None, 3)
            if not state.startswith("Z"):
                found[int(pid)] = (int(parent), int(group))
    return found


def descendants(of: int, group: int, seen: Pids) -> list[int]:
    """The descendants of a process, and the members of a process group, without the process itself."""
    found: list[int] = []
    wanted = {of}
    while wanted:
        wanted = {pid for pid, (parent, _) in seen.items() if parent in wanted and pid not in found and pid != of}
        found += wanted
    return found + [
        pid for pid, (_, its_group) in seen.items() if its_group == group and pid not in found and pid != of
    ]


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


class Shim:
    """One child and all that comes from it."""

    def __init__(self, channel: int, grace_secs: float, to_group: bool, argv: list[str]) -> None:
        self.channel = channel
        self.is_open = True
        self.grace_secs = grace_secs
        self.to_group = to_group
        self.argv = argv
        self.leader = 0
        self.has_leader = False
        self.has_any = False
        self.is_asked = False  # to stop: the rest may finish
        self.kill_at: float | None = None
        self.ready_fd = int(os.environ.get("READY_FD", "0"))
        os.set_inheritable(channel, False)
        os.set_blocking(channel, False)

    def run(self) -> int:
        wake_in, wake_out = os.pipe()
        os.set_blocking(wake_in, False)
        os.set_blocking(wake_out, False)
        sig.set_wakeup_fd(wake_out, warn_on_full_buffer=False)
        sig.signal(sig.SIGCHLD, lambda *_: None)
        for number in (sig.SIGTERM, sig.SIGINT, sig.SIGHUP):
            # The shim itself ends last; who signals it means its child.
            sig.signal(number, lambda number, _: self.ask(number))
        become_subreaper()
        if not self.start():
            return 0
        waiter = select.poll()
        waiter.register(wake_in, select.POLLIN)
        waiter.register(self.channel, select.POLLIN)
        while self.has_any:
            waiter.poll(self.wait_msecs())
            try:
                os.read(wake_in, 4096)
            except BlockingIOError:
                pass
            if self.is_open and not self.obey():
                waiter.unregister(self.channel)
            self.reap()
            if self.kill_at is not None and time.monotonic() >= self.kill_at:
                self.signal_all(sig.SIGKILL)
                self.kill_at = time.monotonic() + _KILL_AGAIN_SECS
        self.say("empty")
        return 0

    def start(self) -> bool:
        """Execute the command; False when it cannot be."""
        result_in, result_out = os.pipe()
        shim = os.getpid()
        pid = os.fork()
        if pid == 0:
            self.become(result_out, shim)
        os.close(result_out)
        # The output's write ends belong to the child alone: end of file there means that nothing of it is left.
        nothing = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(nothing, fd)
        os.close(nothing)
        if self.ready_fd > 2:
            os.close(self.ready_fd)
        self.leader, self.has_leader, self.has_any = pid, True, True
        with open(result_in, "rb") as result:
            failure = result.read().decode()
        if failure:
            os.waitpid(pid, 0)
            self.say("error " + failure)
            return False
        self.say(f"pid {pid}")
        return True

    def become(self, result: int, shim: int) -> None:
        """In the child: turn into the command."""
        try:
            os.setsid()
            if _LINUX:
                _prctl(_PR_SET_PDEATHSIG, sig.SIGKILL)
                if os.getppid() != shim:
                    os._exit(1)
            for number in range(1, sig.NSIG):
                try:
                    sig.signal(number, sig.SIG_DFL)  # what is ignored stays so through exec
                except (OSError, ValueError):
                    pass
            sig.pthread_sigmask(sig.SIG_SETMASK, [])
            if self.ready_fd > 2:
                result = fcntl.fcntl(result, fcntl.F_DUPFD_CLOEXEC, 10)
                os.dup2(self.ready_fd, _READY_FD)
                os.environ["READY_FD"] = str(_READY_FD)
            for name in os.listdir("/dev/fd"):
                self.keep_from_child(int(name))
            if "WATCHDOG_USEC" in os.environ:
                os.environ["WATCHDOG_PID"] = str(os.getpid())
            os.execvp(self.argv[0], self.argv)  # noqa: S606 - a shell, where one is wanted, is in argv
        except OSError as error:
            os.write(result, f"{error.errno or errno.ENOEXEC} {error.strerror}".encode())
        except ValueError as error:
            os.write(result, f"{errno.EINVAL} {error}".encode())
        finally:
            os._exit(127)

    def keep_from_child(self, fd: int) -> None:
        """What the shim inherited beyond the standard three, as locks that it holds for its supervisor, is its own."""
        if fd > 2 and not (self.ready_fd > 2 and fd == _READY_FD):
            try:
                os.set_inheritable(fd, False)
            except OSError:
                pass  # the descriptor that listed the folder

    def wait_msecs(self) -> int | None:
        if self.kill_at is None:
            return None
        return max(0, int((self.kill_at - time.monotonic()) * 1000) + 1)

    def obey(self) -> bool:
        """Do what the supervisor says; False when it is gone."""
        try:
            commands = os.read(self.channel, 64)
        except BlockingIOError:
            return True
        except OSError:
            commands = b""
        if not commands:
            self.is_open = False
            self.signal_all(sig.SIGTERM)
            self.kill_within(self.grace_secs)
            return False
        for position in range(len(commands)):
            command = commands[position : position + 1]
            if command == b"k":
                self.kill_at = time.monotonic()
            elif command in _SIGNALS:
                self.ask(_SIGNALS[command])
        return True

    def ask(self, number: int) -> None:
        """Pass a signal on."""
        self.is_asked = self.is_asked or number in (sig.SIGTERM, sig.SIGINT)
        if self.has_leader:
            if self.to_group:
                try:
                    os.killpg(self.leader, number)
                except (ProcessLookupError, PermissionError):
                    _kill(self.leader, number)
            else:
                _kill(self.leader, number)

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                # With a subreaper that is the end of it; without one, orphans may be left in the group.
                self.has_any = not _LINUX and bool(descendants(os.getpid(), self.leader, parents()))
                if self.has_any and self.kill_at is None:
                    self.kill_within(self.grace_secs)
                return
            if pid == 0:
                return
            if pid == self.leader:
                self.has_leader = False
                self.say(f"exit {status}")
                self.leader_ended()

    def leader_ended(self) -> None:
        if self.is_asked and self.to_group:
            return  # its group was asked too, and may finish until the supervisor's deadline
        self.signal_all(sig.SIGTERM)
        self.kill_within(self.grace_secs)

    def kill_within(self, seconds: float) -> None:
        at = time.monotonic() + seconds
        self.kill_at = at if self.kill_at is None else min(self.kill_at, at)

    def signal_all(self, number: int) -> None:
        # On Linux the walk finds all; a group whose leader is gone may even be somebody else's by now.
        group = -1 if _LINUX and not self.has_leader else self.leader
        for pid in descendants(os.getpid(), group, parents()):
            _kill(pid, number)

    def say(self, line: str) -> None:
        if self.is_open:
            try:
                os.write(self.channel, line.encode() + b"\n")
            except OSError:
                pass  # gone or not reading: end of file tells the first, and the second loses nothing but this line


def main(words: list[str]) -> int:
    """Run one child; see the module."""
    if len(words) < 4 or not words[0].isdigit() or words[2] not in ("leader", "group"):
        sys.stderr.write("usage: shim FD GRACE_SECS leader|group WORD...\n")
        return 2
    return Shim(int(words[0]), float(words[1]), words[2] == "group", words[3:]).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
