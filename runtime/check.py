"""`check`: what `up` would run, from the same plan that `up` uses."""

import re
import shlex
import shutil
from typing import Any, Final

from runtime.plan import Plan, ProcessPlan, hide_password

_SECRET: Final = re.compile(r"TOKEN|PASS|SECRET|KEY|SEED|CREDENTIAL|AUTH|DSN", re.IGNORECASE)
_URL_SECRET: Final = re.compile(r"(://)[^/@\s]*@")


def describe(plan: Plan) -> dict[str, Any]:
    """The plan as JSON would have it; secrets are hidden."""
    return {
        "files": plan.files,
        "state_dir": {"value": str(plan.state_dir.root), "source": plan.state_dir.source},
        "nats_url": {
            "value": hide_password(plan.nats_url) or "our own nats-server on loopback",
            "source": plan.nats_source,
        },
        "unused": list(plan.unused),
        "processes": [_process(process) for process in plan.processes],
    }


def _process(process: ProcessPlan) -> dict[str, Any]:
    settings = {
        key: {"value": getattr(process.settings, key), "source": process.sources[key]}
        for key in process.settings.__struct_fields__
        if key != "environment"
    }
    environment = {
        name: {"value": hide(name, process.environ[name]), "source": source}
        for name, source in sorted(process.sources.items())
        if name in process.environ and name not in settings and name != "command"
    }
    environment["PROCESS_NAME"] = {"value": process.name, "source": "up"}
    environment["PROCESS_INDEX"] = {"value": "0, 1, …", "source": "up"}
    # The embedded server's address is known only when it runs.
    later = {"NATS_URL": "$NATS_URL"}
    replicas = [process.command.argv(later | process.environ_of(n)) for n in range(process.settings.replicas)]
    first = replicas[0][0] if replicas else ""
    return {
        "name": process.name,
        "command": process.command.text,
        "source": process.sources["command"],
        "runs": "directly" if process.command.is_direct else f"by /bin/sh ({process.command.why_shell})",
        "program": shutil.which(first, path=process.environ.get("PATH")) if first else None,
        "replicas": replicas,
        "cwd": process.cwd,
        "settings": settings,
        "environment": environment,
        "inherited": len(set(process.environ) - set(environment)),
    }


def hide(name: str, value: str) -> str:
    """A value for people: secrets as ***, and what stands before the @ of an address."""
    return "***" if _SECRET.search(name) and value else _URL_SECRET.sub(r"\1***@", value)


def render(described: dict[str, Any]) -> str:
    """For people."""
    lines = [f"{name}: {path}" for name, path in described["files"].items()]
    lines += [f"{key}: {described[key]['value']}  ({described[key]['source']})" for key in ("state_dir", "nats_url")]
    lines += [f"not used: {text}" for text in described["unused"]]
    for process in described["processes"]:
        lines += ["", f"{process['name']}  ({process['source']}), runs {process['runs']}"]
        lines += [f"  .{index}  {shlex.join(argv)}" for index, argv in enumerate(process["replicas"])] or [
            "  no replicas"
        ]
        if process["replicas"] and process["program"] is None:
            lines.append(f"  ! {process['replicas'][0][0]} is not found on its PATH")
        lines.append(f"  cwd {process['cwd']}")
        lines += [
            f"  {key} = {_shown(entry['value'])}  ({entry['source']})" for key, entry in process["settings"].items()
        ]
        lines += [f"  ${name}={entry['value']}  ({entry['source']})" for name, entry in process["environment"].items()]
        lines.append(f"  and {process['inherited']} more variables of the environment, as they are")
    return "\n".join(lines)


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
