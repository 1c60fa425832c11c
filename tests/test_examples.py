"""The example data set passes its own check, and the check is one."""

import runpy
import shutil
from pathlib import Path

import pytest

CHECK = Path(__file__).resolve().parents[1] / "examples" / "check.py"


def test_the_examples_are_complete_and_consistent(examples: Path) -> None:
    runpy.run_path(str(CHECK))["check"](examples)


def test_the_check_notices_a_missing_passage(examples: Path, tmp_path: Path) -> None:
    shutil.copytree(examples, tmp_path / "examples")
    (tmp_path / "examples" / "corpus" / "passages" / "titan.md").unlink()
    with pytest.raises(AssertionError):
        runpy.run_path(str(CHECK))["check"](tmp_path / "examples")
