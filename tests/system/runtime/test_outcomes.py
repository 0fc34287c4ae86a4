"""What a supervisor meets: each kind of bad line has its documented outcome, and the good ones notice nothing.

All of them run in one `up`, because that is the point.
"""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.up_process import UpProcess
from tests.support.waiting import eventually

NOTIFY = """
import os, socket, sys, time
def tell(text):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.sendto(text.encode(), os.environ["NOTIFY_SOCKET"])
"""

PROCFILE = """\
bad: /nope/x --flag
good: python -c "import time; print('good'); time.sleep(1000)"
quick: python -c "import sys; print('last words'); sys.exit(9)"
usage: python -c "import sys; sys.exit(78)"
deaf: python -c "import signal,time; signal.signal(15, signal.SIG_IGN); print('deaf'); time.sleep(1000)"
never: sleep 1001
forks: sh -c "sleep 1002 & exit 0"
suicide: python -c "import os; os.killpg(0, 9)"
notify: python notify.py
hung: python hung.py
descriptor: sh -c "sleep 0.2; echo >&$READY_FD; exec sleep 1003"
later: sleep 1004
once: sh -c "exit 0"
"""

TOML = """\
[process.bad]
restart_limit = 2
backoff_secs = 0.05
[process.quick]
restart_limit = 2
backoff_secs = 0.05
[process.deaf]
stop_timeout_secs = 0.5
[process.never]
readiness = "notify"
ready_timeout_secs = 0.6
restart_limit = 1
backoff_secs = 0.05
[process.forks]
restart = "transient"
[process.suicide]
restart_limit = 1
backoff_secs = 0.05
[process.notify]
readiness = "notify"
[process.hung]
readiness = "notify"
watchdog_secs = 0.4
restart_limit = 1
backoff_secs = 0.05
[process.descriptor]
readiness = "fd"
[process.later]
after = ["notify", "descriptor"]
[process.once]
restart = "transient"
"""


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpProcess]:
    home: Path = tmp_path_factory.mktemp("zoo")
    up = UpProcess(home, PROCFILE, TOML)
    (home / "notify.py").write_text(
        NOTIFY + "tell('STATUS=starting'); time.sleep(0.3)\n"
        "tell('READY=1\\nSTATUS=3 in flight\\nX_BACKLOG=17\\nX_STALLED=waits for storage')\n"
        "assert 'WATCHDOG_USEC' not in os.environ\ntime.sleep(1000)\n"
    )
    (home / "hung.py").write_text(
        NOTIFY + "assert int(os.environ['WATCHDOG_PID']) == os.getpid() and os.environ['WATCHDOG_USEC'] == '400000'\n"
        "tell('READY=1')\nfor _ in range(4):\n    time.sleep(0.2); tell('WATCHDOG=1')\ntime.sleep(1000)\n"
    )
    up.spawn()
    yield up
    up.end()


@pytest.fixture(autouse=True)
async def running(zoo: UpProcess) -> None:
    await zoo.settled()


async def test_a_line_that_cannot_be_executed_is_tried_with_backoff_and_parked(zoo: UpProcess) -> None:
    bad = await zoo.reaches("bad.0", "failed")

    assert bad["starts"] == 3  # the first, and two restarts
    assert "cannot be executed: /nope/x: No such file or directory" in bad["why"]


async def test_a_line_that_ends_at_once_is_parked_with_its_code_and_last_lines(zoo: UpProcess) -> None:
    quick = await zoo.reaches("quick.0", "failed")
    assert (quick["state"], quick["starts"]) == ("failed", 3)
    assert quick["why"].startswith("exit code 9; restarted 2 times within 60 s")
    assert [line.split(" ", 2)[2] for line in quick["tail"]] == ["last words"] * 3


async def test_a_configuration_error_is_not_tried_again(zoo: UpProcess) -> None:
    usage = await zoo.reaches("usage.0", "failed")
    assert (usage["state"], usage["starts"]) == ("failed", 1)
    assert "exit code 78; starting it again would not mend that" in usage["why"]


async def test_one_that_never_gets_ready_is_killed_and_parked(zoo: UpProcess) -> None:
    never = await zoo.reaches("never.0", "failed")
    assert (never["state"], never["starts"]) == ("failed", 2)
    assert never["why"].startswith("not ready within 0.6 s (ended by SIGKILL)")
    assert not [line for line in zoo.survivors() if "sleep 1001" in line]


async def test_what_a_leader_forks_and_leaves_is_ended_and_the_line_counts_as_ended(zoo: UpProcess) -> None:
    forks = await zoo.reaches("forks.0", "finished")
    assert forks["last_exit"] == "exit code 0"
    assert not [line for line in zoo.survivors() if "sleep 1002" in line]


async def test_one_that_kills_its_own_group_kills_nobody_else(zoo: UpProcess) -> None:
    suicide = await zoo.reaches("suicide.0", "failed")
    assert (suicide["state"], suicide["starts"]) == ("failed", 2)
    assert "ended by SIGKILL" in suicide["why"]


async def test_a_process_reports_its_readiness_and_figures(zoo: UpProcess) -> None:
    notify = zoo.replica("notify.0")
    assert (notify["state"], notify["reports"]) == ("ready", "3 in flight")
    assert notify["figures"] == {"backlog": "17", "stalled": "waits for storage"}
    (ready,) = zoo.events("ready", process="notify.0")
    assert ready["after_secs"] > 0.3


async def test_a_hung_one_is_killed_by_the_watchdog(zoo: UpProcess) -> None:
    hung = await zoo.reaches("hung.0", "failed")
    assert hung["starts"] == 2
    assert hung["why"].startswith("watchdog: no WATCHDOG=1 for 0.4 s (ended by SIGKILL)")


async def test_readiness_by_an_inherited_descriptor(zoo: UpProcess) -> None:
    assert zoo.replica("descriptor.0")["state"] == "ready"
    (ready,) = zoo.events("ready", process="descriptor.0")
    assert ready["after_secs"] >= 0.2


async def test_one_that_comes_after_others_starts_when_they_are_ready(zoo: UpProcess) -> None:
    events = [line for line in zoo.events() if line.get("event") in {"started", "ready"}]
    order = [
        (line["event"], line["process"])
        for line in events
        if line["process"] in {"notify.0", "descriptor.0", "later.0"}
    ]
    assert order[-2:] == [("started", "later.0"), ("ready", "later.0")]
    assert {("ready", "notify.0"), ("ready", "descriptor.0")} < set(order[:-2])


async def test_a_transient_one_that_ends_well_is_finished(zoo: UpProcess) -> None:
    once = zoo.replica("once.0")
    assert (once["state"], once["starts"]) == ("finished", 1)


async def test_the_good_ones_notice_nothing(zoo: UpProcess) -> None:
    for label in ("good.0", "notify.0"):
        replica = zoo.replica(label)
        assert (replica["state"], replica["starts"]) == ("ready", 1), replica
        assert replica["memory_bytes"] > 1_000_000


async def test_an_ignored_sigterm_costs_the_grace_and_no_more(zoo: UpProcess) -> None:
    await eventually(lambda: zoo.lines_of("deaf.0") == ["deaf"])
    began = time.monotonic()
    await zoo.ask("stop", name="deaf")
    took = time.monotonic() - began
    assert 0.5 <= took < 2.5  # the grace, and what a loaded machine adds
    (killed,) = zoo.events("did not stop in time; killing it")
    assert killed["process"] == "deaf.0"
    assert zoo.replica("deaf.0")["last_exit"] == "did not stop in time (ended by SIGKILL)"


async def test_status_answers_within_200_ms_meanwhile(zoo: UpProcess) -> None:
    took = []
    for _ in range(20):
        began = time.monotonic()
        await zoo.ask("status")
        took.append(time.monotonic() - began)
        await asyncio.sleep(0.01)
    assert sorted(took)[len(took) // 2] < 0.2, took  # the middle: single hiccups are the machine's


async def test_the_command_line_shows_all_of_it(zoo: UpProcess) -> None:
    shown = zoo.run("status")
    assert shown.returncode == 0, shown.stderr
    for text in ("quick.0, last lines:", "last words", "PROCESS", "3 in flight backlog=17", "usage.0 is failed"):
        assert text in shown.stdout
    one = zoo.run("status", "nobody")
    assert one.returncode == 1
    assert "no process 'nobody'; there are bad, good" in one.stderr
