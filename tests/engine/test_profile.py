"""Profiles by context window: recorded, settable, and what they leave out is counted."""

import tomllib
from pathlib import Path

import pytest

import pyfast
from pyfast.engine.budget import profile_of

ASKED = ["Which moons of Saturn did a probe land on or fly past?"]


@pytest.mark.parametrize(("window", "name"), [(2048, "small"), (8192, "medium"), (131_072, "large")])
def test_a_profile_follows_from_the_window(window: int, name: str) -> None:
    assert profile_of(window).name == name


def run_in(small: pyfast.Index, folder: Path, window: int, **budget: int) -> pyfast.Run:
    llm = pyfast.open_llm("instant", context_window=window)
    settings = {"k": 30}
    return pyfast.answer(ASKED, index=small, llm=llm, system="rag", settings=settings, run=folder, budget=budget)


def test_it_is_recorded_and_what_is_left_out_is_counted(small: pyfast.Index, tmp_path: Path) -> None:
    run = run_in(small, tmp_path / "run", 2048)
    (record,) = run.records
    shown = 30 - record.trace["left_out"]["answer"]
    assert 1 <= shown < 30 and len(record.evidence) == 30
    assert run.status.left_out == pyfast.Run(tmp_path / "run").status.left_out == record.trace["left_out"]
    recorded = tomllib.loads((tmp_path / "run" / "run.toml").read_text(encoding="utf-8"))
    assert recorded["places"]["profile"].startswith("profile small (a context window of 2,048 tokens)")


def test_every_limit_can_be_set(small: pyfast.Index, tmp_path: Path) -> None:
    assert "left_out" not in run_in(small, tmp_path / "a", 1_000_000).records[0].trace
    few = run_in(small, tmp_path / "b", 1_000_000, passages=3, answer_tokens=777)
    assert few.records[0].trace["left_out"] == {"answer": 27}
    recorded = tomllib.loads((tmp_path / "b" / "run.toml").read_text(encoding="utf-8"))
    assert recorded["budget"]["passages"] == 3 and recorded["budget"]["answer_tokens"] == 777
    assert "777 tokens in an answer" in recorded["places"]["profile"]
