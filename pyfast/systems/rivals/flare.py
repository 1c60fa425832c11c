"""FLARE: forward-looking active retrieval. The LLM writes the next sentence of its reasoning. If it is unsure
of the sentence, the sentence becomes a query, and the LLM rewrites it from the search results."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from itertools import zip_longest
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, Field

from pyfast.engine import Answer, Context, Prompt, Question
from pyfast.errors import AnswerError
from pyfast.retrieval import Pool, traced
from pyfast.systems import system
from pyfast.systems.combinations import Inert
from pyfast.systems.prompts import INSUFFICIENT, final_text, tidied, unless_known
from pyfast.systems.rivals.common import CONCLUDE, NOTHING, conclusion, joined, usable
from pyfast.systems.together import together

_Phrase = Annotated[str, Field(max_length=150)]


class LookAheadFields(BaseModel):
    """The next sentence, what of it is uncertain, and the answer if the sentence leads to it."""

    sentence: str = Field(max_length=300)
    unsure: list[_Phrase] = Field(default=[], max_length=6)
    answer: str = Field(default="", max_length=300)


class QueryFields(BaseModel):
    """A query for an uncertain part of a sentence."""

    query: str = Field(max_length=200)


LOOK_AHEAD = Prompt(
    name="look_ahead",
    system=(
        "You reason about a question in a chain of sentences, and write one sentence at a time. Reply in JSON with"
        " three fields. sentence: the next sentence after those that you have written, of at most 300 characters."
        " It states one fact, from the evidence if you get some, and otherwise from what you know. unsure: the"
        " words of your sentence that may be wrong, such as names, dates and numbers that you guess, each exactly"
        " as it stands in the sentence, in at most 150 characters, at most 6 of them; an empty list if you are"
        " sure of all of it. answer: empty, but"
        " if your sentences now lead to the answer, only the name, number or short phrase that the question asks"
        " for, in at most 300 characters; if there are several answers, give all of them, separated by semicolons."
        f" If your sentences cannot lead to the answer, the answer is '{INSUFFICIENT}'."
    ),
    user="${context}Question: $question\nYour sentences: $sentences",
    answer=LookAheadFields,
    max_tokens=500,
    role="answer",
)

QUERY = Prompt(
    name="query_for_phrase",
    system=(
        "You make a search query for a part of a sentence that may be wrong: a short question whose answer is this"
        " part, and that can be understood alone. Reply in JSON with the field query, of at most 200 characters."
    ),
    user="Question: $question\nSentence: $sentence\nPart: $phrase",
    answer=QueryFields,
    max_tokens=120,
    role="plan",
)


class Settings(system.Abstaining):
    """The parameters from the paper."""

    inert: ClassVar[tuple[Inert, ...]] = (Inert(("query",), "retrieve", ("never",)),)

    retrieve: Literal["unsure", "always", "never"] = Field(
        default="unsure",
        description="Which sentences of the reasoning become queries. `unsure`: those that the LLM is unsure of."
        " `always`: all. `never`: none; the only search is the first, with the question as the query.",
        json_schema_extra={"paper": "the threshold θ of a token's probability: between 0 and 1, or 1, or 0"},
    )
    query: Literal["masked", "questions", "sentence"] = Field(
        default="masked",
        description="The query for a sentence. `masked`: the sentence without the parts that the LLM is unsure"
        " of. `questions`: one question per such part, written by the LLM. `sentence`: the whole sentence.",
        json_schema_extra={"paper": "implicit queries with the threshold β, explicit queries, and β = 0"},
    )
    k: system.PassageCount = Field(
        default=2,
        ge=1,
        description="Number of passages and table rows retrieved per search.",
        json_schema_extra={"paper": "2 documents for 2WikiMultihopQA"},
    )
    sentences: int = Field(
        default=8,
        ge=1,
        le=100,
        description="Maximum number of sentences of reasoning. After the last, the LLM must answer.",
    )


async def answer(question: Question, ctx: Context, settings: Settings) -> Answer:
    """Answer a question sentence by sentence, with a search for each sentence of which the LLM is unsure."""
    steps: list[dict[str, Any]] = []
    written: list[str] = []
    trace = {"steps": steps, "sentences": written}
    # The question's passages are only for the first sentence.
    pool = read = await ctx.retrieve(question.text, settings.k)
    steps.append({"query": question.text, **traced(pool)})
    ctx.so_far(lambda: Answer(None, ctx.evidence(read), trace))
    for _ in range(settings.sentences):
        try:
            said = await look_ahead(question, pool, written, ctx, settings)
            pool = NOTHING
            unsure = tidied(said.unsure)
            if settings.retrieve == "always" or (settings.retrieve == "unsure" and unsure):
                queries = await queries_for(question, said.sentence, unsure, ctx, settings)
                steps.append({"query": "; ".join(queries), "sentence": said.sentence, "unsure": unsure})
                pools = await asyncio.gather(*(ctx.retrieve(query, settings.k) for query in queries))
                found = interleaved(pools, settings.k)
                read = joined(read, found)
                steps[-1] |= traced(found)
                said = await look_ahead(question, found, written, ctx, settings)
        except AnswerError as error:
            ctx.fell_back(LOOK_AHEAD, error)
            break
        if sentence := said.sentence.strip():
            written.append(sentence)
        if said.answer.strip():
            return Answer(final_text(said.answer), ctx.evidence(read), trace)
        if not sentence:
            break  # Nothing is left to say.
    text = await conclusion(question, " ".join(written), ctx, settings.abstain)
    return Answer(text, ctx.evidence(read), trace)


async def look_ahead(
    question: Question, pool: Pool, written: list[str], ctx: Context, settings: Settings
) -> LookAheadFields:
    """Let the LLM write the next sentence, from passages if there are any."""
    prompt = unless_known(LOOK_AHEAD, settings.abstain)
    context = f"Evidence:\n{await ctx.narrative(pool, prompt)}\n\n" if len(pool) else ""
    sentences = " ".join(written) or "none yet"
    return await ctx.generate(prompt, context=context, question=question.text, sentences=sentences)


async def queries_for(
    question: Question, sentence: str, unsure: list[str], ctx: Context, settings: Settings
) -> list[str]:
    """Make the queries for a sentence. If no part of the sentence remains, or if it does not contain the uncertain
    words, the query is the whole sentence."""
    parts = [phrase for phrase in unsure if phrase.casefold() in sentence.casefold()]
    if settings.query == "questions" and parts:
        calls = (query_for(question, sentence, phrase, ctx) for phrase in parts)
        return list(dict.fromkeys(await together(calls)))
    masked = sentence
    for phrase in parts if settings.query == "masked" else ():
        masked = re.sub(rf"(?<!\w){re.escape(phrase)}(?!\w)", " ", masked, flags=re.IGNORECASE)
    return [" ".join(masked.split()) if any(map(str.isalnum, masked)) else sentence]


async def query_for(question: Question, sentence: str, phrase: str, ctx: Context) -> str:
    """Let the LLM write a query for a part of a sentence. If its reply is unusable, the query is the sentence."""
    reply = await usable(ctx, QUERY, question=question.text, sentence=sentence, phrase=phrase)
    return (reply is not None and reply.query.strip()) or sentence


def interleaved(pools: Sequence[Pool], most: int) -> Pool:
    """Merge the pools of several queries, rank by rank, into at most `most` passages."""
    ranked: dict[int, float] = {}
    for rank in zip_longest(*pools):
        for passage, score in filter(None, rank):
            ranked.setdefault(passage, score)
    return Pool(np.array(list(ranked), np.int32), np.array(list(ranked.values()), np.float32)).head(most)


SYSTEM = system.System(
    "flare",
    answer,
    Settings,
    (LOOK_AHEAD, QUERY, CONCLUDE),
    summary="the LLM reasons sentence by sentence, and rewrites uncertain sentences after a search for them",
    paper="Active Retrieval Augmented Generation",
)
