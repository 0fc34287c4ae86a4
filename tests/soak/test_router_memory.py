"""A million messages through one router process: its memory stays where it was."""

import psutil
import pytest

from hub.bench.figures import Load
from hub.bench.router_case import backlog
from hub.bench.stage import Stage

MESSAGES = 1_000_000
BATCH = 50_000
WARM_BATCHES = 4  # until pools, caches and the allocator's arenas have their size
MOST_GROWTH = 0.05  # some 5 MB: a leak of 7 bytes a message shows


@pytest.mark.soak
async def test_a_routers_memory_is_flat_over_a_million_messages() -> None:
    load = Load(messages=BATCH)
    resident: list[int] = []
    async with Stage.set_up() as stage:
        router = await stage.start_router()
        process = psutil.Process(router.pid)
        for batch in range(MESSAGES // BATCH):
            await stage.fill(stage.config.ingress.name, backlog(load, BATCH), window=load.window)
            await stage.wait_stored(stage.config.inbox.name, (batch + 1) * BATCH, alive=router)
            await stage.wait_history(BATCH)
            resident.append(process.memory_info().rss)
    warm = resident[WARM_BATCHES:]
    shown = ", ".join(f"{size / 1e6:.1f}" for size in resident)
    print(f"resident MB after each {BATCH}: {shown}")
    assert max(warm) <= resident[WARM_BATCHES - 1] * (1 + MOST_GROWTH), f"resident MB after each {BATCH}: {shown}"
