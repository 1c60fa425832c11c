"""The suites of slow tests: every slow test is of one, what they depend on is there, and what a change takes."""

import re
import subprocess
from pathlib import Path

import pytest
import suites
from suites import COMMON, ONE_IN, SUITES, chosen

ROOT = Path(__file__).resolve().parents[1]


def test_every_slow_test_is_of_a_suite() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")]
    marks = [mark for text in texts for mark in re.findall(r"pytest\.mark\.slow\b(.*)", text)]
    named = {match[1] for mark in marks if (match := re.match(r'\(suite=(?:"(\w+)"|suite\))', mark))}
    assert marks and all(re.match(r'\(suite=("\w+"|suite)\)', mark) for mark in marks), marks
    assert named - {None} <= SUITES.keys()


@pytest.mark.parametrize("suite", SUITES)
def test_what_a_suite_depends_on_is_there(suite: str) -> None:
    listed = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("no git here")
    files = listed.stdout.splitlines()
    assert [path for path in (*COMMON, *SUITES[suite]) if not any(file.startswith(path) for file in files)] == []


def test_a_change_takes_the_suites_that_depend_on_it() -> None:
    drawn = set(chosen([], 0))
    assert {"native", "address", "thread"} <= set(chosen(["csrc/include/pyfast/fuse.hpp"], 0))
    assert set(chosen(["csrc/cpu/fuse.cpp"], 0)) - drawn - {"native", "fuzz", "compilers"} == {"packages"}
    assert set(chosen(["README.md"], 0)) - drawn == {"packages"}
    assert chosen(["tests/vllm/test_lora.py"], 0)["vllm"] == "tests/vllm/test_lora.py has changed"
    for change in (["tests/conftest.py"], None):
        assert chosen(change, 0).keys() == SUITES.keys() - {"storms", "matrix"}


def test_each_suite_is_drawn_by_one_seed_in_five() -> None:
    draws = [suite for seed in range(7, 7 + ONE_IN) for suite in chosen([], seed)]
    assert sorted(draws) == sorted(SUITES.keys() - {"storms", "matrix"})


def test_what_is_drawn_is_told_and_can_be_had_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["suites.py"])
    monkeypatch.setattr(suites, "changed_since", lambda commit: set())
    monkeypatch.setenv("PYFAST_TEST_BASE", "abc")
    monkeypatch.setenv("PYFAST_TEST_SEED", "12")
    suites.main()
    out, told = capsys.readouterr()
    assert out == " or ".join(f"slow(suite='{suite}')" for suite in chosen([], 12)) + "\n"
    assert "PYFAST_TEST_BASE=abc PYFAST_TEST_SEED=12 make test-slow" in told


def commit(folder: Path, **files: str) -> str:
    """A commit with these files: its name."""
    for name, text in files.items():
        (folder / name).write_text(text)
    who = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    for command in (["add", "."], [*who, "commit", "--quiet", "--message", "m"]):
        subprocess.run(["git", "-C", folder, *command], check=True)
    return subprocess.run(
        ["git", "-C", folder, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_the_base_is_where_the_branch_left_or_the_commit_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYFAST_TEST_BASE", raising=False)
    origin, clone = tmp_path / "origin", tmp_path / "clone"
    subprocess.run(["git", "init", "--quiet", "--initial-branch", "main", origin], check=True)
    first, second = commit(origin, a="1"), commit(origin, b="1", c="1")
    subprocess.run(["git", "clone", "--quiet", origin, clone], check=True)
    monkeypatch.setattr(suites, "ROOT", clone)
    assert suites.base() == first and suites.changed_since(first) == {"b", "c"}
    commit(clone, a="2")
    commit(clone, d="1")
    (clone / "new").write_text("")
    (clone / "b").unlink()
    assert suites.base() == second and suites.changed_since(second) == {"a", "b", "d", "new"}
    monkeypatch.setenv("PYFAST_TEST_BASE", first)
    assert suites.base() == first
    assert suites.changed_since("nothing") is None
    monkeypatch.setattr(suites, "ROOT", tmp_path)
    monkeypatch.delenv("PYFAST_TEST_BASE")
    assert suites.base() is None
