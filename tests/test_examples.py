"""The example data set passes its own check, and the check is one."""

import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pyfast

CHECK = Path(__file__).resolve().parents[1] / "examples" / "check.py"


def test_the_examples_are_complete_and_consistent(examples: Path) -> None:
    runpy.run_path(str(CHECK))["check"](examples)


def test_the_check_notices_a_missing_passage(examples: Path, tmp_path: Path) -> None:
    shutil.copytree(examples, tmp_path / "examples")
    (tmp_path / "examples" / "corpus" / "passages" / "titan.md").unlink()
    with pytest.raises(AssertionError):
        runpy.run_path(str(CHECK))["check"](tmp_path / "examples")


def test_the_demo_fits_a_terminal_of_80_columns(examples: Path, tmp_path: Path) -> None:
    """What it shows, in which order, and that its figures are those of the runs."""
    called = [sys.executable, examples / "demo.py", "instant", tmp_path / "demo"]
    shown = subprocess.run(called, check=True, capture_output=True, text=True, encoding="utf-8").stdout
    lines = shown.replace(f"{tmp_path}/", "").splitlines()
    assert [line for line in lines if len(line) > 80 and str(tmp_path)[:20] not in line] == []
    heads = ["ANSWERS of n2n", "ONE QUESTION STEP BY STEP", "THE SYSTEMS SIDE BY SIDE", "WHERE TO LOOK NEXT"]
    places = [next(number for number, line in enumerate(lines) if line.startswith(head)) for head in heads]
    assert places == sorted(places)
    run = tmp_path / "demo" / "n2n"
    figures = pyfast.evaluate(run).rows[0].figures
    answers, table = lines[places[0] : places[1]], lines[places[2] : places[3]]
    assert sum(line.startswith(" ✓ ") for line in answers) == round(8 * figures["em"].value)
    assert sum(line.startswith((" ✓ ", " ✗ ")) for line in answers) == 8
    (row,) = (line.split() for line in table if line.startswith(" n2n "))
    assert row[1:4] == [f"{figures[name].value:.3f}" for name in ("em", "f1", "evidence_recall")]
    status = pyfast.Run(run).status
    assert row[5] == f"{status.prompt_tokens + status.completion_tokens:,}"
