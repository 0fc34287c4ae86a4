"""A delegator as a process of its own: delegates, prints the task's id, and waits for the result, which it prints.

`python -m tests.support.delegator URL IDENTITY WORKER PROMPT`
"""

import asyncio
import sys

from hub.client import HubClient
from hub.delivery.settings import ConnectSettings
from hub.service import logs


async def main(url: str, identity: str, worker: str, prompt: str) -> None:
    async with await HubClient.connect(ConnectSettings(servers=(url,), identity=identity)) as client:
        handle = await client.delegate(worker, prompt)
        print(handle.task_id, flush=True)
        print((await handle.result()).result, flush=True)


if __name__ == "__main__":
    logs.configure()  # to stderr: stdout is for the test
    asyncio.run(main(*sys.argv[1:]))
