"""The baselines: the calls they make, and that they are no more than what they are compared as."""

import pytest
from scripted import Scripted, plan, run

from pyfast.engine import Question
from pyfast.llm import open_llm
from pyfast.retrieval import Index, narrate

QUESTION = "Which planet does Titan circle?"


def test_direct_asks() -> None:
    llm = Scripted(direct={"answer": " Saturn "})
    (record,) = run(None, llm, [QUESTION], "direct")
    assert llm.kinds == ["direct"] and llm.users("direct") == [f"Question: {QUESTION}"]
    assert (record.state, record.answer, record.evidence, record.trace) == ("answered", "Saturn", [], {})


def test_cot_asks_for_steps() -> None:
    llm = Scripted(cot={"reasoning": "Titan is a moon.", "answer": "Saturn"})
    (record,) = run(None, llm, [QUESTION], "cot")
    assert llm.kinds == ["cot"]
    assert (record.answer, record.evidence, record.trace) == ("Saturn", [], {"reasoning": "Titan is a moon."})


@pytest.mark.parametrize("k", [10, 3])
def test_rag_reads_the_list_as_it_is(small: Index, k: int) -> None:
    llm = Scripted()
    (record,) = run(small, llm, [QUESTION], "rag", **({} if k == 10 else {"k": str(k)}))
    (pool,) = small.search([QUESTION], k)
    (text,) = narrate(small, [pool], 10**6)
    assert llm.kinds == ["answer"]
    assert llm.users("answer") == [
        f"Use at most 300 characters for the answer.\n\nEvidence:\n{text}\n\nQuestion: {QUESTION}"
    ]
    assert [piece["score"] for piece in record.evidence] == [round(score, 6) for _, score in pool]


def test_decompose_is_n2n_without_the_graph(hybridqa: Index, hybridqa_questions: list[Question]) -> None:
    runs = []
    for system, settings in (("decompose", {}), ("n2n", {"graph": "off"}), ("n2n", {})):
        llm = Scripted(plan=plan("Grand Prix", "nationality of {entity1}"), extract={"entity": "Jenson Button"})
        records = run(hybridqa, llm, hybridqa_questions[:5], system, **settings)
        runs.append(([vars(r) for r in records], sorted(request.messages[-1].content for _, request in llm.calls)))
    assert runs[0] == runs[1] != runs[2]


@pytest.mark.parametrize("system", ["direct", "cot", "rag", "decompose", "n2n"])
def test_all_abstain_alike(small: Index, system: str) -> None:
    nothing = {"answer": "Insufficient evidence", "reasoning": ""}
    llm = Scripted(plan=plan("moon"), answer=nothing, direct=nothing, cot=nothing)
    (record,) = run(small, llm, [QUESTION], system)
    assert (record.state, record.answer) == ("abstained", None)


@pytest.mark.parametrize("system", ["direct", "cot", "rag", "decompose", "n2n"])
def test_all_run_on_the_instant_llm(small: Index, system: str) -> None:
    (record,) = run(small, open_llm("instant"), [QUESTION], system)
    assert record.state == "answered"
