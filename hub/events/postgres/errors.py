"""Errors of PostgreSQL and of the way to it, as errors of the event source."""

import contextlib
from collections.abc import Iterator

import asyncpg

from hub.events.errors import BackendUnavailableError, EventOverflowError, StreamMisconfiguredError

# Worth another try: the server comes and goes, or two transactions met.
_PASSING = (
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.QueryCanceledError,
    asyncpg.TooManyConnectionsError,
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
)
_NOT_THERE = (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError, asyncpg.UndefinedColumnError)


@contextlib.contextmanager
def backend(schema: str, what: str) -> Iterator[None]:
    """Turn what asyncpg raises into errors of the family."""
    try:
        yield
    except _PASSING as error:
        raise BackendUnavailableError(f"{what}: {type(error).__name__}") from error
    except _NOT_THERE as error:
        raise StreamMisconfiguredError(schema, ["its tables are not there or are older; run migrate()"]) from error
    except (asyncpg.DiskFullError, asyncpg.OutOfMemoryError) as error:
        full = f"{what}: the database is full ({type(error).__name__})"
        raise EventOverflowError(full, is_whole_place=True) from error
    except asyncpg.PostgresError as error:
        raise BackendUnavailableError(f"{what}: PostgreSQL refused: {type(error).__name__}", retriable=False) from error
    except (asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        # A pool that the host closed does not come back; a connection that broke under way does (the driver's state is
        # then sometimes in the middle of an operation; the pool throws such a connection away).
        closed = "pool is clos" in str(error)
        raise BackendUnavailableError(f"{what}: {type(error).__name__}", retriable=not closed) from error
    except TimeoutError as error:
        raise BackendUnavailableError(f"{what}: no answer in time") from error
    except OSError as error:
        raise BackendUnavailableError(f"{what}: {type(error).__name__}") from error
