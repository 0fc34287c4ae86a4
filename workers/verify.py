"""The verification of a session's turn: its `verify_cmd`, after the handler succeeded (contract §9)."""

import asyncio
from pathlib import Path
from typing import Final

import msgspec

from workers import commands

VERIFY_SECS: Final = 600.0  # contract §9


class Verification(msgspec.Struct, frozen=True):
    """What a verification said.

    Attributes:
        is_passed: its command ended with 0.
        detail: otherwise, what went wrong and the last of its output.
    """

    is_passed: bool
    detail: str = ""


async def run_verification(command: str, folder: Path, *, timeout_secs: float = VERIFY_SECS) -> Verification:
    """Run a `verify_cmd` by the shell.

    Args:
        command: the command, from the wire: whoever calls this has judged that it may run.
        folder: where.
        timeout_secs: how long it may take.
    """
    try:
        async with asyncio.timeout(timeout_secs):
            finished = await commands.run(command, cwd=folder, join_outputs=True, stdout_most=0)
    except TimeoutError:
        return Verification(False, f"verify_cmd did not end within {timeout_secs:g} s")
    except (OSError, ValueError) as error:
        return Verification(False, f"verify_cmd cannot be started: {error}")
    if finished.exit_code == 0:
        return Verification(True)
    return Verification(False, f"verify_cmd ended with {finished.exit_code}: {finished.tail}")
