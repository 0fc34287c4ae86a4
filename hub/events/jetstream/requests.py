"""Requests to JetStream: answered, refused by a code, or unavailable; no error of the client library gets out."""

import contextlib
from collections.abc import Iterator
from typing import Any

import msgspec
import nats.errors
from nats.aio.client import Client

from hub.events.errors import BackendUnavailableError

REQUEST_SECS = 3.0  # a healthy server answers in milliseconds; a lost reply must not cost a whole append's time


class RefusedError(Exception):
    """JetStream said no.

    Attributes:
        status: like HTTP: 404 not found, 503 not now.
        code: JetStream's own number.
    """

    def __init__(self, status: int, code: int, description: str) -> None:
        self.status = status
        self.code = code
        super().__init__(f"{description} ({code})")

    def unavailable(self) -> BackendUnavailableError:
        """The same as an error of the family, where nothing more exact is known."""
        return BackendUnavailableError(f"JetStream refused: {self}", retriable=self.status >= 500)


@contextlib.contextmanager
def backend(connection: Client, what: str) -> Iterator[None]:
    """Turn errors of the connection into ours, and fail at once while it is down.

    A request that is made while the client reconnects is buffered and sent later, when nobody waits for it any more.
    """
    if connection.is_closed:
        raise BackendUnavailableError(f"{what}: the connection is closed", retriable=False)
    if not connection.is_connected:
        raise BackendUnavailableError(f"{what}: not connected to the server")
    try:
        yield
    except nats.errors.NoRespondersError as error:
        raise BackendUnavailableError(f"{what}: nobody answers; is JetStream up and the stream there?") from error
    except (nats.errors.ConnectionClosedError, nats.errors.ConnectionDrainingError) as error:
        raise BackendUnavailableError(f"{what}: the connection is closed", retriable=False) from error
    except nats.errors.Error as error:
        raise BackendUnavailableError(f"{what}: {type(error).__name__}") from error
    except (TimeoutError, OSError) as error:
        raise BackendUnavailableError(f"{what}: no answer within {REQUEST_SECS:g} s") from error


async def request(connection: Client, subject: str, body: dict[str, Any] | None, what: str) -> dict[str, Any]:
    """An API request.

    Raises:
        RefusedError: the server answered with an error.
        BackendUnavailableError: it did not answer.
    """
    payload = b"" if body is None else msgspec.json.encode(body)
    with backend(connection, what):
        reply = await connection.request(subject, payload, timeout=REQUEST_SECS)
    return answer(reply.data, what)


def answer(data: bytes, what: str) -> dict[str, Any]:
    """A reply's content; an error in it is raised."""
    try:
        content = msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise BackendUnavailableError(f"{what}: the answer is not JetStream's", retriable=False) from error
    refusal = content.get("error")
    if isinstance(refusal, dict):
        raise RefusedError(refusal.get("code", 0), refusal.get("err_code", 0), str(refusal.get("description", "")))
    return content
