"""Every system, killed two dozen times over 300 questions, writes what it writes when nobody kills it."""

import json
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from hostile_server import allow, counts, hostile
from processes import Session
from runs import answers, traces

import pyfast

pytestmark = pytest.mark.slow(suite="storms")

QUESTIONS, KILLS, CONCURRENCY, SEED = 300, 24, 8, 17
PATIENCE_S = 900.0  # mtqa computes ten vectors for each question
SETTINGS = {
    "graph_convqa": ["--set", "graph=off"],
    "mtqa": ["--set", "rows=2", "--set", "columns=2"],
    "ratt": ["--set", "nodes=2", "--set", "layers=2"],
    "tot": ["--set", "candidates=2", "--set", "evaluations=2"],
    "self_consistency": ["--set", "samples=5"],
}


@pytest.fixture(scope="module")
def place(examples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kills")
    pyfast.build_knowledge(pyfast.build_index(examples / "corpus", folder / "index"))
    asked = [json.loads(line)["question"] for line in (examples / "questions.jsonl").read_text().splitlines()]
    lines = (json.dumps({"id": f"q{i}", "question": f"{asked[i % len(asked)]} ({i})"}) for i in range(QUESTIONS))
    (folder / "q.jsonl").write_text("\n".join(lines))
    return folder


@pytest.mark.guarantee("G1")
@pytest.mark.parametrize("system", pyfast.systems.names())
def test_every_system_is_killed_again_and_again(system: str, place: Path, tmp_path: Path) -> None:
    def session(name: str, url: str) -> Session:
        index = tmp_path / f"{name}-index"  # subqrag adds to it what it learned, at the end of a run
        if not index.exists():
            shutil.copytree(place / "index", index)
        given: list[Any] = [place / "q.jsonl", "--index", index, "--system", system, *SETTINGS.get(system, [])]
        given += ["--llm", f"openai:hostile@{url}", "--llm-option", "backoff_s=0.01", "--concurrency", CONCURRENCY]
        return Session(tmp_path / name, *given)

    with hostile() as url:
        assert session("whole", url).ended(PATIENCE_S) == 0
        whole = counts(url)
    chance, kills = random.Random(f"{SEED} {system}"), 0
    with hostile() as url:
        while kills < KILLS:
            # It comes so far and no further, however late the kill is.
            step = chance.uniform(0.5, 1.2) * whole["requests"] / (KILLS + 2)
            asked = counts(url)["requests"]
            allow(url, asked + round(step))
            process = session("killed", url)
            if chance.random() < 0.2:
                time.sleep(chance.random() / 3)
            else:
                process.until(lambda asked=asked, step=step: counts(url)["requests"] >= asked + step)
                time.sleep(chance.random() / 50)
            assert process.process.is_alive(), process.told
            process.kill()
            kills += 1
        allow(url, 10**9)
        last = session("killed", url)
        assert last.ended(PATIENCE_S) == 0, last.told
        repeated = counts(url)["requests"] - whole["requests"]
    assert answers(tmp_path / "killed") == answers(tmp_path / "whole")
    assert traces(tmp_path / "killed") == traces(tmp_path / "whole")
    assert pyfast.verify(tmp_path / "killed").passed
    print(f"\n{system}: {kills} kills, {repeated} of {whole['requests']} calls asked again")
