"""Commands for people as real processes: their stdout, stderr and exit codes."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.nursery import NURSERY, ROOT, NurseryProcess
from tests.support.waiting import eventually

PIPE_BYTES = 65_536
END_SECS = 30.0  # two busy cores: starting Python with our imports takes one to two seconds


class Command:
    """One run of a console script, `hub-<name> <arguments>`.

    Attributes:
        process: its process.
        stdout, stderr: what it wrote so far.
    """

    def __init__(self, process: NurseryProcess | subprocess.Popen[bytes]) -> None:
        self.process = process
        self.stdout = b""
        self.stderr = b""
        self._transports: list[asyncio.BaseTransport] = []
        self._readers: list[asyncio.Task[None]] = []

    @classmethod
    async def start(
        cls,
        name: str,
        *arguments: str,
        url: str,
        home: Path,
        stdin: bytes = b"",
        environ: dict[str, str] | None = None,
        fresh: bool = False,
    ) -> "Command":
        """Start it, with `stdin` written and closed; `fresh` starts Python anew, with all that it costs."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        env = kept | {"NATS_URL": url, "NATS_HUB_STATE_DIR": str(home), "PYTHONPATH": str(ROOT)} | (environ or {})
        script = str(Path(sys.executable).parent / f"hub-{name}")
        assert len(stdin) < PIPE_BYTES
        (read_in, write_in), (read_out, out), (read_err, err) = (os.pipe() for _ in range(3))
        try:
            os.write(write_in, stdin)
            os.close(write_in)
            start = cls._start_anew if fresh else NURSERY.spawn
            streams = {"stdin": read_in, "stdout": out, "stderr": err}
            command = cls(await asyncio.to_thread(start, script, arguments, environ=env, cwd=home, **streams))
        finally:
            for descriptor in (read_in, out, err):
                os.close(descriptor)
        await command._read("stdout", read_out)
        await command._read("stderr", read_err)
        return command

    @staticmethod
    def _start_anew(
        script: str, arguments: Sequence[str], *, environ: dict[str, str], **options: Any
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen([script, *arguments], env=environ, **options)

    async def _read(self, name: str, descriptor: int) -> None:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb")
        )

        async def read() -> None:
            while chunk := await reader.read(65_536):
                setattr(self, name, getattr(self, name) + chunk)

        self._transports.append(transport)
        self._readers.append(asyncio.create_task(read()))

    async def says(self, text: str, *, within: float = END_SECS) -> None:
        """Wait until stderr holds this."""

        def said() -> bool:
            if text.encode() in self.stderr:
                return True
            assert self.code is None, f"ended with {self.code}: {self.stderr.decode()}"
            return False

        await eventually(said, within=within, what=f"stderr holds {text!r}")

    async def ended(self, within: float = END_SECS) -> int:
        """Wait for its end; returns its exit code."""
        async with asyncio.timeout(within):
            code = await asyncio.to_thread(self.process.wait, within)
            await asyncio.gather(*self._readers)
        assert b"Traceback" not in self.stderr, self.stderr.decode()
        return code

    def close_stdout(self) -> None:
        """Let the reader of stdout go, as `head -1` does."""
        self._transports[0].close()

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    async def kill(self) -> None:
        """End it if it still runs."""
        if self.code is None:
            self.process.kill()
        await asyncio.to_thread(self.process.wait, END_SECS)
        await asyncio.gather(*self._readers)

    @property
    def code(self) -> int | None:
        return self.process.poll()

    @property
    def out(self) -> str:
        return self.stdout.decode()

    @property
    def err(self) -> str:
        return self.stderr.decode()
