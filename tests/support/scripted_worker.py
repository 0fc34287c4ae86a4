"""A worker for tests that does what it is told: hears its inbox live and answers on task channels by hand."""

import asyncio
from typing import Any

from hub.client import HubClient
from hub.protocol import Envelope


class ScriptedWorker:
    """Takes tasks out of its client's inbox; the test decides what is answered.

    Args:
        client: the worker's client.
    """

    def __init__(self, client: HubClient) -> None:
        self.client = client
        self.cancels: list[Any] = []
        self._tasks: asyncio.Queue[Envelope] = asyncio.Queue()
        self._reader: asyncio.Task[None] | None = None

    async def start(self) -> "ScriptedWorker":
        inbox = await self.client.inbox(retry_secs=0.2).start()
        await inbox.wait_ready(5)

        async def read() -> None:
            async for message in inbox:
                message.ack()
                if message.envelope.meta.kind == "control":
                    self.cancels.append(message.payload)
                else:
                    self._tasks.put_nowait(message.envelope)

        self._reader = asyncio.create_task(read())
        return self

    async def stop(self) -> None:
        if self._reader is not None:
            self._reader.cancel()

    async def task(self, within: float = 10.0) -> Envelope:
        """The next task."""
        async with asyncio.timeout(within):
            return await self._tasks.get()

    async def say(self, task: Envelope, kind: Any, **payload: Any) -> None:
        """Publish on the task's channel."""
        await self.client.send(
            task.payload["task_channel"],
            {"for": task.meta.sender, **payload},
            kind=kind,
            reply_to=task.meta.id,
        )

    async def end(self, task: Envelope, result: Any = None, *, status: str = "done", **payload: Any) -> None:
        """Publish the task's result."""
        base = {"status": status, "task_id": task.meta.id, "result": result, "error": None}
        await self.say(task, "message", **(base | payload))
