"""`make quick` runs the tests that a change touches, the nearest first, and ends in time."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from quick import ROOT, imported, module, nearest


@pytest.mark.parametrize(
    ("changed", "first"),
    [
        ("pyfast/ops/fuse.py", "tests/ops/test_fuse.py"),
        ("csrc/cpu/bm25.cpp", "tests/ops/test_bm25.py"),  # an op has one name in every folder
        ("bindings/maxsim.cpp", "tests/ops/test_maxsim.py"),
        ("tests/ops/test_prune.py", "tests/ops/test_prune.py"),
        ("tests/batch_server.py", "tests/llm/test_openai_batches.py"),  # what tests share
    ],
)
def test_the_nearest_test_comes_first(changed: str, first: str) -> None:
    found = nearest([ROOT / changed])
    steps = [distance for distance, _ in found]
    assert found[0][1] == ROOT / first or ROOT / first in [path for one, path in found if one == min(steps)]


def test_text_has_no_tests() -> None:
    assert nearest([ROOT / "README.md"]) == []


@pytest.mark.parametrize(("seconds", "passed"), [(0.1, "1 passed"), (60, "3 passed")])
def test_the_session_ends_in_time(tmp_path: Path, seconds: float, passed: str) -> None:
    tests = "import time\n\ndef test_a(): time.sleep(0.2)\n\ndef test_b(): pass\n\ndef test_c(): pass\n"
    (tmp_path / "test_three.py").write_text(tests)
    code = f"import pytest, quick; pytest.main(['-q', '.'], plugins=[quick.Within({seconds})])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
    )
    assert passed in done.stdout and ("2 tests were not run" in done.stdout) == (passed == "1 passed")


def test_the_file_that_is_read_as_text_names_what_is_imported() -> None:
    """As `ast` finds them, in every file of the package."""
    files = [*(ROOT / "pyfast").rglob("*.py")]
    known = {module(path): path for path in files}

    def parsed(path: Path) -> set[str]:
        found = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                found |= {name if name in known else str(node.module) for name in inner}
        return found & known.keys()

    for path in files:
        assert parsed(path) <= set(imported(path, known)), path
