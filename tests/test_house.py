"""The rules of the house: imports go one way, one op is one name, dependencies have reasons, no `eval`."""

import ast
import dataclasses
import importlib
import inspect
import pkgutil
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pytest

import pyfast
import pyfast.api
from pyfast import ops
from pyfast.api.judgement import judge_runs
from pyfast.api.knowledge import merge_knowledge
from pyfast.api.open_questions import write_questions
from pyfast.api.summaries import summarize_index
from pyfast.api.training import calibrate_cascade, train_graph_convqa, train_hseq_iterator
from pyfast.commands.answer import answer
from pyfast.commands.ask import ask
from pyfast.commands.index import summarize
from pyfast.commands.judge import judge, questions
from pyfast.commands.knowledge import build, merge
from pyfast.commands.serve import serve
from pyfast.commands.train import cascade, distill, graph_convqa, hseq_iterator
from pyfast.retrieval.index.builder import MEMORY
from pyfast.retrieval.index.part_maker import PassageSize
from pyfast.retrieval.terms import Analysis
from pyfast.utils.extras import EXTRAS
from pyfast.utils.options import Options

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "pyfast").rglob("*.py"))
NAMES = [str(path.relative_to(ROOT)) for path in SOURCES]

# A room stands above all that it imports; rooms of one storey do not see each other.
STOREYS = [
    {"errors"},
    {"utils"},
    {"ops", "llm"},
    {"corpus"},
    {"retrieval"},
    {"engine"},
    {"knowledge", "training"},
    {"systems"},
    {"evaluation"},
    {"api"},
    {"pyfast"},  # the public API's names, loaded when they are used; below it only native code is asked for
    {"reports", "server", "integrations"},
    {"commands"},
    {"__main__"},
]
LOADED_LATER = {"reports", "server"}
"""Above the public API, but with names in it: `pyfast.serve` loads them when it is first used"""
STOREY = {room: height for height, rooms in enumerate(STOREYS) for room in rooms}
MOST_ROOMS, MOST_FILES = 18, 20


def room(path: Path) -> str:
    first = path.relative_to(ROOT / "pyfast").parts[0]
    return "pyfast" if first == "__init__.py" else first.removesuffix(".py")


def imports(path: Path) -> Iterator[str]:
    """The modules that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: imports are absolute"
            if node.module == "pyfast":
                yield from (f"pyfast.{alias.name}" for alias in node.names)
            else:
                yield str(node.module)


MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in SOURCES
}


def taken(path: Path) -> Iterator[str]:
    """The files of pyfast from which a file imports, as modules: `from pyfast.room import file` means the file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield from (name for name in [inner if inner in MODULES else str(node.module)] if name in MODULES)


@pytest.mark.parametrize("path", SOURCES, ids=NAMES)
def test_imports_go_one_way(path: Path) -> None:
    own = room(path)
    for module in taken(path):
        other = room(MODULES[module])
        if own != "pyfast" or other not in LOADED_LATER:
            assert other == own or STOREY[other] < STOREY[own], f"{own} imports {module}"


def test_rooms_are_few_and_no_file_stands_in_a_circle(capsys: pytest.CaptureFixture[str]) -> None:
    """Imports inside of functions, and for types alone, count too."""
    arrows = {name: set(taken(path)) - {name} for name, path in MODULES.items()}
    rooms = {room(path) for path in SOURCES}
    between = {(room(MODULES[a]), room(MODULES[b])) for a, others in arrows.items() for b in others}
    between = {(above, below) for above, below in between if above != below}
    up = [pair for pair in between if STOREY[pair[0]] <= STOREY[pair[1]] and pair[1] not in LOADED_LATER]
    with capsys.disabled():
        print(f"\n{len(rooms)} rooms, {len(between)} arrows between them, {len(up)} up, {len(MODULES)} files")
    assert rooms <= STOREY.keys() and len(rooms) <= MOST_ROOMS and up == []
    tuple(TopologicalSorter(arrows).static_order())  # raises a CycleError that names the files of a circle


def test_an_index_knows_no_retriever_and_no_reranker() -> None:
    known = set(taken(ROOT / "pyfast/retrieval/index/index.py"))
    over = ("bm25", "vector_retrievers", "cross_encoder", "late_interaction", "rerank")
    assert known and not known & {f"pyfast.retrieval.{name}" for name in over}


def test_no_folder_has_too_many_files() -> None:
    """Beyond that, a folder has subfolders. An op has its one name in every folder, so that they stay together."""
    sizes = Counter(path.parent.relative_to(ROOT).as_posix() for path in SOURCES if path.stem != "__init__")
    del sizes["pyfast/ops"]
    assert {folder: size for folder, size in sizes.items() if size > MOST_FILES} == {}


IN_OTHERS = {"shared_terms", "list_segments", "segment_ids"}  # ops in the files of evidence_graph and cite
OPS = [name for name in ops.__all__ if name.islower() and name not in IN_OTHERS]


@pytest.mark.parametrize("op", OPS)
def test_one_op_is_one_name_in_every_folder(op: str) -> None:
    expected = ["csrc/include/pyfast/{}.hpp", "csrc/cpu/{}.cpp", "bindings/{}.cpp", "pyfast/ops/{}.py"]
    expected += ["tests/ops/test_{}.py"]
    assert [path for path in (name.format(op) for name in expected) if not (ROOT / path).is_file()] == []
    assert f"def {op}_reference(" in (ROOT / "tests/references.py").read_text()


def test_every_bound_op_is_offered() -> None:
    bound = {path.stem for path in (ROOT / "bindings").glob("*.cpp")} - {"module"}
    assert bound == set(OPS)


def test_every_op_is_fuzzed() -> None:
    """An op without a row in the fuzzer's table is never searched for inputs that break it."""
    table = (ROOT / "tests" / "native" / "fuzz_target.cpp").read_text()
    bound = {path.stem for path in (ROOT / "bindings").glob("*.cpp")} - {"module"}
    assert set(re.findall(r'\{"(\w+)", fuzz_\1\}', table)) == bound


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def declared() -> set[str]:
    """The names of all packages that pyproject.toml asks for."""
    extras = PROJECT["project"]["optional-dependencies"].values()
    lists = [PROJECT["build-system"]["requires"], PROJECT["project"]["dependencies"], *extras]
    names = {re.split(r"[<>=!~\[; ]", requirement, maxsplit=1)[0] for group in lists for requirement in group}
    return names - {PROJECT["project"]["name"]}  # bundles of extras


def test_every_dependency_has_its_reason() -> None:
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|", (ROOT / "docs/dependencies.md").read_text(), re.MULTILINE)
    explained = {word for names, _ in rows for word in re.findall(r"[\w-]+", names)}
    assert declared() - explained == set()
    assert all(reason.strip() for _, reason in rows)


# yarl's URLs are a part of aiohttp's interface; the hub's client comes with vLLM.
PACKAGE = {
    "graspologic_native": "graspologic-native",
    "opentelemetry": "opentelemetry-sdk",
    "ahocorasick_rs": "ahocorasick-rs",
    "bert_score": "bert-score",
    "bs4": "beautifulsoup4",
    "charset_normalizer": "charset-normalizer",
    "docx": "python-docx",
    "faiss": "faiss-cpu",
    "huggingface_hub": "vllm",
    "langchain_core": "langchain-core",
    "llama_index": "llama-index-core",
    "markdown_it": "markdown-it-py",
    "pptx": "python-pptx",
    "rouge_score": "rouge-score",
    "sentence_transformers": "sentence-transformers",
    "sklearn": "scikit-learn",
    "Stemmer": "pystemmer",
    "multipart": "python-multipart",
    "pydantic_core": "pydantic",
    "starlette": "fastapi",
    "prometheus_client": "prometheus-client",
    "tomli_w": "tomli-w",
    "yaml": "pyyaml",
}


def test_what_is_imported_is_declared() -> None:
    found = {module.split(".")[0] for path in SOURCES for module in imports(path)}
    foreign = found - {"pyfast"} - sys.stdlib_module_names
    assert {PACKAGE.get(name, name) for name in foreign} <= declared()


def test_the_ops_alone_need_numpy_and_scipy() -> None:
    asked = {re.split(r"[<>=!~; ]", requirement)[0] for requirement in PROJECT["project"]["dependencies"]}
    assert asked == {"numpy", "scipy"}


def test_each_extra_has_the_modules_that_errors_name_it_for() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    for extra, modules in EXTRAS.items():
        asked = {re.split(r"[<>=!~; ]", requirement)[0] for requirement in extras[extra]}
        named = {PACKAGE.get(module, module) for module in modules} - {"vllm"}  # the hub's client comes with it
        assert named <= asked if extra in ("knowledge", "metrics", "train") else named == asked, extra


def test_every_hint_names_the_distribution() -> None:
    """`pyfast` alone is another project's package."""
    files = [*SOURCES, *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    files += [*(ROOT / "benchmarks").glob("*.py"), *(ROOT / "examples").glob("*.py")]
    for path in files:
        found = re.findall(r"pip install[^`\n]*?\bpyfast\b(?!-qa)[^`\n]*", path.read_text(encoding="utf-8"))
        assert found == [], path


@pytest.mark.guarantee("G5")
@pytest.mark.parametrize("path", SOURCES, ids=NAMES)
def test_nothing_is_evaluated_or_unpickled(path: Path) -> None:
    assert not set(imports(path)) & {"pickle", "marshal", "shelve", "dill", "joblib", "cloudpickle"}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec", "compile", "__import__"), node.lineno
            for keyword in node.keywords:
                allows = isinstance(keyword.value, ast.Constant) and keyword.value.value is False
                assert allows or keyword.arg not in ("allow_pickle", "shell"), node.lineno
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("np.load", "numpy.load"):
            assert any(keyword.arg == "allow_pickle" for keyword in node.keywords), node.lineno


OWN = {"run", "index", "questions"}  # by one name each command has its own


@pytest.mark.parametrize(
    ("one", "other", "least"),
    [
        (answer, ask, 6),
        (answer, judge, 7),
        (answer, build, 4),
        (graph_convqa, hseq_iterator, 9),
    ],
)
def test_an_option_of_two_commands_is_one(one: Callable[..., Any], other: Callable[..., Any], least: int) -> None:
    own, others = (inspect.signature(command, eval_str=True).parameters for command in (one, other))
    shared = own.keys() & others.keys() - OWN
    different = {name for name in shared if own[name].annotation != others[name].annotation}
    assert different == ({"llm"} if other is build else set()) and len(shared - different) >= least


@pytest.mark.parametrize(
    ("command", "function"),
    [
        (answer, pyfast.answer),
        (ask, pyfast.answer),
        (serve, pyfast.serve),
        (build, pyfast.build_knowledge),
        (merge, merge_knowledge),
        (summarize, summarize_index),
        (judge, judge_runs),
        (questions, write_questions),
        (graph_convqa, train_graph_convqa),
        (hseq_iterator, train_hseq_iterator),
        (distill, pyfast.distill),
        (cascade, calibrate_cascade),
    ],
    ids=lambda called: called.__name__,
)
def test_a_command_has_the_defaults_of_its_function(
    command: Callable[..., Any], function: Callable[..., Any]
) -> None:
    own, theirs = (
        {name: one.default for name, one in inspect.signature(called).parameters.items()}
        for called in (command, function)
    )
    for default in [*theirs.values()]:
        if isinstance(default, Options):
            theirs |= {one.name: getattr(default, one.name) for one in fields(default)}
    shared = {name for name in own.keys() & theirs.keys() if own[name] is not inspect.Parameter.empty}
    said = lambda default: default[0] if isinstance(default, list) else default or None  # noqa: E731
    differ = [name for name in shared if said(own[name]) != said(theirs[name])]
    assert differ == [] and shared


MOST_ARGUMENTS = 14
CALLED = [getattr(pyfast, name) for name in pyfast.__all__]
CALLED += [
    found
    for file in pkgutil.iter_modules(pyfast.api.__path__, "pyfast.api.")
    for name, found in vars(importlib.import_module(file.name)).items()
    if not name.startswith("_") and getattr(found, "__module__", "") == file.name
]
CALLED += [found for name, found in vars(pyfast.Engine).items() if inspect.isfunction(found)]


@pytest.mark.parametrize(
    "called",
    [one for one in CALLED if callable(one) and not dataclasses.is_dataclass(one)],
    ids=lambda one: one.__qualname__,
)
def test_no_public_function_has_a_long_list_of_arguments(called: Callable[..., Any]) -> None:
    """Options go into the dataclasses of `pyfast.utils.options`."""
    given = [name for name in inspect.signature(called).parameters if name != "self"]
    assert len(given) <= MOST_ARGUMENTS


def test_the_options_of_an_index_have_the_defaults_of_the_index() -> None:
    options = pyfast.IndexOptions()
    size = PassageSize(options.passage_length, options.passage_overlap)
    assert (size, options.part(Analysis), options.memory) == (PassageSize(), Analysis(), MEMORY)


def test_no_function_stands_in_two_files() -> None:
    places: dict[tuple[str, str], set[str]] = {}
    for path, name in zip(SOURCES, NAMES, strict=True):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                does = node.body[1:] if ast.get_docstring(node) else node.body
                body = "\n".join(map(ast.unparse, does))
                places.setdefault((node.name, body), set()).add(name)
    assert [found for (_, body), found in places.items() if body not in ("", "...") and len(found) > 1] == []
