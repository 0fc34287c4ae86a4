"""Handlers for tests. Each start of one is a line in the file that `$LEDGER` names: task id, attempt, pid."""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from typing import Any

import msgspec

from workers import Reject, Retry, Turn, handler


def record(turn: Turn, *words: object) -> None:
    path = os.environ.get("LEDGER")
    if path is not None:
        line = " ".join(map(str, (turn.task_id, turn.attempt, os.getpid(), *words))) + "\n"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(descriptor, line.encode())  # one write: on the way to the disk before whatever comes next
        os.close(descriptor)


@handler("nap", concurrency=4)
async def nap(turn: Turn) -> str:
    """Sleep for as many seconds as the prompt says."""
    record(turn)
    await turn.progress("napping", percent=0)
    await asyncio.sleep(float(turn.prompt))
    return f"slept {turn.prompt}"


@handler("nap_again", concurrency=4, idempotent=True, max_attempts=3)
async def nap_again(turn: Turn) -> str:
    return await nap(turn)


@handler("nap_or_retry", concurrency=4)
async def nap_or_retry(turn: Turn) -> str:
    """As `nap`; `retry` asks for a second attempt once."""
    if turn.prompt == "retry":
        if turn.attempt == 1:
            raise Retry(delay=0.8)
        return "retried"
    return await nap(turn)


@handler("nap_plain", concurrency=2)
def nap_plain(turn: Turn) -> str:
    """The same as a plain function, in a process of its own."""
    record(turn)
    turn.progress("napping", percent=0)
    time.sleep(float(turn.prompt))
    return f"slept {turn.prompt}"


@handler("nap_isolated", isolation="process")
async def nap_isolated(turn: Turn) -> str:
    """The same as an async function in a process of its own."""
    return await nap(turn)


@handler("hold_gil")
def hold_gil(turn: Turn) -> str:
    """Hold the interpreter's lock for as many seconds as the prompt says."""
    record(turn)
    ctypes.PyDLL(None).sleep(int(turn.prompt))
    return "held"


@handler("block_loop")
async def block_loop(turn: Turn) -> str:
    record(turn)
    ctypes.PyDLL(None).sleep(int(turn.prompt))
    return "blocked"


@handler("die", isolation="process", idempotent=True, max_attempts=3)
async def die(turn: Turn) -> str:
    """Kill the process that it runs in."""
    record(turn)
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@handler("die_once")
def die_once(turn: Turn) -> str:
    record(turn)
    if turn.prompt == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


@handler("flaky", max_attempts=3)
async def flaky(turn: Turn) -> str:
    """Succeed at the third attempt; `for ever`: never."""
    record(turn)
    if turn.attempt < 3 or turn.prompt == "for ever":
        raise Retry(delay=0.1 if turn.prompt != "late" else 60.0, reason="not yet")
    return f"attempt {turn.attempt}"


@handler("remember", concurrency=4)
async def remember(turn: Turn) -> list[str]:
    """Return every prompt of the session so far."""
    record(turn)
    turn.context.setdefault("prompts", []).append(turn.prompt)
    if turn.prompt == "fail":
        raise ValueError("as asked")
    return list(turn.context["prompts"])


class Odd(BaseException):
    pass


def misbehaviour(turn: Turn) -> Any:
    """What the prompt says."""
    record(turn)
    match turn.prompt:
        case "set":
            return {1, 2}
        case "nan":
            return float("nan")
        case "bytes":
            return b"x"
        case "30 MB":
            return "x" * 30_000_000
        case "nothing":
            return None
        case "base":
            raise Odd("odd")
        case "exit":
            sys.exit(3)
        case "interrupt":
            raise KeyboardInterrupt
        case "cancel itself":
            raise asyncio.CancelledError
        case "reject":
            raise Reject("not today")
        case "surrogate":
            raise ValueError("\ud800 in the text")
        case "bad str":
            raise BadText
        case "long error":
            raise ValueError("x" * 20_000_000)
        case "print":
            for _ in range(50):
                sys.stdout.write("x" * 1_000_000 + "\n")
            return "printed"
        case "shout":
            for number in range(20_000):
                turn.stdout(f"line {number}")
            return "shouted"
        case "leak":
            leaked = subprocess.Popen(["sleep", "1000"], start_new_session=True)
            return leaked.pid
        case _:
            return "well behaved"


class BadText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@handler("misbehave")
async def misbehave(turn: Turn) -> Any:
    return misbehaviour(turn)


@handler("misbehave_plain")
def misbehave_plain(turn: Turn) -> Any:
    return misbehaviour(turn)


@handler("stubborn")
async def stubborn(turn: Turn) -> str:
    """Swallow the first cancel."""
    record(turn)
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        record(turn, "swallowed", turn.cancelled)
        await asyncio.sleep(60)
    return "late"


class GreetingOptions(msgspec.Struct, frozen=True, kw_only=True):
    greeting: str
    times: int = 1


@handler("greet", options=GreetingOptions)
async def greet(turn: Turn, options: GreetingOptions) -> str:
    await turn.milestone("greeted", {"whom": turn.prompt})
    return f"{options.greeting} {turn.prompt} " * options.times


@handler("pass_on")
async def pass_on(turn: Turn) -> Any:
    """Delegate to the worker that the prompt names."""
    task = await turn.hub.delegate(turn.prompt, "passed on")
    return (await task.result(timeout_secs=20)).result


@handler("touch_workdir")
async def touch_workdir(turn: Turn) -> str:
    (turn.workdir / "here").write_text("x")
    return str(turn.workdir)
