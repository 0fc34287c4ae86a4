"""A worker that kills itself with SIGKILL at a step.

`python -m tests.support.stepping_worker STEP HANDLER IDENTITY`
"""

import os
import signal
import sys

from workers.service import run

from workers.options import WorkerOptions


def main() -> int:
    step, handler, identity = sys.argv[1:]

    def on_step(name: str) -> None:
        if name == step:
            os.kill(os.getpid(), signal.SIGKILL)

    return run(WorkerOptions(handler=handler, identity=identity), on_step=on_step)


if __name__ == "__main__":
    sys.exit(main())
