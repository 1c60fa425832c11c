"""The results of runs as tables: what other libraries read in them is what the runs have, with nothing changed."""

from __future__ import annotations

import csv
import json
import shutil
import sys
from datetime import UTC, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import orjson
import pandas as pd
import pptx
import processes
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest
from openpyxl.utils.escape import unescape
from runs import records
from typer.testing import CliRunner

import pyfast
from pyfast.commands.cli import app
from pyfast.engine import Answer, Context, Question, read_questions
from pyfast.errors import InputError, MissingPackageError
from pyfast.systems import Settings, System
from pyfast.utils.options import RunOptions

ANSWERS = [
    "=1+1",
    "+49 30",
    "-5",
    "@me",
    "#N/A",
    "007",
    "12345678901234567890.10",
    'two\nlines, "quotes"; a\ttab and \\',
    "naïve 🪐 土星",
    " blanks ",
    "NA",
    "true",
    "2025-03-14",
    "_x0041_ and \x07",
    "long " * 9_000,
]
ASKED = [
    {"id": f"0{k}", "question": f"Which one, {k}?\nSay it.", "answers": [said]} for k, said in enumerate(ANSWERS)
]


async def _says(question: Question, ctx: Context, settings: Settings) -> Answer:
    if question.id == "00":
        raise ValueError("a reason,\nwith lines")
    cited = [{"uri": f"u{k}.md", "snippet": f'part {k} of "{question.id}",\n'} for k in range(2)]
    return Answer(ANSWERS[int(question.id)] if question.id != "01" else None, orjson.dumps(cited))


SAYS = System("says", _says, Settings, (), needs_index=False)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    (folder / "q.jsonl").write_text("".join(json.dumps(one) + "\n" for one in ASKED))
    pyfast.answer(folder / "q.jsonl", llm="instant", system=SAYS, run=folder / "run")
    return folder / "run"


def expected(run: Path) -> list[dict[str, Any]]:
    """The rows, from the files of the run and from `evaluate`."""
    figures = {one.id: one.figures for one in pyfast.evaluate(run).questions}
    asked = {one["id"]: one for one in ASKED}
    rows = []
    for one in records(run):
        usage = one["usage"]
        rows.append(
            {
                "run": str(run),
                "id": one["id"],
                "question": asked[one["id"]]["question"],
                "answer": one["answer"],
                "state": one["state"],
                "reason": one.get("reason"),
                "gold": asked[one["id"]]["answers"],
                **figures[one["id"]],
                "uris": [it["uri"] for it in one["evidence"]],
                "snippets": [it["snippet"] for it in one["evidence"]],
                **{name: usage[name] for name in ("llm_calls", "prompt_tokens", "completion_tokens")},
            }
        )
    assert {row["state"] for row in rows} == {"answered", "abstained", "failed"}
    return rows


def without_seconds(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    assert all(0 < float(row.pop("seconds")) < 60 for row in rows)
    return rows


def test_arrow_and_pandas_have_what_the_run_has(run: Path) -> None:
    table = pyfast.Run(run).to_arrow()
    assert without_seconds(table.to_pylist()) == expected(run)
    frame = pyfast.Run(run).to_pandas()
    assert list(frame.columns) == table.column_names and frame["answer"].tolist()[2:] == ANSWERS[2:]
    assert frame["em"].tolist() == [0, 0, *[1] * 13] and frame["llm_calls"].sum() == 0


def test_parquet_and_json_lines_come_back(run: Path, tmp_path: Path) -> None:
    assert pyfast.export([run], tmp_path / "r.parquet") == pyfast.export([run], tmp_path / "r.jsonl") == 15
    assert without_seconds(pq.read_table(tmp_path / "r.parquet").to_pylist()) == expected(run)
    lines = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text("utf-8").split("\n")[:-1]]
    assert without_seconds(lines) == expected(run)


LISTS = ("gold", "uris", "snippets")


def listed(name: str, cell: str) -> list[str]:
    """Read a cell with a list. A single gold answer is its text, unless this text looks like a list."""
    is_text = name == "gold" and not cell.lstrip().startswith(("[", "{", "("))
    return [cell] if is_text else json.loads(cell)


def test_csv_comes_back(run: Path, tmp_path: Path) -> None:
    """Through pandas and through the standard library."""
    pyfast.export([run], tmp_path / "r.csv")
    frame = pd.read_csv(tmp_path / "r.csv", dtype=str, keep_default_na=False)
    with (tmp_path / "r.csv").open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    assert frame.to_dict("records") == rows
    for row, right in zip(without_seconds(rows), expected(run), strict=True):
        for name, value in right.items():
            read = listed(name, row[name]) if name in LISTS else row[name]
            read = float(row[name]) if isinstance(value, float) else read
            shown = "" if value is None else str(value)
            assert read == (value if name in LISTS or isinstance(value, float) else shown), name


def sheet(path: Path) -> list[dict[str, Any]]:
    book = openpyxl.load_workbook(path)
    head, *rows = book["results"].iter_rows()
    assert not any(cell.data_type == "f" for row in rows for cell in row)
    names = [cell.value for cell in head]
    values = [[unescape(c.value) if isinstance(c.value, str) else c.value for c in row] for row in rows]
    return [dict(zip(names, row, strict=True)) for row in values]


def test_csv_opens_in_excel_and_is_read_by_pyfast(run: Path, tmp_path: Path) -> None:
    """Excel needs the mark of UTF-8 at the beginning; no reader takes it for a part of the first name."""
    path = tmp_path / "r.csv"
    pyfast.export([run], path)
    assert path.read_bytes().startswith(b'\xef\xbb\xbf"run","id"')
    lines = arrow_csv.ParseOptions(newlines_in_values=True)
    assert arrow_csv.read_csv(path, parse_options=lines).column_names == pd.read_csv(path).columns.tolist()
    asked = {one.id: one.text for one in read_questions(path)}
    assert asked == {one["id"]: one["question"] for one in ASKED}
    assert pyfast.evaluate(run, path).rows == pyfast.evaluate(run).rows
    pyfast.build_index(path, tmp_path / "IDX")
    (table,) = [one for one in pyfast.list_documents(tmp_path / "IDX") if one.kind == "table"]
    assert pyfast.open_index(tmp_path / "IDX").document(table.uri).header[:2] == ("run", "id")


def test_a_sheet_comes_back_and_has_no_formula(run: Path, tmp_path: Path) -> None:
    pyfast.export([run], tmp_path / "r.xlsx")
    rows = sheet(tmp_path / "r.xlsx")
    whole = pd.read_excel(tmp_path / "r.xlsx", dtype=str, keep_default_na=False)["answer"].tolist()
    assert whole[2:13] == ANSWERS[2:13]
    for row in rows:
        for name in [name for name in row if name.endswith((" (2)", " (3)"))]:
            if (more := row.pop(name)) is not None:
                row[name.partition(" (")[0]] += more
    for row, right in zip(without_seconds(rows), expected(run), strict=True):
        read = {name: listed(name, value) if name in LISTS else value for name, value in row.items()}
        assert read == right


def test_runs_below_each_other_and_side_by_side(run: Path, tmp_path: Path) -> None:
    other = pyfast.answer(
        run.with_name("q.jsonl"), llm="instant", system="direct", run=tmp_path / "other", limit=4
    )
    assert pyfast.export([run, other], tmp_path / "long.parquet") == 19
    long = pq.read_table(tmp_path / "long.parquet").to_pylist()
    assert [row["run"] for row in long] == [str(run)] * 15 + [str(other.path)] * 4
    assert pyfast.export([other, run], tmp_path / "wide.parquet", wide=True) == 15
    wide = pq.read_table(tmp_path / "wide.parquet").to_pylist()
    assert [row["id"] for row in wide] == [one["id"] for one in ASKED]
    assert [row["gold"] for row in wide] == [one["answers"] for one in ASKED]
    by_place = {(row["run"], row["id"]): row for row in long}
    for row in wide:
        for name, value in row.items():
            if name not in ("id", "question", "gold"):
                of, column = name.split(": ")
                assert value == by_place.get((of, row["id"]), {}).get(column), name
    (tmp_path / "q.jsonl").write_text('{"id": "00", "question": "Another one?"}\n')
    pyfast.answer(tmp_path / "q.jsonl", llm="instant", system="direct", run=tmp_path / "third")
    third = str(tmp_path / "third")
    assert pyfast.export([run, third], tmp_path / "differ.parquet", wide=True) == 15
    first = pq.read_table(tmp_path / "differ.parquet").to_pylist()[0]
    assert "question" not in first and first[f"{third}: question"] == "Another one?"
    assert first[f"{run}: question"] == ASKED[0]["question"]


def test_without_gold_there_are_no_figures_and_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    in_memory = pyfast.answer(["Who?", "When? \ud800"], llm="instant", system="direct")
    rows = in_memory.to_arrow().to_pylist()
    assert [(row["question"], row["gold"]) for row in rows] == [("Who?", None), ("When? \\ud800", None)]
    assert "em" not in rows[0] and rows[0]["seconds"] is None and "cannot be scored" in caplog.text
    rows = in_memory.to_arrow([{"question": "Who?", "answers": ["x"]}], metrics=["em_f1"]).to_pylist()
    assert [(row["gold"], row["em"]) for row in rows] == [(["x"], 0), (None, None)]
    with pytest.raises(InputError, match="none of its ids"):
        in_memory.to_arrow([{"id": "9", "answers": ["x"]}])


def test_what_cannot_be_written_is_refused_before_any_work(run: Path, tmp_path: Path) -> None:
    for name in ("r.txt", "r"):
        with pytest.raises(InputError, match=r"ends in .csv, .jsonl, .parquet or .xlsx"):
            pyfast.export([run], tmp_path / name)
    with pytest.raises(InputError, match="given twice"):
        pyfast.export([run, run], tmp_path / "r.csv")
    with pytest.raises(InputError, match="expected a run"):
        pyfast.export([], tmp_path / "r.csv")


def test_no_file_is_replaced_unless_asked(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "questions.csv"
    out.write_text("my questions")
    with pytest.raises(InputError, match=r"questions\.csv already exists"):
        pyfast.export([run], out)
    assert out.read_text() == "my questions"
    assert pyfast.export([run], out, overwrite=True) == len(ASKED) and out.read_text() != "my questions"
    with pytest.raises(InputError, match=r"the folder .*nowhere does not exist"):
        pyfast.export([run], tmp_path / "nowhere" / "x.csv")


def test_the_scores_of_each_question_replace_no_file(run: Path, tmp_path: Path) -> None:
    kept = tmp_path / "questions.csv"
    kept.write_text("my questions")
    done = CliRunner().invoke(app, ["evaluate", str(run), "--per-question", str(kept)])
    assert isinstance(done.exception, InputError) and "already exists" in str(done.exception)
    assert kept.read_text() == "my questions"


def test_the_scores_of_each_question_have_the_form_that_the_name_says(run: Path, tmp_path: Path) -> None:
    def go(name: str) -> Any:
        return CliRunner().invoke(app, ["evaluate", str(run), "--per-question", str(tmp_path / name)])

    assert go("pq.csv").exit_code == go("pq.jsonl").exit_code == go("pq.parquet").exit_code == 0
    lines = [json.loads(line) for line in (tmp_path / "pq.jsonl").read_text().splitlines()]
    flat = [{**line.pop("figures"), **line} for line in lines]
    assert pq.read_table(tmp_path / "pq.parquet").to_pylist() == flat and len(flat) == len(ASKED)
    with (tmp_path / "pq.csv").open(encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    assert [(row["id"], float(row["em"])) for row in rows] == [(one["id"], one["em"]) for one in flat]
    questions = {one["id"]: one for one in ASKED}
    assert [row["question"] for row in flat] == [questions[row["id"]]["question"] for row in flat]
    assert "expected a name that ends in" in str(go("pq.txt").exception) and not (tmp_path / "pq.txt").exists()


def test_questions_that_are_not_finished_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pyfast.answer(ASKED, llm="instant", system=SAYS, run=tmp_path / "run")
    answers = tmp_path / "run" / "answers.jsonl"
    answers.write_bytes(b"".join(answers.read_bytes().splitlines(keepends=True)[:-2]))
    assert pyfast.export([tmp_path / "run"], tmp_path / "x.jsonl") == len(ASKED) - 2
    assert f"2 of its {len(ASKED)} questions have no row" in caplog.text


def test_a_missing_package_is_named(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "openpyxl"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(MissingPackageError, match=r"pyfast-qa\[formats\]"):
        pyfast.export([run], tmp_path / "r.xlsx")
    assert list(tmp_path.iterdir()) == []


def test_the_command(run: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["export", str(run), "--out", str(tmp_path / "r.csv"), "--metric", "em_f1"])
    assert done.exit_code == 0 and done.stdout == f"{tmp_path / 'r.csv'}: 15 rows\n"


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over a workbook with two sheets, slides, and a CSV file; it cites what it found."""
    folder = tmp_path_factory.mktemp("office")
    (folder / "files").mkdir()
    book = openpyxl.Workbook()
    book.active.title = "Pumps"
    for row in (("pump", "litres"), ("Aster", "12"), ("Borage", "90")):
        book.active.append(row)
    for row in (("valve", "bar"), ("Clover", "3"), ("Dahlia", "7")):
        (book["Valves 2"] if "Valves 2" in book.sheetnames else book.create_sheet("Valves 2")).append(row)
    book.save(folder / "files" / "parts.xlsx")
    slides = pptx.Presentation()
    for title in ("Elder opens at noon", "Fennel closes at night"):
        slides.slides.add_slide(slides.slide_layouts[5]).shapes.title.text = title
    slides.save(folder / "files" / "shifts.pptx")
    (folder / "files" / "sites.csv").write_text("site,town\nGorse,Oslo\nHeather,Rome\n")
    asked = [f"What of {name}?" for name in ("Borage", "Dahlia", "Fennel", "Heather")]
    table = [["Nr", "Frage", "Antwort", "Team", "em", "Tags"]]
    table += [[str(10 + k), text, "90", "Süd", str(k), "[1, 2]"] for k, text in enumerate(asked)]
    with (folder / "q.csv").open("w", newline="") as file:
        csv.writer(file, delimiter=";").writerows(table)
    pyfast.build_index(folder / "files", folder / "IDX")
    columns = {"id": "Nr", "question": "Frage", "answers": "Antwort"}
    pyfast.answer(
        folder / "q.csv",
        index=folder / "IDX",
        llm="instant",
        system="rag",
        run=folder / "run",
        options=RunOptions(columns=columns),
    )
    return folder


def test_own_columns_with_names_of_gold(office: Path) -> None:
    """Beside the answers, `answer`, `gold` or `expected` is a column like any other, with any value."""
    table = "id,question,answers,Answer,gold,expected\n1,What of Borage?,x,old,g,x\n2,What of Thyme?,,new,,\n"
    (office / "names.csv").write_text(table)
    run = pyfast.answer(office / "names.csv", index=office / "IDX", llm="instant", system="rag", run=office / "n")
    rows = run.to_arrow().to_pylist()
    assert [(row["question.answer"], row["question.gold"], row["gold"], row["expected"]) for row in rows] == [
        ("old", "g", ["x"], "x"),
        ("new", None, None, None),
    ]


def test_questions_in_memory_keep_gold_and_own_columns(office: Path) -> None:
    day = datetime(2024, 5, 1).date()
    given: list[Any] = [
        {"id": 7, "question": "What of Borage?", "answers": np.array(["90", "x"]), "team": np.int64(3), 5: day},
        "What of Thyme?",
        {"question": "What of Dill?", "answers": "90", "documents": ["sites.csv"]},
        Question("q", "What of Mint?"),
    ]
    for folder in (office / "memory", None):
        for asked in (given, [*given, {"question": "What of Sage?", "answer": "late"}]):
            run = pyfast.answer(asked, index=office / "IDX", llm="instant", system="rag", run=folder)
            rows = run.to_arrow().to_pylist()
            assert [row["gold"] for row in rows][:4] == [["90", "x"], None, ["90"], None] and rows[0]["id"] == "7"
            assert [row["team"] for row in rows[:4]] == [3, None, None, None] and str(rows[0]["5"]) == "2024-05-01"
            assert pyfast.evaluate(run).rows[0].questions == 2


def test_the_scores_of_each_question_have_its_own_columns(office: Path, tmp_path: Path) -> None:
    written = ["evaluate", str(office / "run"), "--per-question", str(tmp_path / "scores.parquet")]
    assert CliRunner().invoke(app, written).exit_code == 0
    rows = pq.read_table(tmp_path / "scores.parquet").to_pylist()
    assert list(rows[0])[:6] == ["run", "id", "question", "Team", "question.em", "Tags"]
    expected = [("What of Borage?", "Süd", "0", "[1,2]"), ("What of Dahlia?", "Süd", "1", "[1,2]")]
    assert [tuple(row.values())[2:6] for row in rows[:2]] == expected


def test_gold_has_the_columns_of_the_questions(office: Path) -> None:
    """A corrected copy of the file of questions is gold as it is, and so is a file with pyfast's names."""
    corrected = office / "corrected.csv"
    corrected.write_text((office / "q.csv").read_text().replace(";90;", ";nothing;", 1))
    with (office / "plain.jsonl").open("w") as plain:
        for number, answer in enumerate(("nothing", "90", "90", "90"), start=10):
            print(json.dumps({"id": str(number), "answers": [answer]}), file=plain)
    both = office / "draft.csv"  # Beside the column that was named, `answers` is not the gold.
    lines = corrected.read_text().splitlines()
    both.write_text("".join(f"{line};{'draft' if k else 'answers'}\n" for k, line in enumerate(lines)))
    for path in (corrected, office / "plain.jsonl", both):
        gold = pyfast.Run(office / "run").to_arrow(path)["gold"]
        assert gold.to_pylist() == [["nothing"], ["90"], ["90"], ["90"]]


def test_questions_that_were_reworded_are_named(office: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name, text in (("first", "How many seats has C1?"), ("second", "How many seats are in C1?")):
        rows = [{"id": "7", "question": text, "answers": ["3"]}, {"id": "8", "question": "Who?", "answers": ["x"]}]
        (office / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        pyfast.answer(
            office / f"{name}.jsonl", index=office / "IDX", llm="instant", system="rag", run=office / name
        )
    pyfast.compare([office / "first", office / "second"], figures=["em"])
    told = (
        f"the wording of 1 question in {office / 'second'} differs from that in {office / 'first'}, but they are "
    )
    assert f"{told}compared: 7" in caplog.messages


def test_runs_with_other_gold_are_compared_with_a_word(office: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name, answer in (("old", "90"), ("new", "nothing")):
        questions = office / f"{name}.jsonl"
        rows = [{"id": str(k), "question": f"What of {k}?", "answers": [answer]} for k in range(3)]
        questions.write_text("".join(json.dumps(row) + "\n" for row in rows))
        pyfast.answer(questions, index=office / "IDX", llm="instant", system="rag", run=office / name)
    pyfast.compare([office / "old", office / "new"], figures=["em"])
    assert (
        f"the gold answers of {office / 'new'} differ from those of {office / 'old'} in 3 questions" in caplog.text
    )
    assert "(0, 1, 2)" in caplog.text and "the wording" not in caplog.text
    caplog.clear()
    pyfast.compare([office / "old", office / "new"], office / "new.jsonl", figures=["em"])
    assert "the gold answers of" not in caplog.text
    new, old = office / "new", office / "old"
    told = f"the gold answers of {new} differ from those of {old} in 3 questions (0, 1, 2); each run"
    pyfast.export([office / "old", office / "new"], office / "both.csv")
    assert told in caplog.text
    caplog.clear()
    pyfast.report([office / "old", office / "new"], office / "both")
    assert told in caplog.text
    assert told in processes.pyfast("evaluate", office / "old", office / "new").stderr


def test_each_source_has_a_row(office: Path) -> None:
    """Its place is looked up in the file itself, by other libraries."""
    run = pyfast.Run(office / "run")
    rows = run.to_arrow(sources=True).to_pylist()
    pairs = [(record, rank, one) for record in run.records for rank, one in enumerate(record.evidence, 1)]
    assert len(rows) == len(pairs) > 3 and pyfast.export([run], office / "s.csv", sources=True) == len(rows)
    seen = set()
    for row, (record, rank, one) in zip(rows, pairs, strict=True):
        assert (row["id"], row["answer"], row["rank"], row["uri"]) == (record.id, record.answer, rank, one.uri)
        assert row["score"] == one.score and row["question"].startswith("What of ")
        assert (row["Team"], row["question.em"]) == ("Süd", str(int(record.id) - 10))
        assert (row["state"], row["gold"], row["em"]) == ("answered", ["90"], float(row["answer"] == "90"))
        name, kind = row["uri"].partition("#")[0], row["uri"].partition("#")[0].rpartition(".")[2]
        seen.add(kind)
        if kind == "pptx":
            slide = pptx.Presentation(office / "files" / name).slides[row["page"] - 1]
            assert slide.shapes.title.text == row["snippet"] and row["sheet"] is row["row"] is None
            continue
        if kind == "xlsx":
            values = list(openpyxl.load_workbook(office / "files" / name)[row["sheet"]].values)
        else:
            values = list(csv.reader((office / "files" / name).open()))
        head, cells = values[0], values[row["row"] - 1]
        assert row["snippet"] == " | ".join(f"{a}: {b}" for a, b in zip(head, cells, strict=True))
        assert row["page"] is None and row["title"]
    assert seen == {"pptx", "xlsx", "csv"}
    assert run.to_pandas(sources=True)["uri"].tolist() == [row["uri"] for row in rows]
    with pytest.raises(InputError, match="wide and sources cannot be used together"):
        pyfast.export([run], office / "x.csv", sources=True, wide=True)
    gold = [{"id": str(number), "answers": [row["answer"] for row in rows]} for number in range(10, 14)]
    assert {*run.to_arrow(gold, metrics=["squad"], sources=True)["recall"].to_pylist()} == {1.0}


def test_sources_say_whether_they_are_gold(office: Path) -> None:
    """Those that `evidence_recall` counts: of a table, only the row with the answer."""
    run = pyfast.Run(office / "run")
    assert "is_gold" not in run.to_arrow(sources=True).column_names
    uris = [record.evidence[0].uri for record in run.records]
    answers = ("12", "7", "noon", "Rome")  # 12 stands in another row than the one that was found.
    gold: list[dict[str, Any]] = [
        {"id": str(10 + k), "answers": [answers[k]], "level": "easy", "supporting": [uris[k]]} for k in range(4)
    ]
    del gold[3]["supporting"]
    rows = run.to_arrow(gold, sources=True).to_pylist()
    assert {row["level"] for row in rows} == {"easy"}
    assert {row["id"]: row["is_gold"] for row in rows if row["uri"] in uris} == {
        "10": False,
        "11": True,
        "12": True,
        "13": None,
    }
    assert all(row["is_gold"] in (None, bool(row["evidence_recall"])) for row in rows if row["uri"] in uris)
    pyfast.export([run], office / "gold.csv", gold=gold, sources=True)
    written = [row["is_gold"] for row in csv.DictReader((office / "gold.csv").open(encoding="utf-8-sig"))]
    assert written == [{True: "true", False: "false", None: ""}[row["is_gold"]] for row in rows]


def test_sources_without_the_index(office: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    moved = tmp_path / "run"
    shutil.copytree(office / "run", moved)
    text = (moved / "run.toml").read_text()
    (moved / "run.toml").write_text(text.replace(str(office / "IDX"), str(tmp_path / "gone")))
    rows = pyfast.Run(moved).to_arrow(sources=True).to_pylist()
    whole = pyfast.Run(office / "run").to_arrow(sources=True).to_pylist()
    assert [(row["uri"], row["sheet"]) for row in rows] == [(row["uri"], row["sheet"]) for row in whole]
    assert not any(row["page"] or row["row"] for row in rows)
    assert (
        caplog.text.count(
            "sources are listed without pages and rows, and only with titles that the run has stored"
        )
        == 1
    )


def test_columns_of_the_asker_stay(office: Path, tmp_path: Path) -> None:
    """Also those with the names of pyfast's columns; the gold is found under its other name."""
    table = pyfast.Run(office / "run").to_arrow()
    assert table.column_names[:6] == ["run", "id", "question", "Team", "question.em", "Tags"]
    rows = table.to_pylist()
    assert [row["id"] for row in rows] == ["10", "11", "12", "13"] and rows[0]["gold"] == ["90"]
    assert [(row["Team"], row["question.em"], row["Tags"]) for row in rows] == [
        ("Süd", str(k), "[1,2]") for k in range(4)
    ]
    assert pyfast.verify(office / "run").passed
    own: list[dict[str, Any]] = [{"n": k, "note": ["a"] if k else "b", "run": "x"} for k in range(3)]
    asked = [{"id": str(k), "question": f"Q{k}?", **one} for k, one in enumerate(own)]
    talk = {"id": "t", "team": "N", "turns": [{"question": "And?", "n": 7}, {"question": "So?", "team": "S"}]}
    for name, several in (("one", asked), ("two", [*asked[:2], talk])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in several))
        pyfast.answer(tmp_path / f"{name}.jsonl", llm="instant", system=SAYS_NOTHING, run=tmp_path / name)
    pyfast.export([tmp_path / "one"], tmp_path / "x.parquet")
    assert [
        (row["n"], row["note"], row["question.run"]) for row in pq.read_table(tmp_path / "x.parquet").to_pylist()
    ] == [(0, "b", "x"), (1, '["a"]', "x"), (2, '["a"]', "x")]
    runs = [tmp_path / "one", tmp_path / "two"]
    assert pyfast.export(runs, tmp_path / "w.csv", wide=True) == 5
    frame = pd.read_csv(tmp_path / "w.csv")
    assert frame.columns.tolist().count("n") == 1 and frame["n"].fillna(-1).tolist() == [0, 1, 2, 7, -1]
    assert frame["team"].fillna("").tolist() == ["", "", "", "N", "S"]


def test_columns_of_the_gold_file_stay_too(tmp_path: Path) -> None:
    """Those that say of what kind a question is, and those that pyfast does not read; the question file's win."""
    asked = [{"id": "0", "question": "Q?"}, {"id": "1", "question": "R?", "level": "asked"}]
    gold = [
        {"id": str(k), "answers": ["x"], "type": "bridge", "level": "easy", "supporting": ["d"]} for k in (0, 1)
    ]
    for name, lines in (("questions", asked), ("gold", gold)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = pyfast.answer(tmp_path / "questions.jsonl", llm="instant", system=SAYS_NOTHING, run=tmp_path / "run")
    columns = ["id", "level", "type", "gold"]
    wanted = [["0", "easy", "bridge", ["x"]], ["1", "asked", "bridge", ["x"]]]
    table = run.to_arrow()
    assert table.column_names[:6] == ["run", "id", "question", "type", "level", "answer"]
    assert [[row[name] for name in columns] for row in table.to_pylist()] == wanted
    pyfast.export([tmp_path / "run"], tmp_path / "r.parquet", gold=[{**one, "type": "comparison"} for one in gold])
    assert set(pq.read_table(tmp_path / "r.parquet")["type"].to_pylist()) == {"comparison"}


def test_columns_of_the_asker_keep_their_types(tmp_path: Path) -> None:
    """Those of a sheet and of Parquet. What a kind of file has no type for, it still holds."""
    book = openpyxl.Workbook()
    day, noon = datetime(2026, 5, 1), datetime(2026, 5, 1, 12)
    for row in (
        ("id", "Frage", "answers", "cost", "day", "due", "open", "zip", "mixed"),
        (7, "Q1?", 1.5, 1234.5, day, noon, True, 42, 1),
        (8, "Q2?", 2, None, day, day, False, 7, "x"),
    ):
        book.active.append(row)
    for cell, form in (("C2", "0.00"), ("D2", "#,##0.00"), ("H2", "00000"), ("H3", "00000")):
        book.active[cell].number_format = form
    book.save(tmp_path / "q.xlsx")
    given: dict[str, Any] = {"llm": "instant", "system": SAYS_NOTHING}
    options = RunOptions(columns={"question": "Frage"})
    run = pyfast.answer(tmp_path / "q.xlsx", run=tmp_path / "renamed", options=options, **given)
    first, second = run.to_arrow().to_pylist()
    assert (first["cost"], first["open"], first["day"], first["gold"]) == (1234.5, True, "2026-05-01", ["1.50"])
    book.active["B1"] = "question"
    book.save(tmp_path / "q.xlsx")
    run = pyfast.answer(tmp_path / "q.xlsx", run=tmp_path / "run", **given)
    first, second = run.to_arrow().to_pylist()
    own = ("id", "cost", "day", "due", "open", "zip", "mixed", "gold")
    assert [first[name] for name in own] == ["7", 1234.5, day.date(), noon, True, "00042", "1", ["1.50"]]
    assert [second[name] for name in own] == ["8", None, day.date(), day, False, "00007", "x", ["2"]]
    pyfast.export([run], tmp_path / "r.xlsx")
    rows = openpyxl.load_workbook(tmp_path / "r.xlsx").active.iter_rows(values_only=True)
    read = dict(zip(next(rows), next(rows), strict=True))
    assert [read[name] for name in own[:-1]] == ["7", 1234.5, day, noon, True, "00042", "1"]
    rare = {
        "dec": [Decimal("1.50")],
        "zoned": [noon.replace(tzinfo=UTC)],
        "large": pa.array([1 << 63], pa.uint64()),
        "time": [time(5, 6)],
    }
    pq.write_table(pa.table({"id": ["1"], "question": ["Q?"], **rare}), tmp_path / "q.parquet")
    run = pyfast.answer(tmp_path / "q.parquet", run=tmp_path / "rare", **given)
    for kind in ("parquet", "jsonl", "xlsx", "csv"):
        assert pyfast.export([run], tmp_path / f"rare.{kind}") == 1
    (row,) = pq.read_table(tmp_path / "rare.parquet").select(list(rare)).to_pylist()
    assert row == {"dec": Decimal("1.50"), "zoned": rare["zoned"][0], "large": str(1 << 63), "time": time(5, 6)}
    assert json.loads((tmp_path / "rare.jsonl").read_text())["dec"] == 1.5
    sheet = openpyxl.load_workbook(tmp_path / "rare.xlsx").active
    assert sheet.cell(2, [one.value for one in sheet[1]].index("zoned") + 1).value == rare["zoned"][0].isoformat()
    options = RunOptions(sample=1, columns={"id": "id"})
    run = pyfast.answer(tmp_path / "q.parquet", run=tmp_path / "renamed_rare", options=options, **given)
    assert run.to_arrow()["dec"].to_pylist() == [1.5]


def test_a_sheet_has_every_digit_of_a_long_number(tmp_path: Path) -> None:
    """A spreadsheet rounds a number to 15 significant digits, so a longer one is text."""
    whole = [1790123456789012345, 1790123456789012346, -1790123456789012345, 10**15 + 1, 10**15 - 1, 10**18]
    exact = [Decimal(text) for text in ("0.1234567890123456", "12345678901234567.89", "-0.5", "1.10", "0", "7")]
    assert len({float(one) for one in whole}) < len(whole)
    asked = pa.table({"id": list("abcdef"), "question": ["Q?"] * 6, "tweet": whole, "share": exact})
    pq.write_table(asked, tmp_path / "q.parquet")
    run = pyfast.answer(tmp_path / "q.parquet", llm="instant", system=SAYS_NOTHING, run=tmp_path / "run")
    pyfast.export([run], tmp_path / "r.xlsx")
    rows = sheet(tmp_path / "r.xlsx")
    texts = [str(one) for one in whole[:4]]
    assert [row["tweet"] for row in rows] == [*texts, 10**15 - 1, 10**18]
    assert [type(row["share"]) for row in rows] == [str, str, float, float, int, int]
    assert [Decimal(str(row["share"])) for row in rows] == exact
    pyfast.export([run], tmp_path / "wide.xlsx", wide=True)
    assert [row["tweet"] for row in sheet(tmp_path / "wide.xlsx")] == [*texts, 10**15 - 1, 10**18]


async def _says_nothing(question: Question, ctx: Context, settings: Settings) -> Answer:
    return Answer(None)


SAYS_NOTHING = System("nothing", _says_nothing, Settings, (), needs_index=False)


def test_columns_with_other_names(office: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Answers are those of a file with pyfast's names; a sample, a resumed run and the commands know them too."""
    text = (office / "q.csv").read_text()
    (tmp_path / "own.csv").write_text(text.replace("Nr;Frage;Antwort", "id;question;answers"))
    given: dict[str, Any] = {"index": office / "IDX", "llm": "instant", "system": "rag"}
    same = pyfast.answer(tmp_path / "own.csv", run=tmp_path / "a", **given)
    assert list(same.records) == list(pyfast.Run(office / "run").records)
    assert pyfast.evaluate(office / "run").as_json() == pyfast.evaluate(tmp_path / "a").as_json()
    few: dict[str, Any] = {"columns": {"id": "Nr", "question": "Frage", "answers": "Antwort"}, "sample": 2}
    for _ in range(2):  # The second one resumes.
        run = pyfast.answer(
            office / "q.csv", llm="instant", system=SAYS_NOTHING, run=tmp_path / "few", options=RunOptions(**few)
        )
    assert len(run.records) == 2 and run.to_arrow().select(["gold", "Team"]).to_pylist()[0]["gold"] == ["90"]
    for columns, fault in (
        ({"question": "Frage", "answers": "Antwrt"}, "no column 'Antwrt'; did you mean Antwort"),
        ({"question": "Fage", "answers": "Antwort"}, "no column 'Fage'; did you mean Frage"),
        ({"question": "Frage", "anwers": "Antwort"}, "no field 'anwers'; did you mean answers"),
    ):
        with pytest.raises(InputError, match=fault):
            pyfast.answer(office / "q.csv", llm="instant", system="direct", options=RunOptions(columns=columns))
    with pytest.raises(InputError, match="can only be used with a question file"):
        pyfast.answer(["Who?"], llm="instant", system="direct", options=RunOptions(columns={"id": "x"}))
    names = ["--column", "question=Frage", "--column", "answers=Antwort", "--column", "id=Nr"]
    where = ["answer", str(office / "q.csv"), "--llm=instant", "--system=direct", "--run", str(tmp_path / "b")]
    assert CliRunner().invoke(app, [*where, *names, "--dry-run"]).exit_code == 0
    at = where.index("--run")
    without = [*where[:at], *where[at + 2 :], *names]
    assert CliRunner().invoke(app, [*without, "--dry-run"]).exit_code == 0
    assert "needs --run FOLDER" in str(CliRunner().invoke(app, without).exception)
    assert CliRunner().invoke(app, [*where, *names]).exit_code == 0
    told = json.loads(CliRunner().invoke(app, ["status", str(tmp_path / "b"), "--json"]).output)
    status = pyfast.Run(tmp_path / "b").status
    assert told["ended"] == 4 and told == json.loads(json.dumps(status.as_json())) and told["stages"]
    assert told["states"] == status.states and told["seconds"]["p50"] == status.seconds[50]
    done = CliRunner().invoke(app, ["export", str(tmp_path / "b"), "--out", str(tmp_path / "b.csv")])
    assert done.exit_code == 0 and pd.read_csv(tmp_path / "b.csv")["Team"].tolist() == ["Süd"] * 4


def test_titles_are_those_of_the_runs_documents_or_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An index that was built again has other documents under the same names."""
    for title in ("Old", "New"):
        titan = {"id": "titan", "title": title, "text": "The moon titan orbits Saturn."}
        pyfast.build_index([titan], tmp_path / "I", overwrite=True)
        if title == "Old":
            asked = ["What does titan orbit?"]
            run = pyfast.answer(asked, index=tmp_path / "I", llm="instant", system="rag", run=tmp_path / "run")
            assert run.to_arrow(sources=True)["title"].to_pylist() == ["Old"]
    again = pyfast.Run(tmp_path / "run").to_arrow(sources=True)
    assert again["title"].to_pylist() == [None] and "the documents of this index have changed" in caplog.text
