"""What the systems say to the LLM. Schemas are flat, so that a small model can fill them too."""

from __future__ import annotations

from pydantic import BaseModel, Field

from pyfast.engine import Prompt

INSUFFICIENT = "insufficient evidence"


class PlanFields(BaseModel):
    """A reasoning plan of one to three hops."""

    hops: int = Field(ge=1, le=3)
    query: str = Field(max_length=200)
    entity_type: str = Field(max_length=60)
    alternatives: list[str] = Field(max_length=2, examples=[[]])
    second_query: str = Field(max_length=200, examples=["What is known about {entity1}?"])
    third_query: str = Field(max_length=200, examples=["What is known about {entity2}?"])


class EntityFields(BaseModel):
    """The entity that a hop was after."""

    entity: str = Field(max_length=120)


class AnswerFields(BaseModel):
    """The final answer."""

    answer: str = Field(max_length=300)


class ReasonedFields(BaseModel):
    """Reasoning, then the final answer."""

    reasoning: str = Field(max_length=800)
    answer: str = Field(max_length=300)


PLAN = Prompt(
    name="plan",
    system=(
        "You plan how to look up the answer to a question in a collection of passages, table rows and facts. "
        "A plan has 1, 2 or 3 hops; each hop is one search. Reply in JSON."
    ),
    user=(
        "Decide how many searches the question needs.\n"
        "hops 1: one search is enough. hops 2: something must be found first; the second search asks about it. "
        "hops 3: two things must be found one after the other. Prefer fewer hops.\n"
        "query: the first search. entity_type: what kind of thing it should find.\n"
        "alternatives: up to two other wordings of the first search.\n"
        "second_query: the second search, with {entity1} where the thing found first belongs; empty for 1 hop.\n"
        "third_query: the third search, with {entity2} where the thing found second belongs; empty below 3 hops.\n"
        "Example: the question 'In which town was the founder of Acme born?' has hops 2, query 'founder of Acme', "
        "entity_type 'person', second_query 'birthplace of {entity1}', third_query ''.\n\n"
        "Question: $question"
    ),
    answer=PlanFields,
    max_tokens=320,
)

EXTRACT = Prompt(
    name="extract",
    system="You find one name or value in evidence. Reply in JSON with the field entity, as short as possible.",
    user="Evidence:\n$context\n\nWhich $entity_type answers this? $question",
    answer=EntityFields,
    max_tokens=80,
)

ANSWER = Prompt(
    name="answer",
    system=(
        "You answer questions from evidence. Reply in JSON with the field answer: only the name, number or short "
        f"phrase asked for, no sentence. If the evidence does not tell, the answer is '{INSUFFICIENT}'."
    ),
    user="Evidence:\n$context\n\n${path}Question: $question",
    answer=AnswerFields,
    max_tokens=160,
)

DIRECT = Prompt(
    name="direct",
    system=(
        "You answer questions from what you know. Reply in JSON with the field answer: only the name, number or "
        "short phrase asked for, no sentence."
    ),
    user="Question: $question",
    answer=AnswerFields,
    max_tokens=160,
)

COT = Prompt(
    name="cot",
    system=(
        "You answer questions from what you know. Reply in JSON: reasoning, a few short steps; then answer, only "
        "the name, number or short phrase asked for."
    ),
    user="Think step by step.\nQuestion: $question",
    answer=ReasonedFields,
    max_tokens=400,
)


def final_text(answer: str) -> str | None:
    """The answer as it is given, or None where the model said that the evidence does not tell."""
    text = answer.strip()
    return None if text.lower().rstrip(".") in ("", INSUFFICIENT) else text
