"""Reports in Debian's Chromium, driven by Playwright from an environment of its own (`browser_cases.py`).

PYFAST_SCREENSHOTS names a folder that keeps the screenshots of the docs: `make screenshots`.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from environments import over_this_one

pytestmark = pytest.mark.slow(suite="browser")

HERE = Path(__file__).parent
PACKAGES = ["playwright>=1.49,<2", "axe-playwright-python>=0.1.4"]


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium")
def test_in_a_real_browser(tmp_path: Path) -> None:
    python = over_this_one(tmp_path / "venv", PACKAGES)
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", HERE / "browser_cases.py"]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
    done = subprocess.run(command, cwd=HERE.parents[1], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
