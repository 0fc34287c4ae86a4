"""The kit for handler authors: it tells what a worker would."""

import pytest

from tests.support import handlers
from workers import BadHandler
from workers.testing import run_handler, start_handler


@pytest.mark.parametrize(
    ("prompt", "status", "code"),
    [
        ("nothing", "done", None),
        ("set", "error", "handler_error"),
        ("nan", "error", "handler_error"),
        ("exit", "error", "handler_error"),
        ("base", "error", "handler_error"),
        ("bad str", "error", "handler_error"),
        ("reject", "error", "rejected"),
        ("cancel itself", "error", "handler_error"),
    ],
)
async def test_what_came_of_a_handler_is_what_its_sender_would_be_told(
    prompt: str, status: str, code: str | None
) -> None:
    run = await run_handler(handlers.misbehave, prompt)
    assert (run.status, run.code) == (status, code)


async def test_settings_and_milestones_and_context_are_there() -> None:
    run = await run_handler(handlers.greet, "Ada", options={"greeting": "hi", "times": "2"})
    assert (run.result, run.milestones) == ("hi Ada hi Ada ", [{"name": "greeted", "detail": {"whom": "Ada"}}])
    again = await run_handler(handlers.remember, "two", context={"prompts": ["one"]})
    assert again.context == {"prompts": ["one", "two"]}
    failed = await run_handler(handlers.remember, "fail", context={"prompts": ["one"]})
    assert failed.context == {"prompts": ["one"]}
    with pytest.raises(BadHandler, match="no option 'greting'"):
        await run_handler(handlers.greet, "Ada", options={"greting": "hi"})


async def test_a_timeout_and_a_retry_are_told_apart() -> None:
    assert (await run_handler(handlers.nap, "9", timeout_secs=0.05)).code == "timeout"
    assert (await run_handler(handlers.flaky, "x")).retry_delay_secs == 0.1


@pytest.mark.parametrize("function", [handlers.nap, handlers.nap_plain])
async def test_a_cancel_ends_it_in_the_loop_and_in_a_process(function: object) -> None:
    started = start_handler(function, "60")  # type: ignore[arg-type]
    await started.until(lambda run: run.progress)
    assert (await started.cancel()).status == "cancelled"


async def test_a_process_that_dies_is_interrupted() -> None:
    assert (await run_handler(handlers.die_once, "die")).status == "interrupted"
