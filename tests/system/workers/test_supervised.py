"""What a worker and a hub tell their supervisor, and do at its word: drain, watchdog."""

import contextlib
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.hub_process import HubProcess
from tests.support.waiting import eventually
from tests.system.workers.conftest import Bench, is_alive


class Supervisor:
    """Hears what processes tell, as systemd or `runtime up` do."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._said: list[str] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.setblocking(False)

    def heard(self, word: str) -> list[str]:
        """Every notice with this word so far."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self._said.append(self._socket.recv(4096).decode())
        return [text for text in self._said if word in text]

    def beats(self) -> int:
        return len(self.heard("WATCHDOG=1"))

    def watches(self, process: HubProcess, *, watchdog_usec: int = 0) -> HubProcess:
        process.environ["NOTIFY_SOCKET"] = str(self.path)
        if watchdog_usec:
            process.environ["WATCHDOG_USEC"] = str(watchdog_usec)
        return process

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    supervisor = Supervisor(tmp_path / "notify")
    yield supervisor
    supervisor.close()


async def test_a_drain_takes_nothing_more_in_and_works_off_what_is_queued_retries_included(
    bench: Bench, supervisor: Supervisor
) -> None:
    identity = bench.name()
    worker = await supervisor.watches(bench.worker("nap_or_retry", identity, "--concurrency", "1")).start()
    first = await bench.send(identity, "0.5")
    await bench.witness.said(first, "started")
    queued = [await bench.send(identity, prompt) for prompt in ("retry", "0", "0.3")]
    for each in queued:
        await bench.witness.said(each, "queued")
    worker.signal(signal.SIGUSR1)
    await eventually(lambda: supervisor.heard("STATUS=draining: "), what="it says how much is left")
    late = await bench.send(identity, "0")
    assert await worker.ended() == 0
    assert [bench.witness.results(each)[0]["status"] for each in (first, *queued)] == ["done"] * 4
    assert "\nX_BACKLOG=" in supervisor.heard("STATUS=draining: ")[0]
    assert supervisor.heard("STOPPING=1")
    assert bench.witness.progress(late) == []
    await bench.start("nap_or_retry", identity)
    assert (await bench.witness.result(late))["status"] == "done"
    assert bench.witness.counts() == dict.fromkeys([first, *queued, late], 1)


async def test_a_sigterm_ends_a_drain_within_the_grace_and_what_is_queued_waits_on_disk(bench: Bench) -> None:
    identity = bench.name()
    worker = await bench.start("nap", identity, "--concurrency", "1", "--grace", "0.2")
    running, queued = await bench.send(identity, "60"), await bench.send(identity, "0")
    await bench.witness.said(running, "started")
    await bench.witness.said(queued, "queued")
    worker.signal(signal.SIGUSR1)
    await worker.logged("draining: nothing is taken in any more, what is queued runs to its end")
    assert await worker.stop() == 0
    assert (await bench.witness.result(running))["code"] == "interrupted"
    assert bench.witness.results(queued) == []
    await bench.start("nap", identity)
    assert (await bench.witness.result(queued))["status"] == "done"


async def test_worker_and_hub_beat_for_the_watchdog_and_a_stuck_loop_is_silent(
    bench: Bench, supervisor: Supervisor
) -> None:
    identity = bench.name()
    worker = bench.worker("block_loop", identity, "--blocked-limit", "1.5")
    await supervisor.watches(worker, watchdog_usec=600_000).start()
    before = supervisor.beats()
    assert before >= 1, "it beats while it starts"
    await eventually(lambda: supervisor.beats() >= before + 4, within=5)
    task_id = await bench.send(identity, "60")
    await eventually(lambda: bench.starts(task_id))
    before = supervisor.beats()
    assert await worker.ended() == 1
    assert supervisor.beats() == before
    hub = supervisor.watches(bench.process("hub", "router", "--db", "none"), watchdog_usec=600_000)
    await hub.start()
    await eventually(lambda: supervisor.beats() >= before + 4, within=5)
    assert await hub.stop() == 0


async def test_a_worker_that_finds_no_server_stops_at_once_when_told(bench: Bench) -> None:
    worker = bench.worker(":echo")
    worker.environ["NATS_URL"] = "nats://127.0.0.1:1"
    worker.spawn()
    assert worker.process is not None
    pid = worker.process.pid
    await eventually(lambda: _catches(pid, signal.SIGTERM), what="its signal handler is there")
    began = time.monotonic()
    assert await worker.stop() == 0
    assert time.monotonic() - began < 5
    assert not is_alive(pid)


def _catches(pid: int, number: signal.Signals) -> bool:
    with open(f"/proc/{pid}/status") as file:
        caught = next(line for line in file if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) & (1 << (number - 1)))
