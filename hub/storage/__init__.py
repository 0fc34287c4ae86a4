"""Storage: history, agents, dead letters, sessions and waves behind one interface, in SQLite or PostgreSQL."""

from hub.storage.base import Storage
from hub.storage.errors import (
    BadStorageUrl,
    BadValue,
    Conflict,
    LeaseLost,
    Stale,
    StorageError,
    StorageFailed,
    StorageMismatch,
    StorageUnavailable,
)
from hub.storage.opening import open_storage

__all__ = [
    "open_storage",
    "Storage",
    "StorageError",
    "StorageUnavailable",
    "StorageFailed",
    "StorageMismatch",
    "BadStorageUrl",
    "BadValue",
    "Conflict",
    "Stale",
    "LeaseLost",
]
