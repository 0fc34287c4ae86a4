"""Dead letters: what could not be delivered, and a second try for it.

A replay makes the hub publish what somebody else once sent, so it gives no more than that sender had. The letter goes
out under the sender's own ingress subject only, and only when the rules of routing, the replay guard included, would
take it now; never one that the guard refused, one whose bytes were cut, or one in the hub's own voice, whose senders
send again by themselves.
"""

from typing import Final

from hub.api import records
from hub.api.authorisation import Caller
from hub.api.errors import Clash, NotFound
from hub.api.operation import Answer, Context, Operation, audit_members
from hub.api.pages import fit
from hub.api.params import PageParams, Params, Time, named, one_of
from hub.protocol import names, subjects
from hub.router.rules import MAX_TRACE_BYTES, TRACE_HEADERS, Drop, Reason, route
from hub.storage.records import DeadLetter

REASONS: Final = tuple(reason.value for reason in Reason)
REPLAY_ID_PREFIX: Final = "hub-replay:"


class ListParams(PageParams):
    """Of `dead.list`."""

    reason: str | None = None
    since: Time | None = None


class NameParams(Params):
    """Of `dead.get` and `dead.replay`."""

    dead_id: str


async def find(context: Context, _caller: Caller, params: ListParams) -> Answer:
    """Dead letters, newest first."""
    reason = one_of(REASONS, params.reason, "reason")
    return await fit(
        context.room,
        lambda limit, max_bytes: context.storage.dead_letters.find(
            reason=reason, since=params.since, limit=limit, cursor=params.cursor, max_bytes=max_bytes
        ),
        records.dead_letter,
        limit=params.limit,
        items="dead",
        what="dead letter",
    )


async def get(context: Context, _caller: Caller, params: NameParams) -> Answer:
    """One dead letter."""
    return {"dead": records.dead_letter(await _letter(context, params))}


async def replay(context: Context, _caller: Caller, params: NameParams) -> Answer:
    """Send a dead letter again, once.

    It is sent first and noted then: a hub that dies in between leaves it to be replayed again, under the same message
    id, and whoever gets it twice drops the repeat by `(from, id)`. The other way round it could be lost for good.
    """
    letter = await _letter(context, params)
    require_replayable(letter)
    trace: dict[str, str] = {}
    for name, value in letter.headers:
        if _is_trace(name, value):
            trace.setdefault(name, value)  # of a repeated one the first counts, as in routing
    await context.ingress.send(
        letter.subject, letter.data, message_id=f"{REPLAY_ID_PREFIX}{letter.dead_id}", trace=trace
    )
    if not await context.storage.dead_letters.mark_replayed(letter.dead_id, context.clock()):
        raise Clash(f"dead letter {letter.dead_id} was replayed by another at the same time")
    return {"replayed": True}


def require_replayable(letter: DeadLetter) -> None:
    """Refuse a letter that must not be sent again, or would only become a dead letter again. Pure.

    Raises:
        Clash: the text says why.
    """
    name = f"dead letter {letter.dead_id}"
    if letter.replayed_at is not None:
        raise Clash(f"{name} was replayed at {letter.replayed_at:%Y-%m-%d %H:%M:%S} UTC, and it is done once only")
    if letter.reason == Reason.REPLAYED:
        raise Clash(f"{name} was refused by the replay guard: its sender is not known, so it is never sent again")
    if len(letter.data) < letter.size:
        raise Clash(f"{name} was cut: {len(letter.data)} of {letter.size} bytes are kept; its sender can send it again")
    decided = route(letter.subject, letter.headers, letter.data, is_guarded=True)
    if isinstance(decided, Drop):
        raise Clash(f"{name} would be dropped again as {decided.reason}: {decided.detail}")
    if decided.envelope.meta.sender == names.HUB_IDENTITY:
        raise Clash(f"{name} is the hub's own message: what the hub owes it sends again by itself")
    if letter.subject != subjects.publish(decided.envelope.meta.sender, decided.envelope.meta.channel):
        raise Clash(f"{name} came on {letter.subject[:80]!a}, which is not its sender's subject")


def _is_trace(name: str, value: str) -> bool:
    return name in TRACE_HEADERS and value.isascii() and value.isprintable() and len(value) <= MAX_TRACE_BYTES


async def _letter(context: Context, params: NameParams) -> DeadLetter:
    dead_id = named(names.message_id, params.dead_id, "dead_id")
    letter = await context.storage.dead_letters.get(dead_id)
    if letter is None:
        raise NotFound("dead letter", dead_id)
    return letter


OPERATIONS: Final = (
    Operation("dead.list", ListParams, find),
    Operation("dead.get", NameParams, get),
    Operation("dead.replay", NameParams, replay, audited=audit_members("dead_id")),
)
