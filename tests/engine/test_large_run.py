"""A run of 100,000 questions that is done: what it takes to find that out."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow(suite="crashes")

QUESTIONS = 100_000
MOST_S = 10.0  # of the processor; it took 51 and 28. What it takes here is printed: under two on an idle machine


def test_nothing_to_do_and_status_take_seconds(tmp_path: Path) -> None:
    questions = tmp_path / "q.jsonl"
    questions.write_text("".join(f'{{"id": "{i}", "question": "Who is {i}?"}}\n' for i in range(QUESTIONS)))
    pyfast = [sys.executable, "-m", "pyfast"]
    answer = [*pyfast, "answer", questions, "--system", "direct", "--llm", "instant", "--run", tmp_path / "run"]
    for command, words in (
        (answer, f"{QUESTIONS} answered"),
        (answer, "all questions were already finished"),
        ([*pyfast, "status", tmp_path / "run"], f"{QUESTIONS} answered; done"),
    ):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(f"{words}: {took:.2f} s")
        assert words in done.stdout
        assert took < MOST_S or words.endswith(" answered")
