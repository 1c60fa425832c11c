"""TTQA-RS beside a loop written from its paper: the same calls with the same texts, and the same answers. What an
LLM says depends on what it is asked."""

import random
from hashlib import blake2b
from typing import Any

import pytest
from loops import QUESTIONS, WORDS
from scripted import Scripted, run

from pyfast.corpus import Level
from pyfast.retrieval import Index
from pyfast.systems import load_system
from pyfast.systems.prompts import INSUFFICIENT

PROMPTS = {prompt.name: prompt for prompt in load_system("ttqa_rs").prompts}
ASKED = [*QUESTIONS, "Which rover landed on Mars in 2004?", "Which moon of Saturn has the largest radius?"]


def said(kind: str, user: str) -> dict[str, Any]:
    draw = random.Random(blake2b(f"{kind} {user}".encode()).hexdigest())
    words = " ".join(draw.choices(WORDS, k=3))
    if kind == "gist":
        return {"summary": draw.choice(["", f"It is about {words}."])}
    if kind == "parts":
        rest = draw.choice([f"Who found {{answer}} {words}?", f"Which {words}?", ""])
        return {
            "table_question": f"Which {words}?",
            "text_question": rest,
            "answer_type": draw.choice(["", "person"]),
        }
    if kind == "from_rows":
        return {"reasoning": "So.", "answer": draw.choice(["", "not mentioned", words])}
    return {"reasoning": "So.", "answer": draw.choice([f"it is {words}", INSUFFICIENT])}


class Paper:
    def __init__(self, index: Index, search: int, rows: int, texts: int) -> None:
        self.index, self.search, self.rows, self.texts = index, search, rows, texts
        self.calls: list[tuple[str, str]] = []

    def ask(self, kind: str, user: str) -> dict[str, Any]:
        self.calls.append((kind, user))
        return said(kind, user)

    def find(self, query: str) -> tuple[list[int], list[int]]:
        (pool,) = self.index.search([query], self.search)
        rows, texts = list[int](), list[int]()
        for passage in pool.passages.tolist():
            is_row = self.index.corpus.level[int(self.index.passages[passage])] == Level.TABLE_ROW
            (rows if is_row else texts).append(passage)
        return rows[: self.rows], texts[: self.texts]

    def shown(self, passages: list[int]) -> str:
        return "\n".join(f"[{at}] {self.index.text(one)}" for at, one in enumerate(dict.fromkeys(passages), 1))

    def answer(self, question: str, summary: bool, breakdown: bool) -> str | None:
        rows, texts = self.find(question)
        notes = ""
        if summary:
            told = f"Rows and texts:\n{self.shown([*rows, *texts])}\n\nQuestion: {question}"
            if gist := self.ask("gist", told)["summary"]:
                notes = f"Summary: {gist}\n"
        if breakdown:
            example = PROMPTS["parts"].user.rpartition("Question: ")[0]
            parts = self.ask("parts", f"{example}Question: {question}")
            if parts["text_question"]:
                told = f"Rows:\n{self.shown(rows or texts)}\n\n{notes}Think step by step.\n"
                known = self.ask("from_rows", f"{told}Question: {parts['table_question']}")["answer"]
                if parts["answer_type"]:
                    notes += "The answer is of this kind: person\n"
                if known and known != "not mentioned":
                    notes += f"{parts['table_question']} {known}\n"
                    query = parts["text_question"].replace("{answer}", known)
                    more, about = self.find(query if known in query else f"{query} {known}")
                    rows, texts = [*rows, *more], [*about, *texts]
        told = (
            f"Rows and texts:\n{self.shown([*rows, *texts])}\n\n{notes}Think step by step.\nQuestion: {question}"
        )
        found = str(self.ask("from_both", told)["answer"])
        return None if found == INSUFFICIENT else found


@pytest.mark.parametrize("summary", [True, False])
@pytest.mark.parametrize("breakdown", [True, False])
@pytest.mark.parametrize("number", range(15))
def test_it_is_the_method_of_its_paper(small: Index, summary: bool, breakdown: bool, number: int) -> None:
    question = f"{ASKED[number % 5]} ({number})"
    llm = Scripted(
        **{kind: lambda request, kind=kind: said(kind, request.messages[-1].content) for kind in PROMPTS}
    )
    given = {"search": "20", "rows": "4", "texts": "3"}
    switches = {"summary": "on" if summary else "off", "breakdown": "on" if breakdown else "off"}
    (record,) = run(small, llm, [question], "ttqa_rs", **given, **switches)
    paper = Paper(small, 20, 4, 3)
    assert record.answer == paper.answer(question, summary, breakdown)
    assert [(kind, request.messages[-1].content) for kind, request in llm.calls] == paper.calls
    assert len(record.trace["steps"]) == 1 + bool(record.trace.get("table_answer"))


def test_rows_answer_first_and_texts_then(small: Index) -> None:
    llm = Scripted(
        gist={"summary": "On moons of Saturn."},
        parts={
            "table_question": "Which moon of Saturn is the largest?",
            "text_question": "Who discovered {answer}?",
            "answer_type": "person",
        },
        from_rows={"reasoning": "The row of Titan has the largest radius.", "answer": "Titan"},
        from_both={"reasoning": "Huygens discovered Titan.", "answer": "Christiaan Huygens"},
    )
    (record,) = run(small, llm, ["Who discovered the largest moon of Saturn?"], "ttqa_rs")
    assert llm.kinds == ["gist", "parts", "from_rows", "from_both"] and record.answer == "Christiaan Huygens"
    assert [step["query"] for step in record.trace["steps"]][1:] == ["Who discovered Titan?"]
    assert record.trace["table_answer"] == "Titan" and record.trace["answer_type"] == "person"
    assert "Summary: On moons of Saturn.\nThe answer is of this kind: person\n" in llm.users("from_both")[0]
    rows = [line for line in llm.users("from_rows")[0].split("\n") if line.startswith("[")]
    assert rows and all(" | " in row for row in rows)


def test_replies_that_are_not_usable_leave_the_question_whole(small: Index) -> None:
    last = {"reasoning": "So.", "answer": "Titan"}
    for first in ("?", {"table_question": "Which moon?", "text_question": "Who?", "answer_type": ""}):
        llm = Scripted(gist="?", parts=first, from_rows="?", from_both=last)
        (record,) = run(small, llm, [QUESTIONS[0]], "ttqa_rs")
        assert record.answer == "Titan" and len(record.trace["steps"]) == 1 and record.evidence


def test_without_rows_or_texts(small: Index) -> None:
    last = {"reasoning": "So.", "answer": "Titan"}
    parts = {"table_question": "Which moon?", "text_question": "Who found {answer}?", "answer_type": ""}
    for given in ({"rows": "0"}, {"texts": "0"}, {"rows": "0", "texts": "0"}):
        llm = Scripted(gist={"summary": "s"}, parts=parts, from_rows=last, from_both=last)
        (record,) = run(small, llm, [QUESTIONS[0]], "ttqa_rs", **given)
        assert record.answer == "Titan" and bool(record.evidence) == (len(given) == 1)
