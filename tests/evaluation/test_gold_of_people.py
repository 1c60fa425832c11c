"""Questions and gold answers as people write them: numbers, booleans, other names of columns, no ids."""

from __future__ import annotations

import csv
import hashlib
import json
import logging
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import orjson
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from processes import pyfast as pyfast_command
from typer.testing import CliRunner

import pyfast
from pyfast.api.run import gold_of
from pyfast.commands.cli import app
from pyfast.engine import Record, read_questions
from pyfast.engine.question_files import _TOLD, _say, read_question_records
from pyfast.engine.record import Usage
from pyfast.errors import InputError
from pyfast.evaluation import evaluate
from pyfast.evaluation.cost import cost_of
from pyfast.evaluation.gold import Gold, read_gold
from pyfast.evaluation.metrics import hotpotqa
from pyfast.reports import wrong_questions

ASKED = "When did Apollo 15 land?"


def jsonl(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def book_of(path: Path, *rows: tuple[Any, ...]) -> Path:
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.save(path)
    return path


def answers(path: Path) -> dict[str, tuple[str, ...]]:
    return {one.id: one.answers for one in read_gold(path)}


def test_numbers_and_booleans_are_their_texts(tmp_path: Path) -> None:
    given = {
        "i": [1971],
        "t": [True],
        "f": False,
        "d": [2.5],
        "w": 3.0,
        "n": [None, "x", " "],
        "s": {"text": ["y"]},
    }
    path = jsonl(tmp_path / "q.jsonl", *({"id": id, "question": ASKED, "answers": a} for id, a in given.items()))
    right = {"i": ("1971",), "t": ("yes",), "f": ("no",), "d": ("2.5",), "w": ("3",), "n": ("x",), "s": ("y",)}
    assert answers(path) == right
    written = (
        '{"id": "p", "question": "?", "answers": 3.50}\n'
        '{"id": "z", "question": "?", "answers": [0.10, 1e23, 5.0]}\n'
        '{"id": "l", "question": "?", "answers": 12345678901234567890123, "price": 3.50}\n'
        '{"id": "t", "turns": [{"question": "?", "answers": [2.50]}]}\n'
    )
    (tmp_path / "digits.jsonl").write_text(written)
    assert answers(tmp_path / "digits.jsonl") == {
        "p": ("3.50",),
        "z": ("0.10", "100000000000000000000000", "5"),
        "l": ("12345678901234567890123",),
        "t-1": ("2.50",),
    }
    records = [Record("i", "answered", "1971"), Record("t", "answered", "Yes.")]
    assert evaluate(records, path).rows[0]["em"].value == 1


def test_odd_fields_beside_numbers_of_gold(tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text('{"id": "a", "question": "?", "answers": 3.5, "turns": 5}\n')
    assert answers(tmp_path / "q.jsonl") == {"a": ("3.5",)}
    (tmp_path / "q.jsonl").write_text(f'{{"id": "a", "question": "?", "answers": {"9" * 5000}}}\n')
    with pytest.raises(InputError, match=r"q\.jsonl, line 1: not JSON"):
        answers(tmp_path / "q.jsonl")


def test_gold_of_columns_needs_an_id(tmp_path: Path) -> None:
    """Else the gold of the fifteenth question would be that of the first."""
    asked = tmp_path / "q.csv"
    asked.write_text("No,Ask,Gold\n15,Where?,Oslo\n9,When?,1971\n")
    options = pyfast.RunOptions(columns={"id": "No", "question": "Ask", "answers": "Gold"})
    run = pyfast.answer(asked, index=None, llm="instant", system="direct", run=tmp_path / "R", options=options)
    (tmp_path / "gold.csv").write_text("Nr,Gold\n15,Oslo\n9,1971\n")
    with pytest.raises(InputError, match="line 2: no `id`, and no `question` to make one from"):
        pyfast.evaluate(run, tmp_path / "gold.csv")


def test_the_columns_of_a_gold_file_are_named(tmp_path: Path) -> None:
    """The names that the run was started with still apply; those of the gold file come first."""
    asked, gold = tmp_path / "q.csv", tmp_path / "gold.csv"
    asked.write_text("No,Ask\n15,Where?\n9,When?\n")
    options = pyfast.RunOptions(columns={"id": "No", "question": "Ask"})
    run = pyfast.answer(asked, index=None, llm="instant", system="direct", run=tmp_path / "R", options=options)
    right = {record.id: record.answer for record in run.records}
    gold.write_text(f"No,Antwort,answers\n15,{right['15']},Rome\n9,1971,1900\n")
    report = pyfast.evaluate(run, (gold, {"answers": "Antwort"}))
    assert {one.id: one.figures["em"] for one in report.questions} == {"15": 1, "9": 0}
    for command in (["evaluate", "--json"], ["show", "15"], ["export", "--out", str(tmp_path / "out.jsonl")]):
        name, *more = command
        given = [name, str(run.path), *more, "--gold", str(gold), "--column", "answers=Antwort"]
        done = CliRunner().invoke(app, given)
        assert done.exit_code == 0 and (name != "evaluate" or '"em":{"value":0.5' in done.output), done.output
    first = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])
    assert first["gold"] == [right["15"]] and first["em"] == 1
    refused = CliRunner().invoke(app, ["evaluate", str(run.path), "--column", "answers=Antwort"])
    assert isinstance(refused.exception, InputError) and "only be used with --gold" in str(refused.exception)
    with pytest.raises(InputError, match="there is no column 'Anwort'; did you mean Antwort"):
        pyfast.evaluate(run, (gold, {"answers": "Anwort"}))


def test_values_of_pandas_in_mappings(tmp_path: Path) -> None:
    days = [datetime(2026, 1, 22), pd.Timestamp(2026, 1, 22), pd.NA, pd.NaT]
    asked = [{"id": str(n), "question": ASKED, "answers": day, "team": np.nan} for n, day in enumerate(days)]
    run = pyfast.answer(asked, index=None, llm="instant", system="direct", settings={})
    assert [one.answers for one in read_gold(asked)] == [("2026-01-22",), ("2026-01-22",), (), ()]
    assert run.to_pandas()["team"].isna().all()


def test_a_file_of_questions_is_read_the_same_for_a_run_in_memory(tmp_path: Path) -> None:
    """Its gold, and its own columns, as for a run in a folder; and gold.jsonl beside it comes first."""
    asked = tmp_path / "q.csv"
    asked.write_text("id,question,answer,team\na,Where?,Oslo,red\nb,When?,1971,\n")
    answer = partial(pyfast.answer, asked, index=None, llm="instant", system="direct")
    there, here = answer(run=tmp_path / "R").to_pandas(), answer().to_pandas()
    columns = ["id", "question", "gold", "em", "f1", "team"]
    assert here[columns].to_csv() == there[columns].to_csv()
    assert here["gold"].tolist() == [["Oslo"], ["1971"]]
    jsonl(tmp_path / "gold.jsonl", {"id": "a", "question": "Where?", "answers": ["Rome"]})
    [gold] = read_gold(gold_of(answer(), None))
    assert gold.answers == ("Rome",)


@pytest.mark.parametrize("name", ["answer", "expected", "gold", "golden_answers"])
def test_a_field_that_takes_the_place_of_answers_is_said(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = jsonl(tmp_path / "q.jsonl", {"id": "a", "question": ASKED, name: 1971})
    with caplog.at_level(logging.WARNING, "pyfast"):
        assert answers(path) == {"a": ("1971",)} == answers(path)
    assert [f"the gold answers are taken from `{name}`" in one.getMessage() for one in caplog.records] == [True]
    both = jsonl(tmp_path / "both.jsonl", {"id": "a", "question": ASKED, name: "wrong", "answers": ["right"]})
    assert answers(both) == {"a": ("right",)}


def written(path: Path, names: tuple[str, ...], *rows: tuple[Any, ...]) -> Path:
    """Write a table in the format of the file's name. In JSON lines, what is None is left out."""
    if path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows((names, *rows))
    elif path.suffix == ".xlsx":
        book_of(path, names, *rows)
    elif path.suffix == ".parquet":
        pq.write_table(pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))), path)
    else:
        records = (dict(zip(names, row, strict=True)) for row in rows)
        jsonl(path, *({name: it for name, it in record.items() if it is not None} for record in records))
    return path


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "xlsx"])
def test_the_gold_of_a_file_is_one_column(kind: str, tmp_path: Path) -> None:
    """A question without gold never uses another column instead, wherever it is in the file."""
    rows = [("a", ASKED, None, "draft"), ("b", "Who?", "Ada", "Eve"), ("c", "When?", None, "1970")]
    for name, other in (("answers", "answer"), ("gold", "answer"), ("expected", "gold")):
        path = written(tmp_path / f"{name}.{kind}", ("id", "question", name, other), *rows)
        assert answers(path) == {"a": (), "b": ("Ada",), "c": ()}
    path = written(tmp_path / f"mapped.{kind}", ("id", "question", "Expected answer", "answer"), *rows)
    columns = {"answers": "Expected answer"}
    for limit in (1, 3):
        run = tmp_path / f"run{limit}"
        options = pyfast.RunOptions(columns=columns)
        done = pyfast.answer(path, llm="instant", system="direct", run=run, options=options, limit=limit)
        assert done.to_arrow()["question.answer"].to_pylist() == [row[3] for row in rows[:limit]]
    for gold in (None, path):
        assert pyfast.evaluate(run, gold).without_gold == ("a", "c")
    with pytest.raises(InputError, match="no `answers` to the 1 finished question"):
        pyfast.evaluate(tmp_path / "run1")
    mixed = [("a", "Who?", "Ada", None), ("b", None, None, "Who else?")]
    path = written(tmp_path / f"asked.{kind}", ("id", "Frage", "answers", "question"), *mixed)
    with pytest.raises(InputError, match="expected a `question`"):
        list(read_questions(path, columns={"question": "Frage"}))


def test_gold_in_memory_and_of_turns_is_one_field(tmp_path: Path) -> None:
    gold = [{"id": "a", "answer": "the run's own"}, {"id": "b", "gold": ["x"], "answer": "y"}]
    assert [one.answers for one in read_gold(gold)] == [(), ("x",)]
    turns = [{"question": "Who?", "answer": "y"}, {"question": "When?", "answers": "1970", "answer": "z"}]
    path = jsonl(tmp_path / "c.jsonl", {"id": "c", "turns": turns[:1]}, {"id": "d", "turns": turns[1:]})
    assert answers(path) == {"c-1": (), "d-1": ("1970",)}


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "xlsx"])
def test_the_results_of_a_run_are_gold_for_it(kind: str, tmp_path: Path) -> None:
    rows = (("1", ASKED, "1971"), ("2", "Who?", None))
    asked = written(tmp_path / "q.csv", ("id", "question", "answers"), *rows)
    run, out = tmp_path / "run", tmp_path / f"out.{kind}"
    pyfast.answer(asked, llm="instant", system="direct", run=run)
    pyfast.export([run], out)
    assert pyfast.evaluate(run, out).without_gold == ("2",)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "xlsx"])
def test_ids_are_made_of_the_texts_where_there_are_none(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / f"q.{kind}"
    rows = [(ASKED, "1971"), ("Did it return?", "yes"), ("Why, then?", None)]
    if kind == "csv":
        path.write_text('Question,Expected\nWhen did Apollo 15 land?,1971\nDid it return?,yes\n"Why, then?",\n')
    elif kind == "parquet":
        table = {"question": [asked for asked, _ in rows], "expected": [right for _, right in rows]}
        pq.write_table(pa.table(table), path)
    elif kind == "xlsx":
        book_of(
            path, ("Question", "Expected"), *((asked, 1971 if right == "1971" else right) for asked, right in rows)
        )
    else:
        jsonl(path, *({"question": asked, "expected": right} for asked, right in rows))
    with caplog.at_level(logging.WARNING, "pyfast"):
        asked = list(read_questions(path))
    assert [one.text for one in asked] == [ASKED, "Did it return?", "Why, then?"]
    ids = [hashlib.blake2b(one.text.encode(), digest_size=6).hexdigest() for one in asked]
    assert [one.id for one in asked] == ids
    assert any("no `id`" in one.getMessage() for one in caplog.records)
    assert answers(path) == dict(zip(ids, [("1971",), ("yes",), ()], strict=True))
    run = tmp_path / "run"
    pyfast.answer(path, llm="instant", system="direct", run=run)
    report = pyfast.evaluate(run)
    assert report.without_gold == (ids[2],) and report.rows[0].questions == 2
    done = CliRunner().invoke(app, ["evaluate", str(run)])
    assert f"1 question has no gold and is not scored: {ids[2]}" in done.stdout


def test_a_sheet_of_questions(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Lists, numbers as they are shown, the first sheet alone; a formula without a value is no answer."""
    path = book_of(
        tmp_path / "q.xlsx", ("ID", "Question ", "answers"), ("007", ASKED, '["Oslo", "x"]'), (8, "When?", 2.5)
    )
    assert answers(path) == {"007": ("Oslo", "x"), "8": ("2.5",)}
    book = openpyxl.load_workbook(path)
    book["Sheet"]["C3"].number_format = "0.00%"
    book.create_sheet("more").append(["id"])
    book.save(path)
    assert answers(path)["8"] == ("250.00%",) and "1 more sheet is not read" in caplog.text
    book["Sheet"]["C3"] = "=1+1"
    book.save(path)
    with pytest.raises(InputError, match="C3: a formula has no stored value"):
        answers(path)
    for column, is_own in (("D", True), ("A", False), ("B", False)):
        book = openpyxl.Workbook()
        book.active.append(("id", "question", "answers", "days left"))
        book.active.append(("1", "Who?", "he"))
        book.active[f"{column}3"], book.active["D1" if is_own else "D2"] = "=1+1", "left"
        book.save(path)
        if is_own:
            assert list(answers(path)) == ["1"]
            assert f"{path}: formulas have no stored value and count as empty cells: D3; save" in caplog.text
        else:
            with pytest.raises(InputError, match=f"{column}3: a formula has no stored value"):
                answers(path)
    path.write_bytes(b"no archive")
    with pytest.raises(InputError, match=r"q\.xlsx cannot be read: File is not a zip file"):
        answers(path)


def test_questions_on_another_sheet_and_below_titles(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "q.xlsx"
    book = openpyxl.Workbook()
    book.active.append(["Questions of the south", "Type"])
    for title in ("Asked", "Asked later"):
        sheet = book.create_sheet(title)
        for row in ((), ("", "Questions of May"), (), ("", "Question", "Answer"), ("", f"{title}?", "no")):
            sheet.append(row)
        sheet.merge_cells("B2:C2")
    book.save(path)
    assert [one.text for one in read_questions(path)] == ["Asked?"] and [*answers(path).values()] == [("no",)]
    chosen = "only the sheet 'Asked' is read (the first with the columns of questions); 2 more sheets are not read"
    assert f"{path}: {chosen}" in caplog.messages
    assert f"{path}: row 4 contains the column names; the rows above it are left out" in caplog.messages
    book["Asked"]["B4"] = "Frage"
    book.save(path)
    assert [one.text for one in read_questions(path, columns={"question": "Frage"})] == ["Asked?"]
    assert [one.text for one in read_questions(path)] == ["Asked later?"]
    titled = tmp_path / "q.csv"
    titled.write_text("Questions of May\n\nid,question,answer\n1,Who?,question\n2,Why?,x\n")
    assert answers(titled) == {"1": ("question",), "2": ("x",)}
    titled.write_text("id,answers\n1,question\n2,x\n")
    assert answers(titled) == {"1": ("question",), "2": ("x",)}


def test_columns_are_named_below_titles(tmp_path: Path) -> None:
    rows = ("Nr", "Question text", "Expected answer"), (1, "Who?", "He"), (2, "When?", None)
    path = book_of(tmp_path / "q.xlsx", ("Questions of May",), (), *rows)
    with pytest.raises(InputError, match="no column 'Question txt'; did you mean Question text"):
        list(read_questions(path, columns={"question": "Question txt"}))
    with pytest.raises(InputError, match=r"row 4: expected a `question`.* \(it has: Nr, Question text"):
        list(read_questions(path))
    columns = {"id": "Nr", "question": "Question text", "answers": "Expected answer"}
    expected = pyfast.estimate(path, system="direct", columns=columns)
    assert expected.questions == 2
    options = pyfast.RunOptions(columns=columns)
    pyfast.answer(path, llm="instant", system="direct", run=tmp_path / "run", options=options)
    columns_of = [f"--column={name}={column}" for name, column in columns.items()]
    done = pyfast_command("estimate", "--questions", path, "--from", tmp_path / "run", *columns_of)
    assert done.stdout.startswith("estimate for 2 questions"), done.stderr
    tried = ["answer", path, "--system", "direct", "--dry-run", "--reuse", tmp_path / "run", *columns_of]
    assert pyfast_command(*tried).stdout.splitlines()[-1] == (
        "this estimate counts replies reused with --reuse as new LLM calls"
    )
    with pytest.raises(InputError, match="can only be used with a question file"):
        pyfast.estimate(3, columns=columns, based_on=tmp_path / "run", system="direct")


def test_notes_below_the_questions_of_a_sheet(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [("Nr", "question", "answer"), (1, "Who?", "He"), (), ("Sent by Ada",), ("on 3 May",)]
    path = book_of(tmp_path / "q.xlsx", *rows)
    assert [one.text for one in read_questions(path)] == ["Who?"] and len(answers(path)) == 1
    assert f"{path}: rows with text only in their first column are left out: 4, 5" in caplog.messages
    for more in ((2,), (2, None, "1970")):  # A question may be missing in the middle or beside gold.
        path = book_of(tmp_path / "more.xlsx", *rows, more, (3, "When?", "1970"))
        with pytest.raises(InputError, match="row 6: expected a `question`"):
            list(read_questions(path))


def test_a_date_in_a_column_that_was_named(tmp_path: Path) -> None:
    """It also has the form of prompts; a column of the asker's own has only that of the sheet."""
    path = book_of(tmp_path / "q.xlsx", ("id", "Frage", "Antwort", "answer"), ("a", "When?", "x", "y"))
    book = openpyxl.load_workbook(path)
    for cell in ("C2", "D2"):
        book.active[cell], book.active[cell].number_format = date(2025, 3, 14), "dd.mm.yyyy"
    book.save(path)
    columns = {"question": "Frage", "answers": "Antwort"}
    options = pyfast.RunOptions(columns=columns)
    run = pyfast.answer(path, llm="instant", system="direct", run=tmp_path / "run", options=options)
    for gold in (None, path):
        (row,) = run.to_arrow(gold).to_pylist()
        assert row["gold"] == ["14.03.2025", "2025-03-14"] and row["question.answer"] == "14.03.2025"


def test_one_uri_needs_no_list(tmp_path: Path) -> None:
    rows = [("a", "Who?", "x.md", "y.md"), ("b", "When?", '["x.md", "y.md"]', None)]
    path = written(tmp_path / "q.csv", ("id", "question", "documents", "supporting"), *rows)
    assert [one.documents for one in read_questions(path)] == [("x.md",), ("x.md", "y.md")]
    assert [one.supporting for one in read_gold(path)] == [("y.md",), None]
    done = pyfast.answer([{"id": "a", "question": "Who?", "documents": "x.md"}], llm="instant", system="direct")
    assert done._questions is not None and [one.documents for one in done._questions.read()] == [("x.md",)]


def test_the_command_says_where_the_gold_is_and_what_it_made(tmp_path: Path) -> None:
    path = book_of(tmp_path / "q.xlsx", ("question", "answer"), (ASKED, "no"))
    assert (
        pyfast_command(
            "answer", path, "--llm", "instant", "--system", "direct", "--run", tmp_path / "run"
        ).returncode
        == 0
    )
    done = pyfast_command("evaluate", tmp_path / "run")
    assert done.returncode == 0 and "f1" in done.stdout
    assert done.stderr == f"the gold answers come from {path}\n"


def test_turns_without_ids_get_them(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "c.jsonl", {"turns": [{"question": "Who?", "answer": 7}, {"question": "When?"}]})
    first, second = read_questions(path)
    assert first.id.removesuffix("-1") == second.id.removesuffix("-2")
    assert (first.answers, second.answers) == (("7",), ())
    assert answers(path) == {first.id: ("7",), second.id: ()}


def test_rows_that_are_added_or_sorted_change_no_id(tmp_path: Path) -> None:
    """A run keeps its gold, and two runs compare the same questions."""
    rows = [("Who?", "Ada"), ("Where?", "Rome"), ("Who?", "Eve")]
    path = book_of(tmp_path / "q.xlsx", ("question", "answer"), *rows)
    before = answers(path)
    assert sorted(before.values()) == [("Ada",), ("Eve",), ("Rome",)] and len(set(before)) == 3
    after = answers(
        book_of(tmp_path / "q.xlsx", ("question", "answer"), ("When?", "1971"), *rows[1:2], *rows[::2])
    )
    assert before.items() <= after.items() and len(after) == 4


def test_what_has_no_gold_is_counted_and_not_scored() -> None:
    gold = [
        {"id": "a", "answers": ["x"]},
        {"id": "b", "answers": None},
        {"id": "c", "answers": []},
        {"id": "d"},
        {"id": "e", "supporting": ["u"]},
        {"id": "f", "answers": [], "answerable": False},
    ]
    states = {**dict.fromkeys("abcde", "answered"), "f": "abstained"}
    evidence = b'[{"uri": "u"}]'
    records = [
        Record(id, state, "x" if state == "answered" else None, evidence_json=evidence)
        for id, state in states.items()
    ]
    report = evaluate(records, gold)
    assert report.without_gold == ("b", "c", "d") and report.as_json()["without_gold"] == ["b", "c", "d"]
    assert report.rows[0]["em"].questions == 2 and report.rows[0]["em"].value == 1
    assert report.rows[0]["evidence_recall"].questions == 1
    with pytest.raises(InputError, match="no `answers` to the 1 finished question, only the columns id;"):
        evaluate(records, gold[1:2])


def test_what_has_no_line_in_the_gold_is_counted_and_named(tmp_path: Path) -> None:
    asked = jsonl(tmp_path / "q.jsonl", *({"id": id, "question": ASKED} for id in "abcd"))
    jsonl(tmp_path / "gold.jsonl", {"id": "b", "answers": ["x"]}, {"id": "c"}, {"id": "e", "answers": ["x"]})
    pyfast.answer(asked, llm="instant", system="direct", run=tmp_path / "run")
    report = pyfast.evaluate(tmp_path / "run")
    assert report.without_gold == ("c", "a", "d") and report.not_run == ("e",)
    assert sum(report.states.values()) == report.rows[0].questions == 1
    done = CliRunner().invoke(app, ["evaluate", str(tmp_path / "run")])
    assert "3 questions have no gold and are not scored: c, a, d" in done.stdout
    pyfast.answer(asked, llm="instant", system="direct", run=tmp_path / "other")
    done = CliRunner().invoke(app, ["compare", str(tmp_path / "run"), str(tmp_path / "other")])
    assert "3 questions have no gold and are not scored: c, a, d" in done.stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,question,answers\n1,Who, then?,Ann\n", "line 2: expected 3 cells, got 4"),
        ('id,question,answers\n1,"Who?,Ann\n', "line 2: an unclosed quote"),
        ("id,question,answers,answers\n1,Who?,Ann,Bob\n", "line 1: two columns are called 'answers'"),
    ],
)
def test_cells_under_the_wrong_column_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "q.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        list(read_questions(path))


def table_of(path: Path, column: str, *cells: str) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(
            [("id", "question", column), *((f"{k}", ASKED, c) for k, c in enumerate(cells))]
        )
    return path


LISTS = [["Oslo", "Kristiania"], ["it's", 'a "b"'], ["Oslo"], [], ["Oslo", None], [1971, "x"], {"text": ["Oslo"]}]


def test_lists_that_python_wrote_are_lists(tmp_path: Path) -> None:
    """`DataFrame.to_csv` writes a list as Python shows it."""
    path = table_of(tmp_path / "q.csv", "answers", *map(repr, LISTS), "('Oslo', 'x')", '["Oslo", NaN]')
    right = [("Oslo", "Kristiania"), ("it's", 'a "b"'), ("Oslo",), (), ("Oslo",), ("1971", "x"), ("Oslo",)]
    assert list(answers(path).values()) == [*right, ("Oslo", "x"), ("Oslo",)]
    records = [Record("0", "answered", "Kristiania")]
    assert evaluate(records, path).rows[0]["em"].value == 1
    facts = table_of(tmp_path / "f.csv", "supporting_facts", repr([("a.md", 0), ("b.md", 2)]))
    assert [one.supporting_facts for one in read_gold(facts)] == [(("a.md", 0), ("b.md", 2))]
    documents = table_of(tmp_path / "d.tsv", "documents", repr(["a.md"]))
    documents.write_text(documents.read_text().replace(",", "\t"))
    assert [record["documents"] for _, record in read_question_records(documents)] == [["a.md"]]


TEXTS = [
    "[sic] Oslo",
    "(Oslo)",
    "[Oslo]",
    "{1, 2}",
    "[2, 5)",
    "(3, 4)",
    "{x}",
    "[f(2)]",
    "('Oslo' then)",
    "[None of it]",
]


def test_texts_in_brackets_stay_texts(tmp_path: Path) -> None:
    path = table_of(tmp_path / "q.csv", "answers", *TEXTS)
    assert list(answers(path).values()) == [(text,) for text in TEXTS]


@pytest.mark.parametrize(
    "cell",
    [
        "['Oslo' 'Kristiania']",
        str(np.array(["Oslo" * 20, "Kristiania" * 9], dtype=object)),
        str(np.array(["Oslo", None, 'a "b"'], dtype=object)),
        str(np.array([1971, 1972])),
        repr([np.str_("Oslo")]).replace("['Oslo']", "[np.str_('Oslo')]"),
        "{'text': array(['Oslo'], dtype=object)}",
        "['Oslo', nan]",
        "['Oslo','Kristiania']",
        "{'Oslo', 'Kristiania'}",
        '["Oslo", "Kristiania",]',
        '["Oslo", "Kristiania"',
        "['Oslo",
        "[“Köln”, “Cologne”]",
        "[„Köln“]",
        "[«Oslo», «Christiania»]",
        repr(["Oslo" * 200_000, "x" * 400_000]),
    ],
)
def test_lists_of_other_programs_are_refused_and_named(cell: str, tmp_path: Path) -> None:
    path = table_of(tmp_path / "q.csv", "answers", "Oslo", cell)
    with pytest.raises(InputError) as refused:
        answers(path)
    said = str(refused.value)
    assert said.startswith(f"{path}, line 3, column 'answers': ") and said.endswith("write it as JSON")
    assert len(said.splitlines()) == 1 and len(said) < len(str(path)) + 150


def test_columns_with_capital_letters(tmp_path: Path) -> None:
    rows = 'ID\tQuestion\tAnswer\tType\tSupporting\n1\tWho?\tHuygens\twho\t["titan"]\n2\tWhen?\t1655\tyear\t\n'
    (tmp_path / "q.tsv").write_text(rows)
    one, two = read_gold(tmp_path / "q.tsv")
    assert (one.type, one.supporting, two.type) == ("who", ("titan",), "year")


def test_gold_with_evidence_alone_is_scored_by_the_script_of_hotpotqa() -> None:
    gold = Gold(id="q", supporting_facts=(("a", 0),), sentence_starts={"a": (0, 10)})
    evidence = [
        {"uri": "a", "offsets": [0, 9], "snippet": "Rain fell", "level": "sentence", "id": "0", "score": 1}
    ]
    record = Record("q", "answered", "Io", None, orjson.dumps(evidence))
    (values,) = hotpotqa([(record, gold)])
    assert values is not None and values["sp_em"] == 1.0 and "em" not in values and "joint_em" not in values
    assert hotpotqa([(record, Gold(id="q"))]) == [None]


def test_a_file_whose_questions_have_changed_since_the_run(
    small: pyfast.Index, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The run keeps its texts. Corrected gold and later questions are no change."""
    path, run = tmp_path / "q.csv", tmp_path / "run"
    header, first = "id,question,answer\n", "a,Who discovered Titan?,Huygens\n"
    path.write_text(f"{header}{first}b,Who discovered Pluto?,Tombaugh\n", encoding="utf-8")
    pyfast.answer(path, index=small, llm="instant", run=run)
    caplog.set_level(logging.WARNING, "pyfast")

    def exported() -> list[str | None]:
        caplog.clear()
        return pyfast.Run(run).to_arrow().column("question").to_pylist()

    path.write_text(f"{header}{first}b,Who discovered Pluto?,Clyde Tombaugh\nc,When?,1930\n", encoding="utf-8")
    assert exported() == ["Who discovered Titan?", "Who discovered Pluto?"] and not caplog.messages
    path.write_text(f"{header}{first}b,Who discovered Ceres?,Piazzi\n", encoding="utf-8")
    assert exported() == ["Who discovered Titan?", "Who discovered Pluto?"]
    assert caplog.messages == [
        f"{path}: the wording of 1 question differs from that in the run {run};"
        " their gold answers may have changed too"
    ]
    path.unlink()
    assert exported() == ["Who discovered Titan?", "Who discovered Pluto?"] and "is missing" in caplog.text


@pytest.mark.parametrize("ids", [True, False], ids=["ids", "no ids"])
def test_a_run_keeps_its_questions(ids: bool, small: pyfast.Index, tmp_path: Path) -> None:
    """Rows are reworded, inserted, sorted and deleted, and a conversation loses a turn."""
    names = ["a", "b", "c"]
    rows: list[dict[str, Any]] = [{"question": f"Who discovered {moon}?"} for moon in ("Titan", "Io", "Rhea")]
    turns = [{"question": "Who discovered it?"}, {"question": "When?", "answers": ["1655"]}]
    rows = [{"id": name, **row} for name, row in zip(names, rows, strict=True)] if ids else rows
    path, run = tmp_path / "q.jsonl", tmp_path / "run"

    def write(*lines: dict[str, Any]) -> None:
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")

    write(*rows, {"id": "talk", "turns": turns})
    pyfast.answer(path, index=small, llm="instant", run=run, system="rag", limit=2)
    pyfast.answer(path, index=small, llm="instant", run=run, system="rag")
    texts = [row["question"] for row in (*rows, *turns)]
    write({"id": "talk", "turns": turns[1:]}, rows[2], {"question": "Why?"}, {**rows[0], "question": "Where?"})
    assert pyfast.Run(run).to_arrow().column("question").to_pylist() == texts
    for record, text in zip(pyfast.Run(run).records, texts, strict=True):
        assert text in pyfast.show(run, record.id)
    assert next(check for check in pyfast.verify(run).checks if check.name == "questions.jsonl").passed


def test_questions_of_the_user_in_the_folder_of_a_run(small: pyfast.Index, tmp_path: Path) -> None:
    """They are not replaced by those that a new run keeps. If the run asks them, it keeps this file."""
    path = tmp_path / "questions.jsonl"
    path.write_text('{"id": "a", "question": "Who?", "answers": ["He"]}\n', encoding="utf-8")
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"would replace its questions\.jsonl; choose another folder"):
        pyfast.answer(["Where?"], index=small, llm="instant", run=tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [path.name] and path.read_bytes() == before
    for _ in range(2):
        pyfast.answer(path, index=small, llm="instant", run=tmp_path)
        assert path.read_bytes() == before and pyfast.verify(tmp_path).summary
    assert pyfast.Run(tmp_path).to_arrow()["question"].to_pylist() == ["Who?"]


@pytest.mark.parametrize("limit", [1, 2])
def test_a_gold_column_with_another_name(limit: int, small: pyfast.Index, tmp_path: Path) -> None:
    """Where no gold is found, the columns are named, however many questions are finished."""
    asked, run = tmp_path / "q.csv", tmp_path / "run"
    asked.write_text(
        "question,Expected answer\nWho found Titan?,Huygens\nWho found Io?,Galilei\n", encoding="utf-8"
    )
    given: dict[str, Any] = {"index": small, "llm": "instant", "run": run, "limit": limit}
    pyfast.answer(asked, **given)
    which = "1 finished question" if limit == 1 else "2 finished questions"
    told = f"no `answers` to the {which}, only the columns Expected answer, id, question; if .*--column answers="
    for look in (pyfast.evaluate, wrong_questions):
        with pytest.raises(InputError, match=told):
            look(run)
    pyfast.answer(asked, **given, options=pyfast.RunOptions(columns={"answers": "Expected answer"}))
    assert pyfast.evaluate(run).rows[0].questions == limit


@pytest.mark.parametrize("name", ["q.csv", "q.xlsx", "q.parquet", "q.jsonl"])
def test_own_columns_without_any_value(name: str, small: pyfast.Index, tmp_path: Path) -> None:
    """They are exported too, from a file of any kind. A column of pyfast's without a value is no gold."""
    path, run = tmp_path / name, tmp_path / "run"
    columns = ("id", "question", "answers", "type", "remark", "due")
    rows = [("a", "Who found Titan?", "Huygens", None, None, None), ("b", "Who found Io?", None, None, None, None)]
    if name == "q.csv":
        with path.open("w", newline="") as file:
            csv.writer(file).writerows((columns, *rows))
    elif name == "q.xlsx":
        book_of(path, columns, *rows)
    elif name == "q.parquet":
        pq.write_table(pa.table(dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True))), path)
    else:
        jsonl(path, *(dict(zip(columns, row, strict=True)) for row in rows))
    done = pyfast.answer(path, index=small, llm="instant", run=run, limit=2)
    table = done.to_arrow()
    assert {"remark", "due"} <= set(table.column_names) and table["remark"].to_pylist() == [None, None]
    assert pyfast.evaluate(run).without_gold == ("b",)


def test_what_is_unusual_about_a_file_is_said_once(tmp_path: Path) -> None:
    """By `answer`; later commands say it only of another file."""
    (tmp_path / "q.csv").write_text("question,answer\nWho?,He\n", encoding="utf-8")
    (tmp_path / "g.csv").write_text("question,answer\nWho?,She\n", encoding="utf-8")
    answering = ["answer", "q.csv", "--system", "direct", "--llm", "instant", "--run", "run"]
    lines = [
        pyfast_command(*line, cwd=tmp_path).stderr
        for line in (
            answering,
            ["evaluate", "run"],
            ["export", "run", "--out", "x.csv"],
            ["evaluate", "run", "--gold", "g.csv"],
        )
    ]
    said = [(text.count("no `id`"), text.count("no field `answers`")) for text in lines]
    assert said == [(1, 1), (0, 0), (0, 0), (1, 1)]


def test_an_unmapped_column_is_named_in_the_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = ("Nr", "Abteilung", "Frage", "Erwartet"), ("F1", "HR", "Wer leitet Polarstern?", "Jana; die Leiterin")
    for path in (written(tmp_path / "q.csv", *rows), tmp_path / "q.xlsx"):
        if path.suffix == ".xlsx":
            book = openpyxl.Workbook()
            book.active.append(["Fragenkatalog"])
            for row in rows:
                book["Fragen"].append(row) if "Fragen" in book.sheetnames else book.create_sheet("Fragen").append(
                    row
                )
            book.save(path)
        with pytest.raises(InputError) as fault:
            list(read_questions(path))
        said = str(fault.value)
        assert "(it has: Nr, Abteilung, Frage, Erwartet); name the column" in said
        assert "--column question=Frage (in Python, columns={'question': 'Frage'})" in said
        assert ("which also chooses the sheet" in said) == (path.suffix == ".xlsx")
        assert [one.text for one in read_questions(path, columns={"question": "Frage"})] == [
            "Wer leitet Polarstern?"
        ]
    assert "'Fragen' is read (no sheet has a column `question`)" in caplog.text
    written(tmp_path / "q.csv", ("Nr", "question", "Team"), ("F1", "", "HR"))
    with pytest.raises(InputError, match=r"non-empty string \(it has: Nr, Team\)$"):
        list(read_questions(tmp_path / "q.csv"))


def test_names_of_groups_between_the_questions_of_a_sheet(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [("id", "question", "answer", "Team"), ("Personal",), ("F1", "Who?", "He", "x"), ("Block 2",)]
    path = book_of(tmp_path / "q.xlsx", *rows, ("F2", "When?", "1970", None), ("by Ada",))
    assert [one.id for one in read_questions(path)] == ["F1", "F2"]
    assert f"{path}: rows with text only in their first column are left out: 2, 4, 6" in caplog.messages
    path = book_of(tmp_path / "more.xlsx", *rows, ("F2",), ("F3", "When?", None, None))
    with pytest.raises(
        InputError, match=r"row 5: expected a `question` that is a non-empty string \(it has: id\)$"
    ):
        list(read_questions(path))


def test_what_is_said_of_ids_and_of_cells_with_several_answers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    long = "It left the harbour in the early morning of that day; nobody saw it"
    cells = ["zwölf; 12", "90 Tage\n3 Monate", long, '["a; b", "c"]', ";", "Odda|Odda town", "one"]
    rows = [("" if number == 2 else number, f"Who {number}?", cell) for number, cell in enumerate(cells)]
    path = written(tmp_path / "q.csv", ("id", "question", "answers"), *rows)
    assert len(list(read_questions(path))) == len(list(read_gold(path))) == 7
    assert [message for message in caplog.messages if "made" in message or "makes" in message] == [
        f"{path}: 1 of 7 questions have no `id`; pyfast makes one from the question's text"
    ]
    said = [message for message in caplog.messages if "line break" in message]
    assert len(said) == 1 and said[0].startswith(
        f"{path}: gold answers that contain `;`, `|` or a line break: 3; each"
    )


def test_gold_without_answers_is_not_announced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = written(tmp_path / "q.csv", ("id", "question"), ("a", "Who?"))
    run = pyfast.answer(path, llm="instant", system="direct", run=tmp_path / "run")
    caplog.set_level("INFO")
    with pytest.raises(InputError, match="there are no `answers`"):
        pyfast.evaluate(run)
    assert "the gold answers come from" not in caplog.text


def test_only_questions_with_gold_answers_are_right_or_wrong() -> None:
    gold = [{"id": "a", "answers": ["x"]}, {"id": "b", "answers": ["y"]}, {"id": "c", "supporting": ["u"]}]
    records = {id: Record(id, "answered", "x", usage=Usage(llm_calls=1)) for id in "abc"}
    cost = cost_of("run", None, evaluate([*records.values()], gold).questions, None)
    assert cost.right == 0.5 and cost.per_right["llm_calls"] == 2


def _frame(kind: str, rows: list[dict[str, Any]]) -> Any:
    if kind == "pandas":
        return pytest.importorskip("pandas").DataFrame(rows)
    return pa.Table.from_pylist(rows)


@pytest.mark.parametrize("kind", ["pandas", "arrow"])
def test_a_table_in_memory_has_a_question_in_each_row(kind: str, small: pyfast.Index) -> None:
    """Who iterates over a DataFrame gets the names of its columns, which are no questions."""
    rows = [
        {"question": "Where is Titan?", "answer": "Saturn", "team": 1},
        {"question": "And Io?", "answer": None, "team": 2},
    ]
    run = pyfast.answer(_frame(kind, rows), index=small, llm="instant", system="rag")
    assert [(row["question"], row["team"]) for row in run.to_arrow().to_pylist()] == [
        ("Where is Titan?", 1),
        ("And Io?", 2),
    ]
    golds = [("And Io?", ["Jupiter"]), ("Where is Titan?", ["Saturn", "near Saturn"])]  # in another order
    gold = _frame(kind, [{"question": text, "answers": answers} for text, answers in golds])
    assert pyfast.evaluate(run).without_gold == (run.records[1].id,)
    assert pyfast.evaluate(run, gold).without_gold == ()


@pytest.mark.parametrize("kind", ["pandas", "arrow", "parquet", "xlsx", "jsonl", "csv"])
def test_whole_ids_with_a_gap_have_no_decimals(kind: str, tmp_path: Path) -> None:
    """pandas makes floats of whole numbers if one is missing."""
    pandas = pytest.importorskip("pandas")
    rows = [{"id": id, "question": f"Who is {id}?", "answers": str(id)} for id in (7, None, 9)]
    frame, path = pandas.DataFrame(rows), tmp_path / f"q.{kind}"
    assert frame["id"].dtype == float
    if kind == "jsonl":
        path.write_text('{"id":7.0,"question":"A?"}\n{"id":null,"question":"B?"}\n{"id":9.0,"question":"C?"}\n')
    elif kind in ("parquet", "xlsx", "csv"):
        getattr(frame, {"xlsx": "to_excel"}.get(kind, f"to_{kind}"))(path, index=False)
    given = {"pandas": frame, "arrow": pa.Table.from_pandas(frame)}.get(kind, path)
    run = pyfast.answer(given, llm="instant", system="direct")
    assert [record.id for record in run.records][::2] == ["7", "9"]
    gold = [{"id": id, "answers": [id]} for id in ("7", "9")]
    assert pyfast.evaluate(run, gold).without_gold == (run.records[1].id,)
    if kind not in ("xlsx", "jsonl"):
        assert [one.id for one in read_gold(given)][::2] == ["7", "9"]


def test_ids_of_a_text_file_keep_their_decimals(tmp_path: Path) -> None:
    """Sections and versions may end in `.0`."""
    for ids in (("1.0", "2.0"), ("1.0", "", "1.10")):
        path = written(tmp_path / "q.csv", ("id", "question"), *([id, f"Who is {id}?"] for id in ids))
        assert [one.id for one in read_questions(path)][:: len(ids) - 1] == [ids[0], ids[-1]]


def test_fractions_are_no_ids() -> None:
    asked = pa.Table.from_pylist([{"id": 7.5, "question": "Who?"}])
    with pytest.raises(InputError, match="question 1: expected an `id` that is a string or a whole number"):
        pyfast.answer(asked, llm="instant", system="direct")


@pytest.mark.parametrize("kind", ["frame", "parquet"])
def test_the_unnamed_index_of_a_frame_is_no_column(kind: str, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    rows = {"question": ["Who?", "When?"], "team": [1, 2]}
    for name in (None, "id"):
        frame = pandas.DataFrame(rows, index=pandas.Index([5, 3], name=name))
        frame.to_parquet(tmp_path / "q.parquet")
        asked = frame if kind == "frame" else tmp_path / "q.parquet"
        run = pyfast.answer(asked, llm="instant", system="direct")
        assert [one for one in run.to_pandas().columns if "index" in one] == []
        assert [record.id for record in run.records] == ["5", "3"] or name is None


TEXTS = ["Where is Titan?", "And Io?", "Who?", "And Io?", "When?"]


@pytest.mark.parametrize("kind", ["pandas", "arrow", "mappings", "texts"])
def test_questions_in_memory_have_the_ids_of_their_file(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Positions would pair answers with other questions once somebody adds or sorts rows."""

    def answered(texts: list[str]) -> pyfast.Run:
        rows = [{"question": text, "answers": text.upper()} for text in texts]
        asked: Any = {"mappings": rows, "texts": texts}
        given = asked[kind] if kind in asked else _frame(kind, rows)
        return pyfast.answer(given, llm="instant", system="direct")

    _say.cache_clear()  # Each note appears once in a process.
    path = written(tmp_path / "q.csv", ("question",), *([text] for text in TEXTS))
    ids = [question.id for question in read_questions(path)]
    run = answered(TEXTS)
    assert [record.id for record in run.records] == ids and len({*ids}) == 5
    said = "the questions: 5 of 5 questions have no `id`; pyfast makes one from the question's text"
    assert caplog.messages.count(said) == (kind != "texts")  # A text cannot have an id.
    assert pyfast.changed_answers(run, answered(["Where is Rhea?", *TEXTS])) == []
    gold: Any = [{"question": text, "answers": text.upper()} for text in sorted(TEXTS)]
    gold = gold if kind in ("mappings", "texts") else _frame(kind, gold)
    assert [row["gold"] for row in run.to_arrow(gold).to_pylist()] == [[text.upper()] for text in TEXTS]


def test_each_note_about_a_file_appears_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A resumed run reads the questions that are left, and their number is no news."""
    path = written(tmp_path / "q.csv", ("question", "gold"), *([text, "x"] for text in TEXTS))
    for limit in (2, 4):
        pyfast.answer(path, llm="instant", system="direct", run=tmp_path / "run", limit=limit)
        _TOLD.clear()  # as in another process
        _say.cache_clear()
    assert [message for message in caplog.messages if message.startswith(str(path))] == [
        f"{path}: there is no field `answers`; the gold answers are taken from `gold`",
        f"{path}: 2 of 2 questions have no `id`; pyfast makes one from the question's text",
    ]


def test_a_frame_is_read_as_its_sheet_is(small: pyfast.Index, tmp_path: Path) -> None:
    """Its columns may hold texts, numbers and dates at once, and its texts may be lists of answers."""
    pandas = pytest.importorskip("pandas")
    rows = [
        {"id": "1", "question": "Where is Titan?", "expected": '["near Saturn", "Saturn"]', "mine": "a"},
        {"id": "2", "question": "How many?", "expected": 28, "mine": 5},
        {"id": "3", "question": "When?", "expected": datetime(2026, 2, 2), "mine": None},
        {"id": "4", "question": "Who?", "expected": None, "mine": 2.5},
    ]
    pandas.DataFrame(rows).to_excel(tmp_path / "q.xlsx", index=False)
    frame = pandas.read_excel(tmp_path / "q.xlsx", dtype={"id": str})
    frames = pyfast.answer(frame, index=small, llm="instant")
    sheets = pyfast.answer(tmp_path / "q.xlsx", index=small, llm="instant", run=tmp_path / "R")
    assert [one.answers for one in read_gold(frame.to_dict("records"))][1:] == [("28",), ("2026-02-02",), ()]
    assert [one.answers for one in read_gold(frame)] == [("near Saturn", "Saturn"), ("28",), ("2026-02-02",), ()]
    columns = [run.to_arrow().column("gold").to_pylist() for run in (frames, sheets)]
    assert columns[0][:2] == columns[1][:2] and columns[0][2][0] in columns[1][2] and columns[0][3] is None
    assert [row["mine"] for row in frames.to_arrow().to_pylist()] == ["a", "5", None, "2.5"]


def test_own_dates_are_the_same_in_memory_and_in_a_folder(small: pyfast.Index, tmp_path: Path) -> None:
    own = {"on": date(2024, 1, 2), "at": datetime(2024, 1, 2, 3, 4), "price": Decimal("3.50")}
    asked = [{"question": "Where is Titan?", **own}]
    runs = [pyfast.answer(asked, index=small, llm="instant", run=place) for place in (None, tmp_path / "R")]
    in_memory, stored = (run.to_arrow().select([*own]).to_pylist() for run in runs)
    assert in_memory == stored == [{"on": "2024-01-02", "at": "2024-01-02T03:04:00", "price": 3.5}]


def test_lists_in_texts_of_parquet_are_lists(tmp_path: Path) -> None:
    rows = [
        {"id": "1", "question": "['a'", "answers": '["twelve", "12"]'},
        {"id": "2", "question": "[x]", "answers": "[x]"},
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "q.parquet")
    read = list(read_gold(tmp_path / "q.parquet"))
    assert [one.answers for one in read] == [("twelve", "12"), ("[x]",)]
    assert [one.text for one in read_questions(tmp_path / "q.parquet")] == ["['a'", "[x]"]
