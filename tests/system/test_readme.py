"""The README's words on the running product."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.hub_process import ROOT, HubProcess
from tests.support.nats_server import NatsServer
from tests.support.waiting import eventually

pytestmark = pytest.mark.durable_only

README = (ROOT / "README.md").read_text()


def python_block() -> str:
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 1
    return str(blocks[0])


async def test_a_message_that_waited_is_read_by_the_program_of_the_readme(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    hub = await HubProcess(tmp_path / "hub", nats_server.url, "hub", "server", "--durable").start()
    publish = re.search(r"^    hub-publish (.*)$", README, re.MULTILINE)
    assert publish is not None
    command = f"{sys.executable} -m hub publish {publish.group(1)}"
    sent = subprocess.run(command, shell=True, env=hub.environ, capture_output=True, text=True, timeout=60, check=False)
    assert sent.returncode == 0, sent.stderr

    program = tmp_path / "bob.py"
    program.write_text(python_block())
    output = tmp_path / "output"
    with output.open("wb") as out:
        reader = subprocess.Popen([sys.executable, str(program)], env=hub.environ, stdout=out, stderr=out)
    try:
        await eventually(lambda: "hello, bob" in output.read_text(), within=30, what="bob reads it")
        assert "alice" in output.read_text()
    finally:
        reader.kill()
        reader.wait(10)
        await hub.kill()


def test_every_path_that_the_readme_names_is_there() -> None:
    for path in re.findall(r"\]\(([^)#]+)\)", README):
        if "://" not in path:
            assert (ROOT / path).exists(), path
    assert (ROOT / "deploy" / "nats-server.conf").exists()
