"""Runs by workers of a real Ray cluster, in an environment of their own."""

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with what the extra asks for, over the packages of this one."""
    place = tmp_path_factory.mktemp("ray") / "venv"
    venv.create(place, with_pip=True)
    (site,) = place.glob("lib/python3*/site-packages")
    (site / "of_pyfast.pth").write_text(sysconfig.get_path("purelib"))
    python = place / "bin" / "python"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    pip = [python, "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check"]
    subprocess.run([*pip, *extras["ray"]], check=True)
    installed = subprocess.run(
        [python, "-m", "pip", "freeze", "--local"], capture_output=True, text=True, check=True
    )
    assert re.search(r"^ray==", installed.stdout, re.MULTILINE) and "torch" not in installed.stdout
    return python


@pytest.mark.slow(suite="ray")
@pytest.mark.parametrize("cases", ["ray_cases.py", "network_cases.py"])
def test_with_a_real_cluster(cases: str, python: Path) -> None:
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", HERE / cases]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_pyfast_itself_does_not_import_ray() -> None:
    code = "import pyfast.commands.cli, pyfast.api.ray_workers, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "ray" not in {name.split(".")[0] for name in done.stdout.split()}
