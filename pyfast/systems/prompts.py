"""The prompts that systems share. The schemas of replies are flat, so that a small model can fill them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from math import ceil
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field, create_model

from pyfast.engine import Context, Prompt
from pyfast.knowledge.names import tidy
from pyfast.llm import Role
from pyfast.retrieval import Index, Pool
from pyfast.utils.token_budget import CHARACTERS_PER_TOKEN_OF_LISTS

INSUFFICIENT = "insufficient evidence"
M = TypeVar("M", bound=BaseModel)
_PARAGRAPHS, _CHARACTERS, _REASONING = 12, 600, 800
_Paragraph = Annotated[str, Field(min_length=1, max_length=_CHARACTERS)]
_SHORT = 300
"""The maximum number of characters in an answer that is not a list"""


_PLACE = r"\{entity[12]\}"


class PlanFields(BaseModel):
    """A reasoning plan of one to three hops. See `plan_prompt` for the length of texts.

    The patterns allow only placeholders of earlier hops, or an empty hop. In the schema, they also limit the text
    around the placeholders, because a small model under constrained decoding may not stop. The limit is about 120
    characters, because grammar compilers fail above it.
    """

    hops: int = Field(ge=1, le=3)
    query: str
    entity_type: str = Field(default="", max_length=30)
    second_query: str = Field(
        default="",
        pattern=r"^([^{}]*\{entity1\}[^{}]*)?$",
        examples=["more about {entity1}"],
        json_schema_extra={"pattern": r"^([^{}]{0,80}\{entity1\}[^{}]{0,80})?$"},
    )
    third_query: str = Field(
        default="",
        pattern=rf"^([^{{}}]*{_PLACE}[^{{}}]*({_PLACE}[^{{}}]*)?)?$",
        examples=["more about {entity2}"],
        json_schema_extra={"pattern": rf"^([^{{}}]{{0,80}}{_PLACE}([^{{}}]{{0,40}}{_PLACE})?[^{{}}]{{0,80}})?$"},
    )
    alternatives: list[str] = Field(default=[], max_length=2)


class EntityFields(BaseModel):
    """The entity that a hop searched for."""

    entity: str = Field(max_length=120)


class AnswerFields(BaseModel):
    """The final answer."""

    answer: str = Field(max_length=300)


class LongFields(BaseModel):
    """An answer to an open question."""

    paragraphs: list[_Paragraph] = Field(min_length=1, max_length=_PARAGRAPHS)


class LongReasonedFields(BaseModel):
    """Reasoning, then an answer to an open question."""

    reasoning: str = Field(max_length=_REASONING)
    paragraphs: list[_Paragraph] = Field(min_length=1, max_length=_PARAGRAPHS)


class ReasonedFields(BaseModel):
    """Reasoning, then the final answer."""

    reasoning: str = Field(max_length=_REASONING)
    answer: str = Field(max_length=300)


def short_so_far(fields: Mapping[str, Any]) -> str:
    """Return the beginning of an answer from an unfinished reply (see `Prompt.streamed`). The result is empty as
    long as the LLM may still abstain (see `final_text`)."""
    answer = fields.get("answer")
    text = answer.strip() if isinstance(answer, str) else ""
    return "" if INSUFFICIENT.startswith(text.lower().rstrip(".")) else text


def long_so_far(fields: Mapping[str, Any]) -> str:
    """Return the beginning of a long answer from an unfinished reply. Texts that are too long are cut, as in
    `mended`.
    """
    given = fields.get("paragraphs")
    texts = given[:_PARAGRAPHS] if isinstance(given, list) else []
    return long_text(text[:_CHARACTERS] for text in texts if isinstance(text, str)) or ""


def reasoned_so_far(so_far: Callable[[Mapping[str, Any]], str]) -> Callable[[Mapping[str, Any]], str]:
    """Stream nothing of a reply that is rejected because its reasoning is missing or too long."""
    return lambda fields: so_far(fields) if 0 < len(str(fields.get("reasoning", ""))) <= _REASONING else ""


_PLAN = Prompt(
    name="plan",
    system="You plan searches in a collection of passages, table rows and facts. Reply in JSON.",
    # Complete examples, for models that are too small for a description alone.
    user="""\
A question is answered by 1, 2 or 3 searches, one after the other. Write them.
hops is their number; prefer fewer. query is the first search, entity_type the kind of thing it finds, alternatives
are at most 2 other wordings of it. second_query says {entity1} for what the first search found, third_query says
{entity2} for what the second found, and {entity1} too if it needs both; a search that is not needed is empty.
query and alternatives have at most $most characters each, entity_type 30; second_query and third_query 80 before
the first {entity}, 40 between two and 80 behind.

Question: In which year was the University of Oslo founded?
{"hops": 1, "query": "founding year of the University of Oslo", "entity_type": "year", "second_query": "", \
"third_query": "", "alternatives": ["University of Oslo founded"]}

Question: What is the capital of the country where the author of Pippi Longstocking was born?
{"hops": 3, "query": "author of Pippi Longstocking", "entity_type": "person", "second_query": "country where \
{entity1} was born", "third_query": "capital of {entity2}", "alternatives": ["who wrote Pippi Longstocking"]}

Question: How many seats has the home ground of the club that won the league in 1971?
{"hops": 2, "query": "league champions 1971", "entity_type": "club", "second_query": "seats of the home ground of \
{entity1}", "third_query": "", "alternatives": ["table of league champions by year"]}

Question: Who is older, the author of Emil and the Detectives or its illustrator?
{"hops": 3, "query": "author of Emil and the Detectives", "entity_type": "person", "second_query": "illustrator \
of Emil and the Detectives by {entity1}", "third_query": "dates of birth of {entity1} and {entity2}", \
"alternatives": []}

Question: $question""",
    answer=PlanFields,
    max_tokens=400,
    role="plan",
)


@cache
def _plan_prompt(most: int) -> Prompt[PlanFields]:
    text: Any = Annotated[str, Field(max_length=most)]
    alternatives: Any = Field(default=[], max_length=2)
    fields = create_model(
        "PlanFields", __base__=PlanFields, query=(text, ...), alternatives=(list[text], alternatives)
    )
    user = _PLAN.user.replace("$most", str(most))
    return Prompt(_PLAN.name, _PLAN.system, user, fields, _PLAN.max_tokens * most // 120, role=_PLAN.role)


def plan_prompt(question: str) -> Prompt[PlanFields]:
    """Make the prompt for a plan of hops. The reply's schema limits the length of each text, but leaves
    enough room to repeat a question of up to 960 characters.

    Without a limit, a small model that must follow a schema may never stop. The function uses only a few
    different limits, because an LLM must compile each schema.
    """
    most = 120
    while most < min(len(question), 960):
        most *= 2
    return _plan_prompt(most)


PLAN = plan_prompt("")
"""The prompt for short questions"""

EXTRACT = Prompt(
    name="extract",
    system=(
        "You find one name or value in evidence. Reply in JSON with the field entity, as short as possible, of at "
        "most 120 characters."
    ),
    user="Evidence:\n$context\n\nWhich $entity_type answers this? $question",
    answer=EntityFields,
    max_tokens=80,  # A truncated reply is not used: it would spoil the next query.
    role="extract",
)


@cache
def _answer_prompt(most: int) -> Prompt[AnswerFields]:
    return Prompt(
        name="answer",
        system=(
            "Answer the question from the evidence. Reply in JSON with the field answer. Give only the name, "
            "number or short phrase that the question asks for, not a sentence. If the question asks how many, "
            "give a number. If there are several answers, give all of them, separated by semicolons. If the "
            f"evidence does not contain the answer, the answer is '{INSUFFICIENT}'."
        ),
        user=f"Use at most {most} characters for the answer.\n\n"
        "Evidence:\n$context\n\n${path}Question: $question",
        answer=create_model("AnswerFields", __base__=AnswerFields, answer=(str, Field(max_length=most))),
        # The limit of a short reply is enough even if each character is a token, as in numbers.
        max_tokens=320 + ceil((most - _SHORT) / CHARACTERS_PER_TOKEN_OF_LISTS),
        role="answer",
        streamed=short_so_far,
    )


ANSWER = _answer_prompt(_SHORT)
"""The prompt for answers that are not a list"""


def answer_prompt(ctx: Context, pool: Pool, role: Role = ANSWER.role) -> Prompt[AnswerFields]:
    """Make the prompt for an answer that can be a list of entities (see `longest_answer`)."""
    return _answer_prompt(longest_answer(ctx, pool, role))


def longest_answer(ctx: Context, pool: Pool, role: Role = ANSWER.role) -> int:
    """Compute the maximum length, in characters, of an answer that a role's LLM writes from the passages of a
    pool.

    If the pool contains knowledge graph passages, the answer may be longer than usual, because such a
    question may have dozens of answers. The limit `answer_tokens` of a budget can also allow a longer answer.
    """
    listed = _characters_of_graphs(ctx.index, pool) if ctx.index.has_graphs else 0
    most = longest_list(listed, ctx.context_window_of(role), _SHORT) if listed else _SHORT
    if ctx.answer_tokens is not None:  # a limit of tokens, converted into characters
        most = max(most, _SHORT + int((ctx.answer_tokens - ANSWER.max_tokens) * CHARACTERS_PER_TOKEN_OF_LISTS))
    return most


def _characters_of_graphs(index: Index, pool: Pool) -> int:
    """Count the characters of a pool's knowledge graph passages."""
    graph = pool.passages[index.corpus.in_graphs(index.passages[pool.passages])]
    offsets, _ = index.rendered
    return int((offsets[graph + 1] - offsets[graph]).sum()) if len(graph) else 0


def longest_list(listed: int, window: float, shortest: int) -> int:
    """Compute the maximum number of characters of an answer, with room to list everything in a text of
    `listed` characters.

    The length is at most a quarter of the context window of `window` tokens, but at least `shortest`. The
    function uses only a few different lengths, because an LLM must compile a schema for each length.
    """
    wanted = min(listed, int(window / 8 * CHARACTERS_PER_TOKEN_OF_LISTS))
    longest = shortest
    while longest < wanted:
        longest *= 2
    return longest


DIRECT = Prompt(
    name="direct",
    system=(
        "You answer questions from what you know. Reply in JSON with the field answer: only the name, number or "
        "short phrase asked for, no sentence, of at most 300 characters. If you do not know, the answer is "
        f"'{INSUFFICIENT}'."
    ),
    user="Question: $question",
    answer=AnswerFields,
    max_tokens=320,
    role="answer",
    streamed=short_so_far,
)

COT = Prompt(
    name="cot",
    system=(
        "You answer questions from what you know. Reply in JSON: reasoning, a few short steps in at most 800 "
        "characters; then answer, only the name, number or short phrase asked for, at most 300. If you do not "
        f"know, the answer is '{INSUFFICIENT}'."
    ),
    user="Think step by step.\nQuestion: $question",
    answer=ReasonedFields,
    max_tokens=600,
    role="answer",
    streamed=reasoned_so_far(short_so_far),
)


_LONG = (
    f" Reply in JSON: {{steps}}paragraphs, at most {_PARAGRAPHS} of at most 600 characters each: first what"
    " answers the question, then what it rests on and what belongs to it, in an order that a reader can follow; a"
    " paragraph may begin with a heading of a few words."
)

LONG_ANSWER = Prompt(
    name="long_answer",
    system="You answer questions from evidence, in detail." + _LONG.format(steps="") + " Keep to what it says.",
    user="Evidence:\n$context\n\nQuestion: $question",
    answer=LongFields,
    max_tokens=2400,
    role="answer",
    streamed=long_so_far,
)

LONG_DIRECT = Prompt(
    name="long_direct",
    system="You answer questions from what you know, in detail." + _LONG.format(steps=""),
    user="Question: $question",
    answer=LongFields,
    max_tokens=2400,
    role="answer",
    streamed=long_so_far,
)

LONG_COT = Prompt(
    name="long_cot",
    system=(
        "You answer questions from what you know, in detail."
        + _LONG.format(steps="reasoning, a few short steps in at most 800 characters; then ")
    ),
    user="Think step by step.\nQuestion: $question",
    answer=LongReasonedFields,
    max_tokens=2700,
    role="answer",
    streamed=reasoned_so_far(long_so_far),
)


def long_text(paragraphs: Iterable[str]) -> str | None:
    """Join the paragraphs of a long answer with empty lines, or return None if it has no paragraph."""
    return "\n\n".join(filter(None, map(str.strip, paragraphs))) or None


_MAY_ABSTAIN = re.compile(rf"\bIf [^.]*, the answer is '{INSUFFICIENT}'\.")


def unless_known(prompt: Prompt[M], abstain: bool) -> Prompt[M]:
    """Adapt a prompt for the case that the evidence contains no answer. If `abstain` is True, the prompt
    stays unchanged: the LLM may say that there is no answer. Otherwise the prompt asks for the most likely
    answer."""
    return prompt if abstain else _guessing(prompt)


@cache
def _guessing(prompt: Prompt[M]) -> Prompt[M]:
    text, places = _MAY_ABSTAIN.subn("If you do not find the answer, give the most likely one.", prompt.system)
    assert places == 1, prompt.name
    return prompt.overridden(system=text)


_REFUSAL = re.compile(
    r"(?:\w+ (?:is |was |are |were )?)?not (?:\w+ly )?(?:mentioned|stated|specified|given|provided|available|known"
    r"|found|listed|told|said|included|clear|applicable)\b.*"
    r"|(?:there is )?no (?:answer|information|mention|data|evidence|facts?)\b.*"
    r"|(?:the )?(?:given |provided )?(?:facts?|passages?|texts?|evidence|context|documents?|memory)"
    r" (?:do(?:es)? not|doesn't|don't)\b.*"
    r"|(?:it )?(?:cannot|can't|could not) be (?:determined|answered|inferred|found|identified|known)\b.*"
    r"|i (?:do not|don't|cannot|can't) (?:know|tell|find|answer|say|determine)\b.*"
    r"|insufficient (?:evidence|information|data|facts).*|unknown|unclear|unspecified|none|n/?a\.?",
    re.IGNORECASE | re.DOTALL,
)


def answers_in(texts: Iterable[str]) -> list[str]:
    """Return the answers in an LLM's reply, without duplicates. Answers such as "not known" are left out."""
    return [text for text in tidied(texts) if not _REFUSAL.fullmatch(text)]


def final_text(answer: str) -> str | None:
    """Return the answer, or None if the LLM said that the evidence contains none."""
    text = answer.strip()
    return None if text.lower().rstrip(".") in ("", INSUFFICIENT) else text


def tidied(texts: Iterable[str]) -> list[str]:
    """Clean up names or words that an LLM wrote: remove line breaks, empty strings and duplicates."""
    return [text for text in dict.fromkeys(map(tidy, texts)) if text]
