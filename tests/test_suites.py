"""The suites of slow tests: every slow test is of one, what they depend on is there, and what a change takes."""

import re
import subprocess
from pathlib import Path

import pytest
import suites
from suites import COMMON, ONE_IN, SECONDS, SUITES, chosen

ROOT = Path(__file__).resolve().parents[1]
BY_CHANGE = {name for name, suite in SUITES.items() if suite.depends}
MARK = re.compile(r"pytest\.mark\.slow\b(.*)")
NO_LIMIT = 10**6


def test_every_slow_test_is_of_a_suite() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")]
    marks = [mark for text in texts for mark in MARK.findall(text)]
    named = {match[1] for mark in marks if (match := re.match(r'\(suite=(?:"(\w+)"|suite\))', mark))}
    assert marks and all(re.match(r'\(suite=("\w+"|suite)\)', mark) for mark in marks), marks
    assert named - {None} <= SUITES.keys()


def test_a_suite_depends_on_its_own_tests() -> None:
    for path in (ROOT / "tests").rglob("test_*.py"):
        name = str(path.relative_to(ROOT))
        for suite in {*re.findall(r'mark\.slow\(suite="(\w+)"\)', path.read_text(encoding="utf-8"))} & BY_CHANGE:
            assert name.startswith(SUITES[suite].depends), f"{suite}: {name}"


@pytest.mark.parametrize("suite", SUITES)
def test_what_a_suite_depends_on_is_there(suite: str) -> None:
    listed = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("no git here")
    files = listed.stdout.splitlines()
    wanted = (*COMMON, *SUITES[suite].depends)
    assert [path for path in wanted if not any(file.startswith(path) for file in files)] == []


def taken(changed: list[str] | None, seed: int = 0) -> dict[str, str]:
    """What a run takes that may last as long as it likes."""
    return chosen(changed, seed, NO_LIMIT)[0]


def test_a_change_takes_the_suites_that_depend_on_it() -> None:
    drawn = set(taken([]))
    assert {"native", "address", "thread"} <= set(taken(["csrc/include/pyfast/pools.hpp"]))
    assert set(taken(["csrc/cpu/fuse.cpp"])) - drawn == {"native", "fuzz", "compilers", "packages"} - drawn
    assert set(taken(["README.md", "tests/suites.py", "pyfast/ops/fuse.py"])) == drawn
    assert taken(["tests/vllm/test_lora.py"])["vllm"] == "tests/vllm/test_lora.py has changed"
    for change in (["tests/conftest.py"], None):
        assert taken(change).keys() == BY_CHANGE


def test_each_suite_is_drawn_by_one_seed_in_five() -> None:
    draws = [suite for seed in range(7, 7 + ONE_IN) for suite in taken([], seed)]
    assert sorted(draws) == sorted(BY_CHANGE)


@pytest.mark.parametrize("seconds", [0, 300, SECONDS])
@pytest.mark.parametrize("changed", [None, ["pyproject.toml"], []])
def test_a_run_takes_no_longer_than_it_may(changed: list[str] | None, seconds: int) -> None:
    for seed in range(100):
        runs, left = chosen(changed, seed, seconds)
        room = seconds - sum(SUITES[name].seconds for name in runs)
        assert room >= 0 and all(SUITES[name].seconds > room for name in left)
        assert runs.keys() | left.keys() == taken(changed, seed).keys() and not runs.keys() & left.keys()


@pytest.mark.parametrize("also", [[], ["tests/conftest.py"]])
def test_what_a_change_touches_goes_first(also: list[str]) -> None:
    for seed in range(100):
        runs, left = chosen(["tests/vllm/test_lora.py", *also], seed, SUITES["vllm"].seconds)
        assert [*runs] == ["vllm"] and not any("test_lora" in why for why in left.values())


def test_whatever_changes_each_suite_has_its_turn() -> None:
    assert max(SUITES[name].seconds for name in BY_CHANGE) <= SECONDS
    assert {name for seed in range(100) for name in chosen(None, seed)[0]} == BY_CHANGE


def test_what_is_taken_is_printed_and_can_be_had_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["suites.py"])
    monkeypatch.setattr(suites, "changed_since", lambda commit: {"pyproject.toml"})
    for name, value in (("BASE", "abc"), ("SEED", "12"), ("SECONDS", "700")):
        monkeypatch.setenv(f"PYFAST_TEST_{name}", value)
    suites.main()
    out, printed = capsys.readouterr()
    runs, left = chosen(["pyproject.toml"], 12, 700)
    assert out == " or ".join(f"slow(suite='{suite}')" for suite in runs) + "\n" and runs and left
    assert "PYFAST_TEST_BASE=abc PYFAST_TEST_SEED=12 PYFAST_TEST_SECONDS=700 make test-slow" in printed
    assert f"make test-slow SUITES='{' '.join(left)}'" in printed and f"  not {next(iter(left))}, " in printed


def test_suites_are_asked_for_by_name(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for given, printed in {
        ("storms", "fuzz"): "slow(suite='storms') or slow(suite='fuzz')",
        ("--none",): "slow(suite='none')",
        ("--all",): " or ".join(f"slow(suite='{suite}')" for suite in SUITES),
    }.items():
        monkeypatch.setattr("sys.argv", ["suites.py", *given])
        suites.main()
        assert capsys.readouterr().out == printed + "\n"
    monkeypatch.setattr("sys.argv", ["suites.py", "storm"])
    with pytest.raises(SystemExit, match="no suite storm; there are address thread"):
        suites.main()


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
    (clone / "c").write_bytes(b"\x89PNG")
    assert suites.base() == second and suites.changed_since(second) == {"a", "b", "c", "d", "new"}
    monkeypatch.setenv("PYFAST_TEST_BASE", first)
    assert suites.base() == first
    assert suites.changed_since("nothing") is None
    third = commit(clone, e="1")
    (clone / "c").write_text("text again")
    assert suites.changed_since(third) == {"c"}
    monkeypatch.setattr(suites, "ROOT", tmp_path)
    monkeypatch.delenv("PYFAST_TEST_BASE")
    assert suites.base() is None


CODE = '"""A module."""\n\n\ndef f(x: int) -> int:\n    """Doubles."""\n    return 2 * x  # twice\n'
PROJECT = """[build-system]
requires = ["setuptools"]
[project]
name = "p"
requires-python = ">=3.11"
dependencies = ["numpy>=1.26"]
[project.optional-dependencies]
dev = ["ruff"]
test = ["pytest"]
[tool.ruff]
line-length = 115
"""


@pytest.mark.parametrize(
    ("name", "before", "after", "differs"),
    [
        ("a.py", CODE, CODE.replace("Doubles.", "Twice x.").replace("  # twice", ""), False),
        ("a.py", CODE, CODE.replace('    """Doubles."""\n', "").replace('"""A module."""', ""), False),
        ("a.py", CODE, CODE.replace("2 *", "3 *"), True),
        ("a.py", CODE, CODE.replace("return 2 * x", 'return "Doubles."'), True),
        ("a.py", CODE, "def f(:\n", True),
        ("a.md", "words", "other words", True),
        ("pyproject.toml", PROJECT, PROJECT.replace("115", "100").replace('"ruff"', '"ruff", "mypy"'), False),
        ("pyproject.toml", PROJECT, PROJECT.replace("numpy>=1.26", "numpy>=2"), True),
        ("pyproject.toml", PROJECT, PROJECT.replace('"pytest"', '"pytest", "torch"'), True),
        ("pyproject.toml", PROJECT, "[project]\n", True),
    ],
)
def test_what_does_not_run_has_not_changed(
    name: str, before: str, after: str, differs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    first = commit(tmp_path, **{name: before})
    (tmp_path / name).write_text(after)
    monkeypatch.setattr(suites, "ROOT", tmp_path)
    assert suites.changed_since(first) == ({name} if differs else set())
