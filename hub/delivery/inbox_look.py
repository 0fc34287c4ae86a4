"""The look at the inboxes: every identity's in one line, those by name that somebody must look at; and the mirrors."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from hub.delivery import diagnosis
from hub.delivery.config import DeliveryConfig
from hub.delivery.diagnosis import ConsumerState
from hub.delivery.errors import DeliveryError, PermissionDenied
from hub.delivery.grants import not_visible
from hub.delivery.jetstream import JetStreamApi
from hub.delivery.refusals import ConsumerMissing, JetStreamDisabled, StreamMissing
from hub.delivery.report import Finding
from hub.protocol import names, subjects

_INBOX_PREFIX: Final = "inbox-"
_MIRROR_PREFIX: Final = "mirror-"
_MOST_INBOXES: Final = 2048  # 8 pages; a look must not take minutes where there are a million
_MOST_ALONE: Final = 64  # looked up one by one, where the list is not allowed
_MOST_OLDEST: Final = 32  # inboxes whose oldest message is looked up: a request each
_MOST_SHOWN: Final = 20


async def look_up(
    js: JetStreamApi, stream: str, info: dict[str, Any], subject: str, *, with_oldest: bool = True
) -> ConsumerState:
    """A consumer's state, with the age of its oldest message that is not acked.

    Args:
        info: the consumer's info.
        subject: what it reads.
        with_oldest: False spares the request for the age.
    """
    now = diagnosis.moment(info.get("ts")) or datetime.now(UTC)
    state = diagnosis.consumer_state(info, now)
    if not with_oldest or not state.unread:
        return state
    try:
        message = await js.next_message(stream, subject, state.floor_seq + 1)
    except DeliveryError:
        return state  # an operator may not read messages: the state goes without an age
    if message is None:
        return state
    age = diagnosis.age_secs(message.get("time"), now)
    return msgspec.structs.replace(state, oldest_seq=int(message["seq"]), oldest_secs=age)


class InboxLook:
    """One look at all inboxes, bounded: the fullest are looked at closely.

    Args:
        js: JetStream.
        config: the delivery config.
        wanted: identities whose inboxes are shown whatever their state.
        identity: who looks, for what is not visible.
    """

    def __init__(
        self, js: JetStreamApi, config: DeliveryConfig, *, wanted: Sequence[str], identity: str | None
    ) -> None:
        self._js = js
        self._config = config
        self._wanted = wanted
        self._identity = identity
        self._findings: list[Finding] = []

    async def findings(self, *, is_light: bool) -> list[Finding]:
        """Look. A light look leaves out the mail of those who never attached."""
        await self._look(is_light=is_light)
        return self._findings

    async def _look(self, *, is_light: bool) -> None:
        stream = self._config.inbox.name
        try:
            infos, total = await self._listed(stream)
        except StreamMissing:
            return  # said already
        except (PermissionDenied, JetStreamDisabled) as error:  # nobody answers what an account does not import
            await self._inboxes_alone(stream, error)
        except DeliveryError as error:
            self._findings.append(not_visible("inboxes", error, self._identity))
        else:
            await self._judge_inboxes(stream, infos, total)
            if not is_light:
                await self._unattached(stream, infos, total)
            await self._mirrors(stream, infos)
            await self._tasks_mirrors()

    async def _listed(self, stream: str) -> tuple[list[dict[str, Any]], int]:
        infos: list[dict[str, Any]] = []
        total = 1
        while len(infos) < min(total, _MOST_INBOXES):
            page, total = await self._js.consumer_page(stream, len(infos))
            if not page:
                break
            infos += page
        return infos, max(total, len(infos)) if infos else 0

    async def _inboxes_alone(self, stream: str, denied: DeliveryError) -> None:
        """Where consumers may be looked up and not listed: those of the identities that have mail, or were named."""
        try:
            held = await self._js.subject_counts(stream, subjects.INBOX_ALL)
            owners = sorted(held, key=held.__getitem__, reverse=True)
            identities = [subject.rpartition(".")[2] for subject in owners][:_MOST_ALONE]
            infos = []
            for identity in dict.fromkeys([*self._wanted, *identities]):
                info = await self._consumer(identity)
                if info is not None:
                    infos.append(info)
        except DeliveryError:
            self._findings.append(not_visible("inboxes", denied, self._identity))
            return
        await self._judge_inboxes(stream, infos, len(infos))

    async def _consumer(self, identity: str) -> dict[str, Any] | None:
        try:
            return await self._js.consumer_info(self._config.inbox.name, subjects.inbox_consumer(identity))
        except ConsumerMissing:
            return None

    async def _judge_inboxes(self, stream: str, infos: list[dict[str, Any]], total: int) -> None:
        others = sum(not info["name"].startswith(_INBOX_PREFIX) for info in infos)
        mine = [info for info in infos if info["name"].startswith(_INBOX_PREFIX)]
        mine.sort(key=lambda info: info["num_pending"] + info["num_ack_pending"], reverse=True)
        settings = self._config.inbox
        states, judged = [], []
        for place, info in enumerate(mine):
            identity = info["name"].removeprefix(_INBOX_PREFIX)
            with_oldest = place < _MOST_OLDEST or identity in self._wanted
            state = await look_up(self._js, stream, info, subjects.inbox(identity), with_oldest=with_oldest)
            states.append(state)
            limit, age = settings.max_msgs_per_subject, settings.max_age_secs
            judged.append(diagnosis.judge_inbox(identity, state, limit=limit, max_age_secs=age))
        self._findings.append(
            diagnosis.summary_of_inboxes(states, max(0, total - others), settings.max_msgs_per_subject)
        )
        bad, left_out = diagnosis.worst(judged, _MOST_SHOWN)
        shown = {finding.name for finding in bad}
        asked = [f for f in judged if f.name.removeprefix("inbox ") in self._wanted and f.name not in shown]
        self._findings += [*asked, *bad]
        if left_out:
            self._findings.append(Finding("inboxes", "warn", f"{left_out} more inboxes like these are not shown"))

    async def _unattached(self, stream: str, infos: list[dict[str, Any]], total: int) -> None:
        if total > len(infos):
            return  # who has a consumer is not known for all
        attached = {info["name"] for info in infos}
        try:
            held = await self._js.subject_counts(stream, subjects.INBOX_ALL)
        except DeliveryError:
            return
        counts = {subject.rpartition(".")[2]: count for subject, count in held.items()}
        alone = {
            identity: count
            for identity, count in counts.items()
            if names.is_token(identity) and subjects.inbox_consumer(identity) not in attached
        }
        self._findings += diagnosis.judge_unattached(alone, self._config.inbox.max_msgs_per_subject)

    async def _mirrors(self, stream: str, infos: list[dict[str, Any]]) -> None:
        for info in infos:
            if info["name"].startswith(_MIRROR_PREFIX):
                state = await look_up(self._js, stream, info, "", with_oldest=False)
                self._findings.append(diagnosis.judge_mirror(stream, state))

    async def _tasks_mirrors(self) -> None:
        stream = self._config.tasks.name
        try:
            infos, _ = await self._js.consumer_page(stream)
        except DeliveryError:
            return
        await self._mirrors(stream, infos)
