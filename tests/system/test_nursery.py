"""The nursery's processes are to their test what a program of its own would be."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.nursery import NURSERY, Nursery

PROGRAM = """
import atexit, os, signal, sys
atexit.register(print, "goodbye")
signalled = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGCHLD)]
assert signalled == [signal.default_int_handler, signal.SIG_DFL]
how = sys.argv[1]
print(__name__, how, dict(os.environ), os.getcwd(), len(os.listdir("/dev/fd")), repr(sys.stdin.read()))
if how == "raise":
    raise ValueError("on purpose")
if how == "kill":
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)
sys.exit(int(how))
"""


@pytest.mark.parametrize(("how", "code"), [("0", 0), ("78", 78), ("raise", 1), ("kill", -signal.SIGKILL)])
def test_it_runs_and_ends_as_a_program_started_anew(tmp_path: Path, how: str, code: int) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    environ = {"WORD": "given", "LC_CTYPE": "C.UTF-8"}  # which Python sets where nothing is set
    said = []
    for start in (NURSERY.spawn, start_anew):
        with (tmp_path / "out").open("w+b") as out, (tmp_path / "err").open("w+b") as err:
            process = start(str(script), [how], environ=environ, cwd=tmp_path, stdout=out, stderr=err)
            assert process.wait(20) == code
            assert process.poll() == code
            out.seek(0), err.seek(0)
            said.append((out.read(), err.read().splitlines()[-1:]))
    assert said[0] == said[1]
    assert said[0][0].startswith(f"__main__ {how} ".encode())


def start_anew(
    program: str, arguments: list[str], *, environ: dict[str, str], **options: Any
) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, program, *arguments], stdin=subprocess.DEVNULL, env=environ, **options)


def test_nothing_of_it_outlives_its_test_process(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text("import os, time\nos.write(1, b'begun')\ntime.sleep(60)\n")
    nursery = Nursery(imports=())
    processes = []
    for number in range(2):
        read, write = os.pipe()
        processes.append(nursery.spawn(str(script), [], cwd=tmp_path, stdout=write))
        os.close(write)
        with os.fdopen(read, "rb") as out:
            assert out.read(5) == b"begun", number
    nursery.end()
    assert [process.wait(10) for process in processes] == [-signal.SIGKILL] * 2
    for process in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process.pid, 0)
