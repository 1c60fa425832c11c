"""H@1 and H@5, and their tables: against cases worked by hand, a slow Levenshtein, and scipy's bootstrap."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import bootstrap

from pyfast.errors import InputError
from pyfast.evaluation import Hits, evaluate_turns, hits
from pyfast.evaluation.bootstrap import bootstrap_interval
from pyfast.evaluation.conversation_metrics import nearest


def distance(a: str, b: str) -> int:
    """Levenshtein's, by its recurrence."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, start=1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]


@given(st.text("abAB ", max_size=6), st.lists(st.text("abAB ", max_size=6), max_size=9))
def test_nearest_is_by_levenshtein_then_by_order(prediction: str, entities: list[str]) -> None:
    order = sorted(range(len(entities)), key=lambda i: distance(prediction.lower(), entities[i].lower()))
    assert nearest(prediction, entities) == [entities[i] for i in order[:5]]


@pytest.mark.parametrize(
    ("prediction", "entities", "expected"),
    [
        ("Noah Shachtman", [], (1, 1)),
        ("the noah shachtman!", ["Jann Wenner"], (1, 1)),
        ("Noah Shachtmann", ["Jann Wenner", "Noah Shachtman"], (1, 1)),
        ("Noa", ["Noah", "Nora", "Noah Shachtman"], (0, 1)),
        ("Noa", ["Noah", "Nora", "Noam", "Nova", "Nola", "Noah Shachtman"], (0, 0)),
        ("Ralph", ["Jann Wenner"], (0, 0)),
        ("Ralph", [], (0, 0)),
        (None, ["Noah Shachtman"], (0, 0)),
        ("", ["Noah Shachtman"], (1, 1)),
    ],
)
def test_hits(prediction: str | None, entities: list[str], expected: tuple[int, int]) -> None:
    assert hits(prediction, ["Noah Shachtman", "N. Shachtman"], entities) == Hits(*expected)


def test_without_a_gold_answer_nothing_is_right() -> None:
    assert hits("x", [], ["x"]) == hits("the", ["The"], ["the"]) == Hits(0, 0)


def lines(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def said(id_: str, answer: str | None, *entities: str) -> dict[str, Any]:
    return {"id": id_, "state": "answered", "answer": answer, "trace": {"entities": entities}}


GOLD = [
    {
        "id": "a",
        "domain": "music",
        "turns": [
            {"id": "a1", "question": "?", "answers": ["Kid A"], "answer_src": "text"},
            {"id": "a2", "question": "?", "answers": ["7"], "answer_src": "table"},
            {"id": "a3", "question": "?", "answers": ["x"], "answer_src": "table"},
        ],
    },
    {"id": "b", "turns": [{"id": "b1", "answers": ["Radiohead"], "answer_src": "text"}]},
]


def test_by_domain_source_and_turn(tmp_path: Path) -> None:
    gold = lines(tmp_path / "gold.jsonl", *GOLD)
    lines(
        tmp_path / "answers.jsonl",
        said("a1", "kid a"),
        said("a2", "8", "9", "7"),
        {"id": "b1", "state": "failed", "answer": None, "reason": "no luck"},
        said("other", "not asked for"),
    )
    rows = evaluate_turns(tmp_path / "answers.jsonl", gold)
    found = [(row.by, row.value, row.turns, row.first, row.among_five) for row in rows]
    third = pytest.approx(1 / 3)
    assert found == [
        ("all", "", 3, third, pytest.approx(2 / 3)),
        ("domain", "(none)", 1, 0, 0),
        ("domain", "music", 2, 0.5, 1),
        ("source", "table", 1, 0, 1),
        ("source", "text", 2, 0.5, 0.5),
        ("turn", "1", 2, 0.5, 0.5),
        ("turn", "2", 1, 0, 1),
    ]
    assert rows[0].first_interval == (0.0, 0.5) and rows[0].among_five_interval == (0.0, 1.0)


@pytest.mark.parametrize(
    ("answers", "gold", "told"),
    [
        (None, GOLD, "cannot be read"),
        ([said("z", "x")], GOLD, "none of its turns"),
        ([said("a1", "x")], [{"id": "a", "turns": [{"id": "a1"}]}], "line 1: `turns.0.answers`"),
        ([said("a1", "x")] * 2, GOLD, "line 2: the id 'a1' came before"),
        ([{"id": "a1", "trace": {"entities": "x"}}], GOLD, "line 1: `trace.entities`"),
    ],
)
def test_files_that_do_not_fit(tmp_path: Path, answers: Any, gold: Any, told: str) -> None:
    if answers is not None:
        lines(tmp_path / "answers.jsonl", *answers)
    with pytest.raises(InputError, match=told):
        evaluate_turns(tmp_path / "answers.jsonl", lines(tmp_path / "gold.jsonl", *gold))


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
    with pytest.raises(ValueError, match="nothing"):
        bootstrap_interval([], [])
