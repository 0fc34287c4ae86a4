"""Testing of handlers: run one with a prompt and look at what came of it, without NATS and without a mailbox.

    run = await run_handler(summarise, "a long text")
    assert run.status == "done"
    assert run.result == "short"

What a worker does to a handler happens here too, by the same code: timeouts, cancels, errors, results that JSON cannot
carry, processes of their own.
"""

import asyncio
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from hub.protocol import encode_payload, names
from workers import plugins
from workers.attempt import Again, Ended, Runner, Stop, Stopper, Verdict, attempt
from workers.handlers import spec_of
from workers.loop_runner import LoopRunner
from workers.process_runner import ProcessRunner
from workers.turn import Turn

WAIT_SECS: Final = 10.0  # for a condition that a test waits for
POLL_SECS: Final = 0.005


class HandlerRun(msgspec.Struct, kw_only=True):
    """What a handler did, so far or to its end.

    Attributes:
        status: `done`, `error` or `cancelled` as the sender would be told; `retry` when it asked for another attempt;
            `interrupted` when its process died; None while it runs.
        result: on `done`.
        error, code: on `error`.
        retry_delay_secs: on `retry`.
        progress: the data of each `progress` call.
        milestones: the data of each `milestone` call.
        stdout: the lines.
        context: what the session's next turn would get; as it was unless the turn is done.
    """

    status: str | None = None
    result: Any = None
    error: str | None = None
    code: str | None = None
    retry_delay_secs: float | None = None
    progress: list[dict[str, Any]] = []
    milestones: list[dict[str, Any]] = []
    stdout: list[str] = []
    context: dict[str, Any] = {}


class StartedHandler:
    """A handler that runs. Made by `start_handler`; `wait` for its end."""

    def __init__(self, run: HandlerRun, stopper: Stopper, work: "asyncio.Task[None]") -> None:
        self.run = run
        self._stopper = stopper
        self._work = work

    async def until(self, condition: Callable[[HandlerRun], Any], timeout_secs: float = WAIT_SECS) -> None:
        """Wait until a condition on what it did so far holds.

        Raises:
            TimeoutError: it did not, in time or before its end.
        """
        async with asyncio.timeout(timeout_secs):
            while not condition(self.run):
                if self._work.done():
                    raise TimeoutError(f"the handler ended first: {self.run}")
                await asyncio.sleep(POLL_SECS)

    async def cancel(self) -> HandlerRun:
        """Cancel it as its sender would, and wait for its end."""
        self._stopper.ask(Stop.CANCEL)
        return await self.wait()

    async def wait(self) -> HandlerRun:
        """Wait for its end."""
        await self._work
        return self.run


def start_handler(
    function: Callable[..., Any],
    prompt: str,
    *,
    payload: Mapping[str, Any] | None = None,
    options: Mapping[str, str] | None = None,
    context: Mapping[str, Any] | None = None,
    sender: str = "tester",
    attempt_number: int = 1,
    timeout_secs: float | None = None,
    workdir: Path | None = None,
) -> StartedHandler:
    """Start a handler and do not wait for its end.

    Args:
        function: the decorated function.
        prompt: the text of its task.
        payload: more members of the payload.
        options: its settings, as texts, as `--option` gives them.
        context: what its session kept.
        sender: who asks.
        attempt_number: which attempt it is.
        timeout_secs: in place of the handler's own.
        workdir: where it works; a folder that is deleted afterwards when None.

    Raises:
        BadHandler: it is no handler, or the options do not fit.
        BadPayload: the context is nothing that JSON can carry.
    """
    spec = spec_of(function)
    given = dict(options or {})
    read = plugins.read_options(spec, given)
    runner: Runner = LoopRunner(spec, read) if spec.isolation == "loop" else ProcessRunner(spec, given)
    kept = encode_payload(dict(context or {}))  # each gets its own copy, as from the disk
    run = HandlerRun(context=msgspec.json.decode(kept))
    stopper = Stopper()

    async def live() -> None:
        with tempfile.TemporaryDirectory() as folder:
            turn = Turn(
                task_id=names.new_message_id(),
                prompt=prompt,
                payload={**(payload or {}), "prompt": prompt},
                sender=sender,
                attempt=attempt_number,
                session_id=None if context is None else "test",
                context=msgspec.json.decode(kept),
                workdir=workdir or Path(folder) / "work",
                report=lambda event_type, data: _note(run, event_type, data),
                report_line=run.stdout.append,
            )
            limit_secs = spec.timeout_secs if timeout_secs is None else timeout_secs
            try:
                verdict = await attempt(runner, turn, stopper, limit_secs)
            finally:
                if isinstance(runner, ProcessRunner):
                    await runner.stop()
        _take(run, verdict)

    return StartedHandler(run, stopper, asyncio.ensure_future(live()))


async def run_handler(function: Callable[..., Any], prompt: str, **more: Any) -> HandlerRun:
    """Run a handler to its end; the arguments are those of `start_handler`."""
    return await start_handler(function, prompt, **more).wait()


def _note(run: HandlerRun, event_type: str, data: dict[str, Any]) -> None:
    (run.milestones if event_type == "milestone" else run.progress).append(data)


def _take(run: HandlerRun, verdict: Verdict) -> None:
    if isinstance(verdict, Again):
        run.status, run.error, run.retry_delay_secs = "retry", verdict.reason, verdict.delay_secs
    elif isinstance(verdict, Ended):
        outcome = verdict.outcome
        run.status, run.error, run.code = outcome.status, outcome.error, outcome.code
        if outcome.status == "done":
            run.result = msgspec.json.decode(outcome.result_json)
            run.context = msgspec.json.decode(verdict.context_json or b"{}")
    else:
        run.status, run.error = "interrupted", verdict.reason
