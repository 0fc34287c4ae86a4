"""The operation: what the server knows of one, and what all of them work with."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Final, Protocol

import msgspec

from hub.api.authorisation import Caller
from hub.api.errors import Unavailable
from hub.api.ingress import IngressSender
from hub.api.pages import Room
from hub.storage import Storage

MOST_BYTES: Final = 64 * 1024  # of a request that holds names, times and numbers only
DEADLINE_SECS: Final = 10.0  # for one answer; a caller waits longer, so that it hears why there is none


class WaveControl(Protocol):
    """What runs waves in this process; the wave engine."""

    def describe(self) -> str:
        """What it does now, one word for `ping`: `leads`, `stands_by`."""

    async def spawn(self, wave_id: str, *, timeout_secs: float) -> None:
        """Begin to run a wave; see contract §9."""

    async def cancel(self, wave_id: str, *, reason: str | None) -> None:
        """End a wave; see contract §9."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What `ping` says of this process.

    Attributes:
        version: the hub's.
        mode: `core` or `durable`.
        started_at: monotonic seconds.
    """

    version: str
    mode: str
    started_at: float


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """What operations work with.

    Attributes:
        facts: about this process.
        clock: the time now, aware.
        room: how much fits into a reply.
        ingress: how the hub itself sends.
        waves: what runs waves; None: nothing here does.
        recorded: the storage once it is open.
        has_storage: False: the hub was started without any.
    """

    facts: Facts
    clock: Callable[[], datetime]
    room: Room
    ingress: IngressSender
    waves: WaveControl | None
    recorded: Storage | None
    has_storage: bool

    @property
    def storage(self) -> Storage:
        """The open storage.

        Raises:
            Unavailable: there is none, or it does not answer yet.
        """
        if self.recorded is not None:
            return self.recorded
        if self.has_storage:
            raise Unavailable("storage does not answer yet: ask again in a moment")
        raise Unavailable("this hub keeps no history (--db none): only ping is answered")


Answer = dict[str, Any]
Run = Callable[[Context, Caller, Any], Awaitable[Answer]]


class Operation(msgspec.Struct, frozen=True):
    """One operation of the API.

    Attributes:
        name: as in the subject.
        params: the type of its parameters.
        run: answers it.
        audited: for one that changes something: what of its parameters stands in the audit line; None for reads.
        most_bytes: of a request; None: whatever a message may have.
        deadline_secs: for the answer.
        needs_storage: False for `ping` alone.
    """

    name: str
    params: type[Any]
    run: Run
    audited: Callable[[Any], Mapping[str, object]] | None = None
    most_bytes: int | None = MOST_BYTES
    deadline_secs: float = DEADLINE_SECS
    needs_storage: bool = True


def audit_members(*members: str) -> Callable[[Any], Mapping[str, object]]:
    """What an audit line says of the parameters: those of these members that are given, cut to what a name may have."""

    def about(params: Any) -> Mapping[str, object]:
        given = ((member, getattr(params, member)) for member in members)
        return {member: str(value)[:128] for member, value in given if value is not None}

    return about
