"""A worker that kills itself with SIGKILL at a step.

`python -m tests.support.stepping_worker STEP HANDLER IDENTITY [EVENT_SOURCE TENANT]`
"""

import os
import signal
import sys

from workers.options import WorkerOptions
from workers.service import run


def main() -> int:
    step, handler, identity, *more = sys.argv[1:]
    event_source, tenant = more or (None, None)

    def on_step(name: str) -> None:
        if name == step:
            os.kill(os.getpid(), signal.SIGKILL)

    return run(
        WorkerOptions(handler=handler, identity=identity, event_source=event_source, tenant=tenant), on_step=on_step
    )


if __name__ == "__main__":
    sys.exit(main())
