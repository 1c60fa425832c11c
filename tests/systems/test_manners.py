"""Servers that do not constrain their models: each system gives the answers that it gives with one that does, and
where it cannot, counts what it does without.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile_server import MANNERS, break_off, counts, hostile
from runs import answer_all, ask_about
from typer.testing import CliRunner

import pyfast
from pyfast.commands.cli import app
from pyfast.engine import Budget, Question, Record, Summary
from pyfast.knowledge import Session
from pyfast.systems import load_system, names

QUESTIONS = ("Who discovered the moon that Huygens landed on?", "Which country has the most Mars landers?")
SETTINGS: dict[str, dict[str, Any]] = {
    "hseq": {"steps": 2, "refine": 1},
    "graph_convqa": {"graph": False, "memory": "random"},
    "mtqa": {"rows": 2, "columns": 2},
    "ratt": {"nodes": 2, "layers": 2},
    "tot": {"candidates": 2, "evaluations": 2},
    "cascade": {"sure": 1, "then": "n2n,hseq", "temperature": 0.7},
}

# What each system can do without.
FALLS = {
    "n2n": {"plan", "extract"},
    "decompose": {"plan", "extract"},
    "hseq": {"guide", "select", "verify"},
    "mtqa": {"keywords", "thought", "summary"},
    "subqrag": {"sub_questions", "rewrite", "from_facts", "from_memory"},
    "tot": {"keywords", "thought", "vote"},
    "rat": {"thought_alone", "keywords", "correct"},
    "ratt": {"thought_alone", "keywords", "correct", "summary_alone"},
    "coa": {"keywords", "notes"},
    "lightrag": {"keywords"},
    "tog": {"keywords", "choose_relations", "choose_entities", "verdict"},
    "searchain": {"check"},
    "slimplm": {"necessity", "queries"},
    "rowen": {"wordings", "say", "agreement", "search"},
    "ttqa_rs": {"gist", "parts", "from_rows"},
    "ircot": {"sentence"},
    "flare": {"look_ahead"},
    "adaptive_rag": {"classify"},
    "cascade": {"draft", "plan", "extract", "answer", "guide", "select", "head"},
    "self_consistency": {"cot"},
    "react": {"act"},
    "self_ask": {"extract"},
    "hipporag": {"recognise"},
}


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, str]]:
    from contextlib import ExitStack

    with ExitStack() as stack:
        yield {manner: stack.enter_context(hostile("--manner", manner)) for manner in MANNERS}


def answered(name: str, url: str, known: Session, **budget: Any) -> tuple[list[Record], Summary]:
    system = load_system(name)
    session = known if system.opens is not None and name != "graph_convqa" else None
    ask = system.ask(system.configure(SETTINGS.get(name, {})), session)
    records: list[Record] = []

    async def inside() -> Summary:
        llm = pyfast.open_llm(f"openai:hostile@{url}")
        await llm.start()
        try:
            questions = (Question(str(at), text) for at, text in enumerate(QUESTIONS))
            limits = Budget(**budget)
            return await answer_all(questions, ask, known.index, llm, records.append, 2, budget=limits)
        finally:
            await llm.close()

    return records, asyncio.run(inside())


@pytest.mark.parametrize("name", names())
def test_each_system_gives_the_answers_of_a_constrained_model(
    name: str, servers: dict[str, str], known: Session
) -> None:
    expected, first = answered(name, servers["constrained"], known)
    assert first.states["failed"] == 0 and not first.fall_backs
    for manner in MANNERS[1:]:
        records, summary = answered(name, servers[manner], known, strict=True)
        assert [record.answer for record in records] == [record.answer for record in expected], manner
        assert [record.trace for record in records] == [record.trace for record in expected], manner
        assert not summary.fall_backs, manner
        assert (summary.reasoning_tokens > 0) == (manner == "thinking")
        as_json = name != "graph_convqa"  # whose answers are text
        assert summary.llm_calls == first.llm_calls * (2 if manner == "terse" and as_json else 1)


@pytest.fixture(scope="module")
def breaking() -> Iterator[str]:
    with hostile() as url:
        yield url


@pytest.mark.parametrize("name", names())
def test_each_prompt_that_gets_no_usable_answer_is_counted(name: str, breaking: str, known: Session) -> None:
    """By what the server was asked: a prompt's calls end in a fall-back each, or fail their questions."""
    seen = set[str]()
    for prompt in load_system(name).prompts:
        alike = [one.name for one in load_system(name).prompts if one.system == prompt.system]
        malformed = tuple(f"{each}: malformed" for each in alike)
        break_off(breaking, prompt.system)
        before = counts(breaking)["systems"].get(prompt.system, 0)
        records, summary = answered(name, breaking, known, attempts=2)
        calls = (counts(breaking)["systems"].get(prompt.system, 0) - before) // 2
        failed = sum((record.reason or "").startswith(malformed) for record in records)
        assert summary.states["failed"] == failed
        assert sum(summary.fall_backs.values()) == calls - failed, prompt.name
        assert set(summary.fall_backs) <= set(alike)
        if calls > failed:
            seen |= set(summary.fall_backs)
            strict, _ = answered(name, breaking, known, attempts=2, strict=True)
            for usual, record in zip(records, strict, strict=True):
                reason = record.reason or ""
                assert reason.startswith(malformed) or record.line() == usual.line()
            assert any(record.state == "failed" for record in strict)
    assert seen == FALLS.get(name, set())


def test_what_falls_back_is_counted_by_the_prompt(known: Session, tmp_path: Path) -> None:
    """A server of which every answer breaks off: each question loses its plan, and then its answer."""
    with hostile("--weights", "truncated=1") as url:
        llm, limits = f"openai:hostile@{url}", {"attempts": 2}
        run = pyfast.answer(ask_about(4), index=known.index, llm=llm, run=tmp_path / "run", budget=limits)
        assert run.status.fall_backs == {"plan": 4} and run.status.states == {"failed": 4}
        assert counts(url)["requests"] == 4 * (2 + 2)
        assert pyfast.Run(tmp_path / "run").status.fall_backs == {"plan": 4}  # as the journal has it
        shown = CliRunner().invoke(app, ["status", str(tmp_path / "run")]).stdout
        assert "\nprompts without a usable reply: plan 4\n" in shown
        strict = pyfast.answer(ask_about(4), index=known.index, llm=llm, options=pyfast.RunOptions(strict=True))
    reasons = Counter((record.reason or "")[:23] for record in strict.records)
    assert reasons == {"plan: malformed answer:": 4}
