"""IRCoT: search and chain of thought take turns. Each sentence of the reasoning is the next search's query.
At the end, a reader answers from all collected paragraphs."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from pyfast.corpus.text_splitting import codes_of, sentence_breaks
from pyfast.engine import Answer, Context, Prompt, Question
from pyfast.errors import AnswerError
from pyfast.retrieval import Pool, pool_ids, traced
from pyfast.systems import system
from pyfast.systems.prompts import ANSWER, final_text, unless_known
from pyfast.systems.rivals.common import NOTHING, REASONED, answer_from, joined, reasoned_prompt

CONCLUDES = "answer is"
"""With these words, a sentence ends the reasoning"""


class SentenceFields(BaseModel):
    """The next sentence of a chain of thought."""

    sentence: str = Field(max_length=300)


SENTENCE = Prompt(
    name="sentence",
    system=(
        "You reason about a question in a chain of sentences, and write one sentence at a time. Reply in JSON with"
        " the field sentence, of at most 300 characters: the next sentence after those that you have written. It"
        " states one fact, from the evidence if it is there, and otherwise from what you know, because your"
        " sentence is the next search. If your sentences already lead to the answer, write: So the answer is, and"
        " the answer."
    ),
    user="Evidence:\n$context\n\nQuestion: $question\nYour sentences: $sentences",
    answer=SentenceFields,
    max_tokens=160,
    role="think",
)


class Settings(system.Abstaining):
    """The parameters from the paper."""

    k: system.PassageCount = Field(
        default=4,
        ge=1,
        description="Number of paragraphs and table rows that each search adds (K).",
        json_schema_extra={"paper": "K, which the experiments choose from 2, 4, 6 and 8"},
    )
    steps: int = Field(
        default=8,
        ge=0,
        le=100,
        description="Maximum number of sentences of reasoning. 0: no reasoning, and the question is the only"
        " query (OneR).",
        json_schema_extra={"paper": "the maximum number of reasoning steps; the one-step retriever"},
    )
    paragraphs: int = Field(
        default=15,
        ge=1,
        le=10_000,
        description="Maximum number of paragraphs and table rows to collect. The reasoning ends when this"
        " number is reached.",
        json_schema_extra={"paper": "the maximum number of collected paragraphs"},
    )
    reader: Literal["cot", "direct"] = Field(
        default="cot",
        description="How the reader (the last LLM call) answers from the collected paragraphs. `cot`: after"
        " steps of reasoning. `direct`: at once.",
        json_schema_extra={"paper": "the CoT reader and the direct reader"},
    )


async def answer(question: Question, ctx: Context, settings: Settings, **noted: Any) -> Answer:
    """Answer a question: interleave reasoning and retrieval, and read what was collected. The trace begins
    with `noted`, the notes of a system that calls this one."""
    steps: list[dict[str, Any]] = []
    trace: dict[str, Any] = {**noted, "steps": steps}
    collected = NOTHING
    ctx.so_far(lambda: Answer(None, ctx.evidence(collected), trace))

    async def retrieve(query: str) -> Pool:
        found = await ctx.retrieve(query, settings.k)
        steps.append({"query": query, **traced(found)})
        return joined(collected, found, settings.paragraphs)

    # Interleaving retrieval with chain-of-thought reasoning
    collected = await retrieve(question.text)
    sentences: list[str] = []
    while len(sentences) < settings.steps and len(collected) < settings.paragraphs:
        # Reason
        try:
            sentence = await next_sentence(question, collected, sentences, ctx)
        except AnswerError as error:
            ctx.fell_back(SENTENCE, error)
            break
        sentences.append(sentence)
        if not sentence or CONCLUDES in sentence.lower():
            break
        # Retrieve
        collected = await retrieve(sentence)
    trace |= {"sentences": sentences, "collected": pool_ids(collected)}

    # Question answering reader
    if settings.reader == "direct":
        text = await answer_from(collected, question, ctx, settings.abstain)
        return Answer(text, ctx.evidence(collected), trace)
    prompt = unless_known(reasoned_prompt(ctx, collected), settings.abstain)
    context = await ctx.narrative(collected, prompt)
    reply = await ctx.generate(prompt, context=context, question=question.text)
    return Answer(final_text(reply.answer), ctx.evidence(collected), trace)


async def next_sentence(question: Question, collected: Pool, sentences: list[str], ctx: Context) -> str:
    """Let the LLM write the next sentence. If it writes several, all but the first are dropped."""
    context = await ctx.narrative(collected, SENTENCE)
    written = " ".join(sentences) or "none yet"
    reply = await ctx.generate(SENTENCE, context=context, question=question.text, sentences=written)
    text = reply.sentence.strip()
    ends, _ = sentence_breaks(text, codes_of(text))
    return text[: int(ends[0])] if len(ends) else text


SYSTEM = system.System(
    "ircot",
    answer,
    Settings,
    (SENTENCE, REASONED, ANSWER),
    summary="search and sentences of reasoning take turns; then a reader answers from all collected paragraphs",
    paper="Interleaving Retrieval with Chain-of-Thought Reasoning for Knowledge-Intensive Multi-Step Questions",
)
