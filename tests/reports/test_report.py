"""Reports: what is in the folder is what the run's own files say, read by other code."""

import gzip
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from html.parser import HTMLParser
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from slow_words import slow_terms

import pyfast
from pyfast.corpus import KnowledgeGraph, Level, Table, TextDocument, Triple, encode
from pyfast.engine import Evidence, Record
from pyfast.errors import InputError, RunError
from pyfast.reports import bundle
from pyfast.reports.bundle import Block, BlockWriter, Series
from pyfast.reports.passages import PassageFinder, content_of, part_of
from pyfast.reports.paths import gold_paths
from pyfast.retrieval import Index, ScoredSegments, build_index, cite
from pyfast.systems.traces import Listed, Step, steps_of

QUESTIONS = [
    {
        "id": f"q{number}",
        "question": f"Which moon of Saturn is number {number}?",
        "answers": ["Titan"],
        "type": "bridge" if number % 2 else "comparison",
        "supporting": ["passages/titan.md"],
    }
    for number in range(6)
]
HOSTILE = {"id": "h", "question": "<script>alert(1)</script> </script> \u202eevil\u0007", "answers": ["x"]}


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("asked") / "questions.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in [*QUESTIONS, HOSTILE]), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def runs(asked: Path, small: Index, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A run of n2n and one of rag."""
    folders = []
    for system in ("n2n", "rag"):
        folder = tmp_path_factory.mktemp("runs") / system
        pyfast.answer(asked, index=small, llm="instant", system=system, run=folder)
        folders.append(folder)
    return folders


@pytest.fixture(scope="module")
def written(runs: list[Path], asked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pyfast.report(runs, tmp_path_factory.mktemp("out") / "report", asked)


def manifest(folder: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((folder / "manifest.json").read_bytes())
    return read


def listed(folder: Path, run: int = 0) -> dict[str, list[Any]]:
    """The list of a run, as a page reads it."""
    columns: dict[str, list[Any]] = {}
    part = manifest(folder)["runs"][run]
    for one in part["lists"]:
        content = json.loads(gzip.decompress((folder / "data" / part["folder"] / one["file"]).read_bytes()))
        for name, values in content.items():
            columns.setdefault(name, []).extend(values)
    return columns


def details(folder: Path, run: int = 0) -> Iterator[dict[str, Any]]:
    columns, place = listed(folder, run), folder / "data" / manifest(folder)["runs"][run]["folder"]
    for chunk, start, size in zip(columns["chunk"], columns["start"], columns["size"], strict=True):
        content = (place / f"questions-{chunk:05}.bin").read_bytes()[start : start + size]
        yield json.loads(gzip.decompress(content))


def test_each_question_is_there_as_the_run_has_it(written: Path, runs: list[Path]) -> None:
    for number, path in enumerate(runs):
        run, shown = pyfast.Run(path), list(details(written, number))
        assert [one["id"] for one in shown] == [record.id for record in run.records]
        for record, one in zip(run.records, shown, strict=True):
            assert (one["answer"], one["state"], one["trace"]) == (record.answer, record.state, record.trace)
            assert one["evidence"] == [each.segment for each in record.evidence]
            assert [one["passages"][each.segment]["text"] for each in record.evidence] == [
                each.snippet for each in record.evidence
            ]
            calls = run.prompts(record.id)
            assert [call["completion"]["text"] for call in one["calls"]] == [
                call.completion.text for call in calls if call.completion
            ]
            assert [call["messages"] for call in one["calls"]] == [
                [{"role": message.role, "content": message.content} for message in call.messages or ()]
                for call in calls
            ]
        texts = [one["question"] for one in [*QUESTIONS, HOSTILE]]
        assert [one["question"] for one in shown] == texts == listed(written, number)["question"]


def test_the_first_screen_has_the_figures_of_evaluate_and_status(
    written: Path, runs: list[Path], asked: Path
) -> None:
    for part, path in zip(manifest(written)["runs"], runs, strict=True):
        expected = json.loads(json.dumps(pyfast.evaluate(path, asked).as_json()["rows"]))
        assert part["scores"] == expected
        status = pyfast.Run(path).status
        assert part["states"] == status.states and part["usage"]["llm_calls"] == status.llm_calls
        assert {stage["name"] for stage in part["stages"]} == {stage.name for stage in status.stages}
        assert sum(bin["questions"] for bin in part["latencies"]) == 7
        width = part["over_time"][1]["second"] - part["over_time"][0]["second"]
        assert sum(bin["rate"] * width for bin in part["over_time"]) == pytest.approx(7)
        slowest = [seconds for _, seconds, _ in part["extremes"]["slowest"]]
        assert slowest == sorted(slowest, reverse=True) and len(slowest) == 7


def test_figures_of_the_list_are_those_of_evaluate(written: Path, runs: list[Path], asked: Path) -> None:
    report, columns = pyfast.evaluate(runs[0], asked), listed(written)
    names = manifest(written)["runs"][0]["figures"]
    expected = {one.id: [one.figures.get(name) for name in names] for one in report.questions}
    assert dict(zip(columns["id"], columns["figures"], strict=True)) == expected


def test_comparison(written: Path, runs: list[Path], asked: Path) -> None:
    expected = json.loads(json.dumps(pyfast.compare(runs, asked).as_json()["differences"]))
    names = {"a": "n2n", "b": "rag"}  # no path of this machine
    assert manifest(written)["differences"] == [{**one, **names} for one in expected]


def test_a_gold_path_agrees_with_the_lists(written: Path, runs: list[Path]) -> None:
    """The ranks of the path, counted by hand from the record."""
    for record, one in zip(pyfast.Run(runs[1]).records, details(written, 1), strict=True):
        uris = [each.uri for each in record.evidence]
        for path in one["gold_paths"]:
            rank = uris.index(path["uri"]) + 1 if path["uri"] in uris else None
            assert path["ranks"][-1] == ["answer", "evidence of the answer", rank, len(uris)]
            assert path["reached"] == (rank is not None)


def test_graphs_and_what_expansion_joined(written: Path) -> None:
    """What was kept was retrieved or joined. The terms of an edge are in the texts of both its ends."""
    joined = shared = 0
    for one in details(written):
        for graph in one["graphs"]:
            step = next(each for each in one["path"] if each["name"] == graph["step"])
            lists = {each["name"]: each["segments"] for each in step["lists"]}
            retrieved, new = step["lists"][0]["segments"], lists.get("joined by expansion", [])
            assert graph["nodes"] == [*retrieved, *new] and set(lists["kept"]) <= set(graph["nodes"])
            joined += len(new)
            terms = iter(graph["terms"])
            for a, b, count in zip(graph["ends"][::2], graph["ends"][1::2], graph["counts"], strict=True):
                both = [one["passages"][graph["nodes"][end]] for end in (a, b)]
                for term in islice(terms, count):
                    shared += 1
                    texts = [" ".join(map(str, each.values())) for each in both if not each.get("cut")]
                    assert all(term in slow_terms(text) for text in texts)
            assert next(terms, None) is None and len(graph["weights"]) == len(graph["counts"])
    assert joined and shared


class Page(HTMLParser):
    """The tags of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_the_page_loads_its_own_files_only(written: Path) -> None:
    page = Page((written / "index.html").read_text(encoding="utf-8"))
    places = [
        value for _, attributes in page.tags for name, value in attributes.items() if name in ("src", "href")
    ]
    assert places == ["data:,", "style.css", "app.js"]
    (policy,) = (a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy and "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    script = (written / "app.js").read_text(encoding="utf-8")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function", script)
    assert {path.name for path in (written / "vendor").iterdir()} >= {"cytoscape.min.js", "cytoscape.LICENSE"}


def test_runs_in_folders_of_the_same_name_are_told_apart(runs: list[Path], asked: Path, tmp_path: Path) -> None:
    same = [Path(shutil.copytree(run, tmp_path / run.name / "big" / "run")) for run in runs]
    out = pyfast.report(same, tmp_path / "report", asked)
    assert [one["name"] for one in manifest(out)["runs"]] == ["n2n/big/run", "rag/big/run"]
    assert {(one["a"], one["b"]) for one in manifest(out)["differences"]} == {("n2n/big/run", "rag/big/run")}
    assert "<title>n2n/big/run, rag/big/run – pyfast</title>" in (out / "index.html").read_text()
    usual = manifest(pyfast.report(runs, tmp_path / "two", asked))
    assert [one["name"] for one in usual["runs"]] == ["n2n", "rag"]


def test_no_gold_no_scores(small: Index, tmp_path: Path) -> None:
    run = pyfast.answer(["What is Titan?"], index=small, llm="instant", system="rag", run=tmp_path / "run")
    part = manifest(pyfast.report(run, tmp_path / "report"))["runs"][0]
    assert part["scores"] == [] and part["figures"] == [] and part["states"] == {"answered": 1}


def test_bad_input(runs: list[Path], small: Index, tmp_path: Path) -> None:
    in_memory = pyfast.answer(["What is Titan?"], index=small, llm="instant", system="rag")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    for given, out, message in (
        ([], "report", "needs runs with folders"),
        (in_memory, "report", "needs runs with folders"),
        ([runs[0], runs[0]], "report", "given twice"),
        (tmp_path, "report", "not a run folder"),
        (runs[0], "mine", "is not a report"),
    ):
        with pytest.raises(InputError, match=message):
            pyfast.report(given, tmp_path / out)
        assert not (tmp_path / "report").exists()
    with pytest.raises(InputError, match=r"nothing\.jsonl"):
        pyfast.report(runs[0], tmp_path / "report", tmp_path / "nothing.jsonl")


def test_a_report_replaces_a_report(runs: list[Path], tmp_path: Path) -> None:
    out = pyfast.report(runs, tmp_path / "report")
    assert len(manifest(out)["runs"]) == 2
    pyfast.report(runs[:1], out)
    assert len(manifest(out)["runs"]) == 1 and not (out / "data" / "run-1").exists()


def folder_digest(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three blocks for seven questions."""
    monkeypatch.setattr(bundle, "LISTED", 3)


@pytest.mark.usefixtures("small_blocks")
def test_several_processes_write_what_one_writes(runs: list[Path], asked: Path, tmp_path: Path) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text("[models.instant]\ninput = 3.0\noutput = 15.0\n")
    one, two = (
        folder_digest(pyfast.report(runs, tmp_path / str(count), asked, prices=prices, processes=count))
        for count in (1, 2)
    )
    assert one == two
    assert {name for name in one if "run-0/list" in name} == {f"data/run-0/list-0000{n}.json.gz" for n in range(3)}
    shown = [each["id"] for each in details(tmp_path / "2")]
    assert shown == [record.id for record in pyfast.Run(runs[0]).records]


@pytest.mark.usefixtures("small_blocks")
def test_turns_of_a_conversation_in_two_blocks_show_all_of_it(small: Index, tmp_path: Path) -> None:
    turns = [{"id": f"t{number}", "question": f"Which moon is number {number}?"} for number in range(5)]
    given = [QUESTIONS[0], {"id": "c", "turns": turns}, QUESTIONS[1]]
    (tmp_path / "asked.jsonl").write_text("".join(json.dumps(one) + "\n" for one in given))
    run = pyfast.answer(tmp_path / "asked.jsonl", index=small, llm="instant", system="rag", run=tmp_path / "run")
    expected = [{"id": turn["id"], "question": turn["question"]} for turn in turns]
    for count in (1, 2):
        shown = list(details(pyfast.report(run, tmp_path / "report", processes=count)))
        assert [one["id"] for one in shown] == ["q0", "t0", "t1", "t2", "t3", "t4", "q1"]
        assert [one["turns"] for one in shown] == [[], *[expected] * 5, []]
        assert [one["conversation"] for one in shown] == [None, *["c"] * 5, None]


@pytest.mark.usefixtures("small_blocks")
def test_a_damaged_run_is_one_error_in_several_processes(runs: list[Path], asked: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs[1], run)
    with closing(sqlite3.connect(run / "journal.sqlite")) as journal, journal:
        journal.execute("UPDATE questions SET id = 'other' WHERE number = 4")
    said = set()
    for count in (1, 2):
        with pytest.raises(InputError) as error:
            pyfast.report(run, tmp_path / "report", asked, processes=count)
        said.add(str(error.value))
        assert not (tmp_path / "report").exists()
    (one,) = said
    assert "its answers and journal differ" in one


def children() -> set[int]:
    found = subprocess.run(
        ["pgrep", "-P", str(os.getpid()), "-f", bundle.__name__], capture_output=True, text=True
    )
    return set(map(int, found.stdout.split()))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("ended", [RunError, KeyboardInterrupt])
def test_no_process_and_no_half_report_remain(
    runs: list[Path], asked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: type[BaseException]
) -> None:
    class Writer(BlockWriter):
        def write(self, block: Block) -> Series:
            assert len(children()) == 2
            if ended is KeyboardInterrupt:
                raise KeyboardInterrupt
            os.kill(children().pop(), signal.SIGKILL)
            return super().write(block)

    monkeypatch.setattr(bundle, "BlockWriter", Writer)
    (tmp_path / "out").mkdir()
    with pytest.raises(ended) as error:
        pyfast.report(runs[1], tmp_path / "out" / "report", asked, processes=3)
    if ended is RunError:
        assert "a process that wrote a part of the report died (-9)" in str(error.value)
    assert children() == set() and not any((tmp_path / "out").iterdir())


def test_the_gold_path_follows_the_passage_with_the_gold_sentence_or_row(tmp_path: Path) -> None:
    paragraphs = [f"Titan circles Saturn. It was seen in {year} by an astronomer." for year in (1655, 1671, 1684)]
    rows = (("Titan", "Saturn"), ("Rhea", "Saturn"), ("Io", "Jupiter"))
    documents = [
        TextDocument("titan", "", "\n\n".join(paragraphs)),
        Table("moons", "Moons", "", ("moon", "planet"), rows),
    ]
    index = build_index(documents, tmp_path / "index")
    question = {"id": "q0", "question": "Who saw Titan of Saturn?", "supporting": ["titan", "moons"]}
    run = pyfast.answer([question], index=index, llm="instant", system="rag", run=tmp_path / "run")
    evidence = run.records[0].evidence
    starts = sorted(item.offsets[0] for item in evidence if item.uri == "titan")
    assert len(starts) == 3
    facts = {"supporting_facts": [["titan", 2], ["moons", 1]], "sentence_starts": {"titan": starts}}
    for extra, texts in (
        ({}, {"titan": paragraphs, "moons": ["\t".join(row) for row in rows]}),
        (facts, {"titan": paragraphs[2:], "moons": ["Rhea\tSaturn"]}),
    ):
        given = [{**question, "answers": ["x"], **extra}]
        (one,) = details(pyfast.report(run, tmp_path / "report", given))
        gold = [item.segment for item in evidence if item.snippet in texts[item.uri]]
        if extra:
            assert sorted(chain.from_iterable(one["gold_passages"].values())) == sorted(gold)
        else:
            assert one["gold_passages"] == {}
        for path in one["gold_paths"]:
            mine = [item.segment for item in evidence if item.uri == path["uri"] and item.segment in gold]
            places = [item.segment for item in evidence]
            assert path["ranks"][-1][2] == min(places.index(segment) for segment in mine) + 1


def test_a_piece_of_evidence_stands_in_its_document(written: Path, runs: list[Path], small: Index) -> None:
    """The part that a page loads, at the range that it marks, is the segment."""
    chunks, marked = written / "data" / "run-1", 0
    for record, one in zip(pyfast.Run(runs[1]).records, details(written, 1), strict=True):
        for piece in record.evidence:
            passage = one["passages"][piece.segment]
            chunk, start, size = one["documents"][passage["part"]]
            content = (chunks / f"documents-{chunk}.bin").read_bytes()[start : start + size]
            part = json.loads(gzip.decompress(content))
            first, end = (at - part["from"] for at in passage["span"])
            assert part["uri"] == piece.uri
            if "text" in part:
                assert part["text"][first:end] == piece.snippet
            elif "rows" in part:
                assert part["rows"][first:end] == [piece.snippet.split("\t")]
            else:
                assert "; ".join(map(" ".join, part["triples"][first:end])) == piece.snippet
            marked += 1
        gold = one["gold_documents"].get("passages/titan.md")
        assert (gold is None) == (record.id == "h")
        assert gold is None or gold["part"] in one["documents"]
    assert marked > 20


def test_only_a_row_is_shown_as_cells(tmp_path: Path) -> None:
    """Not a cell in which there is a tab, and not a whole table."""
    moons = Table("moons", "Moons", "", ("moon", "planet"), (("Titan\tVI", "Saturn"), ("Io", "Jupiter")))
    index = build_index([moons], tmp_path / "index")
    written = cite(index, [ScoredSegments(np.arange(3), np.ones(3))])[0]
    table, row, cell = map(Evidence.read, json.loads(written))
    finder, ids = PassageFinder(index), [one.segment for one in (table, row, cell)]
    for evidence in (written, b"[]"):  # the passages of the evidence, and those of the index
        record = Record("q", "answered", "x", evidence_json=evidence)
        found = list(finder.find(ids, ids, finder.segments(ids), record).values())
        assert [one["text"] for one in found] == ["Titan VI\tSaturn\nIo\tJupiter", "Titan VI\tSaturn", "Titan\tVI"]
        assert ["header" in one for one in found] == [False, True, False]


def test_long_documents_come_in_parts() -> None:
    text = " ".join(f"word{number}" for number in range(9000)) + "."
    rows = tuple((f"r{number}", "x") for number in range(120))
    triples = tuple(Triple(f"h{number // 3}", "has", f"t{number}") for number in range(400))
    corpus = encode(
        [TextDocument("t", "T", text), Table("u", "U", "", ("a", "b"), rows), KnowledgeGraph("g", "G", triples)]
    )
    for segment in range(len(corpus)):
        part, (first, end) = part_of(corpus, segment)
        content = content_of(corpus, part)
        begin = first - content["from"]
        shown = content.get("text") or content.get("rows") or content.get("triples")
        assert begin >= 0 and shown is not None
        if corpus.level[segment] == Level.TABLE_ROW:
            assert shown[begin] == corpus.content(segment).split("\t")
        elif corpus.level[segment] in (Level.SUBGRAPH, Level.TRIPLET):
            assert shown[begin : end - content["from"]] == [
                (x.head, x.relation, x.tail) for x in corpus.triples(segment)
            ]
        elif corpus.level[segment] in (Level.PARAGRAPH, Level.SENTENCE) and end - first < 2000:
            assert shown[begin : end - content["from"]] == corpus.content(segment)


def test_what_lost_a_gold_passage() -> None:
    """Of lists that are searched again none loses anything; what was kept of them does."""
    steps = [
        Step("hop 1", "", (Listed("retrieved", ("a", "b")), Listed("kept", ("a",), chosen=True))),
        Step(
            "hop 2",
            "",
            (Listed("facts", ("c",)), Listed("documents", ("d", "b")), Listed("used", (), chosen=True)),
        ),
        Step("answer", "", (Listed("evidence of the answer", ("a",), chosen=True),)),
    ]
    paths = gold_paths(steps, "abce", {letter: letter for letter in "abcd"})
    assert [path.outcome for path in paths] == [
        "reached the answer, at rank 1 of 1",
        "first in hop 1, at rank 2; lost in hop 1, found again in hop 2; lost in hop 2: rank 2 of 2 in documents,"
        " not in used",
        "lost in hop 2: rank 1 of 1 in facts, not in used",
        "no step retrieved it",
    ]
    assert [path.lost for path in paths] == [None, 4, 4, None]
    assert [path.found_again for path in paths] == [(), ((1, "hop 2"),), (), ()]


def test_a_gold_passage_that_was_lost_and_found_again() -> None:
    """Each step that lost it says so, until a step has kept it."""
    windows = [("abd", "d"), ("c", ""), ("ab", ""), ("abd", "b"), ("b", "")]
    trace = {"steps": [{"window": list(seen), "picked": [{"id": id} for id in kept]} for seen, kept in windows]}
    steps = steps_of("hseq", trace, [("b", None), ("d", None)])
    paths = gold_paths(steps, "abcd", {letter: letter for letter in "abcd"})
    assert [path.found_again for path in paths] == [
        ((1, "step 3"), (5, "step 4")),
        ((1, "step 3"), (5, "step 4")),
        (),
        (),
    ]
    assert [path.lost for path in paths] == [7, None, 3, None]
    assert paths[0].outcome == (
        "first in step 1, at rank 1; lost and found again 2 times;"
        " lost in step 4: rank 1 of 3 in window, not in picked"
    )
    steps = steps_of("hseq", {"steps": trace["steps"][2:4]}, [])
    assert gold_paths(steps, "a", {"a": "a"})[0].outcome.split("; ")[1] == "lost in step 1, found again in step 2"


def test_a_sub_question_that_cites_nothing_lost_what_it_retrieved() -> None:
    """The trace of subqrag has no empty lists."""
    asked = {"question": "?", "source": "graph", "answers": ["x"], "triples": [], "facts": ["a" * 16]}
    (path,) = gold_paths(steps_of("subqrag", {"path": [[asked]]}, []), "a", {"a" * 16: "a"})
    assert path.outcome == "lost in sub-question 1: rank 1 of 1 in facts' sources, not in used"


def test_the_money_of_the_stages_is_that_of_the_run(runs: list[Path], asked: Path, tmp_path: Path) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text('currency = "EUR"\n[models.instant]\ninput = 3.0\noutput = 15.0\n')
    part = manifest(pyfast.report(runs[0], tmp_path / "report", prices=prices))["runs"][0]
    cost = pyfast.compare(runs, asked, prices=prices).costs[0]
    spent = [stage["money"] for stage in part["stages"]]
    assert cost.money and sum(spent) == pytest.approx(cost.money * 7) and part["currency"] == "EUR"
    assert part["extremes"]["money"] and "tokens" not in part["extremes"]
    prices.write_text("[models.other]\ninput = 3.0\noutput = 15.0\n")
    with pytest.raises(InputError, match="no price for 'instant'"):
        pyfast.report(runs[0], tmp_path / "report", prices=prices)
