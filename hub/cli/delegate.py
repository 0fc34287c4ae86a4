"""`hub-delegate`: gives a worker a task, shows its progress, prints its result."""

import asyncio
import signal
import time
from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
import typer

from hub.cli.inputs import json_of, text_of, text_of_file
from hub.cli.options import CONNECT_SECS, Connecting, ConnectTimeout, From, Json, Verbose, connects
from hub.cli.output import harmless, say, stdout
from hub.cli.publish import said
from hub.cli.running import CommandError, connection_watched, console_script, run_command
from hub.cli.whereabouts import absence
from hub.client import ClientError, HubClient, NotSent, SendUnconfirmed, TaskHandle, TaskTimedOut
from hub.delivery.errors import DeliveryError
from hub.protocol import Progress, Result, names
from hub.service.exits import Exit

HELP: Final = """Give a worker a task, show its progress on stderr, and print its result on stdout.

The result alone goes to stdout: a text as it is, anything else as JSON. With --json it is one object, also when the
task failed: {"status", "task_id", "result", "error", "code", "verify"}.

A durable hub keeps the task while its worker is away, and its result for a day while you are: the first line on
stderr says how to follow it again. Running out of --timeout cancels nothing.

The first Ctrl-C asks the worker to cancel and waits 10 s for its word; the second one leaves. SIGTERM leaves and lets
the task go on.

\b
Exit codes:
  0    done: the result is on stdout
  1    the task failed, or could not be sent; also when its result could not be written
  2    wrong usage
  3    no result within --timeout; the task goes on
  4    cancelled, and the worker said so
  130  interrupted: left, or the cancel was not confirmed

\b
Examples:
  hub-delegate --from alice --to echo --prompt "hello"
  git diff | hub-delegate --from alice --to reviewer --prompt - --timeout 600 > review.md
  id=$(hub-delegate --from alice --to builder --prompt-file task.md --no-wait)
  hub-delegate --from alice --to builder --resume "$id"
"""

CANCEL_SECS: Final = 10.0
SEND_SECS: Final = 10.0


@connects
def delegate(
    *,
    connecting: Connecting,
    to: Annotated[str, typer.Option("--to", "-t", metavar="ID", help="The worker.")],
    sender: From = None,
    prompt: Annotated[
        str | None, typer.Option("--prompt", "-p", metavar="TEXT|-", help="What to do; - reads stdin.")
    ] = None,
    prompt_file: Annotated[
        str | None, typer.Option("--prompt-file", metavar="FILE", help="A file that says what to do.")
    ] = None,
    payload: Annotated[
        str | None,
        typer.Option("--payload", metavar="JSON|-", help="More members for the worker's handler, a JSON object."),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", metavar="SECS", min=0, help="How long to wait for the result; default: for ever."),
    ] = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Print the task's id and do not wait.")] = False,
    resume: Annotated[
        str | None, typer.Option("--resume", metavar="TASK_ID", help="Follow a task that was delegated before.")
    ] = None,
    connect_timeout: ConnectTimeout = CONNECT_SECS,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    async def work() -> Exit:
        task = _task(to, prompt, prompt_file, payload, resume, no_wait=no_wait)
        settings = connecting.settings(sender)
        if settings.identity is None:
            raise CommandError("who delegates it? give --from ID, or set NATS_HUB_IDENTITY", Exit.USAGE)
        client = await HubClient.connect(
            settings, announce=False, timeout_secs=connect_timeout, send_timeout_secs=SEND_SECS
        )
        try:
            async with connection_watched(client.connection):
                delegation = _Delegation(client, task, timeout_secs=timeout, as_json=json)
                return await delegation.run(is_waiting=not no_wait)
        finally:
            await client.close()

    run_command("hub-delegate", work, verbose=verbose, as_json=json)


class Task(msgspec.Struct, frozen=True):
    """What is delegated, or followed.

    Attributes:
        to: the worker.
        task_id: the task's id.
        prompt: what to do; None follows the task that has this id.
        extra: more members of the payload.
    """

    to: str
    task_id: str
    prompt: str | None = None
    extra: Mapping[str, Any] | None = None


def _task(
    to: str, prompt: str | None, prompt_file: str | None, payload: str | None, resume: str | None, *, no_wait: bool
) -> Task:
    worker = names.agent_identity(to)
    if resume is not None:
        if prompt is not None or prompt_file is not None or payload is not None or no_wait:
            detail = "it goes without --prompt, --prompt-file, --payload and --no-wait"
            raise CommandError(f"--resume follows a task that was sent before: {detail}", Exit.USAGE)
        names.task_channel(resume)
        return Task(worker, resume)
    if (prompt is None) == (prompt_file is None):
        hint = "what is to be done?" if prompt is None else "two things are to be done:"
        raise CommandError(f"{hint} give --prompt TEXT, --prompt - for stdin, or --prompt-file FILE", Exit.USAGE)
    if prompt == payload == "-":
        raise CommandError("--prompt - and --payload -: stdin can be only one of them", Exit.USAGE)
    text = text_of(prompt, "--prompt") if prompt is not None else text_of_file(str(prompt_file), "--prompt-file")
    if not text.strip():
        raise CommandError("the prompt is empty: expected what is to be done", Exit.USAGE)
    extra = json_of(text_of(payload, "--payload"), "--payload") if payload is not None else None
    if extra is not None and not isinstance(extra, Mapping):
        raise CommandError(f"--payload: expected a JSON object, got {type(extra).__name__}", Exit.USAGE)
    return Task(worker, names.new_message_id(), text, extra)


class _Delegation:
    """One task, from the send to its end, as the person at the keyboard sees it."""

    def __init__(self, client: HubClient, task: Task, *, timeout_secs: float | None, as_json: bool) -> None:
        self._client = client
        self._task = task
        self._timeout_secs = timeout_secs
        self._as_json = as_json
        self._interrupts = 0
        self._interrupted = asyncio.Event()
        self._left = asyncio.Event()  # the second Ctrl-C, or SIGTERM

    @property
    def _again(self) -> str:
        return f"hub-delegate --from {self._client.identity} --to {self._task.to} --resume {self._task.task_id}"

    async def run(self, *, is_waiting: bool) -> Exit:
        """Send or follow, wait, tell; a second interrupt ends it wherever it stands."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._on_interrupt)
        loop.add_signal_handler(signal.SIGTERM, self._on_terminate)
        steps = asyncio.create_task(self._steps(is_waiting=is_waiting), name="delegation")
        left = asyncio.create_task(self._left.wait(), name="left")
        try:
            await asyncio.wait({steps, left}, return_when=asyncio.FIRST_COMPLETED)
            return steps.result() if steps.done() else Exit.INTERRUPTED
        finally:
            for task in (steps, left):
                task.cancel()
            await asyncio.wait({steps, left})

    def _on_interrupt(self) -> None:
        self._interrupts += 1
        self._interrupted.set()
        if self._interrupts > 1:
            say(f"left; the task may go on: {self._again}")
            self._left.set()

    def _on_terminate(self) -> None:
        say(f"left; the task goes on: {self._again}")
        self._left.set()

    async def _steps(self, *, is_waiting: bool) -> Exit:
        began = time.monotonic()
        try:
            handle = await self._start()
        except SendUnconfirmed as error:
            if not is_waiting:
                raise CommandError(f"{error}; follow it with: {self._again}", Exit.TIMED_OUT) from None
            say(f"{error}; following it")
            handle = await self._client.resume(self._task.task_id, self._task.to)
        if not is_waiting:
            self._tell_sent(handle)
            return Exit.OK
        state = said(handle.receipt) if handle.receipt is not None else "following"
        say(f"task {handle.task_id} to {handle.worker} ({state}); again: {self._again}")
        beside = {
            asyncio.create_task(self._show_progress(handle), name="progress"),
            asyncio.create_task(self._tell_absence(handle), name="absence"),
        }
        try:
            return await self._wait(handle, began)
        finally:
            for task in beside:
                task.cancel()
            await asyncio.wait(beside)

    async def _start(self) -> TaskHandle:
        task = self._task
        if task.prompt is None:
            return await self._client.resume(task.task_id, task.to)
        return await self._client.delegate(task.to, task.prompt, payload=task.extra, task_id=task.task_id)

    async def _wait(self, handle: TaskHandle, began: float) -> Exit:
        """Wait for the result, the timeout or the first Ctrl-C."""
        left_secs = None
        if self._timeout_secs is not None:
            left_secs = max(0.0, self._timeout_secs - (time.monotonic() - began))
        waiting = asyncio.create_task(handle.result(left_secs), name="result")
        interrupted = asyncio.create_task(self._interrupted.wait(), name="interrupted")
        try:
            await asyncio.wait({waiting, interrupted}, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                return self._tell(waiting.result())
        except TaskTimedOut:
            # Whoever asks for no time at all wants to know what is there: the stored channel says it.
            found = await handle.poll()
            if found is not None:
                return self._tell(found)
            text = f"no result of task {handle.task_id} within {self._timeout_secs:g} s; it goes on: {self._again}"
            raise CommandError(text, Exit.TIMED_OUT) from None
        finally:
            for task in (waiting, interrupted):
                task.cancel()
            await asyncio.wait({waiting, interrupted})
        return await self._cancel(handle)

    async def _cancel(self, handle: TaskHandle) -> Exit:
        say(f"cancelling, for at most {CANCEL_SECS:g} s; Ctrl-C again leaves")
        try:
            async with asyncio.timeout(CANCEL_SECS):
                return self._tell(await handle.cancel(CANCEL_SECS))
        except (TaskTimedOut, TimeoutError):
            say(f"the cancel was not confirmed within {CANCEL_SECS:g} s; the task may go on: {self._again}")
        except (NotSent, SendUnconfirmed, DeliveryError) as error:
            say(f"the cancel was not sent: {error}; the task may go on: {self._again}")
        return Exit.INTERRUPTED

    async def _show_progress(self, handle: TaskHandle) -> None:
        try:
            async for progress in handle.progress():
                say(progress_line(progress))
        except ClientError:
            return  # whoever waits for the result says it

    async def _tell_absence(self, handle: TaskHandle) -> None:
        if handle.receipt is None or handle.receipt.is_stored:  # a core hub lets nothing wait
            text = await absence(self._client, handle.worker)
            if text is not None:
                say(text)

    def _tell_sent(self, handle: TaskHandle) -> None:
        receipt = handle.receipt
        out = stdout()
        if self._as_json:
            sent = {"task_id": handle.task_id, "to": handle.worker, "stored": bool(receipt and receipt.is_stored)}
            out.json({**sent, "stream": receipt and receipt.stream, "seq": receipt and receipt.stream_seq})
        else:
            out.line(handle.task_id)
        if receipt is not None and not receipt.is_stored:
            say("heard live, not stored: a core hub keeps neither the task nor its result")

    def _tell(self, result: Result) -> Exit:
        out = stdout()
        if self._as_json:
            out.json(
                {
                    "status": result.status,
                    "task_id": result.task_id,
                    "result": result.result,
                    "error": result.error,
                    "code": result.code,
                    "verify": result.verify,
                }
            )
        elif result.status == "done":
            shown = result.result if isinstance(result.result, str) else msgspec.json.encode(result.result).decode()
            # In a file or a pipe the result is what the worker said, byte by byte; at a terminal it must not steer it.
            out.write(harmless(shown, keep="\n\t") if out.is_terminal else shown)
            out.write("" if shown.endswith("\n") else "\n")
        if out.is_broken:
            say(f"the result could not be written; it is still there: {self._again}")
            return Exit.ERROR
        if result.status == "done":
            return Exit.OK
        if result.status == "cancelled":
            say("cancelled")
            return Exit.CANCELLED
        say(f"hub-delegate: the task failed ({result.code or 'no code'}): {result.error}")
        return Exit.ERROR


def progress_line(progress: Progress) -> str:
    """A step of progress for people, one line."""
    data = progress.data
    if progress.type == "status":
        return str(data.get("status"))
    if progress.type == "stdout":
        return f"| {data.get('line')}"
    if progress.type == "progress":
        percent = data.get("percent")
        more = [str(data["phase"])] if data.get("phase") else []
        more += [f"{percent:g} %"] if isinstance(percent, int | float) else []
        return str(data.get("message")) + (f" ({', '.join(more)})" if more else "")
    if progress.type == "milestone":
        return str(data.get("name")) + (f": {data['detail']}" if data.get("detail") else "")
    return f"{progress.type} {msgspec.json.encode(data).decode()}" if data else progress.type


def hub_delegate() -> None:
    """Run the console script `hub-delegate`."""
    console_script("hub-delegate", delegate, HELP)
