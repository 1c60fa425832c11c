"""What a run costs, and what one will cost: against sums by hand, and against the run itself."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from runs import Watched
from typer.testing import CliRunner

import pyfast
from pyfast.commands.cli import app
from pyfast.engine.journal.journal_reader import used_by
from pyfast.errors import InputError
from pyfast.evaluation import Prices, read_prices
from pyfast.evaluation.cost import Price
from pyfast.llm import Request

PRICES = (
    "currency = 'EUR'\n[models.instant]\ninput = 0.5\ncached_input = 0.05\noutput = 2.0\n"
    "[models.m]\ninput = 1\noutput = 1\n"
)
USAGE = ("llm_calls", "prompt_tokens", "completion_tokens")


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cost") / "q.jsonl"
    lines = ({"id": str(i), "question": f"Who discovered moon {i}?", "answers": ["discovered"]} for i in range(60))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def runs(questions: Path, small: pyfast.Index) -> list[Path]:
    folders = [questions.parent / name for name in ("A", "B")]
    for folder, system in zip(folders, ("rag", "n2n"), strict=True):
        pyfast.answer(questions, index=small, llm="instant", system=system, run=folder)
    return folders


def test_money_is_the_sum_over_questions_and_answers(runs: list[Path], questions: Path, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(PRICES)
    comparison = pyfast.compare(runs, questions, prices=tmp_path / "p.toml")
    for folder, cost in zip(runs, comparison.costs, strict=True):
        records = pyfast.Run(folder).records
        usages = [record.usage for record in records]
        paid = [(0.5 * u.prompt_tokens + 2.0 * u.completion_tokens) / 1e6 for u in usages]  # nothing is cached
        assert cost.money == pytest.approx(np.mean(paid)) and cost.cached_tokens == 0
        assert cost.llm_calls == np.mean([usage.llm_calls for usage in usages])
        scores = [one.figures["em"] or 0.0 for one in pyfast.evaluate(folder, questions).questions]
        assert cost.right == pytest.approx(np.mean(scores))
        if cost.right:
            assert cost.per_right["money"] == pytest.approx(sum(paid) / sum(scores))
            assert cost.per_right["llm_calls"] == pytest.approx(sum(u.llm_calls for u in usages) / sum(scores))
        else:
            assert set(cost.per_right.values()) == {None}
    assert pyfast.compare(runs, questions).costs[0].money is None


def test_figures_and_costs_in_one_table(runs: list[Path], questions: Path, tmp_path: Path) -> None:
    """One row for each run, with the costs of the records, in every kind of file; one run likewise."""
    (tmp_path / "p.toml").write_text(PRICES)
    prices = tmp_path / "p.toml"
    reports = {str(run): pyfast.evaluate(run, questions, prices=prices) for run in runs}
    assert [one.cost for one in reports.values()] == pyfast.compare(runs, questions, prices=prices).costs
    for kind in ("csv", "parquet", "xlsx", "jsonl", "md", "tex"):
        pyfast.write_figures(reports, tmp_path / f"f.{kind}")
    read = [pd.read_csv(tmp_path / "f.csv"), pd.read_excel(tmp_path / "f.xlsx")]
    read += [pd.read_parquet(tmp_path / "f.parquet"), pd.read_json(tmp_path / "f.jsonl", lines=True)]
    for table in read:
        for run, row in zip(runs, table.to_dict("records"), strict=True):
            usages = [record.usage for record in pyfast.Run(run).records]
            for name in ("llm_calls", "prompt_tokens", "completion_tokens"):
                assert row[name] == pytest.approx(np.mean([getattr(one, name) for one in usages]))
            assert row["seconds"] > 0 and row["money"] > 0 and row["currency"] == "EUR" and row["em_low"] >= 0
    for kind in ("md", "tex"):
        head, *rows = [line for line in (tmp_path / f"f.{kind}").read_text().splitlines() if line[:1] in "| "]
        ends = [re.split(r" *[|&] *", line.strip(" |\\")) for line in (head, *rows)]
        names = ["LLM calls", "tokens in", "computed", "tokens out", "seconds", "EUR"]
        assert ends[0][-6:] == names and len(rows) >= 2
        costs = [one.cost for one in reports.values() if one.cost]
        assert [line[-1] for line in ends[-2:]] == [f"{cost.money:.6f}" for cost in costs]
    assert pyfast.evaluate(runs[0], questions).cost is None
    alone = pyfast.evaluate(runs[0], questions, costs=True).cost
    assert alone and alone.money is None and alone.seconds
    in_memory = pyfast.answer(["Who?"], llm="instant", system="direct")
    asked = [{"id": in_memory.records[0].id, "answers": ["x"]}]
    cost = pyfast.evaluate(in_memory, asked, prices=prices).cost
    assert cost and cost.llm_calls == 1 and cost.seconds is cost.money is None
    with pytest.raises(InputError, match="no price for 'instant'"):
        pyfast.evaluate(runs[0], questions, prices=Prices(models={}))


def test_sums_of_a_run(runs: list[Path], questions: Path, tmp_path: Path) -> None:
    """`status`, `evaluate` and `export` have the same sum of money, which is that of the records."""
    (tmp_path / "p.toml").write_text(PRICES)
    run, prices = runs[0], str(tmp_path / "p.toml")
    usages = {record.id: record.usage for record in pyfast.Run(run).records}
    paid = {id: (0.5 * one.prompt_tokens + 2.0 * one.completion_tokens) / 1e6 for id, one in usages.items()}
    total, shown = pyfast.Run(run).money(prices), f"{sum(paid.values()):.6f} EUR"
    assert total == pytest.approx(sum(paid.values())) == pytest.approx(pyfast.Run(run).money(read_prices(prices)))
    tool = CliRunner()
    told = tool.invoke(app, ["status", str(run), "--prices", prices]).output
    assert f"out; {shown}\n" in told
    told = json.loads(tool.invoke(app, ["status", str(run), "--prices", prices, "--json"]).output)
    assert told["money"] == total and told["currency"] == "EUR"
    told = tool.invoke(app, ["evaluate", str(run), "--gold", str(questions), "--prices", prices]).output
    calls, into, out = (sum(getattr(one, name) for one in usages.values()) for name in USAGE)
    assert f"60 questions: {calls} LLM calls, {into} tokens in, {out} out, {shown}" in told
    pyfast.export(runs, tmp_path / "w.parquet", questions, wide=True, prices=prices)
    wide = pd.read_parquet(tmp_path / "w.parquet").set_index("id")
    assert wide[f"{run}: money"].to_dict() == pytest.approx(paid) and wide[f"{runs[1]}: money"].sum() > 0
    pyfast.export(runs, tmp_path / "plain.parquet", questions)
    assert "money" not in pd.read_parquet(tmp_path / "plain.parquet").columns
    with pytest.raises(InputError, match="one row per source cannot show costs"):
        pyfast.export(runs, tmp_path / "s.parquet", sources=True, prices=prices)
    with pytest.raises(InputError, match="in memory"):
        pyfast.answer(["Who?"], llm="instant", system="direct").money(prices)
    for kind in ("jsonl", "csv"):
        scores = tmp_path / f"scores.{kind}"
        command = ["evaluate", str(run), "--gold", str(questions), "--per-question", str(scores)]
        assert tool.invoke(app, command).exit_code == 0
        read = pd.read_csv(scores) if kind == "csv" else pd.read_json(scores, lines=True)
        for row in read.to_dict("records"):
            assert [row[name] for name in USAGE] == [getattr(usages[str(row["id"])], name) for name in USAGE]


def test_cached_tokens_and_roles_have_their_prices() -> None:
    assert Price(input=10, cached_input=1, output=100).of(1_000_000, 400_000, 20_000) == pytest.approx(6 + 0.4 + 2)
    assert Price(input=10, output=100).of(1_000_000, 400_000, 0) == pytest.approx(10)
    listed = Prices(models={"m": Price(input=1, output=2), "openai:m@http://here": Price(input=3, output=4)})
    assert listed.price("openai:m@http://there").input == 1 and listed.price("openai:m@http://here").input == 3


def test_what_a_question_used_is_what_its_record_says(runs: list[Path]) -> None:
    for folder in runs:
        used = used_by(folder)
        for record in pyfast.Run(folder).records:
            one = used[record.id]
            assert (one.llm_calls, one.prompt_tokens) == (record.usage.llm_calls, record.usage.prompt_tokens)
            assert sum(into for into, _ in one.by_role.values()) == one.prompt_tokens
            assert one.seconds is not None and one.seconds > 0


def test_the_command_estimates_from_an_earlier_run(runs: list[Path]) -> None:
    asked = ["estimate", "--from", str(runs[0]), "--questions", "1e6", "--llm", "instant"]
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, asked, catch_exceptions=False)
    assert done.exit_code == 0 and done.stdout.startswith("estimate for 1000000 questions, from ")


def test_an_estimate_from_a_run_has_the_prices_of_its_models(runs: list[Path], tmp_path: Path) -> None:
    """If none is named: the command's total is what the run cost, and the error says how to name one."""
    (tmp_path / "p.toml").write_text(PRICES)
    command = ["estimate", "--from", str(runs[1]), "--questions", "60", "--prices", str(tmp_path / "p.toml")]
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, command, catch_exceptions=False)
    paid = pyfast.Run(runs[1]).money(tmp_path / "p.toml")
    assert f"price in EUR: {paid:.4f} (" in done.stdout, done.stdout
    with pytest.raises(InputError, match=r"no price for 'instant'; .*; choose the model with --llm or llm="):
        pyfast.estimate(10, system="n2n", based_on=runs[1], prices=Prices(models={}))
    with pytest.raises(InputError, match="no price for 'embedded'"):
        pyfast.estimate(["a?"], system="direct", prices=tmp_path / "p.toml")


@pytest.mark.parametrize("system", ["rag", "n2n", "decompose"])
def test_an_estimate_is_near_the_run(system: str, questions: Path, small: pyfast.Index, tmp_path: Path) -> None:
    """With the LLM of the estimate itself the totals must come out; with another they rest on its replies."""
    prices = Prices(models={"instant": Price(input=1, output=1)})
    expected = pyfast.estimate(questions, index=small, llm="instant", system=system, sample=30, prices=prices)
    run = pyfast.answer(questions, index=small, llm="instant", system=system)
    assert expected.questions == 60 and "30 questions" in expected.basis and expected.seconds is None
    for estimated, real in [
        (expected.llm_calls, run.status.llm_calls),
        (expected.prompt_tokens, run.status.prompt_tokens),
        (expected.completion_tokens, run.status.completion_tokens),
    ]:
        assert estimated.value == pytest.approx(real, rel=0.12)
        assert estimated.low <= estimated.value <= estimated.high
    assert expected.money is not None
    tokens = expected.prompt_tokens.value + expected.completion_tokens.value
    assert expected.money.value == pytest.approx(tokens / 1e6)


def test_an_estimate_from_a_run_multiplies_its_means(runs: list[Path], questions: Path, tmp_path: Path) -> None:
    expected = pyfast.estimate(questions, system="rag", based_on=runs[0], limit=30)
    status = pyfast.Run(runs[0]).status
    assert expected.llm_calls.value == pytest.approx(status.llm_calls / 2)
    assert expected.prompt_tokens.value == pytest.approx(status.prompt_tokens / 2)
    assert expected.seconds is not None and expected.money is None


def test_an_estimate_from_a_run_of_a_system_of_a_module(tmp_path: Path) -> None:
    pyfast.answer(["a?", "b?"], index=None, llm="instant", system="echo_system:SYSTEM", run=tmp_path / "R")
    for system in ("echo_system:SYSTEM", "echo"):
        assert pyfast.estimate(10, system=system, based_on=tmp_path / "R").llm_calls.value == 0
    with pytest.raises(InputError, match="a run of echo, not of rag"):
        pyfast.estimate(10, system="rag", based_on=tmp_path / "R")


def test_an_estimate_from_a_run_without_times_has_calls_and_no_hours(runs: list[Path], tmp_path: Path) -> None:
    run = shutil.copytree(runs[0], tmp_path / "run")
    with closing(sqlite3.connect(run / "journal.sqlite")) as journal, journal:
        journal.execute("UPDATE questions SET ledger = json_remove(ledger, '$.seconds', '$.started')")
    expected, timed = (pyfast.estimate(60, system="rag", based_on=folder) for folder in (run, runs[0]))
    assert timed.hours is not None and expected.hours is expected.seconds is None and not expected.shares
    assert expected.llm_calls == timed.llm_calls and expected.prompt_tokens == timed.prompt_tokens


def test_models_of_roles_pay_their_own_prices(questions: Path, small: pyfast.Index) -> None:
    prices = Prices(models={"instant": Price(input=1, output=1), "dear": Price(input=100, output=100)})
    given: dict[str, Any] = {"index": small, "system": "n2n", "sample": 20, "prices": prices}
    cheap = pyfast.estimate(questions, llm="instant", **given).money
    mixed = pyfast.estimate(questions, llm={"default": "instant", "plan": "openai:dear@http://h"}, **given).money
    dear = pyfast.estimate(questions, llm="openai:dear@http://h", **given).money
    assert cheap and mixed and dear and cheap.value < mixed.value < dear.value
    assert dear.value == pytest.approx(100 * cheap.value)


def test_the_commands(runs: list[Path], questions: Path, small: pyfast.Index, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(PRICES)
    prices = ["--prices", str(tmp_path / "p.toml")]
    shown = CliRunner().invoke(app, ["compare", *map(str, runs), "--gold", str(questions), *prices])
    assert shown.exit_code == 0 and "EUR" in shown.stdout, shown.output
    assert "precision" in shown.stdout and "…" not in shown.stdout  # no name is cut
    evaluate = ["evaluate", "--gold", str(questions), "--out", str(tmp_path / "f.csv"), "--overwrite"]
    for few in (runs, runs[:1]):
        for costs, heads in ((["--costs"], ["calls", "seconds"]), (prices, ["seconds", "EUR"])):
            shown = CliRunner(env={"COLUMNS": "200"}).invoke(app, [*evaluate, *map(str, few), *costs])
            assert shown.exit_code == 0 and all(head in shown.stdout for head in heads), shown.output
            assert len(pd.read_csv(tmp_path / "f.csv")["llm_calls"]) == len(few)
    told = CliRunner().invoke(app, ["evaluate", str(runs[0]), "--gold", str(questions), "--costs", "--json"])
    assert json.loads(told.stdout)[0]["cost"]["llm_calls"] == 1
    command = ["answer", str(questions), "--run", str(tmp_path / "R"), "--system", "rag", "--llm", "instant"]
    dry = CliRunner().invoke(app, [*command, "--index", str(small.folder), "--dry-run", *prices])
    assert dry.exit_code == 0 and "LLM calls: 60 (60 to 60)" in dry.stdout, dry.output
    assert "price in EUR" in dry.stdout and not (tmp_path / "R").exists()
    based = CliRunner().invoke(app, [*command, "--dry-run", "--from", str(runs[0])])
    assert based.exit_code == 0 and "total seconds of the questions" in based.stdout


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[models", "p.toml"),
        ("[models.m]\ninput = 1\n", "output"),
        ("[models.m]\ninput = -1\noutput = 1\n", "input"),
        ("[models.m]\ninput = nan\noutput = 1\n", "input"),
        ("[models.m]\ninput = 1\noutput = 1\ntotal = 3\n", "total"),
        ("currency = 'EUR'\n", "models"),
    ],
)
def test_bad_price_lists_are_refused_in_one_line(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "p.toml").write_text(text)
    with pytest.raises(InputError, match=reason):
        read_prices(tmp_path / "p.toml")


def test_a_missing_model_or_another_system_is_refused(runs: list[Path], questions: Path) -> None:
    with pytest.raises(InputError, match="no price for 'instant'; the list has prices for m"):
        pyfast.compare(runs, questions, prices=Prices(models={"m": Price(input=1, output=1)}))
    with pytest.raises(InputError, match="a run of rag, not of n2n"):
        pyfast.estimate(questions, system="n2n", based_on=runs[0])
    with pytest.raises(InputError, match="sample"):
        pyfast.estimate(questions, system="direct", sample=0)


def test_hours_of_more_questions_and_workers_follow_from_measured_times(tmp_path: Path) -> None:
    """By Little's law; a pause between two sessions does not count."""

    async def later(_: Request) -> dict[str, str]:
        await asyncio.sleep(0.1)
        return {"answer": "so"}

    def run(count: int, name: str) -> float:
        began = time.monotonic()
        pyfast.answer(
            [f"Who {i}?" for i in range(count)],
            llm=Watched(later),
            system="direct",
            run=tmp_path / name,
            concurrency=8,
            limit=count,
        )
        return time.monotonic() - began

    run(40, "first")
    time.sleep(1)
    run(120, "first")  # it goes on
    one = pyfast.estimate(160, system="direct", based_on=tmp_path / "first")
    took = run(160, "second")
    assert one.hours is not None and one.hours.value * 3600 == pytest.approx(took, rel=0.25)
    assert max(one.shares.values()) == one.shares["llm"] > 0.8
    assert one.in_progress == pytest.approx(8, rel=0.2)
    asked = tmp_path / "asked.csv"
    asked.write_text("question\n" + "Who?\n" * 160)
    dry = ["answer", str(asked), "--system", "direct", "--dry-run", "--from", str(tmp_path / "first")]
    for concurrency, is_other in (([], False), (["--concurrency", "32"], True)):
        told = CliRunner().invoke(app, [*dry, *concurrency]).stdout
        assert f"times assume {one.in_progress:.1f} questions at once, as in the earlier run" in told
        assert (", not --concurrency 32" in told) == is_other
    four = pyfast.estimate(160, system="direct", based_on=tmp_path / "first", workers=4)
    assert four.hours is not None and four.hours.value == pytest.approx(one.hours.value / 4)
    assert four.in_progress == pytest.approx(4 * one.in_progress)
    with pytest.raises(InputError, match="together with an earlier run"):
        pyfast.estimate(10)
    with pytest.raises(InputError, match="workers: expected"):
        pyfast.estimate(10, system="direct", based_on=tmp_path / "first", workers=0)


def test_a_reused_call_is_not_paid_again(
    small: pyfast.Index, questions: Path, runs: list[Path], tmp_path: Path
) -> None:
    """It counts towards `money`, so that runs can be compared, but not towards what was paid."""
    (tmp_path / "p.toml").write_text(PRICES)
    prices, new, old = str(tmp_path / "p.toml"), tmp_path / "new", tmp_path / "old"
    given: dict[str, Any] = {"index": small, "llm": "instant", "system": "rag"}
    pyfast.answer(questions, **given, run=old, limit=20)
    run = pyfast.answer(questions, **given, run=new, options=pyfast.RunOptions(reuse=[old]))
    first, whole = pyfast.Run(old).money(prices), pyfast.Run(runs[0]).money(prices)
    assert run.money(prices) == pytest.approx(whole)
    assert run.money(prices, paid=True) == pytest.approx(whole - first) and run.status.reused
    assert pyfast.Run(old).money(prices, paid=True) == first
    told = CliRunner().invoke(app, ["status", str(new), "--prices", prices]).output
    assert f"; {whole:.6f} EUR, {whole - first:.6f} EUR without the reused calls\n" in told
    shown = json.loads(CliRunner().invoke(app, ["status", str(new), "--prices", prices, "--json"]).output)
    assert shown["paid"] == pytest.approx(whole - first) and shown["money"] == pytest.approx(whole)


def test_reused_calls_have_no_times_for_an_estimate(
    small: pyfast.Index, questions: Path, runs: list[Path], tmp_path: Path
) -> None:
    given: Any = {"index": small, "llm": "instant", "system": "rag"}
    pyfast.answer(questions, limit=40, run=tmp_path / "A", **given)
    pyfast.answer(questions, run=tmp_path / "B", options=pyfast.RunOptions(reuse=(tmp_path / "A",)), **given)
    pyfast.answer(questions, run=tmp_path / "C", options=pyfast.RunOptions(reuse=(runs[0],)), **given)
    some, none = (pyfast.estimate(60, system="rag", based_on=tmp_path / name) for name in "BC")
    own = [one.seconds for one in used_by(tmp_path / "B").values() if not one.reused]
    assert len(own) == 20 and some.seconds is not None and some.seconds.value == pytest.approx(60 * np.mean(own))
    assert some.hours is not None and some.note.startswith("times come only from 20 of them, because 40 of 60")
    assert none.seconds is none.hours is None and not none.shares and none.llm_calls.value == 60
    asked = ["estimate", "--from", str(tmp_path / "C"), "--questions", "60", "--llm", "instant"]
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, asked, catch_exceptions=False)
    assert (
        "there are no times, because 60 of 60 questions reused replies" in done.output
        and "hours" not in done.output
    )
