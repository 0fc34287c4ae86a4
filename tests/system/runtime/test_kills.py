"""Random kill -9 of children and of their shims: all come back, nothing is left, `status` answers all the time."""

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable

import psutil
import pytest

from tests.support.up_process import UpProcess
from tests.support.waiting import eventually

MakeUp = Callable[..., UpProcess]
PROCFILE = "a: sleep 1001\nb: sleep 1002 & sleep 1003 & wait\nc: sh -c 'setsid sleep 1004 & exec sleep 1005'\n"
TOML = "".join(
    f"[process.{name}]\nreplicas = 2\nrestart_limit = 1000\nbackoff_secs = 0.01\nbackoff_max_secs = 0.05\n"
    for name in ("a", "b", "c")
)


@pytest.mark.parametrize(
    ("kills", "seed"), [(12, 1), pytest.param(200, None, marks=[pytest.mark.soak, pytest.mark.timeout(600)])]
)
async def test_whatever_is_killed_comes_back(make_up: MakeUp, kills: int, seed: int | None) -> None:
    seed = random.randrange(1 << 32) if seed is None else seed
    chance = random.Random(seed)
    up = await make_up(PROCFILE, TOML).start()
    took: list[float] = []

    def running() -> list[int]:
        began = time.monotonic()
        replicas = up.look()["replicas"]
        took.append(time.monotonic() - began)
        return [replica["pid"] for replica in replicas if replica["state"] == "ready" and replica.get("pid")]

    for _ in range(kills):
        pids = await eventually(running, within=20, what=f"something runs (seed {seed})")
        victim = chance.choice(pids)
        try:
            os.kill(psutil.Process(victim).ppid() if chance.random() < 0.3 else victim, signal.SIGKILL)
        except (psutil.NoSuchProcess, ProcessLookupError):
            continue
        await asyncio.sleep(chance.random() * 0.1)
    await eventually(lambda: len(running()) == 6, within=20, what=f"all six are back (seed {seed})")
    assert up.process is not None
    await eventually(lambda: not up.zombies(up.process.pid), what="no zombies")  # type: ignore[union-attr]
    # 6 shims; sleep; sh and two sleeps; two sleeps: each twice. What was killed left nothing.
    await eventually(lambda: len(up.survivors()) == 6 + 2 * (1 + 3 + 2), what=f"nothing more: {up.survivors()}")
    assert sorted(took)[len(took) // 2] < 0.2, took
    assert await up.stop() == 0
    assert not up.survivors()
