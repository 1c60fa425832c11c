"""The suites of slow tests: what each costs, which files it depends on, and which suites a run takes.

    python tests/suites.py            prints pytest's -m for the suites of this run, and says on stderr why these
    python tests/suites.py A B        for the suites A and B; --all for all suites, --none for none

A slow test names its suite: `@pytest.mark.slow(suite="crashes")`. A suite is wanted if a file that it depends on
differs from the base, and otherwise for one seed in five, so that each runs now and then whatever changes. What is
wanted runs up to a sum of PYFAST_TEST_SECONDS, what is drawn last, so that no change makes a run longer than that.
The seed says where the list begins: no suite is always the one that is left out. What is left out is printed, with
the command that runs it.

PYFAST_TEST_SEED: the seed; by default it comes from the commit. PYFAST_TEST_BASE: the commit to compare with; by
default where this branch left origin's. On origin's own branch commits land together: there it is the newest one
that is six hours older than the last, or else the commit before. What is not committed counts as changed. Without
such a commit, everything has changed.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
ONE_IN = 5
A_LANDING_S = 6 * 3600
SECONDS = 1500  # two workers: some 13 minutes


class Suite(NamedTuple):
    """`seconds` of one worker, as pytest prints them at the end of a run. In `depends` a path stands for all that
    begins with it; a suite without any runs with --all, or by its name.
    """

    seconds: int
    depends: tuple[str, ...] = ()


# What every suite depends on.
COMMON = ("conftest.py", "tests/conftest.py")
PACKAGES = ("pyproject.toml",)  # what is installed beside pyfast: no concern of code that CMake builds alone
CORE = ("CMakeLists.txt", "csrc/cpu/", "csrc/include/", "tests/native/")
# Headers that kernels include; their problems come from tests/ops.
HEADERS = (
    *("api", "cuda/", "error", "evidence_graph", "gatv2", "graphs", "hseq_stream", "maxsim", "pagerank", "pools"),
)
KERNELS = (
    *("csrc/cuda", *(f"csrc/include/pyfast/{name}" for name in HEADERS), "tests/cuda/"),
    *(f"tests/ops/{name}.py" for name in ("conftest", "gatv2_problems", "graph_problems", "pool_problems")),
    *("tests/ops/real_pools.py", "tests/ops/test_hseq_stream.py", "tests/ops/test_maxsim.py"),
)
PROCESSES = ("pyfast/api/", "pyfast/commands/", "pyfast/engine/", "tests/processes.py")

# Those that stand five apart are drawn together: what takes long is spread.
SUITES: Mapping[str, Suite] = {
    # The kernels, executed without a GPU: with sanitizers, by the interpreter, with planted faults.
    "address": Suite(60, KERNELS),
    "thread": Suite(100, KERNELS),
    "interpreter": Suite(100, KERNELS),
    "plants": Suite(280, KERNELS),
    "cards": Suite(110, (*KERNELS, "CMakeLists.txt", "csrc/cuda.cmake")),
    "bindings": Suite(
        80,
        (
            *(*KERNELS, "bindings/cuda/", "bindings/module.cpp", "pyfast/ops/arrays.py", "pyfast/ops/backend.py"),
            *("pyfast/ops/gpu.py", "pyfast/ops/gatv2_gpu.py", "pyfast/ops/gatv2_torch.py", "benchmarks/gpu.py"),
        ),
    ),
    # Runs that are killed, starved and damaged; and what they take of memory.
    "crashes": Suite(
        420,
        (
            *(*PACKAGES, *PROCESSES, "pyfast/llm/llamacpp.py", "pyfast/llm/openai.py", "pyfast/llm/protocol.py"),
            *(
                "pyfast/llm/batch_provider.py",
                "pyfast/llm/openai_batches.py",
                "pyfast/llm/server_calls.py",
                "pyfast/systems/n2n",
                "tests/engine/",
                "tests/batch_server.py",
                "tests/hostile_server.py",
                "tests/odd_server.py",
                "tests/test_odd_servers.py",
                "tests/llm/test_openai_batches.py",
                "pyfast/api/experiments/cells.py",
                "tests/experiments/test_experiment.py",
            ),
        ),
    ),
    # Runs in a simulated world: fresh seeds for two minutes; and faults planted in the engine, which they find.
    "simulation": Suite(
        130, (*PROCESSES, "pyfast/knowledge/", "pyfast/server/", "tests/simulation/", "tests/test_simulation.py")
    ),
    "planted": Suite(1100, ("pyfast/engine/", "tests/simulation/", "tests/test_simulation.py")),
    # Knowledge, as it is built and used by processes that are killed.
    "knowledge": Suite(
        210,
        (
            *(*PACKAGES, *PROCESSES, "pyfast/knowledge/", "pyfast/systems/subqrag"),
            *("pyfast/systems/rivals/hipporag.py", "pyfast/systems/rivals/phrase_graph.py", "tests/oracle.py"),
            *("tests/knowledge/", "tests/gold_paths.py", "tests/systems/test_subqrag.py"),
            "tests/systems/test_oracle.py",
        ),
    ),
    # The C++ library under sanitizers, and its fuzzer; words with every character.
    "native": Suite(220, (*CORE, "pyfast/utils/text_forms.py", "tests/ops/test_count_words.py")),
    # libFuzzer, a while on each op.
    "fuzz": Suite(420, ("csrc/cpu/", "csrc/include/", "tests/native/fuzz", "tests/native/test_fuzz.py")),
    # The same with other compilers, and for another processor; all ways of building it are in "matrix".
    "compilers": Suite(250, CORE),
    "matrix": Suite(600),
    # The wheel and the installed C++ library.
    "packages": Suite(
        280,
        (
            *(*PACKAGES, "CMakeLists.txt", "setup.py", "csrc/", "bindings/", "examples/cpp/"),
            *("tests/test_wheel.py", "tests/native/test_install.py"),
        ),
    ),
    # Training: models that learn, in one process and in two, and gatv2 as torch compiles it.
    "training": Suite(
        300,
        (
            *(
                *PACKAGES,
                "pyfast/training/",
                "pyfast/systems/hseq/training.py",
                "pyfast/systems/graph_convqa/",
                "pyfast/ops/nn.py",
                "pyfast/ops/gatv2",
            ),
            *("tests/training/", "tests/ops/test_gatv2"),
        ),
    ),
    # Whole ways with models, and what `pyfast check` says of the systems that are shipped.
    "models": Suite(
        320,
        (
            *(*PACKAGES, "pyfast/api/conformance/", "pyfast/systems/", "pyfast/llm/llamacpp.py"),
            *("pyfast/llm/protocol.py", "pyfast/llm/transformers.py", "examples/", "tests/test_conformance.py"),
            *("tests/systems/test_embedded.py", "tests/systems/test_graph_convqa"),
            *("pyfast/evaluation/", "tests/evaluation/test_compare.py", "tests/evaluation/test_evaluate.py"),
            *("docs/tutorial.ipynb", "tests/test_docs.py"),
        ),
    ),
    # All of the benchmark data, where the core takes one of it.
    "data": Suite(
        100,
        (
            *(*PACKAGES, "pyfast/corpus/", "pyfast/retrieval/", "pyfast/systems/hseq"),
            *("tests/systems/test_hseq", "tests/retrieval/"),
        ),
    ),
    # Files of hostile shapes, up to gigabytes.
    "shapes": Suite(
        340,
        (
            *(*PACKAGES, "pyfast/corpus/", "pyfast/retrieval/", "tests/corpus/test_hostile_shapes.py"),
            "tests/corpus/test_large.py",
            *("tests/retrieval/test_building.py", "tests/retrieval/test_damage.py"),
            *("pyfast/llm/endpoints.py", "tests/retrieval/test_endpoints.py", "tests/vector_server.py"),
            "tests/retrieval/damaged_index.py",
        ),
    ),
    # LangChain, LlamaIndex, Haystack, DSPy, PyLate and GuideLLM, in environments that the suite makes.
    "integrations": Suite(
        200,
        (
            *(
                "pyfast/integrations/",
                "pyfast/api/search.py",
                "tests/integrations/",
                "tests/environments.py",
            ),
            *("docs/howto/integrations.md", "pyfast/ops/maxsim.py"),
            *("pyfast/retrieval/late_interaction.py", "pyfast/retrieval/vectors/encoders.py"),
            *("pyfast/server/", "tests/server/http_server.py", "tests/server/test_guidellm.py"),
        ),
    ),
    # Reports in a real browser, with what an environment of the suite's own drives it by.
    "browser": Suite(270, ("pyfast/reports/", "tests/environments.py", "tests/reports/")),
    # vLLM's engines: how they start, end and die, and what they say beside transformers. A test has both cores.
    "vllm": Suite(
        480,
        (
            *(*PACKAGES, "pyfast/llm/vllm", "pyfast/llm/local.py", "pyfast/llm/protocol.py"),
            "pyfast/systems/graph_convqa/",
            *("tests/vllm/", "tests/models.py"),
        ),
    ),
    # Latency under load: 20,000 requests against a simulation, at two loads. Nothing else may run beside it.
    "latency": Suite(900),
    # Each retriever through each system, on two sets of benchmark data.
    "retrievers": Suite(900),
    # Runs by workers of a Ray cluster that are killed, in an environment that the suite makes.
    "ray": Suite(600),
    # Outages of real minutes, kills of every system.
    "storms": Suite(3600),
}


def chosen(
    changed: Iterable[str] | None, seed: int, seconds: int = SECONDS
) -> tuple[dict[str, str], dict[str, str]]:
    """The suites to be run, and those that are wanted and left out, each with why it is wanted.

    Args:
        changed: The files that differ; None where there is nothing to compare with.
        seed: Draws one suite in five, and says where the list begins.
        seconds: How much the suites may cost together.
    """
    names = [name for name, suite in SUITES.items() if suite.depends]
    first = seed // ONE_IN % len(names)
    paths = sorted(changed or ())
    common = next((path for path in paths if path.startswith(COMMON)), None)
    own, shared, drawn = {}, {}, {}
    for name in names[first:] + names[:first]:
        touched = next((path for path in paths if path.startswith(SUITES[name].depends)), None)
        if changed is None or touched:
            own[name] = f"{touched} has changed" if touched else "nothing to compare with"
        elif common:
            shared[name] = f"{common} has changed"
        elif names.index(name) % ONE_IN == seed % ONE_IN:
            drawn[name] = f"drawn by seed {seed}"
    taken, left = {}, {}
    for name, why in (own | shared | drawn).items():
        if SUITES[name].seconds <= seconds:
            taken[name] = why
            seconds -= SUITES[name].seconds
        else:
            left[name] = why
    return taken, left


def git(*arguments: str) -> str | None:
    """What git says, or None if it fails."""
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


def code(source: str) -> str:
    """Of a Python file what runs: no comments, no docstrings, no layout."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
            ast.get_docstring(node, clean=False) is not None
        ):
            del node.body[0]
    return ast.dump(tree)


def packages(source: str) -> object:
    """Of pyproject.toml what is installed for tests."""
    content = tomllib.loads(source)
    project = content["project"]
    extras = {
        name: wanted
        for name, wanted in project["optional-dependencies"].items()
        if name not in ("bench", "dev", "docs")
    }
    return content["build-system"], project["requires-python"], project["dependencies"], extras


def differs(commit: str, path: str) -> bool:
    """Whether what counts of a file is another than in the commit."""
    counts: Callable[[str], object] | None = packages if path == "pyproject.toml" else None
    counts = code if path.endswith(".py") else counts
    if counts is None:  # perhaps no text
        return True
    before = git("show", f"{commit}:{path}")
    if before is None or not (ROOT / path).is_file():
        return True
    try:
        return counts(before) != counts((ROOT / path).read_text(encoding="utf-8"))
    except (SyntaxError, ValueError, KeyError):
        return True


def changed_since(commit: str) -> set[str] | None:
    """The files that differ in more than comments and docstrings, by what they were called and are called now."""
    differ = git("diff", "--name-only", "--no-renames", commit)
    new = git("ls-files", "--others", "--exclude-standard")
    if differ is None or new is None:
        return None
    return {*(path for path in differ.splitlines() if differs(commit, path)), *new.splitlines()}


def wanted_by(arguments: list[str]) -> dict[str, str]:
    """The suites to be run, with the reasons; it prints on stderr what is left out, and how to run it."""
    if "--none" in arguments:
        return {"none": "no suite"}
    if "--all" in arguments:
        return dict.fromkeys(SUITES, "all")
    if unknown := set(arguments) - SUITES.keys():
        sys.exit(f"no suite {' '.join(sorted(unknown))}; there are {' '.join(SUITES)}")
    if arguments:
        return dict.fromkeys(arguments, "named")
    commit, seconds = base(), int(os.environ.get("PYFAST_TEST_SECONDS") or SECONDS)
    taken, left = chosen(changed_since(commit) if commit else None, seed(), seconds)
    again = {"BASE": commit, "SEED": seed(), "SECONDS": seconds}
    settings = " ".join(f"PYFAST_TEST_{name}={value}" for name, value in again.items())
    print(f"These again: {settings} make test-slow", file=sys.stderr)
    if left:
        command = f"make test-slow SUITES='{' '.join(left)}'"
        print(f"Left out, for {seconds} s of tests are the limit here: {command}", file=sys.stderr)
    for suite, why in left.items():
        print(f"  not {suite}, {SUITES[suite].seconds} s: {why}", file=sys.stderr)
    return taken or {"none": "no suite"}


def main() -> None:
    """Print the expression."""
    suites = wanted_by(sys.argv[1:])
    for suite, why in suites.items():
        print(f"  {suite}: {why}", file=sys.stderr)
    print(" or ".join(f"slow(suite='{suite}')" for suite in suites))


if __name__ == "__main__":
    main()
