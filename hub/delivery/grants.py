"""The check of grants: may this identity do what an agent must? It leaves no trace in any stream or consumer.

Each grant is tried with something that its receiver refuses: a publish that expects another stream, a pull and an
attach with a broken body. The refusal proves the way; a permission error names the grant that is missing.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from nats.aio.msg import Msg

from hub.delivery.connection import Connection
from hub.delivery.errors import DeliveryError, NoResponders, PermissionDenied, RequestTimedOut
from hub.delivery.pull import IN_PROGRESS
from hub.delivery.report import Finding
from hub.protocol import subjects

_ANSWER_SECS: Final = 2.0
_NOWHERE: Final = "no-stream-has-this-name"
_BROKEN: Final = b"{"

_Check = Callable[[Connection, str], Awaitable[str | None]]


class StreamNames(msgspec.Struct, frozen=True):
    """Where an agent's mail is.

    Attributes:
        inbox, tasks: names of the two streams.
    """

    inbox: str
    tasks: str


async def look_at_grants(
    connection: Connection, identity: str, names: StreamNames | None, *, is_durable: bool
) -> list[Finding]:
    """Try each grant that an agent needs (bound mode refuses all others).

    Args:
        connection: the identity's own.
        identity: who.
        names: the streams; None for a core hub: nothing of JetStream is tried, and no publish (it would be routed).
        is_durable: False when it is not known whether the hub is: then only an answer to the attach tells.

    Returns:
        One failure for each missing grant, a warning for what gave no answer, else one line that says what works.
    """
    bad = await _subscriptions(connection, identity)
    works, untried = ([] if bad else ["receive"]), []
    checks = [] if names is None else _checks(names)
    for ability, check in checks:
        if ability == "send" and not is_durable:
            continue
        try:
            note = await check(connection, identity)
        except PermissionDenied as error:
            if ability == "attach" or is_durable:
                data = {"action": "publish", "subject": error.subject}
                bad.append(Finding(f"grant {ability}", "fail", str(error), data))
            else:
                untried.append(ability)  # in a core hub's accounts nobody may, and nobody needs to
        except RequestTimedOut as error:
            bad.append(Finding(f"grant {ability}", "warn", f"{error}: not known whether {identity} may do that"))
        else:
            is_durable = is_durable or (ability == "attach" and note is None)
            works.append(f"{ability} ({note})" if note else ability)
    if bad:
        return bad
    text = f"{identity} may {', '.join(works)}" if works else f"nothing was tried for {identity}"
    if untried:
        text += f"; not granted, and needed with a durable hub only: {', '.join(untried)}"
    if names is None or not is_durable:
        text += "; sending was not tried, a core hub would route it"
    return [Finding("permissions", "ok", text, {"identity": identity, "works": works})]


def _checks(names: StreamNames) -> list[tuple[str, _Check]]:
    """The checks by ability; the attach first, whose answer tells that the hub is a durable one."""

    async def send(connection: Connection, identity: str) -> str | None:
        headers = {"Nats-Expected-Stream": _NOWHERE}
        subject = subjects.publish(identity, "doctor")
        try:
            await connection.request(subject, b"{}", timeout_secs=_ANSWER_SECS, headers=headers)
        except NoResponders:
            return "no hub takes it now"
        return None

    async def attach(connection: Connection, identity: str) -> str | None:
        try:
            await connection.request(subjects.attach(identity), _BROKEN, timeout_secs=_ANSWER_SECS)
        except NoResponders:
            return "no attach responder answers now"
        return None

    async def pull(connection: Connection, identity: str) -> str | None:
        consumer = subjects.inbox_consumer(identity)
        subject = f"{connection.settings.js_prefix}.CONSUMER.MSG.NEXT.{names.inbox}.{consumer}"
        try:
            await connection.request(subject, _BROKEN, timeout_secs=_ANSWER_SECS)
        except NoResponders:
            return "not attached yet"
        return None

    async def ack(connection: Connection, identity: str) -> str | None:
        # "In progress" for sequence 0, which no message has.
        subject = f"$JS.ACK.{names.inbox}.{subjects.inbox_consumer(identity)}.1.0.0.0.0"
        await connection.publish(subject, IN_PROGRESS)
        await connection.flush()
        if ("publish", subject.lower()) in connection.denied:
            raise PermissionDenied("publish", subject, identity)
        return None

    async def read(connection: Connection, identity: str) -> str | None:
        subject = f"{connection.settings.js_prefix}.DIRECT.GET.{names.tasks}"
        request = msgspec.json.encode({"last_by_subj": subjects.channel(f"task.{identity[:8]}")})
        try:
            await connection.request(subject, request, timeout_secs=_ANSWER_SECS)
        except NoResponders:
            return "nothing answers now"
        return None

    return [("attach", attach), ("send", send), ("pull", pull), ("ack", ack), ("read task channels", read)]


async def _subscriptions(connection: Connection, identity: str) -> list[Finding]:
    wanted = [
        f"{subjects.private_inbox(identity)}.>",
        subjects.inbox(identity),
        subjects.presence(identity),
        *subjects.TASKS_ALL,
    ]
    opened = [await connection.subscribe(subject, _ignore) for subject in wanted]
    await connection.flush()
    bad = [
        Finding(
            "grant receive",
            "fail",
            str(PermissionDenied("subscribe", subject, identity)),
            {"action": "subscribe", "subject": subject},
        )
        for subject in wanted
        if ("subscribe", subject.lower()) in connection.denied
    ]
    for sub in opened:
        await sub.unsubscribe()
    return bad


async def _ignore(_: Msg) -> None:
    """The probe listens to nothing: it only asks whether it might."""


def not_visible(name: str, error: DeliveryError, identity: str | None) -> Finding:
    """What could not be looked at, and why; no alarm: most identities must not see it."""
    if isinstance(error, PermissionDenied):
        who = identity or "this connection"
        reason = f"{who} may not ask ({error.subject}), which is right for an agent; an operator sees it"
        return Finding(name, "ok", f"not visible: {reason}", {"visible": False})
    return Finding(name, "warn", f"not seen: {error}", {"visible": False})
