"""Train, answer, evaluate: the whole way of graph_convqa on the command line, with a tiny real model."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from runs import records
from tiny import tiny_model

TALK = {
    "id": "titan",
    "domain": "space",
    "turns": [
        {"id": "t1", "question": "Who discovered Titan?", "answers": ["Christiaan Huygens"], "answer_src": "text"},
        {"id": "t2", "question": "Which planet does it circle?", "answers": ["Saturn"], "answer_src": "table"},
    ],
}


def pyfast(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pyfast.commands.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.mark.slow(suite="models")
def test_the_whole_way(tmp_path: Path, examples: Path) -> None:
    pytest.importorskip("peft")
    talks, index, trained = tmp_path / "talks.jsonl", tmp_path / "index", tmp_path / "trained"
    talks.write_text(json.dumps(TALK) + "\n")
    tiny_model(tmp_path / "model")
    assert pyfast("index", examples / "corpus", "--out", index).returncode == 0
    learn: list[Any] = ["train", "graph-convqa", talks, "--index", index, "--model", tmp_path / "model"]
    learn += ["--out", trained, "--k", 4, "--memory", "random", "--epochs", 2, "--accumulation", 1]
    begun = pyfast(*learn, "--minutes", 0)
    assert begun.returncode == 0 and begun.stdout.startswith("0 steps"), begun.stderr
    done = pyfast(*learn)
    assert done.returncode == 0 and done.stdout.startswith("4 steps, loss "), done.stderr
    options = ["--index", index, "--system", "graph_convqa", "--llm", f"transformers:{trained / 'model'}"]
    options += ["--set", f"trained={trained}", "--set", "memory=random", "--set", "k=4", "--run", tmp_path / "run"]
    answered = pyfast("answer", talks, *options)
    assert answered.returncode == 0 and answered.stdout.startswith("2 questions: "), answered.stderr
    written = records(tmp_path / "run")
    assert [record["id"] for record in written] == ["t1", "t2"] and written[0]["trace"]["nodes"] > 20
    assert "encode_graph" in pyfast("status", tmp_path / "run").stdout
    scored = pyfast("evaluate", tmp_path / "run", "--gold", talks)
    assert scored.returncode == 0 and all(word in scored.stdout for word in ("h@1", "h@5", "text", "table"))
    again = pyfast("answer", talks, *options)
    assert "all questions were already finished" in again.stdout
    (trained / "encoder.safetensors").write_bytes((trained / "encoder.safetensors").read_bytes()[:-1] + b"x")
    other = pyfast("answer", talks, *options)
    assert other.returncode == 1 and "set_weights was" in other.stderr
