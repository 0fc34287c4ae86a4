"""A router process that kills itself with -9 when it reaches a step for the n-th time.

python -m tests.support.killed_router STEP N
"""

import asyncio
import os
import signal
import sys
from collections import Counter

from hub.process import HubOptions, serve
from hub.service import logs


def main() -> None:
    step, times = sys.argv[1], int(sys.argv[2])
    reached: Counter[str] = Counter()

    def on_step(name: str) -> None:
        reached[name] += 1
        if name == step and reached[name] == times:
            os.kill(os.getpid(), signal.SIGKILL)

    logs.configure()
    options = HubOptions(roles=("router",), durable=True, delivery_config=os.environ.get("NATS_HUB_DELIVERY_CONFIG"))
    raise SystemExit(asyncio.run(serve(options, os.environ, on_step=on_step)))


if __name__ == "__main__":
    main()
