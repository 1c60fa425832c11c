"""A run with a reranker that is killed: it resumes with the same answers, and computes no score again."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pyfast
from pyfast.retrieval.pools import RERANK_SCORES

SLOW = """
import time
import numpy as np

class Slow:
    fingerprint = "slow"

    def __init__(self, index):
        pass

    def score(self, queries, passages):
        with open("asked.txt", "a") as file:
            for query, some in zip(queries, passages):
                file.writelines(f"{query} {passage}\\n" for passage in some.tolist())
        time.sleep(0.15)
        return [np.sin(some).astype(np.float32) for some in passages]
"""


@pytest.mark.guarantee("G1")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills with POSIX signals")
def test_kill_and_resume_computes_no_kept_score_again(examples: Path, tmp_path: Path) -> None:
    (tmp_path / "slow_reranker.py").write_text(SLOW)
    index = pyfast.build_index(examples / "corpus", tmp_path / "IDX").folder
    questions = examples / "questions.jsonl"
    command = [sys.executable, "-m", "pyfast", "answer", str(questions), "--index", str(index), "--system", "rag"]
    command += [
        "--llm",
        "instant",
        "--rerank",
        "slow_reranker:Slow",
        "--concurrency",
        "2",
        "--limit",
        "8",
        "--run",
    ]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}

    def rows(run: Path) -> int:
        if not (run / RERANK_SCORES).exists():
            return 0
        with sqlite3.connect(run / RERANK_SCORES) as database:
            try:
                return int(database.execute("SELECT count(*) FROM scores").fetchone()[0])
            except sqlite3.OperationalError:  # just being made
                return 0

    killed = subprocess.Popen([*command, "KILLED"], cwd=tmp_path, env=environment)
    while rows(tmp_path / "KILLED") < 60 and killed.poll() is None:
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    subprocess.run([*command, "KILLED"], cwd=tmp_path, env=environment, check=True)
    asked = (tmp_path / "asked.txt").read_text().splitlines()
    # What was being computed at the kill is asked again: two questions of at most 30 passages.
    assert len(asked) - len(set(asked)) <= 2 * 30
    assert rows(tmp_path / "KILLED") == len(set(asked))
    subprocess.run([*command, "WHOLE"], cwd=tmp_path, env=environment, check=True)
    answers = [sorted((tmp_path / run / "answers.jsonl").read_bytes().splitlines()) for run in ("KILLED", "WHOLE")]
    assert answers[0] == answers[1] and len(answers[0]) == 8
