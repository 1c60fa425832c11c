"""Self-consistency: the LLM writes several chains of thought for a question, and the answer that most of them
reach wins."""

from __future__ import annotations

from collections import Counter

from pydantic import Field

from pyfast.engine import Answer, Context, Prompt, Question, Sampling
from pyfast.errors import AnswerError
from pyfast.systems import system
from pyfast.systems.cot import EXAMPLES, few_shot
from pyfast.systems.prompts import COT, ReasonedFields, final_text, unless_known
from pyfast.systems.rivals.common import unstreamed
from pyfast.systems.together import together
from pyfast.utils.text_forms import normalise


class Settings(system.Abstaining):
    """The parameters from the paper."""

    samples: int = Field(
        default=40,
        ge=1,
        le=1000,
        description="Number of chains of thought. Each costs one LLM call.",
        json_schema_extra={"paper": "40 reasoning paths"},
    )
    temperature: float = Field(
        default=0.7,
        ge=0,
        le=2,
        allow_inf_nan=False,
        description="The LLM's temperature for the chains of thought.",
        json_schema_extra={"paper": "temperature sampling, 0.7 for GPT-3"},
    )
    examples: int = Field(
        default=len(EXAMPLES),
        ge=0,
        le=len(EXAMPLES),
        description="Number of worked examples in the prompt, as in `cot`.",
        json_schema_extra={"paper": "few-shot chain-of-thought prompts"},
    )


async def answer(question: Question, ctx: Context, settings: Settings) -> Answer:
    """Answer a question by the majority of the sampled answers. Of answers with equally many votes, the one
    sampled first wins. Abstaining counts as a vote too."""
    prompt: Prompt[ReasonedFields] = unstreamed(few_shot(unless_known(COT, settings.abstain), settings.examples))

    async def sample(seed: int) -> ReasonedFields | str:
        try:
            return await ctx.generate(prompt, Sampling(settings.temperature, seed), question=question.text)
        except AnswerError as error:
            return str(error)

    sampled = await together(map(sample, range(settings.samples)))
    chains = [one for one in sampled if isinstance(one, ReasonedFields)]
    unusable = [one for one in sampled if isinstance(one, str)]
    for why in unusable if chains else unusable[1:]:
        ctx.fell_back(prompt, why)
    if not chains:
        raise AnswerError(unusable[0])
    votes = Counter(normalise(final_text(chain.answer) or "") for chain in chains)
    best, _ = votes.most_common(1)[0]
    first = next(chain for chain in chains if normalise(final_text(chain.answer) or "") == best)
    return Answer(
        final_text(first.answer), trace={"votes": dict(votes.most_common()), "reasoning": first.reasoning}
    )


SYSTEM = system.System(
    "self_consistency",
    answer,
    Settings,
    (COT,),
    needs_index=False,
    summary="several chains of thought without evidence, and the answer that most of them reach",
    paper="Self-Consistency Improves Chain of Thought Reasoning in Language Models",
)
