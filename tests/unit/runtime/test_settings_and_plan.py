"""runtime.toml and the resolver: every value from where it should come, every mistake told."""

import os
import sys
from pathlib import Path

import pytest

from runtime import settings
from runtime.errors import BadConfig
from runtime.plan import ConfigFiles, hide_password, resolve


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ("a = 1\nb = = 2", "runtime.toml:2: expected TOML"),
        ("[process.w]\nreplicas = 'two'", "`process.w.replicas`: Expected `int`, got `str`"),
        ("[process.w]\nreplicas = 257", "`process.w.replicas`: expected 0 to 256, found 257"),
        ("[process.w]\nreplica = 2", "`process.w.replica`: unknown; did you mean 'replicas'?"),
        ("[process.w]\nrestart = 'never'", "`process.w.restart`: Invalid enum value 'never'"),
        ("[process.w]\nready_timeout_secs = 0", "`process.w.ready_timeout_secs`: expected seconds, above 0 or more"),
        (
            "[process.w]\nstop_timeout_secs = -1",
            "stop_timeout_secs`: expected seconds, 0 or more, found -1.0",
        ),
        ("[process.w]\nbackoff_secs = 60", "`process.w.backoff_max_secs`: expected at least backoff_secs (60.0)"),
        ("[process.w]\nenvironment = {'a-b' = '1'}", "`process.w.environment.a-b`: expected a name"),
        ("process = 1", "`process`: expected tables `[process.NAME]`"),
        ("[process]\nw = 1", "`process.w`: expected a table `[process.w]`, found 1"),
        ("[nats]\nsync_interval = 'often'", "`nats.sync_interval`: expected always or a time as 10s, found 'often'"),
        ("[logs]\nmax_mb = 0", "`logs`: expected max_mb above 0"),
        ("[log]", "`log`: unknown; did you mean 'logs'?"),
    ],
)
def test_a_mistake_in_runtime_toml_names_its_key(toml: str, said: str) -> None:
    with pytest.raises(BadConfig) as refused:
        settings.parse(toml.encode())
    assert said in str(refused.value)


def plan_of(folder: Path, environ: dict[str, str], **files: str):
    for name, text in files.items():
        (folder / {"procfile": "Procfile", "env": ".env", "toml": "runtime.toml"}[name]).write_text(text)
    return resolve(ConfigFiles(procfile=str(folder / "Procfile")), {"NATS_HUB_STATE_DIR": str(folder / "s")} | environ)


def test_the_environment_beats_runtime_toml_beats_dotenv(tmp_path: Path) -> None:
    (process,) = plan_of(
        tmp_path,
        {"A": "environment", "D": "same"},
        procfile="w: echo $A $B $C\n",
        env="A=env\nB=env\nC=env\nD=same\n",
        toml="[process.w.environment]\nA = 'toml'\nB = 'toml'\n",
    ).processes
    assert process.argv_of(0) == ["echo", "environment", "toml", "env"]
    assert {name: process.sources[name] for name in "ABCD"} == {
        "A": "environment",
        "B": "runtime.toml",
        "C": ".env:3",
        "D": ".env:4, environment",
    }


@pytest.mark.parametrize("swapped", [False, True])
def test_the_order_of_lines_in_dotenv_does_not_matter(tmp_path: Path, swapped: bool) -> None:
    lines = ["PORT=8000", "HOST=h"]
    env = "\n".join(lines[::-1] if swapped else lines)
    (process,) = plan_of(tmp_path, {}, procfile="w: echo $PORT\n", env=env).processes
    assert process.argv_of(0) == ["echo", "8000"]


def test_python_in_a_procfile_is_the_supervisors_interpreter(tmp_path: Path) -> None:
    (process,) = plan_of(tmp_path, {"PATH": "/usr/bin"}, procfile="w: python x.py\n").processes
    assert process.environ["PATH"] == f"{Path(sys.executable).parent}{os.pathsep}/usr/bin"


def test_what_is_meant_for_us_is_not_inherited(tmp_path: Path) -> None:
    (process,) = plan_of(tmp_path, {"NOTIFY_SOCKET": "/run/systemd", "LISTEN_FDS": "1"}, procfile="w: x\n").processes
    assert not {"NOTIFY_SOCKET", "LISTEN_FDS"} & set(process.environ)


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ("[process.wroker]", "`process.wroker`: the Procfile has no such process; did you mean 'worker'?"),
        ("[process.worker]\nafter = ['x']", "`process.worker.after`: the Procfile has no process 'x'"),
        ("[process.worker]\nafter = ['api']\n[process.api]\nafter = ['worker']", "`after`: expected no circle, found"),
        ("[process.worker]\nafter = ['worker']", "`after`: expected no circle, found worker after worker"),
        ("[process.worker]\ncwd = 'nowhere'", "Procfile:1: worker: cwd: expected a folder, found none at"),
    ],
)
def test_a_mistake_between_two_files(tmp_path: Path, toml: str, said: str) -> None:
    with pytest.raises(BadConfig) as refused:
        plan_of(tmp_path, {}, procfile="worker: x\napi: y\n", toml=toml)
    assert said in str(refused.value)


def test_the_mistakes_of_all_files_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(BadConfig) as refused:
        plan_of(tmp_path, {}, procfile="w\n", env="x\n", toml="[z]")
    assert [problem.file for problem in refused.value.problems] == ["Procfile", ".env", "runtime.toml"]


def test_a_procfile_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="expected a file, found none"):
        resolve(ConfigFiles(), {"PROCFILE": str(tmp_path / "p2")})


def test_the_environment_may_name_the_procfile(tmp_path: Path) -> None:
    (tmp_path / "p2").write_text("w: x\n")
    plan = resolve(ConfigFiles(), {"PROCFILE": str(tmp_path / "p2"), "HOME": str(tmp_path)})
    assert plan.files["Procfile"] == f"{tmp_path}/p2 (PROCFILE in the environment)"
    assert plan.state_dir.root == tmp_path / ".local" / "state" / "nats-hub"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("nats://h:1", "nats://h:1"),
        ("nats://me:hush@h:1,nats://token@i", "nats://***@h:1,nats://***@i"),
        ("me:hush@h", "***@h"),
        (None, None),
    ],
)
def test_an_address_is_shown_without_its_password(url: str | None, shown: str | None) -> None:
    assert hide_password(url) == shown
