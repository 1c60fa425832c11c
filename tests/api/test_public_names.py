"""The public names: that they stay, explain themselves, and are cheap to import."""

import ast
import doctest
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile_server import hostile
from tiny import tiny_model

import pyfast
from pyfast.api import judgement, knowledge, open_questions, search, summaries, training
from pyfast.utils.options import Options

HERE = Path(__file__).parent
SNAPSHOT = HERE / "public_names.txt"
# The names of DESIGN's section 3; a name or a parameter that goes, or changes, breaks who embeds pyfast.
NAMES = ["LLM", "Bench", "Engine", "Experiment", "Evidence", "Index", "Question", "Record", "Run", "Usage"]
NAMES += [
    "bench",
    "estimate",
    "experiment",
    "serve_mcp",
    "answer",
    "build_index",
    "build_knowledge",
    "compare",
    "convert",
    "evaluate",
    "evaluate_retrieval",
    "export",
    "open_index",
    "open_llm",
    "report",
    "serve",
    "show",
    "verify",
    "view",
]
NAMES += ["changed_answers", "list_documents", "sync_documents", "write_figures"]
NAMES += ["add_documents", "compact_index", "delete_documents", "describe_index", "update_documents"]
NAMES += ["errors", "ops", "systems"]
NAMES += ["Cluster", "GraphConvqaOptions", "HseqOptions", "IndexOptions", "Load", "RunOptions", "Sampling"]
NAMES += ["DistillOptions", "Hardware", "ServerOptions", "Watch", "distill", "read_options"]


def signatures() -> str:
    """Each public callable as it is called, one a line; methods of classes behind their class."""
    lines = []
    for name in sorted(pyfast.__all__):
        found = getattr(pyfast, name)
        if inspect.ismodule(found):
            lines.append(f"{name}: module")
            continue
        lines.append(f"{name}{inspect.signature(found)}" if callable(found) else name)
        if inspect.isclass(found):
            for member, value in sorted(vars(found).items()):
                if not member.startswith("_") and inspect.isfunction(value):
                    lines.append(f"  {name}.{member}{inspect.signature(value)}")
                elif not member.startswith("_") and isinstance(value, property):
                    lines.append(f"  {name}.{member}")
    return re.sub(r" at 0x[0-9a-f]+", "", "\n".join(lines)) + "\n"


def test_the_names() -> None:
    assert sorted(pyfast.__all__) == sorted(NAMES) and set(NAMES) <= set(dir(pyfast))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        pyfast.nonsense  # noqa: B018


def test_the_signatures_stay() -> None:
    """Where a change is wanted: write `signatures()` into public_names.txt, and say so in CHANGELOG.md."""
    assert signatures() == SNAPSHOT.read_text(encoding="utf-8")


def test_importing_loads_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import pyfast; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert loaded - sys.stdlib_module_names == {"pyfast"}


def test_the_library_prints_nothing_and_asks_no_hub() -> None:
    """No print in the library, and no code of a model's repository is ever run."""
    root = Path(pyfast.__file__).parent
    own = [path for path in root.rglob("*.py") if path.parts[len(root.parts)] not in ("commands", "cli.py")]
    for path in own:
        text = path.read_text(encoding="utf-8")
        calls = (node.func for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
        assert not any(isinstance(called, ast.Name) and called.id == "print" for called in calls), path
        assert "trust_remote_code" not in text or "trust_remote_code=False" in text, path
    assert (root / "py.typed").is_file()


EXPLAINED = [getattr(pyfast, name) for name in NAMES if not inspect.ismodule(getattr(pyfast, name))]
EXPLAINED += [
    *(getattr(pyfast.Engine, name) for name in ("answer", "answer_many", "answer_run", "retrieve")),
    *(judgement.judge_runs, open_questions.write_questions, pyfast.systems.names),
    *(knowledge.open_knowledge, knowledge.export_knowledge, knowledge.merge_knowledge),
    search.rerank_texts,
    summaries.summarize_index,
    search.retrieve,
    *(knowledge.prune_knowledge, knowledge.reset_knowledge),
    *(training.train_graph_convqa, training.train_hseq_iterator, training.estimate_hseq_iterator),
    *(training.merge_adapter, training.calibrate_cascade),
]


@pytest.mark.parametrize("thing", EXPLAINED, ids=lambda thing: thing.__qualname__)
def test_it_explains_itself(thing: Any) -> None:
    """Every parameter has a line; a function that returns says what."""
    told = inspect.getdoc(thing) or ""
    assert told
    if not inspect.isclass(thing):
        parameters = [name for name in inspect.signature(thing).parameters if name != "self"]
        assert not parameters or "Args:" in told
        shared = re.search(r"`(\w+)` and all later arguments are as in", told)
        for name in parameters[: parameters.index(shared[1]) if shared else None]:
            as_before = "Arguments and errors are those" in told and name in ("system", "settings")
            assert re.search(rf"^ +\*?\*?{name}: ", told, re.MULTILINE) or as_before, name
        assert "Raises:" in told or thing is pyfast.systems.names


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, examples: Path) -> Iterator[tuple[Path, str]]:
    """A folder as the examples find it, and the server that they ask."""
    folder = tmp_path_factory.mktemp("examples")
    with hostile("--weights", "good=1") as url:
        shutil.copytree(examples / "corpus", folder / "corpus")
        shutil.copy(examples / "questions.jsonl", folder / "QUESTIONS.jsonl")
        index = pyfast.build_index(folder / "corpus", folder / "IDX")
        pyfast.build_knowledge(index)
        pyfast.build_knowledge(pyfast.build_index(folder / "corpus", folder / "OTHER"))
        turn = {"id": "t1", "question": "Who discovered Titan?", "answers": ["Christiaan Huygens"]}
        (folder / "DATA" / "moons").mkdir(parents=True)
        titan = {"kind": "text", "id": "titan", "title": "Titan", "text": "Titan is a moon of Saturn."}
        (folder / "DATA" / "moons" / "corpus.jsonl").write_text(json.dumps(titan) + "\n")
        asked = ({"id": id, "question": "Of which planet is Titan a moon?", "answers": ["Saturn"]} for id in "ab")
        (folder / "DATA" / "moons" / "questions.jsonl").write_text("".join(json.dumps(q) + "\n" for q in asked))
        (folder / "NQ-open.dev.jsonl").write_text('{"question": "who found titan", "answer": ["Huygens"]}\n')
        (folder / "CONVERSATIONS.jsonl").write_text(json.dumps({"id": "titan", "turns": [turn]}) + "\n")
        tiny_model(folder / "MODEL")
        training.train_hseq_iterator(
            {folder / "QUESTIONS.jsonl": index},
            model=folder / "MODEL",
            out=folder / "OUT",
            options=pyfast.HseqOptions(size=16),
        )
        for run in ("RUN", "RUN_A", "RUN_B"):
            pyfast.answer(folder / "QUESTIONS.jsonl", index=index, llm="instant", system="rag", run=folder / run)
        yield folder, url


class Facts(doctest.OutputChecker):
    """Compares only output that does not depend on what a model or a run says; all code must run."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        is_fact = re.match(r"'?(True|1|q1|IDX|openai:qwen3-8b|Who discovered Titan\?|Answer)", want)
        return is_fact is None or super().check_output(want, got, optionflags)


CHANGING = [
    getattr(pyfast, name) for name in NAMES if name.endswith(("_documents", "_index")) and name != "open_index"
]
WITH_EXAMPLES = [thing for thing in [*EXPLAINED, pyfast] if ">>>" in (inspect.getdoc(thing) or "")]


@pytest.mark.parametrize("thing", WITH_EXAMPLES, ids=lambda thing: thing.__name__)
def test_its_example_runs(thing: Any, place: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As it stands, but for the server's address, the index that it may write, and what a model says."""
    folder, url = place
    text = (inspect.getdoc(thing) or "").replace("http://127.0.0.1:8000", url)
    if thing in (pyfast, pyfast.evaluate_retrieval, *CHANGING):
        text = text.replace('"IDX"', f'"IDX-{thing.__name__}"').replace('llm="embedded"', 'llm="instant"')
    monkeypatch.chdir(folder)
    example = doctest.DocTestParser().get_doctest(text, {}, thing.__name__, None, 0)
    assert example.examples
    failures: list[str] = []
    doctest.DocTestRunner(Facts(), optionflags=doctest.ELLIPSIS).run(example, out=failures.append)
    assert not failures, "".join(failures)


def test_every_one_has_an_example() -> None:
    """Values have theirs where they come from: `answer` and `retrieve` return them; methods have the class's."""
    without = {thing.__qualname__ for thing in EXPLAINED if thing not in WITH_EXAMPLES}
    values = {"Evidence", "Usage", "Record", "Index", "Watch"}
    values |= {one.__name__ for one in EXPLAINED if inspect.isclass(one) and issubclass(one, Options)}
    assert without <= {"Engine.answer", "Engine.answer_many", "Engine.answer_run", "Engine.retrieve", *values}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_process_has_a_loop_of_its_own(small: pyfast.Index) -> None:
    pyfast.answer(["one"], index=small, llm="instant", system="rag")
    child = os.fork()
    if not child:
        status = 1
        try:
            status = int(pyfast.answer(["two"], llm="instant", system="direct").status.states != {"answered": 1})
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
