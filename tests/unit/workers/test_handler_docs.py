"""docs/handlers.md: a newcomer's package, written from the page, passes the page's own tests."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_examples_of_the_page_run(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "handlers.md").read_text()
    files = re.findall(r"```\w+\n# (\S+\.(?:py|toml))\n(.*?)```", page, re.DOTALL)
    assert [name for name, _ in files] == ["greeter.py", "test_greeter.py", "pyproject.toml"]
    for name, text in files:
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{ROOT}:{tmp_path}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
