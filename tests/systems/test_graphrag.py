"""GraphRAG beside loops written from its paper and the authors' code, over names and dictionaries: the same
communities, the same texts for their reports, and the same calls of both searches."""

import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from hashlib import blake2b
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scripted
from scripted import Scripted, run
from typer.testing import CliRunner
from word_vectors import WordVectors

import pyfast
import pyfast.api.summaries
from pyfast.api.summaries import summarize_index
from pyfast.commands.cli import app
from pyfast.corpus import TextDocument
from pyfast.engine import Question
from pyfast.errors import CallError, InputError
from pyfast.knowledge import Extract, Session, Statement, add_extracts, open_knowledge
from pyfast.llm import Request
from pyfast.retrieval import Index, build_index
from pyfast.systems.rivals.graphs import communities
from pyfast.systems.rivals.graphs.communities import shortened
from pyfast.systems.rivals.graphs.reports import REPORT

leiden = pytest.importorskip("graspologic_native")
scripted.KINDS[REPORT.system] = REPORT.name
FIELDS = ("astronomy", "music", "shipping")
QUESTION = "Which astronomy star did music singer and shipping captain share?"


def triples() -> list[tuple[str, str, str]]:
    """Three fields, each with a hub and four circles of five names: communities of two levels."""
    made = []
    for field in FIELDS:
        for circle in range(4):
            names = [f"{field} {kind} {circle}" for kind in ("star", "singer", "captain", "cook", "poet")]
            made += [(one, "knows", other) for one, other in combinations(names, 2)]
            made += [(f"{field} hub", "leads", name) for name in names]
            made += [(name, "visited", f"{name[:-1]}{(circle + 1) % 4}") for name in names]
    made += [(f"{one} hub", "met", f"{other} hub") for one, other in combinations(FIELDS, 2)]
    return [*made, ("lonely one", "knows", "lonely other")]


TRIPLES = triples()


def drawn(*of: object) -> int:
    return int.from_bytes(blake2b(repr(of).encode(), digest_size=3).digest())


def report(request: Request) -> dict[str, Any]:
    lines = request.messages[-1].content.partition(":\n")[2].split("\n")
    first = lines[0].partition(" – ")[0].partition(" | ")[0][:60]
    return {
        "title": f"Around {first}",
        "summary": f"{len(lines)} lines on {first}.",
        "rating": drawn(lines) % 100 / 10,
        "findings": [f"{first} is {drawn(lines, at) % 99}." for at in range(2)],
    }


@pytest.fixture(autouse=True)
def words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyfast.api.summaries, "Embedder", WordVectors)
    monkeypatch.setattr("pyfast.knowledge.session.Embedder", WordVectors)


def graph_of(stated: list[tuple[str, str, str]], folder: Path) -> Index:
    """An index in which each triple has a text, and its graph."""
    index = build_index([TextDocument(f"d{at}", "", f"{' '.join(one)}.") for at, one in enumerate(stated)], folder)
    ids = index.corpus.ids[index.passages].tolist()
    statements = tuple(Statement(*one, segment) for one, segment in zip(stated, ids, strict=True))
    add_extracts(index, WordVectors(), [Extract("0" * 32, "learned", statements)])
    return index


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return graph_of(TRIPLES, tmp_path_factory.mktemp("graph") / "IDX")


@pytest.fixture(scope="module")
def made(plain: Index, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Index, Scripted]]:
    llm, folder = Scripted(report=report), tmp_path_factory.mktemp("reports")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pyfast.api.summaries, "Embedder", WordVectors)
        yield summarize_index(plain, llm, out=folder / "REPORTS", of="communities"), llm


@pytest.fixture(scope="module")
def whole(made: tuple[Index, Scripted]) -> Session:
    return Session(made[0], open_knowledge(made[0], WordVectors()))  # type: ignore[arg-type]


class Told:
    """The reports as their documents say them."""

    def __init__(self, index: Index) -> None:
        corpus, self.about, self.texts = index.corpus, dict[str, Any](), dict[str, str]()
        self.passages: dict[str, list[int]] = defaultdict(list)
        for row, at in enumerate(index.passages.tolist()):
            if (uri := index.uri(row)).startswith("report/"):
                self.about[uri] = corpus.metadata(at)
                title = corpus.title(int(corpus.source[at]))
                self.texts.setdefault(uri, f"{title}:")
                self.texts[uri] += f" {corpus.content(at)}"
                self.passages[uri].append(row)

    def at(self, level: int) -> list[str]:
        return [
            uri
            for uri, one in self.about.items()
            if one["level"] == level or (one["level"] < level and one["is_leaf"])
        ]


def test_the_communities_are_those_of_the_library(made: tuple[Index, Scripted]) -> None:
    weights: dict[tuple[str, str], float] = defaultdict(float)
    numbers = {name: str(at) for at, name in enumerate(dict.fromkeys(n for h, _, t in TRIPLES for n in (h, t)))}
    for head, _, tail in TRIPLES:
        one, other = sorted((numbers[head], numbers[tail]), key=int)
        weights[one, other] += 1.0
    groups: dict[tuple[int, int], set[str]] = defaultdict(set)
    named = {number: name for name, number in numbers.items()}
    edges = [(one, other, weight) for (one, other), weight in weights.items()]
    for place in leiden.hierarchical_leiden(edges, max_cluster_size=10, seed=0):
        groups[place.level, place.cluster].add(named[place.node])
    joined = [{head, tail} for head, _, tail in TRIPLES]
    kept = [(level, names) for (level, _), names in groups.items() if any(pair <= names for pair in joined)]
    told = Told(made[0]).about
    assert sorted((one["level"], sorted(one["entities"])) for one in told.values()) == sorted(
        (level, sorted(names)) for level, names in kept
    )
    assert max(level for level, _ in kept) == 1 and min(len(names) for _, names in kept) == 2
    for one in told.values():
        below = [told[uri] for uri in one["children"]]
        assert one["is_leaf"] == (not below)
        assert all(set(child["entities"]) < set(one["entities"]) for child in below)
        assert all(child["level"] == one["level"] + 1 for child in below)
    large = [one for one in told.values() if len(one["entities"]) > 10]
    assert large and not any(one["is_leaf"] for one in large)


def material(names: set[str]) -> list[str]:
    """What the LLM reads of a community: the most prominent relations first, each after its entities."""
    degree = Counter(name for head, _, tail in TRIPLES for name in {head, tail})
    inside = [one for one in TRIPLES if one[0] in names and one[2] in names]
    lines: dict[str, None] = {}
    for head, relation, tail in sorted(inside, key=lambda one: -(degree[one[0]] + degree[one[2]])):
        lines |= dict.fromkeys((head, tail, f"{head} | {relation} | {tail}"))
    return list(lines)


def test_reports_are_asked_for_from_the_lowest_level(made: tuple[Index, Scripted]) -> None:
    index, llm = made
    told, asked = Told(index).about, llm.users("report")
    expected = sorted((-one["level"], "\n".join(material(set(one["entities"])))) for one in told.values())
    shown = [user.partition(":\n")[2] for user in asked]
    assert sorted(text for _, text in expected) == sorted(shown)
    levels = [next(-level for level, text in expected if text == user) for user in shown]
    assert levels == sorted(levels, reverse=True) and len(set(levels)) > 1


def test_what_is_too_long_is_replaced_by_reports_on_its_parts(
    plain: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(communities, "LONGEST", 700)
    llm = Scripted(report=report)
    index = summarize_index(plain, llm, out=tmp_path / "SHORT", of="communities")
    told = Told(index)
    shown = [user.partition(":\n")[2] for user in llm.users("report")]
    assert all(len(text) <= 700 for text in shown)
    for one in told.about.values():
        lines = material(set(one["entities"]))
        if len("\n".join(lines)) < 700:
            assert "\n".join(lines) in shown
        elif one["children"]:
            sizes = {uri: sum(map(len, material(set(told.about[uri]["entities"])))) for uri in one["children"]}
            first = max(one["children"], key=sizes.__getitem__)
            assert any(text.startswith(told.texts[first][:650]) for text in shown)
    lines = [("a" * 50, frozenset([1])), ("b" * 90, frozenset([2])), ("c" * 20, frozenset([1, 2]))]
    parts = [(frozenset([1]), "one"), (frozenset([2]), "two")]
    assert shortened(lines, parts, 300) == ["a" * 50, "b" * 90, "c" * 20]
    assert shortened(lines, parts, 100) == ["two", "a" * 50, "c" * 20]
    assert shortened(lines, parts, 60) == ["two", "one", "c" * 20]


def test_it_asks_only_for_what_changed(plain: Index, tmp_path: Path) -> None:
    first, again, changed = (Scripted(report=report) for _ in range(3))
    out = tmp_path / "REPORTS"
    before = summarize_index(plain, first, out=out, of="communities")
    after = summarize_index(plain, again, out=out, of="communities", overwrite=True)
    assert again.calls == [] and Told(after).texts == Told(before).texts
    other = graph_of([*TRIPLES, ("lonely one", "likes", "lonely other")], tmp_path / "OTHER")
    summarize_index(other, changed, out=out, of="communities", overwrite=True)
    assert 0 < len(changed.calls) < len(first.calls)
    assert any("likes" in user for user in changed.users("report"))


def test_what_was_begun_is_resumed_and_what_fails_is_left_out(plain: Index, tmp_path: Path) -> None:
    failing, llm, out = Scripted(report="?"), Scripted(report=report), tmp_path / "REPORTS"
    with pytest.raises(CallError, match="summaries of layer 1 failed"):
        summarize_index(plain, failing, out=out, of="communities")
    with pytest.raises(InputError, match="was started with other documents"):
        summarize_index(plain, llm, out=out, of="communities", layers=1)

    def some(request: Request) -> Any:
        return "?" if any("shipping captain" in one.content for one in request.messages) else report(request)

    whole = Scripted(report=some)
    options = pyfast.RunOptions(restart=True)
    index = summarize_index(plain, whole, out=out, of="communities", options=options)
    names = {name for one in Told(index).about.values() for name in one["entities"]}
    assert names and not any("shipping captain" in name for name in names)


def test_levels_are_cut_from_below(plain: Index, tmp_path: Path) -> None:
    index = summarize_index(plain, Scripted(report=report), out=tmp_path / "TOP", of="communities", layers=1)
    assert {(one["level"], one["is_leaf"]) for one in Told(index).about.values()} == {(0, True)}


def test_an_index_without_a_graph_is_refused(plain: Index, made: tuple[Index, Scripted], tmp_path: Path) -> None:
    without = build_index([TextDocument("a", "Moon", "the moon is far away")], tmp_path / "index")
    for index, told in ((without, "has no knowledge graph"), (made[0], "already has reports")):
        with pytest.raises(InputError, match=told):
            summarize_index(index, Scripted(report=report), out=tmp_path / "OUT", of="communities")
    add_extracts(without, WordVectors(), [])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no relation joins two entities"):
        summarize_index(without, Scripted(report=report), out=tmp_path / "OUT", of="communities")
    assert not (tmp_path / "OUT").exists()


def test_the_command_makes_the_same_index(plain: Index, tmp_path: Path) -> None:
    by_command, by_function = tmp_path / "COMMAND", tmp_path / "FUNCTION"
    command = ["corpus", "summarize", str(plain.folder), "--out", str(by_command), "--of", "communities"]
    result = CliRunner().invoke(app, [*command, "--llm", "instant"], catch_exceptions=False)
    made = summarize_index(plain, "instant", out=by_function, of="communities")
    assert result.exit_code == 0 and Told(Index(by_command)).texts == Told(made).texts
    assert open_knowledge(made).manifest["corpus"] == made.manifest["corpus"] != plain.manifest["corpus"]
    assert Index(plain.folder).commit == plain.commit


class Paper:
    """The local search of the authors' code, over names."""

    def __init__(self, whole: Session, k: int, most: int, level: int) -> None:
        self.whole, self.told, self.vectors = whole, Told(whole.index), WordVectors()
        names = list(dict.fromkeys(name for head, _, tail in TRIPLES for name in (head, tail)))
        cosines = self.vectors.encode(names) @ self.vectors.encode([QUESTION])[0]
        best = np.argsort(-cosines.round(6), kind="stable")[:k]
        self.entities = [names[at] for at in best if cosines[at] > 0]
        degree = Counter(name for head, _, tail in TRIPLES for name in {head, tail})
        near = set(self.entities)
        ranked = sorted(
            (one for one in TRIPLES if near & {one[0], one[2]}), key=lambda one: -(degree[one[0]] + degree[one[2]])
        )
        inside = [one for one in ranked if {one[0], one[2]} <= near]
        links: dict[str, set[str]] = defaultdict(set)
        for head, _, tail in ranked:
            for one, other in ((head, tail), (tail, head)):
                if other in near and one not in near:
                    links[one].add(other)
        outside = [one for one in ranked if one not in inside]
        outside.sort(key=lambda one: -len(links[one[2] if one[0] in near else one[0]]))
        self.relations = [*inside, *outside[: most * len(near)]]
        counts = {uri: len(near & set(self.told.about[uri]["entities"])) for uri in self.told.at(level)}
        about = [uri for uri, count in counts.items() if count]
        self.reports = sorted(about, key=lambda uri: (-counts[uri], -self.told.about[uri]["rating"]))


@pytest.mark.parametrize("k", [3, 10])
@pytest.mark.parametrize("level", [0, 1, 9])
def test_a_local_search_is_that_of_the_authors(whole: Session, k: int, level: int) -> None:
    llm = Scripted(answer={"answer": "a star"})
    given = {"k": str(k), "relations": "2", "level": str(level), "tokens": "3000", "text_share": "0.3"}
    (record,) = run(whole.index, llm, [QUESTION], "graphrag", session=whole, **given, report_share="0.2")
    paper = Paper(whole, k, 2, level)
    assert record.trace["entities"] == paper.entities
    assert record.trace["relations"] == [list(one) for one in paper.relations]
    text = llm.users("answer")[0].partition("Evidence:\n")[2].rpartition("\n\nQuestion: ")[0]
    shown = {part.split("\n")[0]: part.split("\n")[1:] for part in text.split("\n\n")}
    room, reports = 9000, [paper.told.texts[uri] for uri in paper.reports]
    fitting = [at for at in range(len(reports)) if sum(len(one) + 1 for one in reports[: at + 1]) <= room // 5]
    assert shown["Reports:"] == reports[: len(fitting)]
    assert record.trace["reports"] == paper.reports[: len(fitting)]
    assert shown["Entities:"] == paper.entities
    lines = [" | ".join(one) for one in paper.relations]
    assert shown["Relations:"] == lines[: len(shown["Relations:"])]
    texts = [line.partition(" ")[2] for line in shown["Texts:"]]
    assert len("\n".join(shown["Texts:"])) <= room * 0.3 and llm.kinds == ["answer"]
    mentioned = [{name for name in paper.entities if name in text} for text in texts]
    assert all(mentioned) and paper.entities[0] in mentioned[0]
    uris = [one["uri"] for one in record.evidence]
    assert list(dict.fromkeys(uris)) == [*record.trace["reports"], *uris[len(uris) - len(texts) :]]


def partly(user: str) -> dict[str, Any]:
    lines = user.partition("Lines:\n")[2].rpartition("\n\nQuestion: ")[0]
    score = drawn(lines) % 4 * 30
    return {"answer": f"The part says {drawn(lines) % 999}.", "score": score, "used": [2, 1, 9999]}


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("tokens", [500, 8000])
@pytest.mark.parametrize("read", ["reports", "texts"])
def test_a_global_search_is_that_of_the_paper(whole: Session, level: int, tokens: int, read: str) -> None:
    llm = Scripted(partial=lambda request: partly(request.messages[-1].content), conclude={"answer": "a star"})
    given = {"read": read, "tokens": str(tokens)} | ({"level": str(level)} if read == "reports" else {})
    (record,) = run(whole.index, llm, [QUESTION], "graphrag", session=whole, mode="global", **given)
    told, index = Told(whole.index), whole.index
    rows = [row for row in range(len(index.passages)) if not index.uri(row).startswith("report/")]
    units = (
        [(uri, told.texts[uri]) for uri in told.at(level)]
        if read == "reports"
        else [(index.uri(row), index.text(row)) for row in rows]
    )
    units = random.Random(QUESTION).sample(units, len(units))
    parts, left = list[list[tuple[str, str]]](), -1
    for uri, text in units:
        if left < len(text) + 8:
            parts.append([])
            left = tokens * 3
        parts[-1].append((uri, text))
        left -= len(text) + 8
    texts = ["\n".join(f"[{at}] {text}" for at, (_, text) in enumerate(part, 1)) for part in parts]
    expected = [f"Lines:\n{text}\n\nQuestion: {QUESTION}" for text in texts]
    assert sorted(llm.users("partial")) == sorted(expected) and record.trace["parts"] == len(parts)
    replies = [(partly(user), part) for user, part in zip(expected, parts, strict=True)]
    helpful = sorted((one for one in replies if one[0]["score"]), key=lambda one: -one[0]["score"])
    assert record.trace["partial"] == [
        {
            "score": said["score"],
            "answer": said["answer"],
            "used": [part[at][0] for at in (1, 0) if at < len(part)],
        }
        for said, part in helpful
    ]
    notes = "\n".join(said["answer"] for said, _ in helpful)
    assert llm.users("conclude") == ([f"Notes:\n{notes}\n\nQuestion: {QUESTION}"] if helpful else [])
    cited = [part[at][0] for _, part in helpful for at in (1, 0) if at < len(part)]
    assert list(dict.fromkeys(one["uri"] for one in record.evidence)) == list(dict.fromkeys(cited))


def test_without_help_there_is_no_answer(whole: Session) -> None:
    for reply in ({"answer": "", "score": 50, "used": []}, {"answer": "no", "score": 0, "used": [1]}, "?"):
        llm = Scripted(partial=reply, conclude={"answer": "a star"})
        (record,) = run(whole.index, llm, [QUESTION], "graphrag", session=whole, mode="global")
        assert record.state == "abstained" and set(llm.kinds) == {"partial"}
        (record,) = run(whole.index, llm, [QUESTION], "graphrag", session=whole, mode="global", abstain="off")
        assert record.answer == "a star" and "Notes:\n(none)" in llm.users("conclude")[0]


def test_long_answers_are_written_from_both_searches(whole: Session) -> None:
    long = {"paragraphs": ["It was a star.", "They shared it."]}
    llm = Scripted(partial={"answer": "It says.", "score": 9, "used": [1]}, long_answer=long)
    for mode in ("local", "global"):
        (record,) = run(whole.index, llm, [QUESTION], "graphrag", session=whole, mode=mode, long_answer="on")
        assert record.answer == "It was a star.\n\nThey shared it." and record.evidence


def test_shares_leave_parts_out(whole: Session) -> None:
    llm = Scripted()
    run(whole.index, llm, [QUESTION], "graphrag", session=whole, report_share="0", text_share="0")
    (record,) = run(whole.index, llm, [QUESTION], "graphrag", session=whole, report_share="0", text_share="1")
    first, second = llm.users("answer")
    assert "Reports:" not in first and "Texts:" not in first and "Relations:" in first
    assert "Relations:" not in second and "Texts:" in second and record.trace["reports"] == []
    with pytest.raises(InputError, match="must add up to at most 1"):
        run(whole.index, llm, [QUESTION], "graphrag", session=whole, report_share="0.6")


def test_a_question_s_own_documents_are_read_alone(whole: Session) -> None:
    llm = Scripted(partial={"answer": "It says.", "score": 9, "used": [1]}, conclude={"answer": "a star"})
    for mode in ("local", "global"):
        question = Question("a", QUESTION, documents=("d0", "d40"))
        (record,) = run(whole.index, llm, [question], "graphrag", session=whole, mode=mode)
        assert {one["uri"] for one in record.evidence} <= {"d0", "d40"} and record.evidence
    shown = "\n".join(request.messages[-1].content for _, request in llm.calls)
    assert "Around" not in shown and "knows" in shown


def test_an_index_without_reports_is_refused_or_named(
    plain: Index, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked = {"index": plain.folder, "llm": "instant", "system": "graphrag"}
    with pytest.raises(InputError, match="has no reports"):
        pyfast.answer([QUESTION], settings={"mode": "global"}, **asked)
    assert pyfast.answer([QUESTION], **asked).records[0].state != "failed"
    assert "has no reports" in caplog.text


def test_a_run_over_an_index_with_reports(made: tuple[Index, Scripted], tmp_path: Path) -> None:
    for mode in ("local", "global"):
        settings = {"mode": mode, "long_answer": True}
        asked = {"index": made[0].folder, "llm": "instant", "system": "graphrag", "settings": settings}
        run = pyfast.answer([QUESTION, "What is shared?"], run=tmp_path / mode, **asked)
        assert run.status.states.get("failed", 0) == 0


KILLED = """
import sys, time
sys.path[:0] = {path!r}
import pyfast.api.summaries, test_graphrag
from scripted import Scripted
from word_vectors import WordVectors
pyfast.api.summaries.Embedder = WordVectors
def slow(request):
    with open({told!r}, "a") as told:
        told.write("called\\n")
    time.sleep(0.05)
    return test_graphrag.report(request)
llm = Scripted(report=slow)
pyfast.api.summaries.summarize_index({index!r}, llm, out={out!r}, of="communities", concurrency=1)
"""


@pytest.mark.guarantee("G1")
def test_killed_again_and_again_it_resumes(plain: Index, made: tuple[Index, Scripted], tmp_path: Path) -> None:
    told, out, here, kills = tmp_path / "told", tmp_path / "KILLED", Path(__file__).parent, 0
    code = KILLED.format(path=[str(here), str(here.parent)], told=str(told), index=str(plain.folder), out=str(out))

    def calls() -> int:
        return told.read_text().count("\n") if told.exists() else 0

    while not out.exists():
        process, before = subprocess.Popen([sys.executable, "-c", code]), calls()
        while process.poll() is None and (kills > 2 or calls() < before + 3):
            time.sleep(0.01)
        if process.poll() is None:
            process.kill()
            kills += 1
        assert process.wait() in (0, -signal.SIGKILL)
    assert kills == 3 and calls() <= len(made[1].calls) + kills
    assert Told(Index(out)).texts == Told(made[0]).texts
