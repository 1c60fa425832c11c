"""The cascade beside a slow loop: which systems answer, how sure each answer is, and which of them counts. The fit
of its weights beside that of scikit-learn."""

import asyncio
import json
import math
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loops import QUESTIONS, WORDS
from runs import answer_all, ask_about
from scripted import Scripted, plan, run
from typer.testing import CliRunner

import pyfast
from pyfast.api.training import calibrate_cascade
from pyfast.commands.cli import app
from pyfast.engine import Budget, Question, Record
from pyfast.errors import InputError
from pyfast.llm import LLM, Request, Role
from pyfast.retrieval import Index
from pyfast.systems import load_system
from pyfast.systems.confidence import FEATURES, fitted

WEIGHTS = (-2.0, 0.5, 2.0, 1.2, 1.5, 1.0)
STOP_WORDS = {"who", "the", "that", "on", "which", "in", "was", "of"}
"""Those of QUESTIONS. `does` is none"""
CALLS = {"rag": 1, "n2n": 4, "hseq": 6}
"""The most calls that each system can need"""
Said = dict[str, str | None]
"""What the LLM answers to the prompts of each system. None: it abstains. "?": its reply is not usable"""


class Speaking(Scripted):
    """Replies to one prompt for an answer after the other with the texts that it is given."""

    def __init__(self, *said: str | None) -> None:
        guide = {"first_look": "look for Titan", "expansion": "", "stop": "stop when Titan is found"}
        super().__init__(
            plan=plan("moon of Saturn"),
            guide=guide,
            select=lambda _: {"selected": [1, 2], "sufficient": True},
            answer=self.reply,
            head=self.reply,
        )
        self.said = list(said)

    def reply(self, _: Request) -> Any:
        text = self.said.pop(0)
        return "no JSON" if text == "?" else {"answer": text or "insufficient evidence", "supporting": [1]}


def words(text: str) -> set[str]:
    return set(re.sub(r"[^\w\s]", "", text.lower()).split()) - {"a", "an", "the"}


def slow(
    index: Index, question: str, said: Said, then: list[str], sure: float, most_calls: int, temperature: float
) -> tuple[list[dict[str, Any]], str | None, str | None, list[str | None]]:
    """The attempts, who gave the answer, the answer (None: it abstains), and what the LLM was asked to say."""
    (pool,) = index.search([question], 10)
    scores = [float(score) for _, score in pool]
    gap = 0.0
    asked: list[str | None] = []
    attempts: list[dict[str, Any]] = []
    calls = 0
    texts: list[str] = []
    for by in ["draft", *then]:
        if attempts:
            before = attempts[-1]
            if before["sure"] or (most_calls and most_calls - calls < CALLS[by]):
                break
            before["to"] = by
        text = said[by]
        asked.append(text)
        read, used = alone(index, question, by, said)
        calls += used
        others = list(texts)
        if by == "draft" and text != "?":
            gap = (scores[0] - scores[1]) / scores[0]
            if text is not None and temperature and (not most_calls or calls < most_calls):
                asked.append(said["again"])
                calls += 1
                others = [said["again"]] if said["again"] not in (None, "?") else [""]
        one: dict[str, Any] = {"by": by, "text": text, "to": None, "sure": False, "confidence": 0.0}
        if text not in (None, "?"):
            mine = words(text)
            agreement = max(
                (2 * len(mine & words(it)) / (len(mine) + len(words(it))) for it in others), default=0.5
            )
            support = max(len(mine & words(piece)) / len(mine) for piece in read)
            best = [words(piece) for piece in read if len(mine & words(piece)) / len(mine) == support]
            told = words(question) - STOP_WORDS
            coverage = max(len(told & piece) / len(told) for piece in best)
            first = by == "draft"
            features = [1, not first, support, coverage * first, agreement, gap * first]
            z = sum(weight * value for weight, value in zip(WEIGHTS, features, strict=True))
            one["confidence"] = 1 / (1 + math.exp(-z))
            one["sure"] = one["confidence"] > sure
            texts.append(text)
        attempts.append(one)
    usable = [one for one in attempts if one["text"] != "?"]
    if not usable:
        return attempts, None, "?", asked
    best = [one for one in usable if one["text"] is not None] or usable
    return attempts, best[-1]["by"], best[-1]["text"], asked


def alone(index: Index, question: str, by: str, said: Said) -> tuple[list[str], int]:
    """The pieces of evidence of a system that answers alone, and its number of LLM calls."""
    if by in ("draft", "rag"):
        (pool,) = index.search([question], 10)
        return [index.text(int(passage)) for passage, _ in pool], 1
    llm = Speaking(said[by])
    (record,) = run(index, llm, [question], by)
    if by == "hseq":
        return [piece["snippet"] for piece in record.evidence], len(llm.calls)
    (shown,) = llm.users("answer")
    return re.findall(r"^\[\d+\] (.*)$", shown, re.MULTILINE), len(llm.calls)


@pytest.mark.parametrize("seed", range(120))
def test_it_takes_the_decisions_of_a_slow_loop(small: Index, seed: int) -> None:
    draw = random.Random(seed)
    said: Said = {
        by: draw.choice([None, "?", *[" ".join(draw.sample(WORDS, draw.randint(1, 3))) for _ in range(6)]])
        for by in ("draft", "again", "rag", "n2n", "hseq")
    }
    if draw.random() < 0.4:
        said["again"] = said["draft"]
    then = draw.choice([["n2n", "hseq"], ["hseq", "n2n"], ["n2n"], ["rag", "n2n"], []])
    sure, most, temperature = (
        draw.choice([0, 0.5, 0.8, 0.95, 1]),
        draw.choice([0, 0, 1, 2, 6, 9]),
        draw.choice([0, 0.7]),
    )
    question = draw.choice(QUESTIONS)
    attempts, by, text, asked = slow(small, question, said, then, sure, most, temperature)
    llm = Speaking(*asked)
    (record,) = run(
        small,
        llm,
        [question],
        "cascade",
        then=",".join(then),
        sure=str(sure),
        weights=",".join(map(str, WEIGHTS)),
        most_calls=str(most),
        temperature=str(temperature),
    )
    assert llm.said == [], (said, then, sure, most, temperature, attempts, record.trace)
    if text == "?":
        assert record.state == "failed" and "malformed answer" in record.reason
        return
    assert (record.state, record.answer) == ("abstained" if text is None else "answered", text)
    assert record.trace["answer_by"] == by
    told = record.trace["attempts"]
    assert [one["by"] for one in told] == [one["by"] for one in attempts]
    for one, expected in zip(told, attempts, strict=True):
        assert one["answer"] == (None if expected["text"] == "?" else expected["text"])
        assert one["confidence"] == pytest.approx(expected["confidence"], abs=1e-4)
        assert one.get("passed_on", "").partition(":")[0] == (f"to {expected['to']}" if expected["to"] else "")


def test_the_trace_says_why_a_question_goes_on(small: Index) -> None:
    llm = Speaking("Titan", "Saturn Mars", None, "Christiaan Huygens")
    (record,) = run(
        small,
        llm,
        [QUESTIONS[0]],
        "cascade",
        weights="-2,0,2,0,2,0",
        sure="0.5",
        then="n2n,hseq",
        temperature="0.7",
    )
    first, second, third = record.trace["attempts"]
    # The word is in the evidence (2), and the drafts agree in no word: 1 / (1 + e^0).
    assert first == {
        "by": "draft",
        "answer": "Titan",
        "support": 1.0,
        "agreement": 0.0,
        "confidence": 0.5,
        "coverage": first["coverage"],
        "gap": first["gap"],
        "passed_on": "to n2n: the confidence 0.5000 is not above 0.5",
    }
    assert second == {
        "by": "n2n",
        "answer": None,
        "confidence": 0.0,
        "passed_on": "to hseq: it abstained",
    }
    assert third["by"] == record.trace["answer_by"] == "hseq" and record.answer == "Christiaan Huygens"
    assert record.trace["second_draft"] == "Saturn Mars"
    assert {"hops", "candidates", "guidance", "steps"} <= record.trace.keys()  # those of n2n and of hseq


def test_a_draft_has_a_role_of_its_own(small: Index) -> None:
    cheap, dear = Speaking("Titan", None), Speaking("Saturn")
    models: dict[Role, LLM] = {"draft": cheap, "default": dear}
    system = load_system("cascade")
    ask = system.ask(system.configure({"then": "rag", "abstain": False, "temperature": 0.7, "sure": 1}))
    records: list[Record] = []
    asyncio.run(answer_all(iter([Question("q", QUESTIONS[1])]), ask, small, models, records.append))
    assert records[0].answer == "Saturn" and cheap.kinds == ["answer"] * 2 and dear.kinds == ["answer"]
    (draft, again), (later,) = ([request for _, request in llm.calls] for llm in (cheap, dear))
    assert draft.messages == again.messages and (again.temperature, again.seed) == (0.7, 1)
    assert later.messages[1] == draft.messages[1]  # the same passages
    assert "insufficient" in draft.messages[0].content and "insufficient" not in later.messages[0].content


def test_it_keeps_an_answer_if_the_budget_allows_no_other_system(small: Index) -> None:
    for limits, lacks in (
        ({"calls": 5}, "; n2n may need 4 calls, and 3 are left"),
        ({"steps": 12}, "; n2n may need 18 steps, and 7 are left"),
    ):
        system, records = load_system("cascade"), list[Record]()
        ask = system.ask(system.configure({"sure": 1, "temperature": 0.7}))
        questions = iter([Question("q", QUESTIONS[1])])
        llm = Speaking("Titan", "Titan")
        asyncio.run(answer_all(questions, ask, small, llm, records.append, budget=Budget.model_validate(limits)))
        assert records[0].answer == "Titan" and records[0].trace["outcome"].endswith(lacks)


def test_a_system_starts_only_with_the_tokens_that_it_may_need(small: Index) -> None:
    """As many as its calls would take, if each took the mean of those before."""

    def answered(**settings: Any) -> Record:
        given = {"sure": 1, "then": "n2n,hseq", **settings}
        return pyfast.answer([QUESTIONS[0]], index=small, llm="instant", system="cascade", settings=given).records[
            0
        ]

    def used(record: Record) -> int:
        return record.usage.prompt_tokens + record.usage.completion_tokens

    first, second = answered(then=""), answered(then="n2n")
    starts = [used(one) + calls * used(one) // one.usage.llm_calls for one, calls in ((first, 4), (second, 6))]
    for most in (1, starts[0] - 1, starts[0], starts[1] - 1, starts[1]):
        record = answered(most_tokens=most)
        by = [one["by"] for one in record.trace["attempts"]]
        assert by == ["draft", *(["n2n"] if most >= starts[0] else []), *(["hseq"] if most >= starts[1] else [])]
        assert ("tokens, and" in record.trace["outcome"]) == (len(by) < 3)


def test_a_client_gets_no_text_that_may_be_replaced(small: Index) -> None:
    """instant streams: the answer of `rag` comes in parts, that of the cascade as a whole."""

    async def heard(system: str) -> list[str]:
        parts: list[str] = []
        async with pyfast.Engine(index=small, llm="instant") as engine:
            await engine.answer(QUESTIONS[0], system=system, on_text=parts.append)
        return parts

    assert asyncio.run(heard("rag")) and not asyncio.run(heard("cascade"))


@pytest.mark.parametrize("given", ["n2n,n2n", "n2n,flare", "n2n,cascade"])
def test_other_systems_are_refused(given: str) -> None:
    with pytest.raises(InputError, match="cascade: setting then"):
        load_system("cascade").configure({"then": given})


def test_weights_are_read_from_text() -> None:
    settings = load_system("cascade").configure({"weights": "-2, .5,2,1.2,1.5,1", "then": ""})
    assert settings.model_dump(include={"weights", "then"}) == {"weights": WEIGHTS, "then": ()}
    for wrong in ("1,2", "1,2,3,4,5,x"):
        with pytest.raises(InputError, match="cascade: setting weights"):
            load_system("cascade").configure({"weights": wrong})


@pytest.mark.parametrize("seed", range(5))
def test_the_fit_is_that_of_scikit_learn(seed: int) -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    draw = np.random.default_rng(seed)
    features = np.column_stack([np.ones(80), draw.integers(0, 2, 80), draw.random((80, 4))])
    right = (draw.random(80) < 1 / (1 + np.exp(-features @ np.array(WEIGHTS)))).astype(float)
    peer = linear_model.LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000).fit(features[:, 1:], right)
    assert fitted(features, right) == pytest.approx([*peer.intercept_, *peer.coef_[0]], abs=1e-4)


def test_a_fit_of_answers_that_are_all_easy_to_tell_ends() -> None:
    features = np.array([[1.0, 0, 1, 0.5, 1, 0.2]] * 3 + [[1.0, 1, 0, 0, 0, 0]] * 3)
    weights = fitted(features, np.array([1.0] * 3 + [0.0] * 3))
    assert all(map(math.isfinite, weights)) and weights[2] > 0 > weights[1]


def test_a_run_teaches_the_weights(small: Index, tmp_path: Path) -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    asked, settings = ask_about(24), {"sure": 1, "then": ("n2n", "hseq"), "temperature": 0.7}
    made = pyfast.answer(
        asked, index=small, llm="instant", system="cascade", settings=settings, run=tmp_path / "run"
    )
    # Of each third question, the answer of another system is right, or none.
    gold, rows, right = [], [], []
    for number, record in enumerate(made.records):
        told = record.trace["attempts"]
        answers = [told[number % 4]["answer"]] if number % 4 < len(told) else ["nothing of these"]
        gold.append({"id": record.id, "answers": answers})
        for one in told:
            rows.append([float(one["by"] != "draft"), *(one[name] for name in FEATURES[2:])])
            right.append(float(words(one["answer"]) == words(answers[0]) and one["answer"] == answers[0]))
    peer = linear_model.LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000).fit(rows, right)
    found = calibrate_cascade(tmp_path / "run", gold=gold)
    assert found == calibrate_cascade([made], gold=gold)
    assert (found.answers, found.right) == (len(rows), sum(right)) and 0 < found.loss < found.constant_loss
    assert found.weights == pytest.approx([*peer.intercept_, *peer.coef_[0]], abs=1e-3)
    likely = peer.predict_proba(rows)[np.arange(len(rows)), np.array(right, int)]
    assert found.loss == pytest.approx(-np.log(likely).mean(), abs=1e-3)
    (tmp_path / "gold.jsonl").write_text("".join(json.dumps(one) + "\n" for one in gold))
    command = ["train", "cascade", str(tmp_path / "run"), "--gold", str(tmp_path / "gold.jsonl")]
    shown = CliRunner().invoke(app, command).stdout.splitlines()
    given = dict([shown[-1].removeprefix("--set ").split("=")])
    settings_of = load_system("cascade").configure(given)
    assert settings_of.model_dump()["weights"] == pytest.approx(found.weights, abs=1e-3)
    with pytest.raises(InputError, match="all 72 answers from cascade are wrong, so there is nothing to fit"):
        calibrate_cascade(made, gold=[{"id": record.id, "answers": ["nothing"]} for record in made.records])
    other = pyfast.answer(asked, index=small, llm="instant", system="rag")
    with pytest.raises(InputError, match="there are no answers from cascade, so there is nothing to fit"):
        calibrate_cascade(other, gold=gold)
