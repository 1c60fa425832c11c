"""A run against its gold file: means, types, missing answers, recall of evidence; and files that do not fit."""

import json
from pathlib import Path
from typing import Any

import pytest

from pyfast.errors import InputError
from pyfast.evaluation import evaluate
from pyfast.evaluation.evaluate import Row


def lines(path: Path, *records: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def answered(id_: str, answer: str | None, *uris: str, state: str = "answered") -> dict[str, Any]:
    return {"id": id_, "state": state, "answer": answer, "evidence": [{"uri": uri} for uri in uris], "trace": {}}


def test_means_by_type_and_over_all(tmp_path: Path) -> None:
    lines(
        tmp_path / "answers.jsonl",
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
        {"id": "d", "answers": [], "type": "2-hop", "supporting": []},
        {"id": "e", "answers": ["Europa", "Io"], "answer_mode": "all"},
        {"id": "f", "answers": ["Dione"], "type": "2-hop", "supporting": ["x"]},
    )
    report = evaluate(tmp_path / "answers.jsonl", gold)
    assert report.rows == [
        Row("all", 6, pytest.approx(2 / 6), pytest.approx((1 + 2 / 3 + 1) / 6), pytest.approx(0.5 / 3)),
        Row("(none)", 1, 1.0, 1.0, None),
        Row("1-hop", 2, 0.5, pytest.approx((1 + 2 / 3) / 2), 0.25),
        Row("2-hop", 3, 0.0, 0.0, 0.0),
    ]
    assert report.states == {"answered": 4, "abstained": 1, "failed": 1}
    assert report.missing == 1


GOLD = b'{"id": "a", "answers": ["x"]}\n'
BAD_GOLD = {
    "broken": (b'{"id": "b", "ans', "not JSON"),
    "Latin-1": (b'{"id": "b", "answers": ["\xe9"]}', "UTF-8"),
    "list": (b"[]", "object"),
    "no id": (b'{"answers": ["x"]}', "`id`"),
    "number as id": (b'{"id": 3, "answers": ["x"]}', "`id`"),
    "no answers": (b'{"id": "b"}', "`answers`"),
    "one answer": (b'{"id": "b", "answers": "Io"}', "`answers`"),  # else its letters would be aliases
    "answers of another kind": (b'{"id": "b", "answers": [3]}', "`answers.0`"),
    "supporting of another kind": (b'{"id": "b", "answers": [], "supporting": "x"}', "`supporting`"),
    "same id": (b'{"id": "a", "answers": []}', "came before"),
}


@pytest.mark.parametrize(("line", "message"), BAD_GOLD.values(), ids=BAD_GOLD)
def test_a_bad_gold_line_is_named(tmp_path: Path, line: bytes, message: str) -> None:
    lines(tmp_path / "answers.jsonl", answered("a", "x"))
    gold = tmp_path / "gold.jsonl"
    gold.write_bytes(GOLD + line)
    with pytest.raises(InputError) as error:
        evaluate(tmp_path / "answers.jsonl", gold)
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
        evaluate(tmp_path / "answers.jsonl", tmp_path / "gold.jsonl")


def test_files_that_do_not_fit(tmp_path: Path) -> None:
    gold = lines(tmp_path / "gold.jsonl", {"id": "b", "answers": ["x"]})
    with pytest.raises(InputError, match="cannot be read"):
        evaluate(tmp_path / "answers.jsonl", gold)
    lines(tmp_path / "answers.jsonl", answered("a", "x"))
    with pytest.raises(InputError, match="none of its ids"):
        evaluate(tmp_path / "answers.jsonl", gold)
    with pytest.raises(InputError, match="cannot be read"):
        evaluate(tmp_path / "answers.jsonl", tmp_path / "missing")
    with pytest.raises(InputError, match="no question"):
        evaluate(tmp_path / "answers.jsonl", lines(tmp_path / "empty"))


def test_a_byte_order_mark_and_blank_lines_are_no_matter(tmp_path: Path) -> None:
    lines(tmp_path / "answers.jsonl", answered("a", "x"))
    (tmp_path / "gold.jsonl").write_bytes(b"\xef\xbb\xbf" + GOLD + b"\n \n")
    assert evaluate(tmp_path / "answers.jsonl", tmp_path / "gold.jsonl").rows == [Row("all", 1, 1.0, 1.0, None)]
