"""The systemd units are what systemd understands, and agree with the supervisor's own numbers."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.exits import NOT_RETRIED, Exit
from runtime.settings import ProcessSettings
from tests.support.up_process import ROOT

UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_is_understood(unit: Path, tmp_path: Path) -> None:
    # Checked as it would stand on a machine where it is installed: with an interpreter that is there.
    text = unit.read_text().replace("/opt/nats-hub/.venv/bin/python", sys.executable)
    copy = tmp_path / unit.name.replace("@", "@router")
    copy.write_text(text.replace("%i", "router"))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True, check=False)
    said = [line for line in done.stderr.splitlines() if unit.stem.rstrip("@") in line]
    assert (done.returncode, said) == (0, [])


def value(unit: str, key: str) -> str:
    match = re.search(rf"^{key}=(.*)$", (ROOT / "deploy" / "systemd" / unit).read_text(), re.MULTILINE)
    assert match, f"{unit} has no {key}"
    return match[1]


def test_the_unit_of_up_waits_longer_than_up_and_does_not_retry_what_cannot_be_mended() -> None:
    assert float(value("nats-hub.service", "TimeoutStopSec")) > ProcessSettings().stop_timeout_secs + 10
    assert {int(code) for code in value("nats-hub.service", "RestartPreventExitStatus").split()} == {
        Exit.ALREADY_RUNS,
        Exit.CONFIG,
    }


def test_the_unit_of_one_process_does_not_retry_what_the_supervisor_would_not() -> None:
    codes = value("nats-hub-part@.service", "RestartPreventExitStatus").split()
    assert {int(code) for code in codes} == NOT_RETRIED
