"""Section 2.2: a question becomes an ordered chain of sub-questions, and each of these stands on its own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice, product

from pyfast.engine import Context
from pyfast.errors import AnswerError
from pyfast.systems.subqrag.prompts import REWRITE, SUB_QUESTIONS, RewrittenFields
from pyfast.systems.subqrag.settings import Settings
from pyfast.systems.subqrag.steps import Step, together

_PLACE = re.compile(r"#(\d+)")


async def sub_questions(question: str, ctx: Context, settings: Settings) -> tuple[list[str], str | None]:
    """Section 2.2.1: (the ordered chain, what was wrong with the model's)."""
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
) -> list[str]:
    """Section 2.2.2, equation 2: the sub-question with what was found before.

    Where it refers to several answers it becomes several questions, one for each: the five nearest facts of one
    could not hold the answers for all.
    """
    if not steps or not settings.rewrite:
        return [text]
    answers = [list(dict.fromkeys(name for step in found for name in step.answers)) for found in steps]
    named = sorted({int(place) - 1 for place in _PLACE.findall(text)} & set(range(len(steps))))
    chosen = [answers[i] for i in named]
    if not all(chosen):
        return [text]
    combinations = islice(product(*chosen), settings.branches)
    before = [", ".join(names) for names in answers]
    return await together(
        _rewritten(text, chain, {**dict(enumerate(before)), **dict(zip(named, combination, strict=True))}, ctx)
        for combination in combinations
    )


async def _rewritten(text: str, chain: Sequence[str], found: dict[int, str], ctx: Context) -> str:
    lines = [f"#{i + 1}: {chain[i]} -> {name}" for i, name in found.items() if name]
    if not lines:
        return text
    try:
        fields = await ctx.generate(REWRITE, found="\n".join(lines), question=text)
    except AnswerError:
        fields = RewrittenFields(question="")
    filled = _PLACE.sub(lambda place: found.get(int(place[1]) - 1) or place[0], text)
    return fields.question.strip() or filled
