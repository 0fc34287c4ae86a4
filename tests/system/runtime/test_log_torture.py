"""What children write arrives whole, whatever it is; and a console that stands still holds nobody up."""

import asyncio
import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.logs.files import LineReader, files_of
from tests.support.up_process import UpProcess
from tests.support.waiting import eventually

MakeUp = Callable[..., UpProcess]

TORTURE = r"""
import os, sys
out = sys.stdout.buffer
def put(data):
    out.write(data); out.flush()
put(b"x" * 3_000_000 + b"\n")
put(b"bad \xff\xfe utf-8\n")
put("h\u00e9llo \U0001f600\n".encode())
put(b"bell \x07 title \x1b]0;gotcha\x07 up \x1b[2J red \x1b[31mred\x1b[0m\n")
put(b"crlf\r\n\n")
for number in range(200):
    put(b"%d " % number + b"y" * 70_000 + b"\n")
sys.stderr.buffer.write(b"to stderr\n"); sys.stderr.flush()
put(b"no newline at the end")
os._exit(int(sys.argv[1]))
"""


def logged(up: UpProcess, label: str, stream: str = "stdout") -> list[bytes]:
    """The lines of the log files, old ones too."""
    lines = []
    for path in files_of(up.state.logs / f"{label}.log"):
        lines += [line.text for line in LineReader().feed(path.read_bytes()) if line.stream == stream]
    return lines


async def test_every_line_arrives_whole_in_the_file_and_on_the_console(make_up: MakeUp, tmp_path: Path) -> None:
    (tmp_path / "torture.py").write_text(TORTURE)
    up = await make_up("t: python torture.py 78\n").start()
    await up.reaches("t.0", "failed")
    lines = logged(up, "t.0")
    assert lines[0] == b"x" * 3_000_000
    assert lines[1] == b"bad \xff\xfe utf-8"
    assert lines[4] == b"crlf\r"
    assert lines[5] == b""
    assert [line.split()[0] for line in lines[6:206]] == [b"%d" % number for number in range(200)]
    assert lines[206:] == [b"no newline at the end"]
    assert logged(up, "t.0", "stderr") == [b"to stderr"]
    shown = up.lines_of("t.0")
    assert len(shown) == 208
    assert shown[:5] == [
        "x" * 3_000_000,
        "bad \\xff\\xfe utf-8",
        "h\u00e9llo \U0001f600",
        "bell \x07 title \x1b]0;gotcha\x07 up \x1b[2J red \x1b[31mred\x1b[0m",
        "crlf",
    ]
    assert all(line["pid"] > 0 for line in up.events(process="t.0") if "line" in line)
    # What died in mid-line is the last thing that `status` shows.
    assert up.replica("t.0")["tail"][-1].endswith("no newline at the end")
    merged = up.run("logs", "t", "-n", "2")
    assert re.search(r"t\.0 \| no newline at the end$", merged.stdout, re.MULTILINE)
    assert await up.stop() == 0


async def test_a_flood_is_kept_and_status_answers_meanwhile(make_up: MakeUp, tmp_path: Path) -> None:
    count, size = 30_000, 1000
    (tmp_path / "flood.py").write_text(
        "import sys, pathlib, time\n"
        "while not pathlib.Path('go').exists(): time.sleep(0.01)\n"
        f"for start in range(0, {count}, 500):\n"
        f"    sys.stdout.write(''.join(f'{{n:0>{size - 1}}}\\n' for n in range(start, start + 500)))\n"
    )
    up = await make_up(
        "flood: python flood.py\nquiet: sh -c 'while sleep 0.05; do echo tick; done'\n",
        '[process.flood]\nrestart = "temporary"\n[logs]\nmax_mb = 8\nkeep = 9',
    ).start()
    (tmp_path / "go").touch()
    began = time.monotonic()
    took = []
    while up.replica("flood.0")["state"] != "finished":
        asked = time.monotonic()
        await up.ask("status")
        took.append(time.monotonic() - asked)
        await asyncio.sleep(0.05)
        assert time.monotonic() - began < 60
    secs = time.monotonic() - began
    lines = logged(up, "flood.0")
    assert len(lines) == count
    assert [int(line) for line in lines] == list(range(count))
    assert len(up.lines_of("flood.0")) == count
    assert sorted(took)[len(took) // 2] < 0.2, took
    assert len(files_of(up.state.logs / "flood.0.log")) > 1
    # 50 MB/s is for an idle machine; here it must not be an order of magnitude less.
    assert count * size / secs > 5e6, f"{count * size / secs / 1e6:.0f} MB/s"
    assert "tick" in up.lines_of("quiet.0")
    assert up.look()["memory_bytes"] < 150e6


async def test_a_console_that_stands_still_holds_no_child_up(make_up: MakeUp, tmp_path: Path) -> None:
    (tmp_path / "talk.py").write_text(
        "import sys\nfor n in range(20_000):\n    sys.stdout.write(f'{n:0>999}\\n')\nopen('finished', 'w').close()\n"
    )
    ticker = "sh -c 'while sleep 0.05; do echo tick; done'"
    up = make_up(f"talk: python talk.py\nticker: {ticker}\n", '[process.talk]\nrestart = "temporary"')
    up.spawn(stdout=subprocess.PIPE)
    assert up.process is not None
    assert up.process.stdout is not None
    # 20 MB against a pipe that nobody reads.
    await eventually((tmp_path / "finished").exists, within=30)
    await up.reaches("talk.0", "finished")
    assert [int(line) for line in logged(up, "talk.0")] == list(range(20_000))
    reading = up.process.stdout.fileno()
    os.set_blocking(reading, False)
    shown = b""

    def read() -> bool:
        nonlocal shown
        try:
            shown += os.read(reading, 1 << 20)
        except BlockingIOError:
            return b"lines were not shown here" in shown
        return False

    await eventually(read, within=30, poll=0.001)
    up.process.stdout.close()
    await up.ask("status")  # a reader that is gone ends nothing
    assert await up.stop() == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is full")
async def test_a_full_disk_is_said_once_and_stops_nothing(make_up: MakeUp) -> None:
    up = make_up("one: sh -c 'for n in 1 2 3; do echo $n; sleep 0.05; done; exec sleep 1001'\n")
    up.state.logs.mkdir(parents=True)
    (up.state.logs / "one.0.log").symlink_to("/dev/full")
    await up.start()
    await eventually(lambda: len(up.lines_of("one.0")) == 3)
    said = [line for line in up.lines_of("runtime") if "cannot be written" in line]
    assert said == ["the log file of one.0 cannot be written: No space left on device; lines are shown here only"]
    assert up.replica("one.0")["state"] == "ready"


async def test_closed_standard_descriptors_do_no_harm(make_up: MakeUp) -> None:
    up = make_up("one: sh -c 'echo hello; exec sleep 1001'\n")
    up.prefix = ("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh")
    up.spawn()
    await up.reaches("one.0", "ready")
    await eventually(lambda: logged(up, "one.0") == [b"hello"])
    holder = up.state.lock_file.read_bytes()
    assert holder.startswith(b"{")
    assert holder.endswith(b"}")
    assert await up.stop() == 0
