"""The machine line: on what the figures were measured."""

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

from hub.bench.nats_server import server_binary


def machine_line() -> str:
    """Processor, cores, system, versions and the load that there is, in one line."""
    server = subprocess.run(  # noqa: S603 - our own binary
        [server_binary(), "--version"], capture_output=True, text=True, check=True, timeout=10
    ).stdout.strip()
    busy = os.getloadavg()[0]
    return (
        f"{_processor()}, {os.cpu_count()} cores (load {busy:.1f}), {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, uvloop {version('uvloop')}, nats-py {version('nats-py')}, {server}"
    )


def _processor() -> str:
    """Its model as Linux tells it, else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()
