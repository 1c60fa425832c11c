"""One question as text, and as a file of its own."""

import json
import shutil
import tomllib
from pathlib import Path

import pytest
from pydantic import BaseModel
from scripted import Scripted, plan
from test_report import HOSTILE, QUESTIONS, Page
from typer.testing import CliRunner

import pyfast
from pyfast.commands.cli import app
from pyfast.engine import Answer, Context, Prompt, Question
from pyfast.errors import InputError
from pyfast.reports import wrong_questions
from pyfast.reports.details import question_of
from pyfast.retrieval import Index, pool_ids, traced
from pyfast.systems import Settings, System


@pytest.fixture(scope="module")
def place(small: Index, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with questions and a run of n2n."""
    folder = tmp_path_factory.mktemp("shown")
    lines = [json.dumps(one) + "\n" for one in [*QUESTIONS, HOSTILE]]
    (folder / "questions.jsonl").write_text("".join(lines), encoding="utf-8")
    pyfast.answer(folder / "questions.jsonl", index=small, llm="instant", system="n2n", run=folder / "run")
    return folder


def test_the_text_has_what_the_record_has(place: Path) -> None:
    run = pyfast.Run(place / "run")
    record, text = run.records[0], pyfast.show(place / "run", "q0")
    assert str(record.answer) in text and QUESTIONS[0]["question"] in text and "Gold      Titan" in text
    assert all(hop["query"] in text for hop in record.trace["hops"])
    calls = run.prompts("q0")
    assert text.count("LLM call ") == len(calls)
    assert calls[0].messages is not None and calls[0].messages[0].content not in text
    whole = pyfast.show(run, "q0", prompts=True)
    for call in calls:
        assert call.completion is not None and call.completion.text in whole
        for message in call.messages or ():
            assert all(line in whole for line in message.content.splitlines())


def test_gold_passages_in_the_text(place: Path) -> None:
    run = pyfast.Run(place / "run")
    for question in QUESTIONS:
        id = str(question["id"])
        record = next(one for one in run.records if one.id == id)
        reached = any(one.uri == "passages/titan.md" for one in record.evidence)
        text = pyfast.show(run, id)
        assert ("  ok    passages/titan.md" in text) == reached == ("  LOST  passages/titan.md" not in text)


def test_the_wrong_ones(place: Path) -> None:
    report = pyfast.evaluate(place / "run")
    expected = {one.id for one in report.questions if one.figures["em"] != 1}
    assert set(wrong_questions(place / "run")) == expected and expected
    runner = CliRunner()
    done = runner.invoke(app, ["show", str(place / "run"), "--wrong"])
    assert done.exit_code == 0 and all(f"{id}: answered" in done.stdout for id in expected)
    assert all(letter.isprintable() or letter == "\n" for letter in done.stdout)  # of the hostile question too
    first, *_ = wrong_questions(place / "run")
    done = runner.invoke(app, ["show", str(place / "run"), "--wrong", "--limit", "1"])
    assert done.stdout.startswith(f"{first}: ") and done.stdout.count("\nQuestion  ") == 1
    assert runner.invoke(app, ["show", str(place / "run"), first, "--limit", "1"]).exit_code == 1


def named(run: Path, id: str) -> tuple[set[str], int]:
    """The uris of all passages that a page names, and how many passages expansion joined."""
    details = question_of(run, id)
    lists = [each for step in details["path"] for each in step["lists"]]
    ids = {id for each in lists for id in each["segments"]}
    assert ids <= details["passages"].keys()
    joined = sum(len(each["segments"]) for each in lists if each["name"] == "joined by expansion")
    return {one["uri"] for one in details["passages"].values()}, joined


def test_only_what_fits_the_filter_of_the_run_is_named(small: Index, tmp_path: Path) -> None:
    index = pyfast.open_index(small.folder, filter=["source=passages/*", "title!=Dawn and more"])
    pyfast.answer(QUESTIONS, index=index, llm="instant", system="n2n", run=tmp_path / "run")
    found = [named(tmp_path / "run", str(question["id"])) for question in QUESTIONS]
    assert all(uri.startswith("passages/") for uris, _ in found for uri in uris)
    assert sum(joined for _, joined in found) > 0
    shown = "".join(pyfast.show(tmp_path / "run", str(question["id"]), whole=True) for question in QUESTIONS)
    assert "tables/" not in shown.replace("Gold", "") and "triples.tsv" not in shown


def test_only_a_questions_own_documents_are_named(small: Index, tmp_path: Path) -> None:
    uris = sorted(small.uri(passage) for passage in range(len(small.passages)))
    some, others = sorted(set(uris))[::2], sorted(set(uris))[1::2]
    asked = [
        {"id": "some", "question": "Which moons of Saturn have an atmosphere?", "documents": some},
        {"id": "others", "question": "Which moons of Saturn have an atmosphere?", "documents": others},
        {"id": "all", "question": "Which moons of Saturn have an atmosphere?"},
    ]
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in asked), encoding="utf-8")
    pyfast.answer(path, index=small, llm="instant", system="n2n", run=tmp_path / "run")
    found = {id: named(tmp_path / "run", id) for id in ("some", "others", "all")}
    assert found["some"][0] <= set(some) and found["others"][0] <= set(others)
    assert all(joined > 0 for _, joined in found.values())
    pyfast.answer(
        path,
        index=small,
        llm="instant",
        system="n2n",
        run=tmp_path / "whole",
        options=pyfast.RunOptions(documents="all"),
    )
    assert named(tmp_path / "whole", "some") == named(tmp_path / "whole", "all") == found["all"]


def test_an_index_that_has_changed_adds_nothing(tmp_path: Path) -> None:
    moons = ["Titan is a moon of Saturn.", "Saturn has rings of ice.", "Ice covers Enceladus, a moon."]
    documents = [{"id": f"d{number}", "text": text} for number, text in enumerate(moons)]
    pyfast.build_index(documents, tmp_path / "IDX")
    asked = [{"id": "q", "question": "What is Titan?"}]
    pyfast.answer(asked, index=tmp_path / "IDX", llm="instant", system="n2n", run=tmp_path / "run")
    assert named(tmp_path / "run", "q")[0] <= {"d0", "d1", "d2"}
    pyfast.build_index([*documents, {"id": "new", "text": moons[0]}], tmp_path / "IDX", overwrite=True)
    assert "new" not in named(tmp_path / "run", "q")[0]


class Reply(BaseModel):
    """The reply to the prompt of a user's system."""

    answer: str


READ = Prompt("read", "Reply in JSON.", "$context\n\n$question", Reply, 64)


async def in_rounds(question: Question, ctx: Context, settings: Settings) -> Answer:
    """A user's system. Its trace has a value, a list of segments, and steps."""
    first, second = await ctx.retrieve(question.text, 15), await ctx.retrieve("moons of Saturn", 2)
    reply = await ctx.generate(READ, context=await ctx.narrative(first, READ), question=question.text)
    rounds = [{"query": "moons of Saturn", **traced(second), "why": ["it", "says so"]}]
    trace = {"confidence": 0.25, "pool": pool_ids(first), "rounds": rounds}
    return Answer(reply.answer, ctx.evidence(first), trace)


def test_the_trace_of_a_users_system(small: Index, tmp_path: Path) -> None:
    system = System("in_rounds", in_rounds, Settings, (READ,))
    run = pyfast.answer(QUESTIONS[:1], index=small, llm="instant", system=system, run=tmp_path / "run")
    record = run.records[0]
    text, whole = pyfast.show(run, "q0"), pyfast.show(run, "q0", whole=True)
    for shown in (text, whole):
        assert "trace\n  confidence: 0.25\n  pool, 15:\n" in shown
        assert "rounds 1: moons of Saturn\n  why: it; says so\n  evidence, 2:\n" in shown
        for item in record.trace["rounds"][0]["evidence"]:
            assert f"{item['score']:.3f}  " in shown.split("rounds 1: ")[1]
    assert (
        text.count("and 5 more (--all shows them)") == 2 and "more (--all" not in whole
    )  # the pool, the evidence
    assert all(item.snippet.splitlines()[0] in whole for item in record.evidence)


def test_one_label_for_each_source_and_what_else_a_hop_has(small: Index, tmp_path: Path) -> None:
    said = {"plan": plan("moons of Saturn", "discoverer of {entity1}"), "extract": {"entity": "Titan"}}
    llm = Scripted(**said, answer={"answer": "Christiaan Huygens"})
    run = pyfast.answer(QUESTIONS[:1], index=small, llm=llm, system="n2n", run=tmp_path / "run")
    record = run.records[0]
    shown = pyfast.show(run, "q0", whole=True)
    notes = [
        (name, hop[name]) for hop in record.trace["hops"] for name in ("type", "entity", "stopped") if name in hop
    ]
    assert notes and all(f"  {name}: {value}\n" in shown for name, value in notes)
    added = {one["segment"] for one in record.trace["final"]["evidence"]} - set(record.trace["candidates"])
    assert shown.rpartition("final graph")[2].split("answer\n")[0].count("+") == len(added)
    lines = [line for line in shown.splitlines() if ".md" in line and ". " in line]
    for item in record.evidence:
        if title := small.title(item.uri):
            assert all(f"{title} ({item.uri}): " in line for line in lines if f"{item.uri}: " in line)


def test_gold_sentences_mark_their_passage_alone(tmp_path: Path) -> None:
    """A gold document with a sentence in one passage: this one has the star, its others have a circle."""
    paragraphs = [f"Titan circles Saturn. It was seen in {year} by an astronomer." for year in (1655, 1671, 1684)]
    documents = [{"id": "titan", "text": "\n\n".join(paragraphs)}, {"id": "io", "text": "Io is not Titan."}]
    index = pyfast.build_index(documents, tmp_path / "index")
    question = {"id": "q0", "question": "Who saw Titan?", "answers": ["x"], "supporting": ["titan"]}
    run = pyfast.answer([question], index=index, llm="instant", system="rag", run=tmp_path / "run")
    starts = sorted(item.offsets[0] for item in run.records[0].evidence if item.uri == "titan")
    assert len(starts) == 3
    facts, of_titan = {"supporting_facts": [["titan", 1]]}, {"sentence_starts": {"titan": starts}}
    other = {"id": "other", "answers": ["y"], **of_titan}  # A question need not repeat the sentences of another.
    for given, marks in (
        ([question], {"1655": "*", "1671": "*"}),
        ([{**question, **facts, **of_titan}], {"1655": "o", "1671": "*"}),
        ([{**question, **facts}, other], {"1655": "o", "1671": "*"}),
    ):
        shown = pyfast.show(run, "q0", given).splitlines()
        assert {year: line[3] for line in shown for year in marks if year in line} == marks
        assert [line[3] for line in shown if "Io is not" in line] == [" "]


async def _unsure(question: Question, ctx: Context, settings: Settings) -> Answer:
    if question.id == "fails":
        raise ValueError("no such moon")
    return Answer({"silent": None, "blank": " "}.get(question.id, "Titan"))


UNSURE = System("unsure", _unsure, Settings, (), needs_index=False)


def test_what_is_no_answer_is_said_in_words(tmp_path: Path) -> None:
    ids = ("silent", "blank", "fails", "answers")
    run = pyfast.answer([{"id": id, "question": "?"} for id in ids], index=None, system=UNSURE, run=tmp_path / "R")
    gold = [{"id": "silent", "answerable": False}, {"id": "answers", "supporting": ["titan"]}]
    told = {
        id: dict(line.split(maxsplit=1) for line in pyfast.show(run, id, gold).splitlines()[1:4]) for id in ids
    }
    assert {id: one["Answer"] for id, one in told.items()} == {
        "silent": "(none: the system abstained)",
        "blank": "(an empty text)",
        "fails": "(none: the question failed)",
        "answers": "Titan",
    }
    assert told["fails"]["Reason"] == "ValueError: no such moon"
    assert told["silent"]["Gold"] == "(none, so abstaining is correct)"
    assert told["answers"]["Gold"] == "(no gold answer)" and "Gold" not in told["blank"]


def test_where_a_missing_index_was_looked_for(
    place: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(place / "run", tmp_path / "elsewhere" / "run")
    recorded = tmp_path / "elsewhere" / "run" / "run.toml"
    text = recorded.read_text()
    index, questions = (tomllib.loads(text)["places"][name] for name in ("index", "questions"))
    recorded.write_text(text.replace(index, "IDX").replace(questions, "q.jsonl"))
    pyfast.show(tmp_path / "elsewhere" / "run", "q0")
    where = f"in {Path.cwd()} or in {tmp_path / 'elsewhere'} or in "
    assert f"the index of this run is missing: there is no IDX {where}" in caplog.text
    assert f"the file of questions of this run is missing: there is no q.jsonl {where}" in caplog.text
    assert "; go to the folder where the run was started or, if the index was moved, repeat" in caplog.text


def test_a_run_finds_its_questions_from_any_folder(
    examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after the folder in which it was started has moved, with the run in it."""
    (tmp_path / "a" / "data").mkdir(parents=True)
    shutil.copy(examples / "questions.jsonl", tmp_path / "a" / "data")
    monkeypatch.chdir(tmp_path / "a")
    pyfast.answer("data/questions.jsonl", llm="instant", system="direct", run="runs/all/one", limit=3)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").rename(tmp_path / "b")
    table = pyfast.Run("b/runs/all/one").to_arrow()
    assert None not in table["question"].to_pylist() and None not in table["em"].to_pylist()


def test_bad_input(place: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no finished question 'nobody'"):
        pyfast.show(place / "run", "nobody")
    (tmp_path / "thesis.html").write_text("<html>mine</html>")
    with pytest.raises(InputError, match="is not the page of a question"):
        pyfast.report(place / "run", tmp_path / "thesis.html", single="q0")
    with pytest.raises(InputError, match="no finished question 'nobody'"):
        pyfast.report(place / "run", tmp_path / "q.html", single="nobody")
    assert not (tmp_path / "q.html").exists()


def test_a_single_question_is_one_file(place: Path, tmp_path: Path) -> None:
    """Nothing to load, and what a question says ends no script."""
    path = pyfast.report(place / "run", tmp_path / "q.html", single="h")
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert [tag for tag, _ in page.tags if tag in ("script", "style", "link")] == [
        *("link", "style", "script", "script", "script")
    ]
    assert not [a for _, a in page.tags if a.get("src") or a.get("href") not in (None, "data:,")]
    data = text.split('id="question">')[1].split("</script>")[0]
    assert json.loads(data)["question"] == HOSTILE["question"] and "<" not in data
    assert pyfast.report(place / "run", path, single="q0") == path  # it replaces its own
