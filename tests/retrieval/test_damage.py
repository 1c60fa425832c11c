"""Damaged indexes are refused or harmless, and never end the process.

    PYFAST_DAMAGE_SECONDS=600 pytest tests/retrieval/test_damage.py -m "slow or not slow"

gives each of the two tests ten minutes in place of 30 seconds.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import pyfast

SECONDS = int(os.environ.get("PYFAST_DAMAGE_SECONDS", "30"))
CHILD = Path(__file__).with_name("damaged_index.py")


@pytest.fixture
def index(tmp_path: Path, examples: Path) -> Path:
    """An index of three parts, with texts, tables, triples and deleted documents."""
    pyfast.build_index(examples / "corpus", tmp_path / "index")
    table = {
        "kind": "table",
        "id": "t",
        "title": "Moons",
        "header": ["moon", "of"],
        "rows": [["Titan", "Saturn"]] * 9,
    }
    graph = {"kind": "kg", "id": "k", "title": "Facts", "triples": [["Titan", "orbits", "Saturn"]] * 5}
    pyfast.add_documents(tmp_path / "index", [table, graph])
    pyfast.add_documents(tmp_path / "index", {"id": "x", "title": "X", "text": "A rocket flew to the moon."})
    pyfast.delete_documents(tmp_path / "index", "x")
    return tmp_path / "index"


def trials(what: str, index: Path, count: int) -> Counter[str]:
    """What became of each trial."""
    command = [sys.executable, str(CHILD), what, str(index), "23", str(count), str(SECONDS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and lines[-1] == "ended", (lines[-1:], done.returncode, done.stderr[-2000:])
    assert not [line for line in lines if " raised " in line]
    print(what, Counter(line.split(" ", 1)[1] for line in lines[:-1]))
    return Counter(line.split()[1] for line in lines[:-1])


@pytest.mark.slow(suite="shapes")
def test_a_flipped_byte_is_refused_or_harmless(index: Path) -> None:
    found = trials("flips", index, 10_000)
    assert found["refused"] > 0 and not found["other"], found


@pytest.mark.slow(suite="shapes")
def test_wrong_values_with_right_checksums_end_no_process(index: Path) -> None:
    found = trials("values", index, 1_000_000)
    assert found["refused"] > 0, found
