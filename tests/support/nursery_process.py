"""The nursery's own process: it has made its imports and forks a process for each order of its test process.

    python -m tests.support.nursery_process CHANNEL_FD MODULE...

An order is a line of JSON, `{"program", "arguments", "environ", "cwd"}`, with the three standard descriptors beside it;
the program is a module's name, or the path of a script.
The answer is `{"started": pid}`, and at some later time comes `{"ended": pid, "code": code}`, the code as `subprocess`
has it. When the channel ends, so does everything.
"""

import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
from typing import Any


def serve(channel: socket.socket) -> dict[str, Any] | None:
    """Fork for every order; returns the order in each child, and None in the nursery when its test process has gone."""
    woken, waker = socket.socketpair()
    waker.setblocking(False)
    signal.set_wakeup_fd(waker.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the test process, which ends us
    alive: set[int] = set()
    while True:
        ready, _, _ = select.select([channel, woken], [], [])
        if woken in ready:
            woken.recv(4096)
            for pid, code in _ended(alive):
                _tell(channel, {"ended": pid, "code": code})
        if channel not in ready:
            continue
        line, descriptors, _, _ = socket.recv_fds(channel, 65_536, 3)
        while line and not line.endswith(b"\n"):
            line += channel.recv(65_536)
        if not line:
            for pid in alive:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            return None
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for target, descriptor in enumerate(descriptors):
                os.dup2(descriptor, target)
            for each in (channel, woken, waker):
                each.detach()
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))
            return dict(json.loads(line))
        alive.add(pid)
        for descriptor in descriptors:
            os.close(descriptor)
        _tell(channel, {"started": pid})


def _ended(alive: set[int]) -> list[tuple[int, int]]:
    """The children that have ended, with their codes; no longer among `alive`."""
    ended = []
    for pid in tuple(alive):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            alive.discard(pid)
            ended.append((pid, os.waitstatus_to_exitcode(status)))
    return ended


def _tell(channel: socket.socket, what: dict[str, int]) -> None:
    with contextlib.suppress(BrokenPipeError):  # the test process has gone; the next look at the channel says so
        channel.sendall(json.dumps(what).encode() + b"\n")


def open_streams() -> None:
    """Give this process the standard streams that Python opens at its start: ours were opened without buffers."""
    for descriptor, (name, mode, lines) in enumerate((("stdin", "r", -1), ("stdout", "w", -1), ("stderr", "w", 1))):
        old = getattr(sys, name)
        setattr(sys, name, os.fdopen(descriptor, mode, lines, old.encoding, old.errors, closefd=False))


if __name__ == "__main__":
    for module in sys.argv[2:]:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    # The child goes on here and not inside `serve`: its end is that of any Python program.
    if (order := serve(socket.socket(fileno=int(sys.argv[1])))) is not None:
        os.chdir(order["cwd"])
        os.environ.clear()
        os.environ.update(order["environ"])
        sys.path[0] = order["cwd"]
        sys.argv = [order["program"], *order["arguments"]]
        if "PYTHONUNBUFFERED" not in order["environ"]:
            open_streams()
        if "/" in order["program"]:
            runpy.run_path(order["program"], run_name="__main__")
        else:
            runpy.run_module(order["program"], run_name="__main__", alter_sys=True)
