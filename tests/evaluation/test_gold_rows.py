"""A gold table counts as found by the row with the answer, not by any row of it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import pyfast
from pyfast.commands.cli import app
from pyfast.engine import Record
from pyfast.evaluation import evaluate, normalise

ROWS = [("Varn", "North", 12), ("Mell", "South", 40), ("Tarn", "East", 7)]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> pyfast.Index:
    folder = tmp_path_factory.mktemp("corpus")
    with (folder / "lakes.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("Lake", "Place", "Depth"), *ROWS])
    triples = [["Varn", "owned_by", "Ann Author"], ["Mell", "owned_by", "Bob Builder"]]
    graph = {"id": "owners", "kind": "kg", "title": "Owners", "triples": triples}
    (folder / "owners.jsonl").write_text(json.dumps(graph) + "\n")
    (folder / "text.md").write_text("# Lakes\n\nThe lakes are deep.\n")
    return pyfast.build_index(folder, folder.parent / "index")


QUESTIONS = [
    # The question's words lead to the row of Mell, but the gold answer is in the row of Varn.
    {"id": "wrong row", "question": "Mell South 40", "answers": ["12"], "supporting": ["lakes.csv"]},
    {"id": "right row", "question": "Varn North", "answers": ["12", "twelve"], "supporting": ["lakes.csv"]},
    {"id": "no row", "question": "Mell South 40", "answers": ["Danube"], "supporting": ["lakes.csv"]},
    {"id": "wrong triple", "question": "Bob Builder", "answers": ["Ann Author"], "supporting": ["owners"]},
    {"id": "right triple", "question": "Ann Author", "answers": ["ann author"], "supporting": ["owners"]},
    {"id": "text", "question": "Lakes are deep", "answers": ["Danube"], "supporting": ["text.md"]},
    {"id": "named row", "question": "Mell South 40", "answers": ["x"], "supporting": ["lakes.csv"]}
    | {"supporting_facts": [["lakes.csv", 1]]},
    {"id": "other row", "question": "Mell South 40", "answers": ["x"], "supporting": ["lakes.csv"]}
    | {"supporting_facts": [["lakes.csv", 0]]},
    # The table only leads to the answer: the gold names the cell that does.
    {"id": "named cell", "question": "Mell South 40", "answers": ["x"], "supporting": ["lakes.csv"]}
    | {"supporting_cells": {"lakes.csv": ["Danube", "south"]}},
    {"id": "other cell", "question": "Mell South 40", "answers": ["40"], "supporting": ["lakes.csv"]}
    | {"supporting_cells": {"lakes.csv": ["East"]}},
    {"id": "named in triple", "question": "Ann Author", "answers": ["x"], "supporting": ["owners"]}
    | {"supporting_cells": {"owners": ["Varn"]}},
]
RIGHT = {"right row", "no row", "right triple", "text", "named row", "named cell", "named in triple"}


def test_the_row_with_the_answer_counts(
    index: pyfast.Index, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    questions = tmp_path / "q.jsonl"
    questions.write_text("".join(json.dumps(question) + "\n" for question in QUESTIONS))
    run = pyfast.answer(
        questions, index=index, llm="instant", system="rag", settings={"k": 1}, run=tmp_path / "run"
    )
    for record in run.records:  # each question finds one piece of its gold document
        gold = next(one for one in QUESTIONS if one["id"] == record.id)
        assert record.uris == gold["supporting"], record.id
    report = pyfast.evaluate(run, metrics=["evidence"])
    found = {one.id for one in report.questions if one.figures["evidence_recall"] == 1}
    assert found == RIGHT and report.whole_tables == ("no row",)
    assert report.rows[0]["evidence_precision"].value == len(RIGHT) / len(QUESTIONS)
    selection = pyfast.evaluate(run, metrics=["selection"]).rows[0]
    assert selection["selection_recall"].value == selection["selection_f1"].value == len(RIGHT) / len(QUESTIONS)
    assert report.not_indexed == ()
    elsewhere = [{**one, "supporting": ["lakes.csv#Sheet", *one["supporting"]]} for one in QUESTIONS[:2]]
    assert pyfast.evaluate(run, elsewhere, metrics=["evidence"]).not_indexed == ("lakes.csv#Sheet",)
    assert pyfast.evaluate_retrieval(index, elsewhere).not_indexed == ("lakes.csv#Sheet",)
    # A search alone: the gold document comes first if its gold row does.
    retrieval = pyfast.evaluate_retrieval(index, QUESTIONS, at=[1]).settings["retriever=bm25"]
    assert {one.id for one in retrieval.questions if one.figures["recall@1"] == 1} == RIGHT
    # Independent of the code: a right piece has the answer among its words, where one has it at all.
    for record in run.records:
        gold = next(one for one in QUESTIONS if one["id"] == record.id)
        if record.id.endswith(("row", "triple")) and record.id.split()[0] in ("wrong", "right"):
            words = normalise(record.evidence[0].snippet)
            assert any(normalise(answer) in words for answer in gold["answers"]) == (record.id in RIGHT)
    shown = CliRunner().invoke(app, ["evaluate", str(tmp_path / "run"), "--metric", "evidence"]).stdout
    note = "1 question is scored with any row, because no gold row has the answer"
    assert note in shown
    for only in (["--metric", "em_f1"], ["--figure", "em"]):  # without a figure of evidence
        assert note not in CliRunner().invoke(app, ["evaluate", str(tmp_path / "run"), *only]).stdout
    assert (
        note in CliRunner().invoke(app, ["evaluate", str(tmp_path / "run"), "--figure", "evidence_recall"]).stdout
    )
    (tmp_path / "moved").mkdir()
    index.folder.rename(tmp_path / "moved" / "IDX")
    pyfast.evaluate(tmp_path / "run", figures=["em"])
    assert not any("any row of a gold table counts" in message for message in caplog.messages)
    (tmp_path / "moved" / "IDX").rename(index.folder)


def test_a_part_of_a_word_is_no_answer(index: pyfast.Index, tmp_path: Path) -> None:
    questions = tmp_path / "q.jsonl"
    questions.write_text('{"id": "a", "question": "Varn", "answers": ["1"], "supporting": ["lakes.csv"]}\n')
    run = pyfast.answer(
        questions, index=index, llm="instant", system="rag", settings={"k": 1}, run=tmp_path / "run"
    )
    assert pyfast.evaluate(run).whole_tables == ("a",)


def test_without_an_index_rows_that_the_gold_names_count() -> None:
    item = {"uri": "t", "snippet": "Varn\tNorth", "offsets": [0, -1], "header": ["Lake", "Place"]}
    record = Record("a", "answered", "x", evidence_json=json.dumps([item]).encode())
    gold = {"id": "a", "answers": ["x"], "supporting": ["t"]}
    for row, recall in ((0, 1.0), (1, 0.0)):
        report = evaluate([record], [{**gold, "supporting_facts": [["t", row]]}], metrics=["evidence"])
        assert report.rows[0]["evidence_recall"].value == recall
    assert evaluate([record], [gold], metrics=["evidence"]).rows[0]["evidence_recall"].value == 1


def test_an_index_that_is_gone_is_said(
    index: pyfast.Index, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = pyfast.build_index([{"id": "d", "text": "Varn."}], tmp_path / "other")
    questions = tmp_path / "q.jsonl"
    questions.write_text('{"id": "a", "question": "Varn", "answers": ["x"], "supporting": ["d"]}\n')
    run = pyfast.answer(questions, index=other, llm="instant", system="rag", run=tmp_path / "run")
    (tmp_path / "other").rename(tmp_path / "moved")
    assert pyfast.evaluate(run).rows[0]["evidence_recall"].value == 1
    assert any("any row of a gold table counts" in one.getMessage() for one in caplog.records)
