"""The bridge without a source: what turns tell goes to disk bounded, redacted, in order, and ends every run."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hub.events import AgentEventRecord
from hub.events.errors import (
    AgentEventSourceError,
    AppendConflictError,
    BackendUnavailableError,
    EventOverflowError,
    InvalidInputError,
    StreamMisconfiguredError,
)
from hub.events.records import draft
from hub.mailbox import Cancel, Outcome, State, Task, Turn
from hub.mailbox.records import TurnKind
from tests.support.mailboxes import Mailboxes, dm
from workers.event_bridge import EventBridge, EventSettings, _is_about_the_event, settings_of
from workers.event_content import CUT, OVERLAP, TEXT_MOST
from workers.event_spool import MEMORY_MOST
from workers.redactor import MASK, Redact, SecretRedactor

ROW = Turn(
    seq=1,
    state=State.RUNNING,
    kind=TurnKind.TASK,
    sender="ann",
    envelope_id="t1",
    body=b"",
    attempts=1,
    epoch=1,
    cancel_requested=False,
    queued_at_ms=0,
)


@pytest.fixture
async def mailboxes(tmp_path: Path) -> AsyncIterator[Mailboxes]:
    opened = Mailboxes(tmp_path / "state")
    yield opened
    await opened.close()


NOWHERE = "nats://127.0.0.1:1"


def as_it_is(members: dict[str, Any]) -> dict[str, Any]:
    return members


@asynccontextmanager
async def bridge(folder: Path, redact: Redact = as_it_is) -> AsyncIterator[EventBridge]:
    """A bridge whose spool writes, and that sends nothing."""
    settings = EventSettings(url=NOWHERE, tenant="acme")
    made = EventBridge(settings, worker="w", handler="h", redact=redact, spool_path=folder / "spool.db")
    await made._spool.open()
    writing = asyncio.create_task(made._spool.write())
    try:
        yield made
    finally:
        await made._spool.settled(10)
        writing.cancel()
        await asyncio.wait({writing})
        await made._spool.close()


async def spooled(made: EventBridge) -> list[AgentEventRecord]:
    """What is on disk; each is one that a source takes."""
    assert await made._spool.settled(10)
    records = [each.record for each in await made._spool.page()]
    for record in records:
        draft(record, max_event_bytes=64 * 1024)
    return records


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


@pytest.mark.parametrize(
    "data",
    [
        {"message": "\ud800 \x00 \x1b[2J"},
        {"message": Hostile(), "percent": float("nan")},
        {"type": "x", "sessionId": "y", "runId": "z", "kind": 1, "self": 2},
        {1: 2**70, (): {1, 2}, "deep": [[[{"x": b"bytes"}]]]},
        {Hostile(): 1},
        None,
        "no mapping",
        {"big": ["x" * 1_000_000] * 50},
        {"many": list(range(100_000))},
        {"wide": "\u20ac" * 100_000},
    ],
)
async def test_whatever_a_handler_reports_becomes_an_event_that_the_source_takes(tmp_path: Path, data: Any) -> None:
    kinds: list[Any] = ["progress", "milestone", "error", "Not A Word", "events_dropped", None]
    async with bridge(tmp_path) as made:
        recorder = made.begin(ROW, "go")
        for kind in kinds:
            recorder.report(kind, data)
        recorder.line("\ud800")
        recorder.close()
        made.ended(ROW, Outcome.done("x"))
        started, *told, finished = await spooled(made)
    assert (started.session_id, started.run_id, started.tenant_id) == ("t1", "t1", "acme")
    assert len(told) == len(kinds) + 1
    assert not any(record.terminal or record.type == "events_dropped" for record in told)
    assert (finished.type, finished.event["result"]) == ("agent_finished", "x")


async def test_deep_nesting_is_cut_and_no_loop_is_followed_for_ever(tmp_path: Path) -> None:
    loop: dict[str, Any] = {}
    loop["again"] = loop
    async with bridge(tmp_path) as made:
        made.begin(ROW, "go").report("milestone", loop)
        assert CUT in repr((await spooled(made))[1].event)


async def test_what_a_handler_changes_after_its_report_does_not_change_the_event(tmp_path: Path) -> None:
    async with bridge(tmp_path) as made:
        detail: dict[str, Any] = {"step": 1}
        made.begin(ROW, "go").report("milestone", {"name": "n", "detail": detail})
        detail.clear()
        assert (await spooled(made))[1].event["detail"] == {"step": 1}


@pytest.mark.parametrize("before", [TEXT_MOST - 5, TEXT_MOST - 25, TEXT_MOST + OVERLAP - 10])
async def test_a_secret_across_a_cut_does_not_show_its_first_part(tmp_path: Path, before: int) -> None:
    secret = "hunter22-and-some-more-of-it"
    async with bridge(tmp_path, SecretRedactor({"A_TOKEN": secret})) as made:
        text = "." * before + secret + "." * 9000
        recorder = made.begin(ROW, text)
        recorder.report("progress", {"message": text})
        made.ended(ROW, Outcome.done({"text": [text]}))
        for record in await spooled(made):
            assert "hunter" not in repr(record)
            assert CUT in repr(record)


async def test_results_are_redacted_as_values_not_as_json_text(tmp_path: Path) -> None:
    secret = 'a "quoted" secret\\'
    async with bridge(tmp_path, SecretRedactor({"A_TOKEN": secret})) as made:
        made.ended(ROW, Outcome.done({"said": secret}))
        assert (await spooled(made))[0].event["result"] == {"said": MASK}


@pytest.mark.parametrize("returned", [None, {"x": {1, 2}}, "text", RuntimeError("the secret")])
async def test_a_redactor_that_fails_costs_the_content_and_no_secret(tmp_path: Path, returned: Any) -> None:
    def redact(members: dict[str, Any]) -> dict[str, Any]:
        members["more"] = "the secret"
        if isinstance(returned, Exception):
            raise returned
        result: dict[str, Any] = returned
        return result

    async with bridge(tmp_path, redact) as made:
        made.begin(ROW, "the secret")
        made.ended(ROW, Outcome.done("the secret"))
        started, finished = await spooled(made)
    assert (started.type, finished.type) == ("agent_started", "agent_finished")
    assert "the secret" not in repr((started, finished))
    assert started.event["left_out"]


async def test_a_redactor_that_hangs_keeps_neither_the_loop_nor_the_end_waiting(tmp_path: Path) -> None:
    hanging, release = threading.Event(), threading.Event()

    def redact(members: dict[str, Any]) -> dict[str, Any]:
        hanging.set()
        release.wait(30)
        return members

    settings = EventSettings(url=NOWHERE, tenant="acme")
    made = EventBridge(settings, worker="w", handler="h", redact=redact, spool_path=tmp_path / "spool.db")
    await made.start()
    recorder = made.begin(ROW, "go")
    await asyncio.to_thread(hanging.wait, 10)
    began = time.monotonic()
    for number in range(MEMORY_MOST + 100):
        recorder.report("progress", {"message": str(number)})
    assert made.describe()["waiting"] == MEMORY_MOST + 1
    assert made.describe()["dropped"] == 100
    await made.stop(drain_secs=0.1)
    assert time.monotonic() - began < 10
    release.set()


async def test_output_is_gathered_and_very_much_of_it_left_out(tmp_path: Path) -> None:
    async with bridge(tmp_path) as made:
        recorder = made.begin(ROW, "go")
        for number in range(100_000):
            recorder.line(f"line {number}")
        recorder.close()
        recorder.line("too late")
        recorder.report("progress", {"message": "too late"})
        _, output = await spooled(made)
    assert output.event["text"].startswith("line 0\nline 1\n")
    assert len(output.event["text"]) <= TEXT_MOST + len(CUT)
    assert output.event["left_out"].endswith(" lines")


async def test_a_turn_that_ends_without_running_has_an_end_too(tmp_path: Path, mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    async with bridge(tmp_path) as made:
        mailbox.listen_to_ends(made.ended)
        await mailbox.accept(dm(id="t1"), Task())
        await mailbox.cancel(Cancel(requested_by="ann", sender="ann", task_id="t1"))
        (end,) = await spooled(made)
    assert (end.run_id, end.type, end.event["code"]) == ("t1", "error", "cancelled")


async def test_a_run_whose_end_was_lost_in_a_kill_is_ended_by_the_next_process(
    tmp_path: Path, mailboxes: Mailboxes
) -> None:
    mailbox = await mailboxes.open()
    async with bridge(tmp_path) as made:
        for task_id in ("t1", "t2"):
            await mailbox.accept(dm(id=task_id), Task())
        settled, running = await mailbox.turns.claim(2)
        made.begin(settled, "go")
        made.begin(running, "go")
        made.begin(msgspec.structs.replace(ROW, envelope_id="of-a-lost-mailbox"), "go")
        assert await made._spool.settled(10)
    await mailbox.turns.settle(settled, Outcome.done("x"))  # and the kill came before its event was on disk
    async with bridge(tmp_path) as made:
        await made.end_left_open(mailbox.turns.find)
        ends = [record for record in await spooled(made) if record.terminal]
    assert [(end.run_id, end.type) for end in ends] == [("t1", "agent_finished"), ("of-a-lost-mailbox", "error")]
    async with bridge(tmp_path) as made:
        assert list(made._spool.left_open) == [("acme", "t2", "t2")]


@pytest.mark.parametrize(
    ("error", "is_about_the_event"),
    [
        (InvalidInputError("the run has ended"), True),
        (EventOverflowError("the run retains too many"), True),
        (EventOverflowError("the stream is full", is_whole_place=True), False),
        (StreamMisconfiguredError("s", ["deletes are not allowed"]), False),
        (BackendUnavailableError("not permitted", retriable=False), False),
        (BackendUnavailableError("no answer"), False),
        (AppendConflictError(), False),
    ],
)
def test_events_are_given_up_only_where_the_source_would_refuse_them_for_ever(
    error: AgentEventSourceError, is_about_the_event: bool
) -> None:
    assert _is_about_the_event(error) is is_about_the_event


@pytest.mark.parametrize(
    ("url", "tenant", "named"),
    [
        ("nats://h", "", "needs --tenant"),
        ("nats://h", "x" * 300, "tenant_id"),
        ("nats://h", "a\0b", "NUL"),
        ("http://h", "t", "bad server address"),
        ("nats://u:hunter22@h:x", "t", "bad server address"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_the_start(url: str, tenant: str, named: str) -> None:
    with pytest.raises(ValueError, match=named) as refused:
        settings_of(url, tenant, None, {})
    assert "hunter22" not in str(refused.value)
