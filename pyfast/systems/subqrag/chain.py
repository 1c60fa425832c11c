"""Split a question into an ordered chain of self-contained sub-questions (SubQRAG's paper, section 2.2)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import islice, product
from math import prod

from pyfast.engine import Context
from pyfast.errors import AnswerError
from pyfast.systems.prompts import tidied
from pyfast.systems.subqrag.prompts import REWRITE, SUB_QUESTIONS, RewrittenFields
from pyfast.systems.subqrag.settings import Settings
from pyfast.systems.subqrag.steps import Step
from pyfast.systems.together import together
from pyfast.utils.token_budget import fit, join

_PLACE = re.compile(r"#(\d+)")
_MOST = 300  # the maximum length of an earlier answer in a rewritten question, in characters


async def sub_questions(question: str, ctx: Context, settings: Settings) -> tuple[list[str], str | None]:
    """Split a question. Return (the sub-questions in order, None), or (the question itself, an error message)
    if the LLM's reply is unusable."""
    if not settings.decompose:
        return [question], None
    try:
        fields = await ctx.generate(SUB_QUESTIONS, question=question)
    except AnswerError as error:
        return [question], str(error)
    chain = [text.strip() for text in fields.questions if text.strip()]
    return (chain, None) if chain else ([question], "sub_questions: none was given")


async def on_its_own(
    text: str, chain: Sequence[str], steps: Sequence[Sequence[Step]], ctx: Context, settings: Settings
) -> tuple[list[str], int]:
    """Put the answers to earlier sub-questions into the sub-question `text` (section 2.2.2, equation 2).
    `chain` contains all sub-questions, and `steps` the results of the earlier ones.

    Returns (the resulting questions, the number of omitted questions). If an earlier sub-question has several
    answers, there is one question per answer, because each needs its own search. Questions beyond
    `settings.branches` are omitted. If an earlier sub-question has no answer, its own text takes the answer's
    place.
    """
    if not steps or not settings.rewrite:
        return [text], 0
    answers = [tidied(name for step in resolved for name in step.answers) for resolved in steps]
    unknown = {i: f"({chain[i].rstrip(' ?')})" for i, names in enumerate(answers) if not names}
    text = _PLACE.sub(lambda place: unknown.get(int(place[1]) - 1, place[0]), text)
    named = sorted({int(place) - 1 for place in _PLACE.findall(text)} & set(range(len(steps))))
    others = {i: names for i, names in enumerate(answers) if names and i not in named}
    chosen = [answers[i] for i in named]
    asked = await together(
        _rewritten(text, chain, {**others, **{i: [name] for i, name in zip(named, names, strict=True)}}, ctx)
        for names in islice(product(*chosen), settings.branches)
    )
    return list(dict.fromkeys(asked)), prod(map(len, chosen)) - len(asked)


async def _rewritten(text: str, chain: Sequence[str], known: Mapping[int, Sequence[str]], ctx: Context) -> str:
    """Let the LLM rewrite the sub-question `text` with answers to earlier sub-questions. `known` maps the
    number of each earlier sub-question (from 0) to its answers. The sub-questions to which `text` refers come
    last, with one answer each."""
    if not known:
        return text
    budget = ctx.text_budget(REWRITE)
    share = min(budget // len(known), _MOST)
    lines = [f"#{i + 1}: {chain[i]} -> {join(names, share)}" for i, names in known.items()]
    try:
        fields = await ctx.generate(
            REWRITE, earlier="\n".join(fit(lines[::-1], budget, first="whole")[::-1]), question=text
        )
    except AnswerError as error:
        ctx.fell_back(REWRITE, error)
        fields = RewrittenFields(question="")
    filled = _PLACE.sub(lambda place: known.get(int(place[1]) - 1, place)[0], text)
    return fields.question.strip() or filled
