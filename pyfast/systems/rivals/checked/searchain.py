"""Search-in-the-Chain: the LLM plans a whole chain of queries, each with its answer if the LLM knows it.
Searches check the answers one after another, and supply the missing ones. After each correction, the LLM
plans the rest again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field

from pyfast.engine import Answer, Context, Prompt, Question
from pyfast.retrieval import traced
from pyfast.systems import system
from pyfast.systems.combinations import Inert
from pyfast.systems.prompts import INSUFFICIENT, answers_in, final_text, unless_known
from pyfast.systems.rivals.common import CONCLUDE, NOTHING, conclusion, joined, usable
from pyfast.systems.rivals.self_ask import UNKNOWN
from pyfast.utils.text_forms import normalise
from pyfast.utils.token_budget import fit


class Link(BaseModel):
    """A query of the chain, and what the LLM knows of it: its answer, or nothing."""

    query: str = Field(max_length=200)
    known: str = Field(max_length=200)


class ChainFields(BaseModel):
    """The rest of a chain of queries, and the final answer."""

    chain: list[Link] = Field(max_length=8)
    answer: str = Field(max_length=300)


CHAIN = Prompt(
    name="chain",
    system=(
        "You answer a complex question by a chain of simple queries, which you plan as a whole. Reply in JSON."
        " chain: at most 8 objects with query, one fact to look up, which can be understood alone, in at most"
        " 200 characters, and known, its answer if you know it, in at most 200 characters, or empty if you do"
        " not. answer: the final answer to which the whole chain leads, only the name, number or short"
        " phrase that the question asks for, in at most 300 characters. If there are several answers, give all"
        " of them, separated by semicolons. If an answer in the chain is still missing, the final answer is"
        f" empty. If the chain cannot lead to an answer, the answer is '{INSUFFICIENT}'. What has been looked up"
        " is correct: do not repeat it, write the rest of the chain."
    ),
    user="""\
Question: In which country was the author of Pippi Longstocking born?
{"chain": [{"query": "Who is the author of Pippi Longstocking?", "known": "Astrid Lindgren"}, \
{"query": "In which country was Astrid Lindgren born?", "known": ""}], "answer": ""}

Question: $question
$notes""",
    answer=ChainFields,
    max_tokens=1200,
    role="answer",
)


class CheckedFields(BaseModel):
    """What passages say about a query."""

    answer: str = Field(max_length=200)
    sure: bool


CHECK = Prompt(
    name="check",
    system=(
        "You take the answer to a query from passages. Reply in JSON. answer: one name or value, as short as"
        " possible, in at most 200 characters, or empty if the passages do not have it; sure: true if the"
        " passages clearly say that this is the answer."
    ),
    user="Passages:\n$context\n\nQuery: $query",
    answer=CheckedFields,
    max_tokens=240,
    role="extract",
)


class Settings(system.Abstaining):
    """The parameters from the paper."""

    inert: ClassVar[tuple[Inert, ...]] = (Inert(("k", "rounds"), "search", ("off",)),)

    search: Literal["on", "verify", "complete", "off"] = Field(
        default="on",
        description="What searches are for. `verify`: to correct the LLM's answers. `complete`: to find answers"
        " that the LLM does not know. `on`: both. `off`: no searches, so the LLM answers from its first chain.",
        json_schema_extra={"paper": "SearChain, without completion, without verification, without IR"},
    )
    rounds: int = Field(
        default=5,
        ge=1,
        le=50,
        description="Maximum number of chains of queries that the LLM writes.",
        json_schema_extra={"paper": "5 rounds in the authors' code"},
    )
    k: system.PassageCount = Field(
        default=1,
        ge=1,
        description="Number of passages and table rows retrieved per query.",
        json_schema_extra={"paper": "the top-1 document"},
    )


async def answer(question: Question, ctx: Context, settings: Settings) -> Answer:
    """Answer a question: write chains until one has no missing answer, and no answer that a search refutes."""
    steps, chains, notes = list[dict[str, Any]](), list[list[list[str]]](), dict[str, str]()
    collected, trace = NOTHING, {"steps": steps, "chains": chains}
    ctx.so_far(lambda: Answer(None, ctx.evidence(collected), trace))
    prompt = unless_known(CHAIN, settings.abstain)
    for _ in range(settings.rounds if settings.search != "off" else 1):
        reply = await ctx.generate(prompt, question=question.text, notes=lines_of(notes, prompt, question, ctx))
        links = [(link.query.strip(), link.known.strip()) for link in reply.chain if link.query.strip()]
        chains.append([list(link) for link in links])
        is_settled = True
        for query, known in links:
            if query in notes:
                continue
            notes[query] = known
            if settings.search in ("on", "verify" if known else "complete"):
                pool = await ctx.retrieve(query, settings.k)
                collected = joined(collected, pool)
                found, is_sure = await looked_up(query, await ctx.narrative(pool, CHECK), ctx)
                steps.append({"query": query, **traced(pool), "known": known, "answer": found, "sure": is_sure})
                is_settled = bool(known) and (not is_sure or normalise(found) in normalise(known))
                if not is_settled:
                    notes[query] = found or UNKNOWN
                    break
        if is_settled and reply.answer.strip():
            return Answer(final_text(reply.answer), ctx.evidence(collected), trace)
        if is_settled:
            break  # An answer is missing that no search supplies.
    told = lines_of(notes, unless_known(CONCLUDE, settings.abstain), question, ctx)
    text = await conclusion(question, told, ctx, settings.abstain)
    return Answer(text, ctx.evidence(collected), trace)


def lines_of(notes: Mapping[str, str], prompt: Prompt[Any], question: Question, ctx: Context) -> str:
    """Write the queries with their answers. If there is no room for all, only the last ones are written."""
    lines = [f"Looked up: {query} {known or UNKNOWN}" for query, known in notes.items()]
    return "\n".join(fit(lines[::-1], ctx.text_budget(prompt) - len(question.text), first="cut")[::-1])


async def looked_up(query: str, context: str, ctx: Context) -> tuple[str, bool]:
    """Let the LLM take an answer from passages. Returns the answer and whether it is certain. The answer is empty
    if the passages contain none, or the reply is unusable."""
    reply = await usable(ctx, CHECK, context=context, query=query)
    return (next(iter(answers_in([reply.answer])), ""), reply.sure) if reply else ("", False)


SYSTEM = system.System(
    "searchain",
    answer,
    Settings,
    (CHAIN, CHECK, CONCLUDE),
    summary="the LLM writes a chain of queries with answers, which searches correct and complete",
    paper="Search-in-the-Chain: Interactively Enhancing Large Language Models with Search for Knowledge-intensive"
    " Tasks",
)
