"""What a wheel carries: an editable install finds every file, so no other test would miss one."""

import tomllib
from pathlib import Path

import pytest
from setuptools import find_packages

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("top", ["hub", "runtime", "workers"])
def test_every_module_is_in_a_package_that_a_wheel_carries(top: str) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    carried = set(find_packages(str(ROOT), include=settings["tool"]["setuptools"]["packages"]["find"]["include"]))
    modules = list((ROOT / top).rglob("*.py"))
    assert modules
    homes = {".".join(module.parent.relative_to(ROOT).parts) for module in modules}
    assert homes <= carried
