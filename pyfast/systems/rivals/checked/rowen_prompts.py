"""The prompts of Rowen."""

from __future__ import annotations

from dataclasses import replace

from pydantic import BaseModel, Field

from pyfast.engine import Prompt
from pyfast.systems.prompts import INSUFFICIENT, AnswerFields, short_so_far


class Wording(BaseModel):
    """Another wording of a question, and its translation."""

    question: str = Field(max_length=400)
    translation: str = Field(max_length=400)


class WordingsFields(BaseModel):
    """Other wordings of a question."""

    wordings: list[Wording] = Field(max_length=20)


WORDINGS = Prompt(
    name="wordings",
    system=(
        "You word a question in other ways that have the same meaning and the same answer. Reply in JSON with"
        " the field wordings: a list of at most 20 objects with question, the question in other words, and"
        " translation, the same in the other language, each of at most 400 characters. All wordings are different."
    ),
    user="Number of wordings: $count\nOther language: $language\nQuestion: $question",
    answer=WordingsFields,
    max_tokens=3000,
    role="plan",
)


class SayFields(BaseModel):
    """What a model says about a question."""

    answer: str = Field(max_length=300)


SAY = Prompt(
    name="say",
    system=(
        "You answer a question briefly, in the language of the question, from what you know. Reply in JSON with"
        " the field answer, of at most 300 characters."
    ),
    user="Question: $question",
    answer=SayFields,
    max_tokens=320,
    role="think",
)
OTHER_SAYS = replace(SAY, name="other_says", role="draft")
"""The same prompt for the second model"""


class AgreementFields(BaseModel):
    """Whether two answers agree."""

    agree: bool


AGREEMENT = Prompt(
    name="agreement",
    system=(
        "You compare two pairs of a question and an answer, perhaps in different languages. Reply in JSON with the"
        " field agree: true if the answers say the same, false if they contradict each other."
    ),
    user="First question: $question\nFirst answer: $first\n\nSecond question: $other\nSecond answer: $second",
    answer=AgreementFields,
    max_tokens=60,
    role="judge",
)


class SearchFields(BaseModel):
    """Queries that check an answer."""

    queries: list[str] = Field(max_length=5)


SEARCH = Prompt(
    name="search",
    system=(
        "An answer to a question may be wrong. Write queries for a search that finds out. Reply in JSON with the"
        " field queries: the facts to look up, the most important first, at most 5 of at most 200 characters"
        " each."
    ),
    user="Question: $question\nReasoning: $reasoning\nAnswer: $answer",
    answer=SearchFields,
    max_tokens=500,
    role="plan",
)

REPAIR = Prompt(
    name="repair",
    system=(
        "You correct the answer to a question by evidence. Keep what the evidence does not refute, and replace"
        " what it refutes. Reply in JSON with the field answer: only the name, number or short phrase that the"
        " question asks for, no sentence, of at most 300 characters. If there are several answers, give all of"
        " them, separated by semicolons. If neither the evidence nor the reasoning leads to the answer, the"
        f" answer is '{INSUFFICIENT}'."
    ),
    user="Evidence:\n$context\n\nQuestion: $question\nReasoning: $reasoning\nAnswer so far: $answer",
    answer=AnswerFields,
    max_tokens=320,
    role="answer",
    streamed=short_so_far,
)
