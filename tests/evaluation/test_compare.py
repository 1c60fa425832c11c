"""Differences of runs: against statsmodels, on drawn answers; flips, costs."""

from __future__ import annotations

import csv
import json
import random
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pandas as pd
import processes
import pyarrow.parquet as pq
import pytest
from scipy.stats import binomtest, permutation_test
from test_evaluate import lines
from typer.testing import CliRunner

import pyfast
from pyfast.commands.cli import app
from pyfast.engine import Answer, Context, Question
from pyfast.errors import InputError
from pyfast.evaluation import Scored
from pyfast.evaluation.compare import compare, holm, least_to_differ, mcnemar, permutation_p
from pyfast.evaluation.tables import DIFFERENCE, difference_cells, grid_text
from pyfast.systems import Settings, System, load_system


def scored(values: list[float], conversations: bool = False) -> list[Scored]:
    return [
        Scored(str(i), "answered", "x", {}, str(i // 5) if conversations else None, {"em": (value, 1.0)})
        for i, value in enumerate(values)
    ]


def test_the_tests_are_those_of_the_books() -> None:
    """An exact binomial test of who wins where they differ; each p times how many are left, in their order."""
    draw = np.random.default_rng(2)
    for _ in range(50):
        a, b = (draw.integers(0, 2, 60).astype(float) for _ in "ab")
        won, lost = int((a > b).sum()), int((a < b).sum())
        assert mcnemar(a, b) == pytest.approx(binomtest(won, won + lost).pvalue)
        p = draw.random(7).tolist()
        least, expected = 0.0, [0.0] * 7
        for left, place in zip(range(7, 0, -1), np.argsort(p).tolist(), strict=True):
            least = expected[place] = max(least, min(1.0, left * p[place]))
        assert holm(p) == pytest.approx(expected)
    assert mcnemar(np.ones(3), np.ones(3)) == 1 and holm([]) == []


def test_drawn_exchanges_do_not_bound_a_corrected_p_value() -> None:
    """Where no exchange is as far, the p-value stays below 0.001 after a correction over all differences."""
    better = {"a": scored([0.25] * 60), "b": scored([0.5] * 60)}
    for count in (1, 84):
        (one,), _ = compare(better, count)
        assert one.test == "permutation" and one.p * count < 0.001
        assert difference_cells(one)[-2] == "<0.001"


@pytest.mark.slow(suite="models")
def test_the_tests_are_statsmodels() -> None:
    tables = pytest.importorskip("statsmodels.stats.contingency_tables")
    multiple = pytest.importorskip("statsmodels.stats.multitest")
    draw = np.random.default_rng(0)
    for _ in range(50):
        a, b = (draw.integers(0, 2, 60).astype(float) for _ in "ab")
        table = [[int(((a == x) & (b == y)).sum()) for y in (0, 1)] for x in (0, 1)]
        assert mcnemar(a, b) == pytest.approx(tables.mcnemar(table, exact=True).pvalue)
        p = draw.random(7).tolist()
        assert holm(p) == pytest.approx(multiple.multipletests(p, method="holm")[1].tolist())


@pytest.mark.parametrize("conversations", [False, True])
def test_equal_systems_rarely_differ_and_better_ones_do(conversations: bool) -> None:
    """At 0.05 one of 20 pairs of equal systems differs; a system that is 15 points better is found."""
    draw = random.Random(1)
    false, found = 0, 0
    for _ in range(5):
        a, b = ([float(draw.random() < 0.5) for _ in range(150)] for _ in "ab")
        better = [max(value, float(draw.random() < 0.3)) for value in a]
        runs = {name: scored(values, conversations) for name, values in zip("abc", (a, b, better), strict=True)}
        (first, second, _), _ = compare(runs)
        assert first.test == ("permutation" if conversations else "mcnemar")
        assert first.low <= first.difference <= first.high and first.p_holm >= first.p
        false += first.p < 0.05
        found += second.p < 0.05
    assert false <= 2 and found == 5


def test_fewer_questions_than_the_least_never_differ_and_the_least_do() -> None:
    for differences in (1, 2, 7, 30):
        least = least_to_differ(differences)
        p = [mcnemar(np.zeros(n), np.ones(n)) for n in (least - 1, least)]
        assert holm([p[0]] + [1.0] * (differences - 1))[0] > 0.05 >= holm([p[1]] + [1.0] * (differences - 1))[0]


def in_memory(answers: dict[str, str]) -> pyfast.Run:
    """A run of a scripted LLM, which says what it is to say."""

    class Says:
        fingerprint = "says"
        context_window = 4096

        async def complete(self, request: Any) -> Any:
            from pyfast.llm import Completion

            text = request.messages[-1].content
            said = next((answer for question, answer in answers.items() if question in text), "")
            return Completion(orjson.dumps({"answer": said}).decode(), "stop")

    questions = [{"id": question, "question": f"{question}?"} for question in answers]
    return pyfast.answer(questions, llm=Says(), system="direct")


GOLD = [{"id": name, "answers": [name]} for name in ("Titan", "Rhea", "Dione", "Io")]


def test_runs(tmp_path: Path) -> None:
    """Of three questions that both have answered, one is won and one lost."""
    a = in_memory({"Titan": "Titan", "Rhea": "Rhea", "Dione": "no", "Io": "Io"})
    b = in_memory({"Titan": "Titan", "Rhea": "no", "Dione": "Dione"})
    found = pyfast.compare([a, b], GOLD)
    assert found.questions == 3 and found.left_out == ("Io",)
    (flips,) = found.flips
    assert (flips.gained, flips.lost, flips.figure) == (("Dione",), ("Rhea",), "em")
    em = next(one for one in found.differences if one.figure == "em")
    assert (em.of_a, em.of_b, em.difference, em.p) == (pytest.approx(2 / 3), pytest.approx(2 / 3), 0, 1)
    assert [(cost.run, cost.llm_calls) for cost in found.costs] == [("run 1", 1.0), ("run 2", 1.0)]
    assert orjson.loads(orjson.dumps(found.as_json()))["flips"][0]["lost"] == ["Rhea"]
    turned = pyfast.compare([b, a], GOLD[:3])  # the gold of a first run with a limit
    assert turned.questions == 3 and turned.left_out == ("Io",) and not turned.without_gold


def test_folders_tell_their_seconds(tmp_path: Path) -> None:
    gold = lines(tmp_path / "gold.jsonl", *({**one, "question": "?"} for one in GOLD))
    runs = [
        pyfast.answer(gold, llm="instant", system=system, run=tmp_path / system) for system in ("direct", "cot")
    ]
    found = pyfast.compare([tmp_path / "direct", runs[1]])  # the gold is what the first run was asked
    assert [Path(cost.run).name for cost in found.costs] == ["direct", "cot"]
    assert all(cost.seconds is not None and 0 < cost.seconds < 60 for cost in found.costs)
    assert found.questions == 4 and not found.left_out


def test_holm_counts_only_the_figures_asked_for() -> None:
    names = [f"item {k:02}" for k in range(12)]
    gold = [{"id": name, "answers": [name]} for name in names]
    a, b = in_memory(dict.fromkeys(names, "no")), in_memory({name: name for name in names})
    whole, few = pyfast.compare([a, b], gold), pyfast.compare([a, b], gold, figures=["f1", "em"])
    assert [one.figure for one in few.differences] == ["f1", "em"] and few.flips[0].figure == "f1"
    p = {one.figure: one.p for one in whole.differences}
    assert len(p) > 2 and [one.p for one in few.differences] == [p["f1"], p["em"]]
    assert [one.p_holm for one in few.differences] == holm([p["f1"], p["em"]])
    assert few.least == least_to_differ(2) < whole.least and few.costs == whole.costs
    report = pyfast.evaluate(b, gold, figures=["recall"])
    assert list(report.rows[0].figures) == ["recall"]
    assert report.rows[0]["recall"] == pyfast.evaluate(b, gold).rows[0]["recall"]
    with pytest.raises(InputError, match="unknown figure 'rouge'; known: em, f1, precision, recall"):
        pyfast.compare([a, b], gold, figures=["em", "rouge"])


def test_many_flips_are_counted_and_all_in_the_file(tmp_path: Path) -> None:
    names = [f"item {k:02d}" for k in range(12)]
    lines = "".join(json.dumps({"id": name, "question": name, "answers": [name]}) + "\n" for name in names)
    (tmp_path / "q.jsonl").write_text(lines)
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    for run, system in ((right, ECHO), (wrong, MUTE)):
        pyfast.answer(tmp_path / "q.jsonl", llm="instant", system=system, run=run)
    told = CliRunner().invoke(app, ["compare", str(wrong), str(right), "--out", str(tmp_path / "c.jsonl")]).output
    line = f"em: 12 right in {right} and wrong in {wrong}: {', '.join(names[:10])} and 2 more (--out)"
    assert " ".join(line.split()) in " ".join(told.split())
    first, second, *_ = map(json.loads, (tmp_path / "c.jsonl").read_text().splitlines())
    assert (first["figure"], first["gained"], first["lost"]) == ("em", names, []) and "gained" not in second


async def _echo(question: Question, ctx: Context, settings: Settings) -> Answer:
    return Answer(question.text)


async def _mute(question: Question, ctx: Context, settings: Settings) -> Answer:
    return Answer("nothing")


SPENT = ["llm_calls", "prompt_tokens", "computed_tokens", "completion_tokens"]
ECHO = System("echo", _echo, Settings, (), needs_index=False)
MUTE = System("mute", _mute, Settings, (), needs_index=False)


def test_figures_and_differences_as_tables(tmp_path: Path) -> None:
    """Each kind of file is read by another library, and has the numbers of the report and of the comparison."""
    names = [f"item {k}" for k in range(8)]
    gold = [{"id": name, "answers": [name], "type": "a_b" if name < "item 4" else "c|d"} for name in names]
    new, old = in_memory({name: name for name in names}), in_memory(dict.fromkeys(names, "no"))
    runs = {"100% {new}_run": new, "old|run": old}
    reports = {name: pyfast.evaluate(run, gold) for name, run in runs.items()}
    found = pyfast.compare([*runs.values()], gold)
    for kind in ("csv", "parquet", "xlsx", "jsonl", "md", "tex"):
        pyfast.write_figures(reports, tmp_path / f"f.{kind}")
        pyfast.write_figures(found, tmp_path / f"d.{kind}")
        with pytest.raises(InputError, match="already exists"):
            pyfast.write_figures(found, tmp_path / f"d.{kind}")
    flat = [
        {"run": run, "by": row.by, "group": row.value, "questions": row.questions}
        | {"failed": 0, "abstained": 0}
        | {f"{n}{end}": getattr(f, of) for n, f in row.figures.items() for end, of in ENDS.items()}
        for run, report in reports.items()
        for row in report.rows
    ]
    assert len(flat) == 6 and pq.read_table(tmp_path / "f.parquet").to_pylist() == flat
    assert [json.loads(line) for line in (tmp_path / "f.jsonl").read_text().splitlines()] == flat
    sheet = pd.read_excel(tmp_path / "f.xlsx", keep_default_na=False)
    for frame in (pd.read_csv(tmp_path / "f.csv", keep_default_na=False), sheet):
        filled = [{name: "" if value is None else value for name, value in one.items()} for one in flat]
        assert frame.to_dict("records") == filled
    differences = [asdict(one) for one in found.differences]
    table = pd.read_csv(tmp_path / "d.csv")
    rows = table[table["test"].notna()].to_dict("records")
    flipped = [(row.pop("gained"), row.pop("lost")) for row in rows]
    assert rows == differences and json.loads(flipped[0][1]) == names and flipped[0][0] == "[]"
    assert all(pd.isna(ids) for row in flipped[1:] for ids in row)
    costs = table[table["test"].isna()].set_index("figure")  # in memory there are no seconds
    assert costs.index.tolist() == [*SPENT, "failed", "abstained"]
    for name, one in costs.loc[SPENT].iterrows():
        of_a, of_b = (getattr(cost, name) for cost in found.costs)
        assert (one.of_a, one.of_b, one.difference) == (of_a, of_b, pytest.approx(of_b - of_a))
        assert one.questions == 8 and pd.isna(one.p_holm) and (one.a, one.b) == ("run 1", "run 2")
    shown, tex = (re.sub(" +", " ", (tmp_path / name).read_text()) for name in ("d.md", "d.tex"))
    for one in found.differences:
        assert f"{one.low:+.3f} to {one.high:+.3f} | {one.p:.4f} | {one.p_holm:.4f} |" in shown
        minus = f"{one.low:+.3f} to {one.high:+.3f}".replace("-", "$-$")
        assert f"{minus} & {one.p:.4f} & {one.p_holm:.4f} " in tex and one.difference < 0
    assert tex.count(r"\toprule") == 2 and "run 1" in tex
    tex, shown = (tmp_path / "f.tex").read_text(), (tmp_path / "f.md").read_text()
    assert r"100\% \{new\}\_run" in tex and r"old\|run" in shown and "1.000 [1.000, 1.000]" in shown
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in shown.splitlines() if line} == {7, 9}
    with pytest.raises(InputError, match="expected a name that ends in"):
        pyfast.write_figures(found, tmp_path / "f.doc")
    assert re.findall(r"\\begin\{tabular\}\{(.*)\}", (tmp_path / "d.tex").read_text()) == ["rlrrrrrr", "rlrrrrrr"]


def test_the_least_p_value_is_less_than_its_digits() -> None:
    a, b = scored([0.25] * 40), scored([0.5] * 39 + [0.25])
    (one,), _ = compare({"a": a, "b": b})
    table = ["figure", *DIFFERENCE[1:]], [difference_cells(one)]
    assert one.p == one.p_holm == 1 / 20001 and grid_text(table, ".tex").count(r"\ensuremath{<}0.001 ") == 2
    assert grid_text((["run", "change"], [["2026-11-28", "-0.5 [-1, 2]"]]), ".tex").count("$-$") == 2


ENDS = {"": "value", "_low": "low", "_high": "high"}


def test_the_commands_write_tables(tmp_path: Path) -> None:
    gold = lines(tmp_path / "gold.jsonl", *({**one, "question": "?"} for one in GOLD))
    runs = [tmp_path / system for system in ("direct", "cot")]
    for run in runs:
        pyfast.answer(gold, llm="instant", system=run.name, run=run)
    done = processes.pyfast("compare", *runs, "--figure", "em", "--out", tmp_path / "d.csv")
    pyfast.write_figures(pyfast.compare(runs, figures=["em"]), tmp_path / "same.csv")
    assert done.returncode == 0 and (tmp_path / "d.csv").read_bytes() == (tmp_path / "same.csv").read_bytes()
    again = processes.pyfast("evaluate", *runs, "--out", tmp_path / "d.csv")
    assert again.returncode == 1 and "--overwrite" in again.stderr
    assert processes.pyfast("evaluate", *runs, "--out", tmp_path / "d.csv", "--overwrite").returncode == 0
    assert pd.read_csv(tmp_path / "d.csv")["run"].tolist() == list(map(str, runs))


def test_a_report_without_a_name_has_no_table(tmp_path: Path) -> None:
    run = pyfast.answer(["Who?"], llm="instant", system="direct")
    report: Any = pyfast.evaluate(run, [{"question": "Who?", "answers": ["x"]}])
    with pytest.raises(InputError, match=r'such as \{"RUN": report\}; got Report'):
        pyfast.write_figures(report, tmp_path / "figures.csv")
    pyfast.write_figures({"one": report}, tmp_path / "figures.csv")
    assert pd.read_csv(tmp_path / "figures.csv")["run"].tolist() == ["one"]


def test_answers_that_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By state, answer, and evidence without its order; against what the records say."""

    def run(name: str, *records: tuple[str, str | None, list[str]]) -> Path:
        async def answer(question: Question, ctx: Context, settings: Any) -> Answer:
            text, uris = next((text, uris) for id, text, uris in records if id == question.id)
            return Answer(text, orjson.dumps([{"uri": uri, "snippet": uri * 2} for uri in uris]))

        asked = [{"id": id, "question": f"{id}?", "team": {"a": 1, "b": "B"}.get(id)} for id, _, _ in records]
        system = System("theirs", answer, load_system("direct").settings, (), needs_index=False)
        pyfast.answer(asked, llm="instant", system=system, run=tmp_path / name)
        return tmp_path / name

    both = ["1", "2"]
    old = run("old", ("a", "x", both), ("b", "x", ["1"]), ("c", "x", []), ("d", "x", both), ("gone", "x", []))
    new = run("new", ("d", "x", ["2", "\x1b3"]), ("a", "x", ["2", "1"]), ("b", "y", ["1"]), ("c", None, []))
    changes = pyfast.changed_answers(old, pyfast.Run(new))
    assert [(one.id, one.differs) for one in changes] == [
        *[("b", ("answer",)), ("c", ("state", "answer")), ("d", ("evidence",))]
    ]
    assert [[item.uri for item in side] for side in changes[2].evidence] == [["1"], ["\x1b3"]]
    assert changes[2].as_json()["after"]["evidence"][0]["uri"] == "\x1b3"
    assert pyfast.changed_answers(old, old) == []
    shown = processes.pyfast("compare", old, new, "--answers")
    lines = shown.stdout.splitlines()
    assert lines[:3] == ["2 answers changed, and 1 more only in their evidence", "", "b: answer: b?"]
    assert lines[3:5] == ["- answered: x", "+ answered: y"] and "\x1b" not in shown.stdout
    assert lines[-4:] == ["d: evidence: d?", "  answered: x", "-   1: 11", "+    3: 3 3"]
    told = processes.pyfast("compare", old, new, "--answers", "--json").stdout
    assert [one["id"] for one in orjson.loads(told)] == ["b", "c", "d"]
    assert "expected two runs, got 1" in processes.pyfast("compare", old, "--answers").stderr
    refused = processes.pyfast("compare", old, new, "--answers", "--prices", tmp_path / "c.toml").stderr
    assert "can only be combined with --json and --out" in refused and "two runs" not in refused
    assert processes.pyfast("compare", old, new, "--answers", "--out", tmp_path / "c.csv").returncode == 0
    with (tmp_path / "c.csv").open(newline="", encoding="utf-8-sig") as file:
        rows = {row["id"]: row for row in csv.DictReader(file)}
    assert [*rows] == ["b", "c", "d"] and [row["team"] for row in rows.values()] == ["B", "", ""]
    assert list(changes.to_pandas()["answer_before"]) == ["x", "x", "x"]
    assert changes.to_arrow()["team"].to_pylist() == ["B", None, None]
    assert pyfast.changed_answers(old, old).to_arrow().column_names[:3] == ["id", "question", "differs"]
    assert {id: (row["answer_before"], row["answer_after"]) for id, row in rows.items()} == {
        "d": ("x", "x"),
        "b": ("x", "y"),
        "c": ("x", ""),
    }
    assert (rows["d"]["only_before"], json.loads(rows["d"]["only_after"])) == ('["1"]', ["\x1b3"])
    assert (rows["d"]["only_text_before"], json.loads(rows["d"]["only_text_after"])) == ('["11"]', ["3 3"])
    pyfast.write_figures(changes, tmp_path / "c.md")
    assert len((tmp_path / "c.md").read_text().splitlines()) == 2 + len(changes)
    with pytest.raises(InputError, match="no question in common"):
        pyfast.changed_answers(run("other", ("z", "x", [])), new)


def test_changed_answers_say_which_wording_changed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name, text, extra in (("old", "Who?", []), ("new", "Who else?", [{"id": "c", "question": "When?"}])):
        asked = [{"id": "a", "question": text}, {"id": "b", "question": "Where?"}, *extra]
        pyfast.answer(asked, llm="instant", system="direct", run=tmp_path / name)
    pyfast.changed_answers(tmp_path / "old", tmp_path / "new")
    left_out, wording = caplog.messages[-2:]
    assert left_out == "1 question is left out, because only one run has finished it: c"
    assert wording.startswith("the wording of 1 question in ") and wording.endswith("are compared: a")


def test_many_differences_leave_room_for_small_p() -> None:
    """If 31 questions all get worse, this is significant among 140 differences too: the sign test says 2 / 2^31.
    But 2,000 exchanges can only say that p is below 0.0005."""
    rng = np.random.default_rng(5)

    def scored(run: int) -> list[Scored]:
        values = {f"f{k}": rng.random(100) for k in range(14)}
        values["f0"] = np.where((np.arange(100) < 31) & (run > 0), 0.5, 0.9)
        return [
            Scored(str(k), "answered", "x", {}, None, {name: (float(of[k]), 1.0) for name, of in values.items()})
            for k in range(100)
        ]

    differences, _ = compare({f"run {k}": scored(k) for k in range(5)})
    worse = [one for one in differences if (one.a, one.figure) == ("run 0", "f0")]
    assert len(differences) == 140 and all(one.p_holm < 0.01 for one in worse)
    same = [one for one in differences if one.figure == "f0" and one.a != "run 0"]
    assert all(one.p == 1 for one in same)


def test_what_cannot_be_compared() -> None:
    a, b = in_memory({"Titan": "x"}), in_memory({"Rhea": "x"})
    with pytest.raises(InputError, match="two or more runs"):
        pyfast.compare([a], GOLD)
    with pytest.raises(InputError, match="no question in common"):
        pyfast.compare([a, b], GOLD)
    with pytest.raises(InputError, match="not a run folder"):
        pyfast.compare([a, Path("/nowhere")], GOLD)
    with pytest.raises(InputError, match="a run in memory has no file with gold answers"):
        pyfast.compare([a, b])


def test_permutations_are_those_of_scipy() -> None:
    """All of them, or as many as are drawn. And of 0 and 1 they give what McNemar's test gives."""
    random = np.random.default_rng(5)
    ones, names = np.ones(60), list(map(str, range(60)))
    for differing in (2, 5, 12, 17, 40):
        a = random.random(60)
        b = a.copy()
        b[:differing] += random.normal(0.2, 0.3, differing)
        theirs = permutation_test(
            (a[:differing], b[:differing]),
            lambda x, y, axis: np.mean(x - y, axis=axis),
            permutation_type="samples",
            n_resamples=150_000,
            rng=1,
        )
        ours = permutation_p((a, ones), (b, ones), names)
        assert ours == pytest.approx(theirs.pvalue, abs=1e-9 if differing <= 17 else 0.01)
    a, b = np.zeros(60), np.zeros(60)
    b[:5] = 1
    assert permutation_p((a, ones), (b, ones), names) == pytest.approx(mcnemar(a, b)) == 0.0625
    # Whole conversations change places.
    assert permutation_p((a, ones), (b, ones), ["c"] * 5 + names[5:]) == 1


def test_a_figure_with_parts_is_not_mcnemars() -> None:
    a = scored([0.5, 1, 0, 1])
    (one,), flips = compare({"a": a, "b": [replace(x, shares={"em": (1.0, 1.0)}) for x in a]})
    whole = scored([1, 1, 0, 1])
    assert compare({"whole": whole, "parts": a})[1] == compare({"parts": a, "whole": whole})[1] == []
    assert one.test == "permutation" and flips == [] and one.difference == pytest.approx(0.375)
