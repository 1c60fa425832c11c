"""Docstrings of public functions are complete; their examples run and print what they say.

Those of the API: api/test_public_names.py.
"""

import ast
import doctest
import importlib
import inspect
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import pyfast

ROOT = Path(pyfast.__file__).parent
# In api/test_public_names.py.
ELSEWHERE = (
    "pyfast.api.",
    "pyfast.api.experiments.cells.",
    "pyfast.integrations.",
    "pyfast.llm.open_llm",
    "pyfast.reports.",
    "pyfast.systems.registry.",
)


def examples_in(path: Path) -> Iterator[str]:
    """The full names of what has an example in its docstring."""
    module = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")

    def inside(node: ast.AST, name: str) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                if ">>>" in (ast.get_docstring(child) or ""):
                    yield f"{name}.{child.name}"
                yield from inside(child, f"{name}.{child.name}")

    yield from inside(ast.parse(path.read_text(encoding="utf-8")), module)


NAMES = [
    name for path in sorted(ROOT.rglob("*.py")) for name in examples_in(path) if not name.startswith(ELSEWHERE)
]


def test_there_are_many() -> None:
    assert len(NAMES) > 40


@pytest.fixture(scope="module")
def folder(examples: Path, small: pyfast.Index, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where examples run: an index `IDX` and the example corpus."""
    place = tmp_path_factory.mktemp("docstrings")
    shutil.copytree(small.folder, place / "IDX")
    shutil.copytree(examples / "corpus", place / "corpus")
    return place


@pytest.mark.parametrize("name", NAMES)
def test_its_example_runs(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = name.split(".")
    split = max(size for size in range(1, len(parts)) if importlib.util.find_spec(".".join(parts[:size])))
    if parts[split - 1] == "nn" or "gatv2" in name:
        pytest.importorskip("torch")
    thing = module = importlib.import_module(".".join(parts[:split]))
    for part in parts[split:]:
        thing = getattr(thing, part)
    monkeypatch.chdir(folder)
    example = doctest.DocTestParser().get_doctest(inspect.getdoc(thing) or "", dict(vars(module)), name, None, 0)
    failures: list[str] = []
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    doctest.DocTestRunner(optionflags=options).run(example, out=failures.append)
    assert example.examples and not failures, "".join(failures)


PACKAGES = (
    "corpus",
    "engine",
    "evaluation",
    "knowledge",
    "llm",
    "ops",
    "reports",
    "retrieval",
    "server",
    "systems",
    "systems.graph_convqa.entities",
    "systems.graph_convqa.evidence_items",
    "systems.graph_convqa.evidence_memory",
    "systems.graph_convqa.graph",
    "systems.hseq.evidence_package",
    "systems.hseq.views",
    "systems.hseq.windows",
    "systems.mtqa.knowledge_units",
)
FUNCTIONS = sorted(
    {
        f"pyfast.{package}.{name}"
        for package in PACKAGES
        for name, value in vars(importlib.import_module(f"pyfast.{package}")).items()
        if not name.startswith("_")
        and inspect.isfunction(value)
        and f"{value.__module__}.".startswith(f"pyfast.{package}.")
    }
)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_its_docstring_is_complete(name: str) -> None:
    """A line for each parameter; what it returns; the errors that it raises itself."""
    package, _, function = name.rpartition(".")
    value = getattr(importlib.import_module(package), function)
    text, signature = inspect.getdoc(value) or "", inspect.signature(value)
    same = re.search(r"`(\w+)` and all later arguments are as in|As in `\w+`, like all arguments", text)
    without = [one for one in signature.parameters if not re.search(rf"^ +\*{{0,2}}{one}: ", text, re.MULTILINE)]
    assert same or not without, without
    assert signature.return_annotation in (None, "None") or re.search("^(Returns|Yields):", text, re.MULTILINE)
    assert "raise " not in inspect.getsource(value) or "Raises" in text
