"""Code that several rivals share: a prompt that asks for reasoning before the answer, and a growing list of
passages."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import cache
from math import ceil
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np
from pydantic import BaseModel, Field, create_model

from pyfast.corpus import TextDocument
from pyfast.engine import Answer, Context, Prompt, Question
from pyfast.errors import AnswerError
from pyfast.retrieval import Pool, fuse
from pyfast.systems.prompts import (
    INSUFFICIENT,
    AnswerFields,
    ReasonedFields,
    answer_prompt,
    final_text,
    longest_answer,
    reasoned_so_far,
    short_so_far,
    unless_known,
)
from pyfast.utils.token_budget import CHARACTERS_PER_TOKEN_OF_LISTS

M = TypeVar("M", bound=BaseModel)

_SHORT = 300
"""The maximum number of characters in an answer that is not a list"""


@cache
def _reasoned_prompt(most: int) -> Prompt[ReasonedFields]:
    return Prompt(
        name="reasoned_answer",
        system=(
            "You answer questions from evidence, and say first how. Reply in JSON: reasoning, a few short steps "
            "with the facts of the evidence that each rests on, in at most 800 characters; then answer, only the "
            "name, number or short phrase asked for. If there are several answers, give all of them, separated by "
            f"semicolons. If the evidence does not contain the answer, the answer is '{INSUFFICIENT}'."
        ),
        user=f"Use at most {most} characters for the answer.\n\n"
        "Evidence:\n$context\n\nThink step by step.\nQuestion: $question",
        answer=create_model("ReasonedFields", __base__=ReasonedFields, answer=(str, Field(max_length=most))),
        max_tokens=600 + ceil((most - _SHORT) / CHARACTERS_PER_TOKEN_OF_LISTS),
        role="answer",
        streamed=reasoned_so_far(short_so_far),
    )


REASONED = _reasoned_prompt(_SHORT)
"""The prompt of a reader that writes its reasoning before its answer, for answers that are not a list"""


async def retrieve_each(queries: Sequence[str], k: int, ctx: Context) -> Pool:
    """Search for each query, and join the results (each reranked if the index has rerankers) into one list of the
    `k` best passages."""
    return fuse([await asyncio.gather(*(ctx.retrieve(query, k) for query in queries))], k)[0]


def reasoned_prompt(ctx: Context, pool: Pool) -> Prompt[ReasonedFields]:
    """Make the same prompt for an answer that can be a list of entities (see `longest_answer`)."""
    return _reasoned_prompt(longest_answer(ctx, pool))


NOTHING = Pool(np.empty(0, np.int32), np.empty(0, np.float32))
"""The pool before the first search"""


@cache
def unstreamed(prompt: Prompt[M]) -> Prompt[M]:
    """Return the prompt for a reply that is not yet the answer to the question. A server's clients do not
    receive the text of such a reply."""
    return replace(prompt, streamed=None)


def joined(collected: Pool, found: Pool, most: int = sys.maxsize) -> Pool:
    """Append the passages of a search that have not been collected yet, in order, up to `most` passages.

    Passages keep the scores of the search that found them first.
    """
    held = set(collected.passages.tolist())  # For short lists, this is much faster than a NumPy function.
    new = [passage not in held for passage in found.passages.tolist()]
    return Pool(
        np.concatenate([collected.passages, found.passages[new]])[:most],
        np.concatenate([collected.scores, found.scores[new]])[:most],
    )


CONCLUDE = Prompt(
    name="conclude",
    system=(
        "You answer a question from notes on what was asked and found. Reply in JSON with the field answer: only"
        " the name, number or short phrase that the question asks for, no sentence, of at most 300 characters. If"
        " there are several answers, give all of them, separated by semicolons. If the notes do not lead to the"
        f" answer, the answer is '{INSUFFICIENT}'."
    ),
    user="Notes:\n$notes\n\nQuestion: $question",
    answer=AnswerFields,
    max_tokens=320,
    role="answer",
    streamed=short_so_far,
)
"""The prompt for the final answer of a method whose steps are used up"""


async def usable(ctx: Context, prompt: Prompt[M], **fields: str) -> M | None:
    """Let the LLM write a reply. None: no reply was usable, which counts as a fallback."""
    try:
        return await ctx.generate(prompt, **fields)
    except AnswerError as error:
        ctx.fell_back(prompt, error)
        return None


async def conclusion(question: Question, notes: str, ctx: Context, abstain: bool) -> str | None:
    """Let the LLM answer from notes."""
    reply = await ctx.generate(unless_known(CONCLUDE, abstain), notes=notes, question=question.text)
    return final_text(reply.answer)


async def answer_from(pool: Pool, question: Question, ctx: Context, abstain: bool) -> str | None:
    """Let the LLM answer from passages, in a single call."""
    prompt = unless_known(answer_prompt(ctx, pool), abstain)
    context = await ctx.narrative(pool, prompt)
    return final_text((await ctx.generate(prompt, context=context, path="", question=question.text)).answer)


class Layers(NamedTuple):
    """How summaries are made, layer by layer. A layer is a run in which each question asks for a summary."""

    prompt: Prompt[Any]
    ask: Callable[[Question, Context], Coroutine[Any, Any, Answer]]
    plan: Callable[[Path, int], Path | None]
    """Writes the question file of a layer, given its folder and its number from 1. None: there is no such layer"""
    written: Callable[[Path, int], list[TextDocument]]
    """Reads the summaries of a finished layer as documents. Failed summaries are left out"""
    begun: Mapping[str, Any] = MappingProxyType({})
    """What the plans depend on, besides the documents and the embedder"""
    finish: Callable[[Path], None] = lambda made: None
    """Completes the index of the documents and summaries"""
