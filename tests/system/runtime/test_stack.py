"""The default Procfile with the real hub, and the embedded nats-server under it."""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.up_process import ROOT, UpProcess
from tests.support.waiting import eventually

MakeUp = Callable[..., UpProcess]
OWN_SERVER = {"NATS_URL": ""}


async def server_answers(url: str) -> bytes:
    host, port = url.removeprefix("nats://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        async with asyncio.timeout(5):
            return await reader.readline()
    finally:
        writer.close()


async def test_the_default_procfile_comes_up_with_its_own_server_and_goes_down(make_up: MakeUp) -> None:
    procfile, toml = (ROOT / "Procfile").read_text(), (ROOT / "runtime.toml").read_text()
    up = make_up(procfile, toml, environ=OWN_SERVER).spawn()
    await eventually(lambda: up.look()["state"] == "up", within=40)
    labels = {replica["label"]: replica["state"] for replica in up.look()["replicas"]}
    assert [labels[f"{name}.0"] for name in ("nats-server", "router", "attach", "api", "worker")] == ["ready"] * 5
    assert set(labels.values()) == {"ready"}
    url = up.state.url_file.read_text().strip()
    assert b'"jetstream":true' in await server_answers(url)
    assert b'"max_payload":8388608' in await server_answers(url)
    assert up.look()["nats_url"] == url
    assert await up.stop() == 0
    # The server goes last: the others need it to flush.
    assert [line["process"] for line in up.events("stopped")][-1] == "nats-server.0"
    assert all(line["how"] == "exit code 0" for line in up.events("stopped"))
    assert not up.survivors()


async def test_the_servers_port_is_chosen_once_and_its_store_is_kept(make_up: MakeUp) -> None:
    up = await make_up("one: sh -c 'echo $NATS_URL; exec sleep 1001'\n", environ=OWN_SERVER).start()
    url = up.state.url_file.read_text().strip()
    await eventually(lambda: up.lines_of("one.0") == [url])
    config = (up.state.nats / "nats-server.conf").read_text()
    assert 'sync_interval: "10s"' in config
    assert "127.0.0.1" in config
    server = up.replica("nats-server.0")["pid"]
    os.kill(server, signal.SIGKILL)
    await up.reaches("nats-server.0", "ready", starts=2)
    assert await server_answers(url)
    up.signal(signal.SIGKILL)  # and over a kill -9 of `up`: the store's lock waits for the old server's end
    await up.ended()
    await up.start()
    assert up.state.url_file.read_text().strip() == url
    assert await server_answers(url)
    assert await up.stop() == 0
    # Somebody else took the port meanwhile: another one, told to everybody.
    with socket.socket() as squatter:
        squatter.bind(("127.0.0.1", int(url.rpartition(":")[2])))
        squatter.listen()
        await up.start()
        assert up.state.url_file.read_text().strip() != url
        assert await up.stop() == 0


async def test_a_server_that_hangs_is_found_and_replaced(make_up: MakeUp) -> None:
    up = await make_up("one: sleep 1001\n", environ=OWN_SERVER).start()
    os.kill(up.replica("nats-server.0")["pid"], signal.SIGSTOP)
    again = await up.reaches("nats-server.0", "ready", within=30, starts=2)
    assert again["last_exit"].startswith("health check: no answer within")


async def test_dev_restarts_on_a_change_of_source(make_up: MakeUp, tmp_path: Path) -> None:
    pytest.importorskip("watchfiles")
    (tmp_path / "code.py").write_text("import time\nprint('one')\ntime.sleep(1000)\n")
    up = make_up("w: python code.py\n").spawn("dev")
    await up.settled()
    await eventually(lambda: up.lines_of("w.0") == ["one"])
    (tmp_path / "notes.txt").write_text("no source")
    (tmp_path / "code.py").write_text("import time\nprint('two')\ntime.sleep(1000)\n")
    await eventually(lambda: up.lines_of("w.0") == ["one", "two"], within=15)
    assert up.events("changed")[0]["files"] == ["code.py"]
    assert await up.stop() == 0


async def test_it_tells_its_own_supervisor_that_it_is_ready_and_stops(make_up: MakeUp, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(str(tmp_path / "told"))
        told.setblocking(False)
        given = "sh -c 'echo $NOTIFY_SOCKET; exec sleep 1001'"
        up = await make_up(f"one: {given}\n", environ={"NOTIFY_SOCKET": str(tmp_path / "told")}).start()
        await eventually(lambda: up.lines_of("one.0"))
        assert up.lines_of("one.0") != [str(tmp_path / "told")]
        assert told.recv(100) == b"READY=1"
        assert await up.stop() == 0
        assert told.recv(100) == b"STOPPING=1"


async def test_logs_are_followed_over_a_restart_of_the_process(make_up: MakeUp) -> None:
    up = await make_up("one: sh -c 'echo begin; exec sleep 1001'\n").start()
    await eventually(lambda: up.lines_of("one.0") == ["begin"])
    following = subprocess.Popen(
        [sys.executable, "-m", "runtime", "logs", "-f", "one", "--json"],
        cwd=up.home,
        env=up.environ,
        stdout=subprocess.PIPE,
    )
    try:
        assert following.stdout is not None
        lines = [await asyncio.to_thread(following.stdout.readline)]
        await up.ask("restart", name="one")
        lines.append(await asyncio.to_thread(following.stdout.readline))
    finally:
        following.kill()
        following.communicate()
    assert [json.loads(line)["text"] for line in lines] == ["begin", "begin"]


async def test_a_state_directory_with_a_long_name_works(tmp_path: Path) -> None:
    home = tmp_path / ("long" * 30)
    up = UpProcess(home, "one: python notify.py\n", '[process.one]\nreadiness = "notify"')
    shutil.copy(ROOT / "hub" / "service" / "notify.py", home / "told.py")
    (home / "notify.py").write_text("import time, told\nassert told.notify('READY=1')\ntime.sleep(1000)\n")
    try:
        await up.start()
        assert up.replica("one.0")["state"] == "ready"
        assert up.run("status").returncode == 0
        assert await up.stop() == 0
    finally:
        up.end()
