"""Commands for people as real processes: their stdout, stderr and exit codes."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from tests.support.hub_process import ROOT
from tests.support.waiting import eventually

END_SECS = 30.0  # two busy cores: starting Python with our imports takes one to two seconds


class Command:
    """One run of a console script, `hub-<name> <arguments>`.

    Attributes:
        stdout, stderr: what it wrote so far.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.stdout = b""
        self.stderr = b""
        self._readers = [asyncio.create_task(self._read(name)) for name in ("stdout", "stderr")]

    @classmethod
    async def start(
        cls,
        name: str,
        *arguments: str,
        url: str,
        home: Path,
        stdin: bytes | None = None,
        environ: dict[str, str] | None = None,
    ) -> "Command":
        """Start it, with `stdin` written and closed."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        own = {"NATS_URL": url, "NATS_HUB_STATE_DIR": str(home), "PYTHONPATH": str(ROOT)}
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).parent / f"hub-{name}"),
            *arguments,
            env=kept | own | (environ or {}),
            cwd=home,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None
        process.stdin.write(stdin or b"")
        process.stdin.close()
        return cls(process)

    async def _read(self, name: str) -> None:
        stream: asyncio.StreamReader = getattr(self.process, name)
        while chunk := await stream.read(65_536):
            setattr(self, name, getattr(self, name) + chunk)

    async def says(self, text: str, *, within: float = END_SECS) -> None:
        """Wait until stderr holds this."""

        def said() -> bool:
            if text.encode() in self.stderr:
                return True
            assert self.process.returncode is None, f"ended with {self.process.returncode}: {self.stderr.decode()}"
            return False

        await eventually(said, within=within, what=f"stderr holds {text!r}")

    async def ended(self, within: float = END_SECS) -> int:
        """Wait for its end; returns its exit code."""
        async with asyncio.timeout(within):
            code = await self.process.wait()
            await asyncio.gather(*self._readers)
        assert b"Traceback" not in self.stderr, self.stderr.decode()
        return code

    def close_stdout(self) -> None:
        """Let the reader of stdout go, as `head -1` does."""
        transport = self.process._transport  # type: ignore[attr-defined]  # asyncio has no other way
        transport.get_pipe_transport(1).close()

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    async def kill(self) -> None:
        """End it if it still runs."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        await asyncio.gather(*self._readers)

    @property
    def code(self) -> int | None:
        return self.process.returncode

    @property
    def out(self) -> str:
        return self.stdout.decode()

    @property
    def err(self) -> str:
        return self.stderr.decode()
