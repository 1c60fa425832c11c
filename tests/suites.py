"""The suites of slow tests: the files that each depends on, and which of them a run takes.

    python tests/suites.py          prints pytest's -m for the suites of this run, and says on stderr why them
    python tests/suites.py --all    for all suites; --none for none of them

A slow test names its suite: `@pytest.mark.slow(suite="crashes")`. A suite runs where a file that it depends on
differs from the base, and else for one seed in five, so that each runs now and then whatever changes.

PYFAST_TEST_SEED: the seed; by default it comes from the commit. PYFAST_TEST_BASE: the commit to compare with; by
default where this branch left origin's. On origin's own branch commits land together: there it is the newest one
that is six hours older than the last, or else the commit before. What is not committed counts as changed. Where
there is no such commit, everything has changed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ONE_IN = 5
A_LANDING_S = 6 * 3600

# What every suite depends on. A path stands for all that begins with it.
COMMON = ("conftest.py", "tests/conftest.py", "tests/suites.py")
PACKAGES = ("pyproject.toml",)  # what is installed beside pyfast: no concern of code that CMake builds alone
KERNELS = ("csrc/cuda", "csrc/include/", "bindings/cuda/", "tests/cuda/", "tests/ops/", "pyfast/ops/")
PROCESSES = ("pyfast/api/", "pyfast/cli.py", "pyfast/commands/", "pyfast/engine/", "tests/processes.py")

# Those that stand five apart are drawn together: what takes long is spread.
SUITES: Mapping[str, tuple[str, ...]] = {
    # The kernels, executed without a GPU: with sanitizers, by the interpreter, with planted faults.
    "address": KERNELS,
    "thread": KERNELS,
    "interpreter": KERNELS,
    "plants": KERNELS,
    "bindings": (*KERNELS, "bindings/module.cpp"),
    # Runs that are killed, starved and damaged; and what they take of memory.
    "crashes": (
        *PACKAGES,
        *PROCESSES,
        "pyfast/llm/",
        "pyfast/systems/n2n",
        "tests/engine/",
        "tests/hostile_server.py",
    ),
    # Knowledge, as it is built and used by processes that are killed.
    "knowledge": (
        *PACKAGES,
        *PROCESSES,
        "pyfast/knowledge/",
        "pyfast/systems/subqrag",
        "tests/knowledge/",
        "tests/systems/",
    ),
    # The C++ library under sanitizers, and its fuzzer.
    "native": ("CMakeLists.txt", "csrc/cpu/", "csrc/include/", "tests/native/"),
    # libFuzzer, a while on each op.
    "fuzz": ("csrc/cpu/", "csrc/include/", "tests/native/fuzz"),
    # The same with other compilers, and for another processor; all ways of building it with --all alone.
    "compilers": ("CMakeLists.txt", "csrc/cpu/", "csrc/include/", "tests/native/"),
    "matrix": (),
    # The wheel and the installed C++ library: whatever has changed.
    "packages": ("",),
    # Training, and whole ways with models.
    "models": (
        *PACKAGES,
        *("pyfast/training/", "pyfast/conversation/", "pyfast/systems/", "pyfast/llm/", "pyfast/nn.py"),
        *("pyfast/ops/gatv2", "tests/ops/test_gatv2"),
        *("tests/training/", "tests/systems/", "tests/test_conformance.py", "pyfast/conformance/", "examples/"),
    ),
    # All of the benchmark data, where the core takes one of it.
    "data": (
        *PACKAGES,
        "pyfast/corpus/",
        "pyfast/retrieval/",
        "pyfast/systems/hseq",
        "tests/systems/",
        "tests/retrieval/",
    ),
    # vLLM's engines: how they start, end and die, and what they say beside transformers.
    "vllm": (
        *PACKAGES,
        "pyfast/llm/",
        "pyfast/conversation/",
        "pyfast/systems/graph_convqa",
        "tests/vllm/",
        "tests/models.py",
    ),
    # Outages of real minutes, kills of every system: with --all alone.
    "storms": (),
}


def chosen(changed: Iterable[str] | None, seed: int) -> dict[str, str]:
    """The suites to be run, each with the reason; `changed` None: everything has."""
    found = {}
    paths = sorted(changed) if changed is not None else None
    for number, (suite, depends) in enumerate(SUITES.items()):
        if not depends:
            continue
        if paths is None:
            found[suite] = "nothing to compare with"
        elif touched := [path for path in paths if path.startswith((*COMMON, *depends))]:
            found[suite] = f"{touched[0]} has changed"
        elif number % ONE_IN == seed % ONE_IN:
            found[suite] = f"drawn by seed {seed}"
    return found


def git(*arguments: str) -> str | None:
    """What git says, or None where it fails."""
    try:
        done = subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def seed() -> int:
    """Another one for every commit; PYFAST_TEST_SEED repeats one."""
    return int(os.environ.get("PYFAST_TEST_SEED") or int((git("rev-parse", "HEAD") or "0")[:8], 16))


def base() -> str | None:
    """The commit to compare with."""
    if given := os.environ.get("PYFAST_TEST_BASE"):
        return given
    left = git("merge-base", "HEAD", "origin/HEAD")
    if left and left != git("rev-parse", "HEAD"):
        return left
    made = git("log", "-1", "--format=%ct", "HEAD")
    before = None if made is None else git("rev-list", "-1", f"--before={int(made) - A_LANDING_S}", "HEAD~1")
    return before or git("rev-parse", "--verify", "HEAD~1")


def changed_since(commit: str) -> set[str] | None:
    """The files that differ, by what they were called and are called now."""
    differ = git("diff", "--name-only", "--no-renames", commit)
    new = git("ls-files", "--others", "--exclude-standard")
    return None if differ is None or new is None else {*differ.splitlines(), *new.splitlines()}


def main() -> None:
    """Print the expression."""
    if "--none" in sys.argv[1:]:
        print("slow(suite='none')")
        return
    if "--all" in sys.argv[1:]:
        suites = dict.fromkeys(SUITES, "all")
    else:
        commit = base()
        suites = chosen(changed_since(commit) if commit else None, seed())
        print(f"These again: PYFAST_TEST_BASE={commit} PYFAST_TEST_SEED={seed()} make test-slow", file=sys.stderr)
    for suite, why in suites.items():
        print(f"  {suite}: {why}", file=sys.stderr)
    print(" or ".join(f"slow(suite='{suite}')" for suite in suites))


if __name__ == "__main__":
    main()
