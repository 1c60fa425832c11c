"""The system SubQRAG."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pyfast.engine import Answer, Context, Question
from pyfast.errors import AnswerError
from pyfast.knowledge import Session
from pyfast.systems import system
from pyfast.systems.combinations import Preset
from pyfast.systems.prompts import final_text, tidied, unless_known
from pyfast.systems.subqrag.chain import on_its_own, sub_questions
from pyfast.systems.subqrag.graph_memory import evidence, memory, trace
from pyfast.systems.subqrag.learned import Learned, share_again, shared_by
from pyfast.systems.subqrag.prompts import (
    EXTRACT_TRIPLES,
    FROM_DOCUMENTS,
    FROM_FACTS,
    FROM_MEMORY,
    JUDGE_FACTS,
    REWRITE,
    SUB_QUESTIONS,
)
from pyfast.systems.subqrag.settings import Settings
from pyfast.systems.subqrag.steps import Step, learn, resolve
from pyfast.systems.together import together


async def answer(question: Question, ctx: Context, settings: Settings, session: Session) -> Answer:
    """Answer a question with the last three of the paper's four stages. The first stage, indexing, is `pyfast
    knowledge build`."""
    learned = shared_by(session) if settings.shared_updates else Learned()
    chain, chain_degraded = await sub_questions(question.text, ctx, settings)
    if chain_degraded is not None:
        ctx.fell_back(SUB_QUESTIONS, chain_degraded)
    steps: list[list[Step]] = []
    known: dict[str, Step] = {}  # Identical sub-questions are asked only once.
    faults: dict[str, str | int | None] = {"chain_degraded": chain_degraded}

    def result(text: str | None = None) -> Answer:
        flat = [step for each in steps for step in each]
        return Answer(text, evidence(flat, session), trace(steps, session, **faults))

    ctx.so_far(result)
    left_out = 0
    for number, sub_question in enumerate(chain):
        if sub_question in chain[:number]:
            steps.append([replace(step, learned=[]) for step in steps[chain.index(sub_question)]])
            continue
        asked, more = await on_its_own(sub_question, chain, steps, ctx, settings)
        left_out += more
        new = [one for one in asked if one not in known]
        resolved = await together(resolve(one, ctx, settings, session, learned) for one in new)
        # Add them in this order, so that the result does not depend on which ended first.
        for step in resolved:
            await learn(step, ctx, session, learned)
        steps.append([*resolved, *(replace(known[one], learned=[]) for one in asked if one in known)])
        known.update((step.question, step) for step in resolved)
    flat = [step for each in steps for step in each]
    facts = "\n".join(memory(flat, ctx.text_budget_to_repeat(FROM_MEMORY)))
    faults["branches_left_out"] = left_out or None
    if not facts:
        return Answer(None, trace=trace(steps, session, **faults))
    try:
        prompt = ctx.repeating(unless_known(FROM_MEMORY, settings.abstain), facts)
        text = (await ctx.generate(prompt, memory=facts, question=question.text)).answer
    except AnswerError as error:  # The answer to the last sub-question is the answer to the question.
        ctx.fell_back(FROM_MEMORY, error)
        text = "; ".join(tidied(name for step in steps[-1] for name in step.answers))
        faults["answer_degraded"] = str(error)
    return result(final_text(text))


def resumes(session: Session, settings: Settings, answers: Path) -> None:
    """When a run resumes, add the triples that its finished questions learned to `session`, the opened
    knowledge graph. With `shared_updates` off, do nothing."""
    if settings.shared_updates:
        share_again(session, answers)


_PAPER = {"abstain": False, "named": 0, "branches": 1}
PRESETS = {
    "paper": Preset(_PAPER, 'table 2, "SubQRAG"'),
    "no-decomposition": Preset({"abstain": False, "named": 0, "decompose": False}, 'table 2, "w/o Decomposition"'),
    "no-rewriting": Preset({"abstain": False, "named": 0, "rewrite": False}, 'table 2, "w/o Rewriting"'),
    "no-update": Preset({**_PAPER, "update": False}, 'table 2, "w/o Update"'),
}

SYSTEM = system.System(
    "subqrag",
    answer,
    Settings,
    (SUB_QUESTIONS, REWRITE, FROM_FACTS, JUDGE_FACTS, FROM_DOCUMENTS, EXTRACT_TRIPLES, FROM_MEMORY),
    opens=system.opens,
    resumes=resumes,
    summary="ordered sub-questions, answered from triples or from documents, whose triples join the graph",
    paper="SubQRAG: Sub-Question Driven Dynamic Graph RAG",
    presets=PRESETS,
)
