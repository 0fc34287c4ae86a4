"""`echo`: returns the prompt. For trying things out, and for tests of everything around a handler."""

from workers.handlers import handler
from workers.turn import Turn


@handler("echo", concurrency=16, timeout=60, idempotent=True)
async def echo(turn: Turn) -> str:
    """Return the prompt."""
    return turn.prompt
