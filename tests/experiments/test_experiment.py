"""Experiments: each cell is a run; tables say what `evaluate` says; a kill costs nothing but time."""

from __future__ import annotations

import csv
import itertools
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import warnings
from contextlib import closing
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pypdfium2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests
from test_bench import url  # noqa: F401
from typer.testing import CliRunner
from vector_server import vector_server

import pyfast
from pyfast.api.experiments.plan import read_plan, ready_plans
from pyfast.api.experiments.plots import pareto_front, plot_pareto
from pyfast.api.knowledge import open_knowledge
from pyfast.commands.cli import app
from pyfast.engine import Answer, Context, Question
from pyfast.errors import CallError, InputError
from pyfast.evaluation import of_each
from pyfast.evaluation.tables import shown
from pyfast.systems import Settings, System, load_system

PLAN: dict[str, Any] = {
    "title": "Two rows",
    "sets": ["moons", "films"],
    "metrics": ["em_f1", "evidence"],
    "paper_model": "another model",
    "rows": [
        {"name": "RAG", "system": "rag", "settings": {"k": 2}, "paper": {"moons": {"em": 0.5, "f1": 0.625}}},
        {"name": "N2N/graph", "system": "n2n"},
        {"name": "trained", "not_run": "needs training", "paper": {"films": {"em": 0.75}}},
    ],
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for name, kind in (("moons", "moon"), ("films", "film")):
        (folder / name).mkdir()
        texts = (
            {
                "kind": "text",
                "id": f"{kind}{i}",
                "title": f"{kind} {i}",
                "text": f"The {kind} {i} was made by maker {i}.",
            }
            for i in range(30)
        )
        (folder / name / "corpus.jsonl").write_text("".join(json.dumps(text) + "\n" for text in texts))
        asked = (
            {
                "id": f"q{i}",
                "question": f"Who made {kind} {i}? wait 60000 us",
                "answers": ["42" if i % 3 else f"maker {i}"],
            }
            for i in range(12)
        )
        (folder / name / "questions.jsonl").write_text("".join(json.dumps(question) + "\n" for question in asked))
    return folder


def test_cells_are_what_evaluate_says_of_their_runs(data: Path, tmp_path: Path) -> None:
    result = pyfast.experiment(PLAN, data, tmp_path / "E", llm="instant")
    assert [(cell.set, cell.row) for cell in result.cells] == [
        (name, row) for name in ("moons", "films") for row in ("RAG", "N2N/graph")
    ]
    for cell in result.cells:
        report = pyfast.evaluate(cell.runs[0], data / cell.set / "questions.jsonl", metrics=["em_f1", "evidence"])
        assert cell.figures == report.rows[0].figures
        records = pyfast.Run(cell.runs[0]).records
        assert cell.cost.llm_calls == sum(record.usage.llm_calls for record in records) / len(records)
    lines = (tmp_path / "E" / "tables.md").read_text().splitlines()
    rows = {
        cells[0]: cells[1:]
        for line in lines
        if (cells := [c.strip() for c in line.strip("|").split("|")])[0] in ("RAG", "trained")
    }
    assert (
        rows["RAG"][1] == "0.500"
        and rows["RAG"][3] == "0.625"
        and rows["trained"][4:6] == ["needs training", "0.750"]
    )
    assert any("another model" in line for line in lines)
    table = list(csv.DictReader((tmp_path / "E" / "tables.csv").open(encoding="utf-8-sig")))
    assert [float(row["em"]) for row in table] == [cell.figures["em"].value for cell in result.cells]
    assert pq.read_table(tmp_path / "E" / "cells.parquet").column("questions").to_pylist() == [12] * 4
    assert r"\toprule" in (tmp_path / "E" / "tables.tex").read_text()
    assert (tmp_path / "E" / "pareto.png").read_bytes().startswith(b"\x89PNG")
    plot = pypdfium2.PdfDocument(tmp_path / "E" / "pareto.pdf")[0].get_textpage().get_text_range()
    assert "EM" in plot and "tokens per question" in plot


def test_latency_by_one_client_stands_beside_throughput(data: Path, tmp_path: Path, url: str) -> None:  # noqa: F811
    """Each question waits 60 ms: one client sees that, and twelve questions at once are twelve times as fast."""
    plan = {**PLAN, "sets": ["moons"], "latency": 4}
    result = pyfast.experiment(plan, data, tmp_path / "E", llm=url)
    head, rows = result.summary()
    assert head[-4:] == ["questions/s", "p50 s, 1 client", "p95 s, 1 client", "p99 s, 1 client"]
    for row, cell in zip(rows, result.cells, strict=True):
        assert row[:3] == [cell.row, "moons", "openai:m"] and row[3:5] == [
            f"{cell.figures[n].value:.3f}" for n in ("em", "f1")
        ]
        assert 0.06 <= cell.latency["p50"] <= cell.latency["p95"] <= cell.latency["p99"] < 5
        assert cell.throughput is not None and cell.throughput > 2 / cell.latency["p50"]
        assert row[-3:] == [f"{cell.latency[name]:.3f}" for name in ("p50", "p95", "p99")]
    lines = (tmp_path / "E" / "tables.md").read_text().splitlines()
    assert lines[0] == "# Two rows" and [c.strip() for c in lines[2].strip("|").split("|")] == head
    table = list(csv.DictReader((tmp_path / "E" / "tables.csv").open(encoding="utf-8-sig")))
    assert [float(row["p50_seconds"]) for row in table] == [cell.latency["p50"] for cell in result.cells]
    again = pyfast.experiment(plan, data, tmp_path / "E", llm=url)  # nothing is measured again
    assert [cell.latency for cell in again.cells] == [cell.latency for cell in result.cells]
    without = pyfast.experiment(plan, data, tmp_path / "E", llm=url, latency=0)
    assert [cell.latency for cell in without.cells] == [{}, {}] and len(without.summary()[0]) == len(head) - 3


def busy_seconds(run: Path) -> float:
    """For how long at least one question was in progress, moment by moment."""
    with closing(sqlite3.connect(run / "journal.sqlite")) as database:
        ledgers = [json.loads(text) for (text,) in database.execute("SELECT ledger FROM questions")]
    spans = [(one["started"], one["started"] + one["seconds"]) for one in ledgers]
    moments = sorted({moment for span in spans for moment in span})
    return sum(
        b - a for a, b in itertools.pairwise(moments) if any(begin <= a and b <= end for begin, end in spans)
    )


def test_seeds_are_averaged_over_questions(data: Path, tmp_path: Path, url: str) -> None:  # noqa: F811
    plan = {**PLAN, "sets": ["moons"], "rows": PLAN["rows"][:1], "seeds": [1, 2, 3], "temperature": 0.7}
    cell = pyfast.experiment(plan, data, tmp_path / "E", llm=url, limit=6).cells[0]
    reports = [pyfast.evaluate(run, data / "moons" / "questions.jsonl", metrics=["em_f1"]) for run in cell.runs]
    assert len(cell.runs) == 3 and [report.rows[0]["em"].questions for report in reports] == [6] * 3
    mean = sum(report.rows[0]["em"].value for report in reports) / 3
    spread = np.std([report.rows[0]["f1"].value for report in reports], ddof=1)
    assert cell.spread["f1"] == pytest.approx(spread)
    tables = (tmp_path / "E" / "tables.md").read_text()
    assert f"] ± {spread:.3f} |" in tables and "- The number after ± is the standard deviation" in tables
    assert pd.read_csv(tmp_path / "E" / "tables.csv")["f1_sd"].tolist() == [pytest.approx(spread)]
    assert cell.figures["em"].value == pytest.approx(mean) and cell.figures["em"].questions == 6
    statuses = [pyfast.Run(run).status for run in cell.runs]
    assert cell.cost.llm_calls == pytest.approx(sum(one.llm_calls for one in statuses) / 18)
    assert cell.cost.prompt_tokens == pytest.approx(sum(one.prompt_tokens for one in statuses) / 18)
    assert cell.cost.completion_tokens == pytest.approx(sum(one.completion_tokens for one in statuses) / 18)
    assert cell.cost.right == pytest.approx(mean)
    assert cell.throughput == pytest.approx(18 / sum(map(busy_seconds, cell.runs)), rel=1e-3)


def test_a_sample_grows(data: Path, tmp_path: Path) -> None:
    """Into the table of the larger one, whose questions are not the first ones."""
    plan = {**PLAN, "sets": ["moons"], "rows": PLAN["rows"][:1]}
    few, more = (
        pyfast.experiment(plan, data, tmp_path / "E", llm="instant", options=pyfast.RunOptions(sample=n)).cells[0]
        for n in (3, 7)
    )
    asked = [{one.id for one in cell.scored} for cell in (few, more)]
    first = pyfast.experiment(plan, data, tmp_path / "F", llm="instant", limit=7).cells[0]
    assert [len(ids) for ids in asked] == [3, 7] and asked[0] < asked[1] != {one.id for one in first.scored}


def test_other_code_writes_the_tables_of_finished_runs(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def go(limit: int, **options: Any) -> list[int]:
        given = pyfast.RunOptions(**options)
        cells = pyfast.experiment(plan, data, tmp_path / "E", llm="instant", limit=limit, options=given).cells
        return [len(cell.scored) for cell in cells]

    plan = {**PLAN, "sets": ["moons"]}
    assert go(3) == [3, 3]
    runs = sorted((tmp_path / "E/runs").rglob("run.toml"))
    before = [run.read_bytes() for run in runs]
    (tmp_path / "E" / "tables.md").unlink()
    monkeypatch.setattr(import_module("pyfast.engine.configuration"), "code_digest", lambda: "other")
    assert go(3) == [3, 3] and (tmp_path / "E" / "tables.md").exists()
    assert [run.read_bytes() for run in runs] == before and len(runs) == 2
    assert caplog.text.count("its questions were answered by different code") == 2
    with pytest.raises(InputError, match="--restart or --accept-code"):
        go(4)
    assert go(4, accept_code=True) == [4, 4]
    assert all("accepted_code" in run.read_text() for run in runs)
    assert go(4, restart=True) == [4, 4] and all('digest = "other"' in run.read_text() for run in runs)


def test_differences_have_holms_correction_over_all(data: Path, tmp_path: Path, url: str) -> None:  # noqa: F811
    result = pyfast.experiment({**PLAN, "columns": ["em", "f1", "recall"]}, data, tmp_path / "E", llm=url)
    differences = result.compare()
    assert {one.a.partition(",")[0] for one in differences} == {"RAG"} and len(differences) == 6
    expected = multipletests([one.p for one in differences], method="holm")[1]
    assert [one.p_holm for one in differences] == pytest.approx(list(expected))
    again = result.compare("N2N/graph")
    assert [one.difference for one in again] == pytest.approx([-one.difference for one in differences])
    with pytest.raises(InputError, match="no row 'trained' was run"):
        result.compare("trained")
    (tmp_path / "plan.json").write_text("x")
    with pytest.raises(InputError, match="expected a name that ends in"):
        result.compare(None, tmp_path / "plan.json")


def test_the_command_names_the_set_of_each_comparison_and_writes_them(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plan = tmp_path / "plan.toml"
    rows = "".join(f'[[rows]]\nname = "{row["name"]}"\nsystem = "{row["system"]}"\n' for row in PLAN["rows"][:2])
    plan.write_text(f'sets = ["moons", "films"]\nmetrics = ["em_f1"]\n{rows}')
    given = [str(plan), "--data", str(data), "--out", str(tmp_path / "E"), "--llm", "instant", "--limit", "4"]
    done = CliRunner().invoke(app, ["experiment", *given, "--compare", "--baseline", "N2N/graph"])
    assert done.exit_code == 0, done.output
    assert "compared with N2N/graph; this table is also in" in done.output and "failed" not in done.output
    few = "films: 4 independent questions cannot show a difference, regardless of p: to test 4 differences"
    assert (
        few in caplog.text and f"- {few}, at least 8 questions" in (tmp_path / "E" / "comparisons.md").read_text()
    )
    for kind, rule in ((".md", "| set"), (".tex", r"\toprule")):  # as they are in a paper, without a script
        table = (tmp_path / "E" / f"comparisons{kind}").read_text()
        assert rule in table and table.count("N2N/graph") == 4 and "p (Holm)" in table
    assert all(f"RAG, {name}, instant" in done.output for name in ("moons", "films"))
    found = list(csv.DictReader((tmp_path / "E" / "comparisons.csv").open(encoding="utf-8-sig")))
    differences = pyfast.experiment(plan, data, tmp_path / "E", llm="instant", limit=4).compare("N2N/graph")
    assert [(one["set"], one["row"], one["baseline"], one["figure"]) for one in found] == [
        (name, "RAG", "N2N/graph", figure) for name in ("moons", "films") for figure in ("em", "f1")
    ]
    names = {"of_baseline": "of_a", "of_row": "of_b"}
    for name in (*names, "difference", "low", "high", "p", "p_holm", "questions"):
        values = [getattr(one, names.get(name, name)) for one in differences]
        assert [float(one[name]) for one in found] == values


@pytest.mark.slow(suite="crashes")
def test_killed_twice_it_ends_as_if_it_was_not(data: Path, tmp_path: Path, url: str) -> None:  # noqa: F811
    plan = tmp_path / "plan.toml"
    rows = "".join(f'[[rows]]\nname = "{row["name"]}"\nsystem = "{row["system"]}"\n' for row in PLAN["rows"][:2])
    plan.write_text(f'sets = ["moons", "films"]\nmetrics = ["em_f1"]\n{rows}')

    def command(out: Path) -> list[str]:
        given = ["--data", data, "--out", out, "--llm", url, "--concurrency", 2]
        return [sys.executable, "-m", "pyfast", "experiment", *map(str, [plan, *given])]

    def killed(out: Path, runs: int) -> None:
        """Kill it once so many runs have started."""
        process = subprocess.Popen(command(out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while len(list(out.glob("runs/*/*/*/*/answers.jsonl"))) < runs:
            assert process.poll() is None
            time.sleep(0.02)
        time.sleep(0.15)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()

    killed(tmp_path / "A", 1)
    killed(tmp_path / "A", 3)
    for out in (tmp_path / "A", tmp_path / "B"):
        subprocess.run(command(out), check=True, capture_output=True)
    for path in (tmp_path / "B").glob("runs/*/*/*/*/answers.jsonl"):
        assert path.read_bytes() == (tmp_path / "A" / path.relative_to(tmp_path / "B")).read_bytes()

    def quality(out: Path) -> list[tuple[str, ...]]:
        return [
            (row["set"], row["row"], row["em"], row["f1"], row["llm_calls"])
            for row in csv.DictReader((out / "tables.csv").open(encoding="utf-8-sig"))
        ]

    assert quality(tmp_path / "A") == quality(tmp_path / "B") and len(quality(tmp_path / "A")) == 4
    started = time.monotonic()
    subprocess.run(command(tmp_path / "A"), check=True, capture_output=True)  # all of it is there
    assert time.monotonic() - started < 20


PAPERS = ("n2n-table-1", "n2n-table-2", "subqrag-table-2", "mtqa-table-3", "mtqa-table-4", "hseq-table-5")
PAPERS += ("convqa-table-2",)


def test_the_plan_of_the_page_on_quality_has_every_system_of_single_questions() -> None:
    rows = read_plan("quality").rows
    registered = {one.name for one in entry_points(group="pyfast.systems")} - {"graph_convqa"}
    assert {row.system for row in rows} == registered
    for row in rows:
        settings = load_system(row.system).configure(dict(row.settings))
        assert settings.model_dump()["abstain"] is False


def test_plans_of_the_papers_can_be_run() -> None:
    """Each row's system takes its settings; the published figures are those of the paper's page."""
    assert set(ready_plans()) == {*PAPERS, "quality"}
    for name in PAPERS:
        plan = read_plan(name)
        assert plan.limit is None and plan.paper_model and all(row.paper for row in plan.rows)
        for row in plan.rows:
            if not row.not_run:
                load_system(row.system).configure(dict(row.settings))
            assert set(row.paper) <= set(plan.sets)
            assert all(set(figures) <= set(plan.columns) for figures in row.paper.values())


@pytest.mark.parametrize(
    ("name", "page"),
    [("n2n-table-2", "n2n"), ("subqrag-table-2", "subqrag"), ("mtqa-table-3", "mtqa"), ("mtqa-table-4", "mtqa")],
)
def test_published_figures_are_those_of_the_papers_page(name: str, page: str) -> None:
    text = Path("docs/papers", f"{page}.md").read_text(encoding="utf-8")
    for row in read_plan(name).rows:
        for figures in row.paper.values():
            pair = [figures[column] for column in read_plan(name).columns[:2]]
            formats = [(1, ".3f"), (100, ".2f"), (100, ".1f")]
            shapes = [", ".join(f"{scale * value:{shape}}" for value in pair) for scale, shape in formats]
            assert any(shape in text for shape in shapes), (row.name, pair)


def changed(file: Path, before: str, after: str) -> None:
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))


def test_a_changed_corpus_is_refused_until_a_restart(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data / "moons", tmp_path / "DATA" / "moons")
    corpus = tmp_path / "DATA" / "moons" / "corpus.jsonl"
    plan = {"sets": ["moons"], "rows": PLAN["rows"][:1]}
    more = {**plan, "rows": [*plan["rows"], {"name": "three", "system": "rag", "settings": {"k": 3}}]}

    def go(plan: dict[str, Any], **options: Any) -> list[pyfast.Run]:
        given = pyfast.RunOptions(**options)
        cells = pyfast.experiment(plan, tmp_path / "DATA", tmp_path / "E", llm="instant", options=given).cells
        return [pyfast.Run(cell.runs[0]) for cell in cells]

    go(plan)
    changed(corpus, "made by maker 4", "made by builder 4")
    for one in (plan, more):
        with pytest.raises(
            InputError, match=r"moons/corpus.jsonl has changed since .*another --out, or use --restart"
        ):
            go(one)
    for run in go(more, restart=True):
        assert "made by builder 4" in str([item.snippet for item in run.records[4].evidence])
    assert (tmp_path / "E" / "indexes" / "moons.old-1" / "manifest.json").exists()
    assert [run.status.states for run in go(more)] == [{"answered": 12}] * 2


def test_an_index_of_an_unknown_corpus_is_said(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plan = {"sets": ["moons"], "rows": PLAN["rows"][:1]}
    pyfast.build_index(data / "moons" / "corpus.jsonl", tmp_path / "E" / "indexes" / "moons")
    for said in (1, 0):
        pyfast.experiment(plan, data, tmp_path / "E", llm="instant", limit=2)
        assert caplog.text.count("moons: it is not known whether") == said
        caplog.clear()


def test_indexes_of_another_experiment_can_be_copied(data: Path, tmp_path: Path) -> None:
    plan = {"sets": ["moons"], "rows": PLAN["rows"][:1], "sample": 3}
    (first,) = pyfast.experiment(plan, data, tmp_path / "E", llm="instant", limit=6).cells
    shutil.copytree(tmp_path / "E" / "indexes", tmp_path / "F" / "indexes")
    before = (tmp_path / "F" / "indexes" / "moons" / "manifest.json").stat().st_ino
    (cell,) = pyfast.experiment(plan, data, tmp_path / "F", llm="instant", limit=6).cells
    assert cell.figures == first.figures and {one.id for one in cell.scored} <= {f"q{i}" for i in range(6)}
    assert (tmp_path / "F" / "indexes" / "moons" / "manifest.json").stat().st_ino == before
    said = "Questions of moons: 3 of the 12 in the data set, drawn at random from the first 6."
    assert said in (tmp_path / "F" / "tables.md").read_text()
    with pytest.raises(InputError, match=r"not a run folder .*; pass a run inside it, such as .*/seed-0$"):
        pyfast.evaluate(cell.runs[0].parent, data / "moons" / "questions.jsonl")


def test_rows_with_other_retrievers(data: Path, tmp_path: Path) -> None:
    """Each finds what `answer` finds with it, and the tables name it."""
    with vector_server() as server:
        dense = f"dense:openai:m@{server}"
        names = {"BM25": "bm25", "dense": dense}
        rows = [{"name": name, "system": "rag", "retriever": it, "rerank": "off"} for name, it in names.items()]
        plan = {"sets": ["moons"], "rows": rows, "vectors": [dense]}
        cells = pyfast.experiment(plan, data, tmp_path / "E", llm="instant").cells
        for cell in cells:
            index = pyfast.open_index(tmp_path / "E" / "indexes" / "moons", names[cell.row])
            alone = pyfast.answer(data / "moons" / "questions.jsonl", index=index, llm="instant", system="rag")
            assert [one.line() for one in pyfast.Run(cell.runs[0]).records] == [
                one.line() for one in alone.records
            ]
        with pytest.raises(InputError, match="`vectors` of the plan has changed since"):
            pyfast.experiment({**plan, "vectors": []}, data, tmp_path / "E", llm="instant")
        with pytest.raises(InputError, match=r"the row 'dense': .*set the key `vectors` of the plan"):
            pyfast.experiment({**plan, "vectors": []}, data, tmp_path / "F", llm="instant")
        assert not (tmp_path / "F" / "runs").exists()
        again = pyfast.experiment(plan, data, tmp_path / "F", llm="instant").cells  # No run was lost, so no error.
        assert [cell.figures for cell in again] == [cell.figures for cell in cells]
    said = f"- dense: searches with the retriever {dense} and the reranker off.\n"
    assert said in (tmp_path / "E" / "tables.md").read_text().replace("\\", "")


def test_changed_gold_changes_the_figures(data: Path, tmp_path: Path) -> None:
    """Of finished runs, which stay as they are."""
    shutil.copytree(data / "moons", tmp_path / "DATA" / "moons")
    plan, questions = (
        {"sets": ["moons"], "rows": PLAN["rows"][:1]},
        tmp_path / "DATA" / "moons" / "questions.jsonl",
    )
    (cell,) = pyfast.experiment(plan, tmp_path / "DATA", tmp_path / "E", llm="instant").cells
    before = (cell.runs[0] / "answers.jsonl").read_bytes()
    given = pyfast.Run(cell.runs[0]).records[1].answer
    changed(questions, '"42"', json.dumps(given))
    (cell,) = pyfast.experiment(plan, tmp_path / "DATA", tmp_path / "E", llm="instant").cells
    assert cell.scored[1].figures["em"] == 1.0 and (cell.runs[0] / "answers.jsonl").read_bytes() == before
    changed(questions, "Who made moon 3?", "Who made moon 5?")
    with pytest.raises(InputError, match="questions"):
        pyfast.experiment(plan, tmp_path / "DATA", tmp_path / "E", llm="instant")


def test_a_system_of_a_module_has_a_latency(data: Path, tmp_path: Path) -> None:
    plan = {"sets": ["moons"], "rows": [{"name": "own", "system": "echo_system:SYSTEM"}], "latency": 2}
    cells = pyfast.experiment(plan, data, tmp_path / "E", llm="instant").cells
    assert cells[0].latency["p50"] > 0
    file = tmp_path / "E" / "runs" / "moons" / "own" / "instant" / "latency-2" / "bench.json"
    before = file.read_bytes()
    pyfast.experiment(plan, data, tmp_path / "E", llm="instant", options=pyfast.RunOptions(restart=True))
    assert file.read_bytes() != before  # The row may have other settings now.


def test_tables_are_written_even_if_a_latency_cannot_be_measured(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "E"
    for row in ("RAG", "N2N-graph"):
        (out / "runs" / "moons" / row / "instant").mkdir(parents=True)
    (out / "runs" / "moons" / "N2N-graph" / "instant" / "latency-2").write_text("a file where a folder must be")
    with pytest.raises(OSError, match="latency-2"):
        pyfast.experiment({**PLAN, "sets": ["moons"], "latency": 2}, data, out, llm="instant")
    table = list(csv.DictReader((out / "tables.csv").open(encoding="utf-8-sig")))
    assert [one["row"] for one in table] == ["RAG", "N2N/graph"]
    assert [bool(one["p50_seconds"]) for one in table] == [True, False]


@of_each
def brevity(record: pyfast.Record, gold: Any) -> dict[str, tuple[float, float]]:
    text = record.answer or ""
    return {"words": (float(len(text.split())), float(record.answer is not None))}


async def _broken(question: Question, ctx: Context, settings: Settings) -> Answer:
    if question.id not in ("q0", "q1"):
        raise CallError(f"{question.id}: the server\nsaid <b>no</b> & more")
    return Answer("maker 0") if question.id == "q0" else Answer(None)


async def _lost(question: Question, ctx: Context, settings: Settings) -> Answer:
    raise CallError("nobody is there")


BROKEN = System("broken", _broken, Settings, (), needs_index=False)
LOST = System("lost", _lost, Settings, (), needs_index=False)


def test_a_single_row_is_compared_with_nothing(data: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text('sets = ["moons"]\nmetrics = ["em_f1"]\n[[rows]]\nname = "RAG"\nsystem = "rag"\n')
    given = [str(plan), "--data", str(data), "--out", str(tmp_path / "E"), "--llm", "instant", "--limit", "4"]
    done = CliRunner().invoke(app, ["experiment", *given, "--compare"])
    assert done.exit_code == 0 and done.output.endswith("nothing to compare: only the row RAG was run\n")
    assert "p (Holm)" not in done.output and not list((tmp_path / "E").glob("comparisons.*"))


def test_failed_questions_are_seen_everywhere(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A row whose questions failed has low figures and costs little: every table and every file says why."""
    plan = tmp_path / "plan.toml"
    rows = [("RAG", "rag"), ("broken", "test_experiment:BROKEN")]
    text = 'sets = ["moons"]\nmetrics = ["em_f1"]\nseeds = [1, 2]\n'
    plan.write_text(text + "".join(f'[[rows]]\nname = "{name}"\nsystem = "{system}"\n' for name, system in rows))
    out = tmp_path / "E"
    given = [str(plan), "--data", str(data), "--out", str(out), "--llm", "instant", "--compare"]
    done = CliRunner().invoke(app, ["experiment", *given])
    assert done.exit_code == 0, done.output  # as `answer`, which also fails only if every question did
    note = (
        "broken, moons, instant: 20 of 24 questions failed and count as wrong; the first reason is: q2: the server"
    )
    assert (
        f"{note} said <b>no</b> & more" in caplog.text
        and "failed" in done.output
        and "RAG, moons" not in caplog.text
    )
    result = pyfast.experiment(plan, data, out, llm="instant")
    head, cells = result.summary()
    assert head[3:5] == ["failed", "abstained"] and [row[3:5] for row in cells] == [["0", "0"], ["20", "2"]]
    table = pd.read_csv(out / "tables.csv")
    assert table["failed"].tolist() == [0, 20] and table["abstained"].tolist() == [0, 2]
    result.compare(out=[out / "comparisons.md", out / "comparisons.tex"])
    for name, times in (("tables", 1), ("comparisons", 1)):
        assert (out / f"{name}.md").read_text().count(rf"- {note} said \<b>no\</b> & more") == times
        assert (out / f"{name}.tex").read_text().count(rf"\item {note} said <b>no</b> \& more") == times
    good, bad = (str(cell.runs[0]) for cell in result.cells)
    of_run = "10 of 12 questions failed and count as wrong; the first reason is: q2: the server said"
    for command in (["evaluate", good, bad], ["compare", good, bad]):
        for kind in ("md", "tex", "csv"):
            file = tmp_path / f"{command[0]}.{kind}"
            done = CliRunner().invoke(app, [*command, "--out", str(file)])
            assert done.exit_code == 0 and f"run 2: {of_run} <b>no" in " ".join(done.stdout.split()), done.output
            assert kind == "csv" or (of_run in file.read_text() and "abstained" in file.read_text())
    evaluated, compared = (pd.read_csv(tmp_path / f"{name}.csv") for name in ("evaluate", "compare"))
    whole = evaluated[evaluated["by"] == "all"]
    assert whole["failed"].tolist() == [0, 10] and whole["abstained"].tolist() == [0, 1]
    of_failed = compared.set_index("figure").loc["failed"]
    assert (of_failed["of_a"], of_failed["of_b"], of_failed["difference"]) == (0, 10, 10)
    alone = CliRunner().invoke(app, ["evaluate", bad, "--json"])
    assert json.loads(alone.stdout)[0]["first_failure"].startswith("q2: the server")

    plan.write_text(plan.read_text() + '[[rows]]\nname = "too"\nsystem = "test_experiment:BROKEN"\n')
    assert CliRunner().invoke(app, ["experiment", *given]).exit_code == 0
    both = note.replace("broken, moons, instant: 20 of 24", "broken, moons, instant and 1 more: 40 of 48")
    assert (out / "tables.md").read_text().count("the first reason") == 1 and both in caplog.text
    plan.write_text(plan.read_text() + '[[rows]]\nname = "lost"\nsystem = "test_experiment:LOST"\n')
    done = CliRunner().invoke(app, ["experiment", *given])
    assert isinstance(done.exception, CallError) and "all questions of lost failed" in str(done.exception)
    assert "nobody is there" in str(done.exception) and (out / "comparisons.tex").exists()


def test_plots_show_names_as_they_are(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    points = [("$\\frac a$", 0.00001, 0.5), ("\u6708", 0.00002, 0.7)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plot_pareto({"$moons": points}, "USD per question", "f1", tmp_path / "pareto.png")
    assert (tmp_path / "pareto.png").read_bytes().startswith(b"\x89PNG")
    assert "pareto.png: Glyph 26376" in caplog.text and "/" not in caplog.messages[0]


@given(st.floats(1e-9, 1e6))
def test_short_numbers_have_three_digits_and_no_exponent(value: float) -> None:
    text = shown(value)
    assert "e" not in text and float(text.replace(",", "")) == pytest.approx(value, rel=0.005)
    assert len(text.lstrip("0.").replace(".", "")) <= 3 or value >= 99


POINTS = st.lists(
    st.tuples(st.text("ab", max_size=2), st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=12
)


@given(POINTS)
def test_the_front_is_what_nothing_beats(points: list[tuple[str, float, float]]) -> None:
    front = pareto_front(points)
    beaten = {
        (cost, value)
        for _, cost, value in points
        if any((c <= cost and v >= value) and (c, v) != (cost, value) for _, c, v in points)
    }
    assert {(cost, value) for _, cost, value in front} == {(c, v) for _, c, v in points} - beaten


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"rows": []}, "rows"),
        ({"sets": []}, "sets"),
        (
            {"rows": [{"name": "a", "system": "rag"}, {"name": "a", "system": "n2n"}]},
            "^the experiment: two rows are called 'a'",
        ),
        ({"colums": ["em"]}, "^the experiment: colums: unknown key; did you mean columns\\?; known: title, sets"),
        (
            {"rows": [{"name": "a", "sytem": "rag"}]},
            r"rows.0.sytem: unknown key; did you mean system\?; known: name",
        ),
        ({"models": {"m": {"lm": "instant"}}}, r"models.m.l"),
        ({"metrics": ["no_such:metric"]}, "no_such:metric cannot be imported"),
        ({"columns": ["f1x"]}, r"unknown figure 'f1x'; did you mean f1\?; known: em, f1"),
        ({"metrics": None, "columns": ["f1x"]}, "unknown figure 'f1x'"),
        ({"columns": ["em", "f1", "em"]}, "'em' is named twice"),
        ({"seeds": [1, 2, 1]}, "1 is named twice"),
        ({"limit": 0}, "limit"),
        ({"knowledge": "magic"}, "knowledge"),
        ({"documents": "some"}, "documents"),
        ({"sets": ["nowhere"]}, "nowhere"),
        ({"rows": [{"name": "a", "system": "nobody"}]}, "nobody"),
        ({"rows": [{"name": "a"}]}, "the row 'a' needs either `system`, or `not_run`"),
    ],
)
def test_bad_plans_are_refused(data: Path, tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        pyfast.experiment({**PLAN, **change}, data, tmp_path / "E", llm="instant")
    assert not (tmp_path / "E").exists()


@pytest.mark.parametrize("place", ["rows", "models"])
def test_two_names_never_share_a_folder(data: Path, tmp_path: Path, place: str) -> None:
    rows = [{"name": "RAG, k=5", "system": "rag"}, {"name": "RAG k 5", "system": "rag", "settings": {"k": 2}}]
    models = {"m 1": {"llm": "instant"}, "m-1": {"llm": "instant"}}
    plan = {"sets": ["moons"], "rows": rows if place == "rows" else rows[:1], "models": models}
    with pytest.raises(InputError, match=rf"the {place} '.*' and '.*' would share the folder"):
        pyfast.experiment(plan, data, tmp_path / "E")
    assert not (tmp_path / "E").exists()


def test_a_wrong_setting_of_the_last_row_is_found_before_the_first_is_run(data: Path, tmp_path: Path) -> None:
    rows = [
        {"name": "RAG", "system": "rag"},
        {"name": "N2N", "system": "n2n", "settings": {"graph": False, "a": 1}},
    ]
    with pytest.raises(InputError, match=r"^the row 'N2N': n2n has no setting 'a'"):
        pyfast.experiment({"sets": ["moons"], "rows": rows}, data, tmp_path / "E", llm="instant")
    plan = tmp_path / "plan.toml"
    plan.write_text('sets = ["moons"]\nrows = [{name = "N2N", system = "n2n", settings = {alhpa = 1}}]\n')
    wanted = f"^{re.escape(str(plan))}: the row 'N2N': n2n has no setting 'alhpa'; did you mean alpha\\?;"
    with pytest.raises(InputError, match=wanted):
        pyfast.experiment(plan, data, tmp_path / "E", llm="instant")
    assert not (tmp_path / "E").exists()


@pytest.mark.parametrize(("key", "name"), [("retriever", "bm52"), ("rerank", "crosss")])
def test_an_unknown_retriever_is_refused_before_an_index_is_built(
    data: Path, tmp_path: Path, key: str, name: str
) -> None:
    plan = {
        "sets": ["moons"],
        "rows": [{"name": "RAG", "system": "rag"}, {"name": "B", "system": "rag", key: name}],
    }
    with pytest.raises(InputError, match=f"unknown re[a-z]+ '{name}'; known: "):
        pyfast.experiment(plan, data, tmp_path / "OUT", llm="instant")
    assert not (tmp_path / "OUT").exists()


def test_published_figures_of_no_set_or_column_are_said(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    published = {"moon": {"em": 0.3}, "moons": {"emm": 0.2, "f1": 0.4}}
    plan = {"sets": ["moons"], "rows": [{"name": "RAG", "system": "rag", "paper": published}]}
    pyfast.experiment({**plan, "paper_questions": {"moon": 10}}, data, tmp_path / "E", llm="instant")
    assert [one for one in caplog.messages if "the plan has no" in one] == [
        "paper_questions: the plan has no set 'moon'; did you mean moons?",
        "published figures of 'moon' are not shown: the plan has no such set; did you mean moons?",
        "published figures of 'emm' are not shown: the plan has no such column; did you mean em?",
    ]


def test_the_folder_of_a_run_is_no_experiment(data: Path, tmp_path: Path) -> None:
    pyfast.answer(["Where is Titan?"], index=None, llm="instant", system="direct", settings={}, run=tmp_path / "R")
    before = sorted(tmp_path.rglob("*"))
    plan = {"sets": ["moons"], "rows": [{"name": "RAG", "system": "rag"}]}
    with pytest.raises(InputError, match="is the folder of a run; use another one for the experiment"):
        pyfast.experiment(plan, data, tmp_path / "R", llm="instant")
    assert sorted(tmp_path.rglob("*")) == before


def test_an_unknown_figure_is_refused_and_the_runs_are_kept(data: Path, tmp_path: Path) -> None:
    """The figures of a user's own metric are only known after the runs."""
    plan = {"sets": ["moons"], "rows": [{"name": "RAG", "system": "rag"}], "columns": ["em", "f1x"]}
    plan["metrics"] = ["em_f1", "test_experiment:brevity"]
    with pytest.raises(InputError, match="unknown figure 'f1x'; known: em, f1, "):
        pyfast.experiment(plan, data, tmp_path / "E", llm="instant")
    journal = next((tmp_path / "E" / "runs").glob("**/journal.sqlite"))
    before = journal.read_bytes()
    result = pyfast.experiment({**plan, "columns": ["em", "f1", "words"]}, data, tmp_path / "E", llm="instant")
    assert len(result.cells) == 1 and journal.read_bytes() == before


def test_questions_without_gold_are_said(data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.copytree(data / "moons", tmp_path / "DATA" / "moons")
    questions = tmp_path / "DATA" / "moons" / "questions.jsonl"
    asked = [json.loads(line) for line in questions.read_text().splitlines()]
    for one in asked[:4]:
        del one["answers"]
    questions.write_text("".join(json.dumps(one) + "\n" for one in asked))
    rows = [{"name": name, "system": name} for name in ("rag", "direct")]
    pyfast.experiment({"sets": ["moons"], "rows": rows}, tmp_path / "DATA", tmp_path / "E", llm="instant")
    said = f"moons: 4 questions have no gold and are not scored: {', '.join(one['id'] for one in asked[:4])}"
    assert [one for one in caplog.messages if "gold" in one] == [said]
    assert f"- {said}\n" in (tmp_path / "E" / "tables.md").read_text()


def test_an_experiment_that_is_done_needs_no_server(data: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(Path(__file__).parents[2] / "benchmarks" / "scripted_server.py"), "0"]
    plan = {"sets": ["moons"], "rows": [{"name": "RAG", "system": "rag"}]}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        llm = f"openai:m@http://127.0.0.1:{int(server.stdout.readline())}"
        first = pyfast.experiment(plan, data, tmp_path / "E", llm=llm)
        server.kill()
    for address in (llm, "openai:m@http://127.0.0.1:9"):  # Another server has the same model.
        again = pyfast.experiment(plan, data, tmp_path / "E", llm=address)
        assert [one.figures for one in again.cells] == [one.figures for one in first.cells]
        assert {one.model for one in again.cells} == {"openai:m"}


def test_the_command_lists_plans_and_needs_a_folder(tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["experiment", "--list"])
    assert shown.exit_code == 0 and "n2n-table-2: N2N-GQA, table 2: HybridQA" in shown.stdout
    lacking = CliRunner().invoke(app, ["experiment", "n2n-table-2"])
    assert isinstance(lacking.exception, InputError) and "--out" in str(lacking.exception)
    given = ["--out", str(tmp_path / "E"), "--llm", "instant"]
    for arguments, fault in (
        (["n2n-table-9"], "n2n-table-9: there is no such file or plan; did you mean n2n-table-2?"),
        (["quality", "--baseline", "RAG"], "--baseline: can only be used with --compare"),
        (
            ["quality", "--compare", "--baseline", "RAGS"],
            "--baseline: this plan has no row 'RAGS'; its rows are: ",
        ),
    ):
        refused = CliRunner().invoke(app, ["experiment", *arguments, *given])
        assert isinstance(refused.exception, InputError) and str(refused.exception).startswith(fault)


def test_tables_say_what_differs_from_the_paper(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """In .md and .tex: model, number of questions, what they search, the graph, and what the plan knows."""
    folder = tmp_path / "data" / "lakes"
    folder.mkdir(parents=True)
    texts = [{"id": f"d{i}", "title": f"Lake {i}", "text": f"Lake {i} lies in North_{i}."} for i in range(7)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps({"kind": "text", **text}) + "\n" for text in texts))
    asked = [
        {"id": f"q{i}", "question": f"Where is Lake {i}?", "answers": [f"North {i}"], "documents": ["d1", f"d{i}"]}
        for i in (2, 3, 4)
    ]
    (folder / "questions.jsonl").write_text("".join(json.dumps(question) + "\n" for question in asked))
    rows = [
        {"name": "SubQRAG", "system": "subqrag", "paper": {"lakes": {"em": 0.5}}, "settings": {"abstain": False}}
    ]
    plan = {"sets": ["lakes"], "rows": rows, "paper_model": "gpt", "limit": 2, "paper_questions": {"lakes": 1000}}
    plan["paper_differences"] = ["The paper has 50% & more."]
    pyfast.experiment(plan, tmp_path / "data", tmp_path / "own", llm="instant")
    told = (tmp_path / "own" / "tables.md").read_text().splitlines()
    notes = [line.removeprefix("- ") for line in told if line.startswith("- ")]
    assert notes == [
        "SubQRAG: the system subqrag with abstain = off.",
        "Model: the measured figures are from instant, the published figures (paper) from gpt.",
        "Questions of lakes: 2 of the 3 in the data set, in the paper 1,000.",
        "Search in lakes: each question searches its own documents (2.0 on average), of 7 in the corpus."
        " Retriever: bm25.",
        "Knowledge graph of lakes: extracted by rules, without an LLM.",
        "In brackets: the 95 % bootstrap interval of the figure over the questions.",
        "The paper has 50% & more.",
    ]
    assert told.index("- " + notes[0]) > max(n for n, line in enumerate(told) if line.startswith("|"))
    tex = (tmp_path / "own" / "tables.tex").read_text()
    assert tex.count(r"\item ") == len(notes) and r"The paper has 50\% \& more." in tex
    assert tex.index(r"\begin{itemize}") > tex.index(r"\bottomrule")
    result = pyfast.experiment(
        {**plan, "documents": "all", "knowledge": "llm"}, tmp_path / "data", tmp_path / "all", llm="instant"
    )
    told = (tmp_path / "all" / "tables.md").read_text().splitlines()
    assert "- Search in lakes: each question searches all 7 documents of the corpus. Retriever: bm25." in told
    (extraction,) = open_knowledge(tmp_path / "all" / "indexes" / "lakes-instant").extractions
    spent = f"{extraction['prompt_tokens'] + extraction['completion_tokens']:,} tokens"
    by = f"the model of this table (instant), with {extraction['calls']} LLM calls and {spent}"
    assert f"- Knowledge graph of lakes: extracted by {by}." in told and extraction["calls"] > 1
    again = pyfast.experiment(
        {**plan, "documents": "all", "knowledge": "llm"}, tmp_path / "data", tmp_path / "all", llm="instant"
    )
    assert [cell.figures for cell in again.cells] == [cell.figures for cell in result.cells]
    caplog.set_level("INFO", "pyfast")
    rows = [{"name": name, "system": name} for name in ("rag", "direct")]
    pyfast.experiment(
        {"sets": ["lakes"], "rows": rows, "seeds": [0, 1]}, tmp_path / "data", tmp_path / "E", llm="instant"
    )
    assert caplog.text.count("only the documents that they list are searched") == 1


def test_every_plan_of_a_paper_knows_its_differences() -> None:
    for name in PAPERS:
        plan = read_plan(name)
        assert len(plan.paper_differences) >= 3 and all(line.endswith(".") for line in plan.paper_differences)
    assert read_plan("n2n-table-1").documents == "all"  # as its title says: over the whole corpus
