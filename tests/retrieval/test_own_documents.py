"""Questions with their own documents, against indexes that are built of these documents alone: every byte of their
answers is the same, in any batch."""

import random
from pathlib import Path
from typing import Any

import orjson
import pytest

import pyfast
from pyfast.corpus import TextDocument, read
from pyfast.corpus.documents import Document
from pyfast.errors import ArrayError, InputError
from pyfast.retrieval import Index, build_index, narrate
from pyfast.retrieval.evidence import ScoredSegments, cite
from pyfast.retrieval.index.part_maker import PassageSize
from pyfast.retrieval.own_documents import TOGETHER, own_documents, together
from pyfast.retrieval.pools import Pool
from pyfast.retrieval.terms import Analysis

WORDS = [
    "moon",
    "saturn",
    "titan",
    "probe",
    "launch",
    "orbit",
    "voyager",
    "lake",
    "methane",
    "jupiter",
    "io",
    "ice",
]
QUESTIONS = ["Who discovered Titan?", "moon of Saturn", "Voyager launch year", "spacecraft that orbited Jupiter"]
CASES: list[tuple[str, dict[str, str]]] = [
    ("rag", {}),
    ("decompose", {}),
    ("n2n", {}),
    ("n2n", {"expand": "off"}),
    ("n2n", {"ranking": "graph_rank"}),
    ("n2n", {"ranking": "graph_rank", "centrality": "pagerank"}),
    ("n2n", {"ranking": "graph_rank", "centrality": "eigenvector"}),
    ("hseq", {}),
    ("iter_retgen", {}),
    ("cascade", {"sure": "1"}),
    ("ircot", {}),
    ("self_ask", {}),
    ("react", {}),
    ("flare", {"retrieve": "always"}),
    ("react", {"format": "search_r1"}),
]


def made_up(number: int) -> list[Document]:
    """Texts of few words, so that many scores and weights are equal."""
    drawn = random.Random(number)
    texts = (
        (" ".join(drawn.choices(WORDS, k=drawn.randint(1, 90))) + ". ") * drawn.randint(1, 3) for _ in range(30)
    )
    return [TextDocument(f"made/{i}", " ".join(drawn.choices(WORDS, k=2)), text) for i, text in enumerate(texts)]


@pytest.fixture(scope="module", params=["one part", "changed", "other words"])
def searched(request: pytest.FixtureRequest, examples: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """(an index, its documents, how it was built): texts and tables; also of several parts, and cut into passages
    that overlap, with another analysis."""
    folder = tmp_path_factory.mktemp("own")
    documents = [*read([examples / "corpus"]), *made_up(1)]
    how: dict[str, Any] = {}
    if request.param == "other words":
        how = {"size": PassageSize(160, 40), "analysis": Analysis(stop_words="none", accents="keep")}
    if request.param != "changed":
        return build_index(documents, folder / "index", **how), documents, how
    build_index(documents[:20], folder / "index")
    pyfast.add_documents(folder / "index", documents[20:])
    pyfast.delete_documents(folder / "index", [documents[3].uri, documents[-1].uri])
    return pyfast.open_index(folder / "index"), [*documents[:3], *documents[4:-1]], how


@pytest.mark.parametrize(("system", "settings"), CASES)
def test_answers_are_those_of_an_index_of_these_documents_alone(
    searched: Any, tmp_path: Path, system: str, settings: dict[str, str]
) -> None:
    index, documents, how = searched
    drawn = random.Random(f"{system}{settings}")
    chosen = [sorted(drawn.sample(range(len(documents)), drawn.choice([1, 5, 12]))) for _ in range(8)]
    asked = [
        {"id": f"q{i}", "question": QUESTIONS[i % 4], "documents": [documents[k].uri for k in some]}
        for i, some in enumerate(chosen)
    ]
    drawn.shuffle(asked[0]["documents"])  # type: ignore[arg-type]
    given: Any = {"llm": "instant", "system": system, "settings": settings}
    run = pyfast.answer(asked, index=index, concurrency=8, run=tmp_path / "run", **given)
    stages = {stage.name: stage for stage in run.status.stages}
    assert stages["own_documents"].calls == 8 and stages["own_documents"].batch > 2
    for i, (question, some) in enumerate(zip(asked, chosen, strict=True)):
        alone = build_index([documents[k] for k in some], tmp_path / f"alone-{i}", **how)
        single = {name: question[name] for name in ("id", "question")}
        (expected,) = pyfast.answer([single], index=alone, run=tmp_path / f"run-{i}", **given).records
        lines = (tmp_path / "run" / "answers.jsonl").read_bytes().splitlines()
        assert lines[i : i + 1] == (tmp_path / f"run-{i}" / "answers.jsonl").read_bytes().splitlines()
        record = run.records[i]
        assert orjson.dumps(record.trace) == orjson.dumps(expected.trace)
        if system != "hseq":  # its evidence names the version of the whole corpus
            assert record.evidence == expected.evidence


def test_numbers_of_no_passage_reach_no_other_question(small: Index) -> None:
    """A system can give wrong numbers. They must not name what another question searches."""
    uris = list(dict.fromkeys(small.uri(passage) for passage in range(len(small.passages))))
    one, other = own_documents(small, [uris[:2], uris[2:5]])
    for wrong in (-1, len(one.passages)):
        pool = Pool(small.search("moon", 1)[0].passages * 0 + wrong, small.search("moon", 1)[0].scores)
        with pytest.raises(IndexError, match="the question's documents have"):
            together(narrate, small, [(one, pool), (other, pool.head(0))], 400)
    for wrong in (-1, len(one.corpus)):
        segments = ScoredSegments(one.passages[:1] * 0 + wrong, small.search("moon", 1)[0].scores)
        with pytest.raises(ArrayError):
            together(cite, small, [(one, segments)])


def test_a_large_set_of_documents_and_other_retrievers_are_searched_alone(tmp_path: Path) -> None:
    many = [TextDocument(f"{i}", f"Moon {i}", f"Moon {i} orbits planet {i % 7}.") for i in range(300)]
    index = build_index(many, tmp_path / "index")
    large, few = own_documents(index, [[it.uri for it in many], ["3", "4"]])
    assert few.arrays and not large.arrays
    assert [len(pool) for pool in large.search(["moon 3"], 5)] == [5]
    asked = [
        {"id": "a", "question": "Moon 3?", "documents": [it.uri for it in many]},
        {"id": "b", "question": "Moon 3?"},
    ]
    one, all_ = pyfast.answer(asked, index=index, llm="instant", system="n2n").records
    assert (one.answer, one.evidence, one.trace) == (all_.answer, all_.evidence, all_.trace)


def test_each_function_has_an_index_first() -> None:
    assert all(next(iter(work.__annotations__)) == "index" for work in TOGETHER)


def test_the_command_tells_which_documents_are_searched(
    small: Index, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked = [
        {"id": "a", "question": QUESTIONS[0], "documents": [small.uri(0)]},
        {"id": "b", "question": QUESTIONS[1]},
    ]
    told = "for 1 of 2 questions, only the documents that they list are searched"
    told += " (--documents all: the whole index)"
    given: Any = {"index": small, "llm": "instant", "system": "rag"}
    with caplog.at_level("INFO", "pyfast"):
        pyfast.answer(asked, **given)
        assert caplog.messages.count(told) == 1
        pyfast.answer(asked, **given, options=pyfast.RunOptions(documents="all"))
        pyfast.answer(asked[1:], **given)
        heard: list[tuple[int, int]] = []
        pyfast.answer(asked, **given, watch=pyfast.Watch(on_limited=lambda *numbers: heard.append(numbers)))
    assert caplog.messages.count(told) == 1 and heard == [(1, 2)]
    pyfast.answer(asked, **given, run=tmp_path / "run", options=pyfast.RunOptions(documents="all"))
    cause = r"different values: questions\.documents was all and is now not set; its questions have changed"
    with pytest.raises(InputError, match=cause):
        pyfast.answer(asked, **given, run=tmp_path / "run")
