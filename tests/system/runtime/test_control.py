"""The operator's commands: restart, overlap, scale, drain, stop, start, down; and what is remembered."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.errors import Refused
from tests.support.up_process import UpProcess
from tests.support.waiting import eventually

MakeUp = Callable[..., UpProcess]

WORKER = "w: python worker.py --identity echo-$PROCESS_INDEX\n"
# Ready on READY=1; SIGUSR1 works off what it has (until `done` appears) and leaves; SIGTERM leaves at once.
WORKER_CODE = """\
import os, pathlib, signal, socket, sys, time
def tell(text):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.sendto(text.encode(), os.environ["NOTIFY_SOCKET"])
asked = []
signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print(" ".join(sys.argv[1:]))
if pathlib.Path("broken").exists():
    sys.exit(1)
tell("READY=1\\nSTATUS=mailbox echo: 2 queued\\nX_QUEUED=2")
while not (asked and pathlib.Path("done").exists()):
    time.sleep(0.02)
print("worked off")
"""
NOTIFY = '[process.w]\nreadiness = "notify"\n'


@pytest.fixture
def worker(tmp_path: Path) -> Path:
    (tmp_path / "worker.py").write_text(WORKER_CODE)
    return tmp_path


async def test_the_index_of_a_replica_is_usable_in_the_line(make_up: MakeUp, worker: Path) -> None:
    up = await make_up(WORKER, NOTIFY + "replicas = 2").start()
    assert up.lines_of("w.0") == ["--identity echo-0"]
    assert up.lines_of("w.1") == ["--identity echo-1"]
    assert await up.stop() == 0


async def test_a_restart_rolls_and_stops_at_the_first_that_does_not_come_up(make_up: MakeUp, worker: Path) -> None:
    up = await make_up(WORKER, NOTIFY + "replicas = 2\nbackoff_secs = 0.05").start()
    before = [up.replica(label)["pid"] for label in ("w.0", "w.1")]
    assert await up.ask("restart", name="w") == {"restarted": ["w.0", "w.1"]}
    after = [up.replica(label)["pid"] for label in ("w.0", "w.1")]
    assert not set(before) & set(after)
    await eventually(lambda: len(up.events("ready")) == 4)
    changes = [(line["event"], line["process"]) for line in up.events() if line.get("event") in {"stopped", "ready"}]
    assert changes[2:] == [("stopped", "w.0"), ("ready", "w.0"), ("stopped", "w.1"), ("ready", "w.1")]

    (worker / "broken").touch()
    with pytest.raises(Refused, match=r"w\.0 did not get ready: exit code 1; the other replicas were left as they are"):
        await up.ask("restart", name="w")
    assert up.replica("w.1")["pid"] == after[1]
    assert up.replica("w.1")["state"] == "ready"


async def test_with_overlap_the_new_one_is_ready_before_the_old_one_is_stopped(make_up: MakeUp, worker: Path) -> None:
    up = await make_up(WORKER, NOTIFY + "overlap = true\nbackoff_secs = 0.05").start()
    before = up.replica("w.0")["pid"]
    await up.ask("restart", name="w")
    await eventually(lambda: up.events("stopped"))
    changes = [line["event"] for line in up.events(process="w.0") if line.get("event") in {"stopped", "ready"}]
    assert changes == ["ready", "ready", "stopped"]
    after = up.replica("w.0")["pid"]
    assert after != before

    (worker / "broken").touch()
    with pytest.raises(Refused, match=r"w\.0 did not get ready"):
        await up.ask("restart", name="w")
    assert up.replica("w.0")["pid"] == after, "the one that works is kept"
    await eventually(lambda: len(up.look()["replicas"]) == 1)


async def test_scale_down_drains_what_it_removes(make_up: MakeUp, worker: Path) -> None:
    up = await make_up(WORKER, NOTIFY).start()
    assert (await up.ask("scale", name="w", replicas=3))["not_drained"] == []
    for label in ("w.1", "w.2"):
        await up.reaches(label, "ready")
    (worker / "done").touch()
    assert (await up.ask("scale", name="w", replicas=2))["not_drained"] == []
    assert up.lines_of("w.2") == ["--identity echo-2", "worked off"]
    (worker / "done").unlink()
    # It has work and a deadline: said with what it reported last.
    shown = up.run("scale", "w=1", "--timeout", "0.3")
    assert shown.returncode == 0, shown.stderr
    assert (
        "w.1 was not drained within 0.3 s and is stopped; it reports: mailbox echo: 2 queued; queued=2" in shown.stdout
    )
    assert [replica["label"] for replica in up.look()["replicas"]] == ["w.0"]
    assert "worked off" not in up.lines_of("w.1")
    with pytest.raises(Refused, match="expected 0 to 256 replicas, found 257"):
        await up.ask("scale", name="w", replicas=257)


async def test_drain_ends_with_0_and_stays_down(make_up: MakeUp, worker: Path) -> None:
    up = await make_up(WORKER + "plain: sleep 1001\n", NOTIFY).start()
    (worker / "done").touch()
    assert await up.ask("drain", name="w") == {"drained": ["w.0"], "exit_codes": {"w.0": 0}}
    assert up.replica("w.0")["state"] == "stopped"
    # One that does not know SIGUSR1 would die of it: it gets SIGTERM.
    await up.ask("drain", name="plain")
    assert up.replica("plain.0")["last_exit"] == "ended by SIGTERM"


async def test_what_the_operator_stopped_stays_stopped_until_down(make_up: MakeUp) -> None:
    up = await make_up("one: sleep 1001\ntwo: sleep 1002\n").start()
    await up.ask("stop", name="one")
    assert up.replica("one.0")["state"] == "stopped"
    up.signal(signal.SIGKILL)
    await up.ended()
    await up.start()
    assert up.replica("one.0")["state"] == "stopped"
    assert up.replica("two.0")["state"] == "ready"
    assert await up.stop() == 0
    await up.start()
    assert up.replica("one.0")["state"] == "stopped"
    assert up.run("down").returncode == 0
    assert await up.ended(within=2) == 0
    await up.start()
    assert up.replica("one.0")["state"] == "ready"


async def test_start_brings_a_parked_one_back(make_up: MakeUp, tmp_path: Path) -> None:
    up = await make_up("w: sh -c 'test -e fine && exec sleep 1001; exit 78'\n").start()
    await up.reaches("w.0", "failed")
    with pytest.raises(Refused, match=r"no process 'v'; there are w"):
        await up.ask("start", name="v")
    (tmp_path / "fine").touch()
    await up.ask("start", name="w")
    assert up.replica("w.0")["state"] == "ready"


async def test_a_stop_all_process_that_is_given_up_ends_up_with_70(make_up: MakeUp) -> None:
    toml = '[process.vital]\nrestart_limit = 1\nbackoff_secs = 0.05\non_give_up = "stop_all"'
    up = make_up("vital: sh -c 'sleep 0.2; exit 3'\nother: sleep 1001\n", toml).spawn()
    assert await up.ended() == 70
    assert not up.survivors()
    assert up.events("given up")[0]["why"] == "exit code 3; restarted 1 times within 60 s"


async def test_one_killed_replica_of_four_is_replaced_and_the_others_go_on(make_up: MakeUp) -> None:
    up = await make_up("w: sleep 1001\n", "[process.w]\nreplicas = 4\nbackoff_secs = 0.05").start()
    pids = {replica["label"]: replica["pid"] for replica in up.look()["replicas"]}
    os.kill(pids["w.2"], signal.SIGKILL)
    again = await up.reaches("w.2", "ready", starts=2)
    assert again["last_exit"] == "ended by SIGKILL"
    assert {replica["label"]: replica["pid"] for replica in up.look()["replicas"]} == pids | {"w.2": again["pid"]}


async def test_commands_without_an_up_say_so(make_up: MakeUp) -> None:
    up = make_up("one: sleep 1001\n")
    asked = up.run("status")
    assert asked.returncode == 1
    assert f"no `up` runs on {up.state.root} (NATS_HUB_STATE_DIR); start one with" in asked.stderr
    assert json.loads(up.run("status", "--json").stdout)["code"] == "not_running"


async def test_mistakes_in_the_files_end_it_with_78_and_are_all_told(make_up: MakeUp) -> None:
    up = make_up("ok: sleep 1\nno colon\nbad name: x\n", "[process.ok]\nreplica = 2\nrestart = 'never'\n[proces.x]\n")
    for command in ("up", "check"):
        done = up.run(command)
        assert done.returncode == 78
        for text in (
            "Procfile:2: expected `name: command`, found 'no colon' without a colon",
            "Procfile:3: expected a name of 1 to 64 characters",
            "runtime.toml: `process.ok.replica`: unknown; did you mean 'replicas'?",
            "runtime.toml: `process.ok.restart`: ",
            "runtime.toml: `proces`: unknown; did you mean 'process'?",
        ):
            assert text in done.stderr
    assert not up.state.root.exists()


async def test_check_shows_what_up_runs_and_hides_secrets(make_up: MakeUp, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("NATS_TOKEN=hush\nPORT=1\nNATS_URL=nats://me:hush@h\n")
    up = make_up(
        "w: echo $PORT $PROCESS_INDEX\n", "[process.w]\nreplicas = 2", environ={"PORT": "8000", "NATS_URL": ""}
    )
    text = up.run("check").stdout
    assert ".0  echo 8000 0\n" in text
    assert ".1  echo 8000 1\n" in text
    assert "replicas = 2  (runtime.toml)" in text
    assert "$PORT=8000  (environment)" in text
    assert "not used: .env:2: PORT (the environment's value holds)" in text
    assert "$NATS_TOKEN=***  (.env:1)" in text
    assert "nats_url: nats://***@h  (.env:3)" in text
    assert "hush" not in text + up.run("check", "--json").stdout
    up.write("w: echo $NOWHERE\n")
    assert "Procfile:1: w: $NOWHERE is not set; set it in .env" in up.run("check").stderr
