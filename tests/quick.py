"""Run the tests that a change touches, the nearest first, for less than a minute: `make quick`.

    python tests/quick.py              the tests of what differs from the last commit
    python tests/quick.py BASE         the tests of what differs from BASE, such as HEAD~3 or main
    python tests/quick.py FILE ...     the tests of these files

A test file is near a changed file if it imports it, less near if it imports what imports it, and so on. Modules
that most tests reach say nothing about a change: a test file that is farther than others is run later, and what
the time does not suffice for is counted at the end. `make test` runs everything.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 50.0  # pytest needs a few more to collect
FARTHEST = 3  # imports from a test file to the change; beyond it, nearly everything is connected


def module(path: Path) -> str:
    """The name by which a file of this repository is imported: what tests share has none of a package."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return (
        parts[-1]
        if parts[0] == "tests" and not parts[-1].startswith("test_")
        else ".".join(parts).removesuffix(".__init__")
    )


# Read as text: to parse hundreds of files would take longer than their tests.
IMPORT = re.compile(r"^[ \t]*(?:from ([\w.]+) import (\([^)]*\)|[^\n]+)|import ([\w.]+))", re.MULTILINE)


def imported(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """The modules of this repository that a file imports, anywhere in it."""
    for source, names, whole in IMPORT.findall(path.read_text(encoding="utf-8")):
        if whole:
            yield whole
        for name in re.findall(r"(?<!as )\b\w+", names):
            yield inner if (inner := f"{source}.{name}") in known else source


def nearest(changed: Iterable[Path]) -> list[tuple[int, Path]]:
    """The test files that reach a changed file, with the number of imports between them, the nearest first."""
    files = [*(ROOT / "pyfast").rglob("*.py"), *(ROOT / "tests").rglob("*.py"), ROOT / "conftest.py"]
    known = {module(path): path for path in files if path.is_file()}
    importers: dict[str, set[str]] = defaultdict(set)
    for name, path in known.items():
        for other in imported(path, known):
            importers[other].add(name)
    distance = dict.fromkeys((module(path) for path in changed if path.suffix == ".py"), 0)
    # An op has one name in every folder: a change of its native code is one of `pyfast.ops.NAME`.
    native = [path for path in changed if {"csrc", "bindings"} & set(path.relative_to(ROOT).parts[:1])]
    distance |= {name: 0 for path in native if (name := f"pyfast.ops.{path.stem}") in known}
    waiting = deque(distance)
    while waiting:
        name = waiting.popleft()
        # The public package only passes names on: what imports it is near to nothing.
        for importer in importers[name] if name != "pyfast" else ():
            if importer not in distance and distance[name] < FARTHEST:
                distance[importer] = distance[name] + 1
                waiting.append(importer)
    tests = [(steps, known[name]) for name, steps in distance.items() if name in known]
    found = [(steps, path) for steps, path in tests if path.name.startswith("test_")]
    # Among equals, the one that is named like a changed file comes first.
    stems = {path.stem for path in changed}
    return sorted(found, key=lambda one: (one[1].stem.removeprefix("test_") not in stems, one[0], str(one[1])))


def changes(arguments: list[str]) -> list[Path]:
    """The files that are named, or that differ from the base (the last commit, if none is named)."""
    if arguments and all((ROOT / name).is_file() for name in arguments):
        return [ROOT / name for name in arguments]

    def git(*command: str) -> list[str]:
        done = subprocess.run(["git", *command], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout.splitlines()

    named = git("diff", "--name-only", *(arguments or ["HEAD"]))
    named += git("ls-files", "--others", "--exclude-standard")
    return [ROOT / name for name in named if (ROOT / name).is_file()]


class Within:
    """End the session before the time is over."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._done = 0

    def pytest_runtest_logfinish(self) -> None:
        self._done += 1

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        yield
        if time.monotonic() > self._end and self._done < len(item.session.items):
            left = len(item.session.items) - self._done
            item.session.shouldstop = f"the time is over, {left} tests were not run; `make test` runs all"


def main(arguments: list[str]) -> int:
    changed = changes(arguments)
    tests = [str(path) for _, path in nearest(changed) if "vllm" not in path.parts]
    print(f"{len(changed)} files changed, {len(tests)} test files reach them")
    if not tests:
        return 0
    ended = pytest.main(["-q", "-m", "not slow", *tests], plugins=[Within(SECONDS)])
    # Stopped by the clock, with all that was run in order.
    return 0 if ended in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) else int(ended)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
