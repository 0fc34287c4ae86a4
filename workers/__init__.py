"""The worker process: an identity, a mailbox on disk, and handlers that are plugins.

What a handler author imports is here; `docs/handlers.md` tells how to write and run one.
"""

from workers.handlers import BadHandler, Reject, Retry, handler
from workers.turn import NoHubHere, Turn

__all__ = ["handler", "Turn", "Retry", "Reject", "BadHandler", "NoHubHere"]
