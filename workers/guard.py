"""The guard: one small process around a command, so that nothing of the command outlives its turn or its worker.

    python -I -S workers/guard.py LIFELINE_FD PROGRAM ARGUMENT...

It runs the command as the leader of a process group of its own and stays until the command has ended or the lifeline, a
pipe whose other end is the worker's alone, closes (the kernel closes it also after a kill -9 of the worker). Then it
kills what is left of the command, and ends as the command did. A byte `t` on the lifeline is SIGTERM to the group.

Linux: it is a subreaper, so orphans become its children however often they fork or leave their session. Elsewhere it
kills the process group, and what left that escapes.
"""

import _signal as sig  # the module `signal` costs enum, which this process has no use for
import os
import select
import sys
import time

_LINUX = sys.platform == "linux"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_AGAIN_SECS = 0.01  # between looks at children that were killed and have not ended yet
_KILL_MOST_SECS = 3.0  # what does not die of SIGKILL hangs in the kernel: nobody can end it
_CANNOT_START = 127


def _prctl(option: int, value: int) -> None:
    """Best effort: where it is refused (another libc, a sandbox), the process group remains."""
    try:
        import ctypes  # noqa: PLC0415 - only Linux needs it

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        pass


def _children() -> list[int]:
    """The direct children of this process, zombies included."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def _kill_rest(leader: int) -> None:
    """Kill every descendant; looked at again and again, since orphans become our children one generation at a time."""
    ends_at = time.monotonic() + _KILL_MOST_SECS
    _signal_group(leader, sig.SIGKILL)
    while time.monotonic() < ends_at:
        for pid in _children():
            try:
                os.kill(pid, sig.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(_AGAIN_SECS)


def _signal_group(leader: int, number: int) -> None:
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):
        pass


def main() -> int:
    lifeline, command = int(sys.argv[1]), sys.argv[2:]
    os.set_inheritable(lifeline, False)
    for number in (sig.SIGTERM, sig.SIGINT, sig.SIGHUP):
        sig.signal(number, sig.SIG_IGN)  # it ends last
    if _LINUX:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    wake_in, wake_out = os.pipe()
    os.set_blocking(wake_out, False)
    sig.set_wakeup_fd(wake_out, warn_on_full_buffer=False)
    sig.signal(sig.SIGCHLD, lambda *_: None)
    leader = os.fork()
    if leader == 0:
        _become(command)
    try:
        os.setpgid(leader, leader)  # by both sides: whoever signals the group first finds it
    except OSError:
        pass
    for descriptor in (0, 1, 2):  # the command's pipes are to close with the command
        os.close(descriptor)
    status = _wait(leader, lifeline, wake_in)
    _kill_rest(leader)
    if status is None:
        return int(sig.SIGKILL) + 128
    if os.WIFSIGNALED(status):
        _end_by(os.WTERMSIG(status))
    return os.waitstatus_to_exitcode(status)


def _become(command: list[str]) -> None:
    """In the child: run the command. Never returns."""
    try:
        os.setpgid(0, 0)
        sig.set_wakeup_fd(-1)
        for number in (sig.SIGTERM, sig.SIGINT, sig.SIGHUP, sig.SIGCHLD):
            sig.signal(number, sig.SIG_DFL)
        if _LINUX:
            _prctl(_PR_SET_PDEATHSIG, sig.SIGKILL)
        os.execvp(command[0], command)  # noqa: S606 - that is what it is for
    except OSError as error:
        os.write(2, f"cannot start {command[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(_CANNOT_START)


def _wait(leader: int, lifeline: int, wake_in: int) -> int | None:
    """The leader's wait status; None when the lifeline closed first."""
    poll = select.poll()
    poll.register(lifeline, select.POLLIN)
    poll.register(wake_in, select.POLLIN)
    while True:
        for descriptor, _ in poll.poll():
            said = os.read(descriptor, 4096)
            if descriptor != lifeline:
                continue
            if not said:
                return None
            _signal_group(leader, sig.SIGTERM)
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == leader:
                return status
            if not pid:
                break


def _end_by(number: int) -> None:
    """End as the command did: by the same signal."""
    if number != sig.SIGKILL:
        sig.signal(number, sig.SIG_DFL)
    os.kill(os.getpid(), number)


if __name__ == "__main__":
    sys.exit(main())
