"""Guidance: a short plan that exists before HSEQ's first step. It is either written by the head (an LLM) or a
fixed text (section 4.2, A.3.3 of the paper)."""

from __future__ import annotations

import re
from typing import Self

from pydantic import BaseModel, Field, model_validator

from pyfast.engine import Prompt

_SHORTEST = 20
"""The minimum number of characters of a plan. A shorter plan is not accepted: it was cut off, or the LLM did
not understand the prompt (A.3.3)
"""
_START = "Gather the few segments that carry the most."
_TEMPLATES = {
    "binary": "One or two definite statements are enough. Stop once they plainly say yes or no.",
    "numeric": "Numbers and table rows come first. Stop once the final number is stated, or can be worked out.",
    "factoid": "Short statements that hold the answer itself come first. Stop at a clear one.",
    "default": "What names the question's entities and relations comes first. Stop once the answer is stated.",
}
# The first match decides, so the order matters: many questions for a number contain "which".
_PATTERNS = {
    "binary": re.compile(r"^\W*(is|are|was|were|do|does|did|has|have|had|can|could|will|would|should)\b", re.I),
    "numeric": re.compile(
        r"\b(how (many|much|old|long|far|tall|high|large|big)|percent\w*|average|total|sum|number of)\b", re.I
    ),
    "factoid": re.compile(r"\b(who|whom|whose|which|where|when)\b", re.I),
    "default": re.compile(""),
}


def pattern(question: str) -> str:
    """Return the kind of a question: `binary`, `numeric`, `factoid` or `default`."""
    return next(name for name, words in _PATTERNS.items() if words.search(question))


def template(question: str) -> str:
    """Return the fixed guidance for a question, which depends only on its kind (see `pattern`)."""
    return f"{_START} {_TEMPLATES[pattern(question)]}"


class GuidanceFields(BaseModel):
    """The fixed structure of guidance.

    The schema limits the length, because a small model may not stop. A longer text is accepted: it may repeat a
    long question.
    """

    first_look: str = Field(min_length=3, json_schema_extra={"maxLength": 160})
    expansion: str = Field(default="", json_schema_extra={"maxLength": 120})
    stop: str = Field(min_length=3, json_schema_extra={"maxLength": 120})

    @model_validator(mode="after")
    def _is_a_plan(self) -> Self:
        if len(guidance_text(self)) < _SHORTEST:
            raise ValueError(f"too short for a plan: write at least {_SHORTEST} characters")
        return self


GUIDE = Prompt(
    name="guide",
    system=(
        "Plan how to gather evidence for a question from passages, table rows and facts. Reply in JSON. Each "
        "field is one short sentence. first_look: the entities, rows or facts to look for first, at most 160 "
        "characters. expansion: what to look at next, if anything, at most 120 characters. stop: what you must "
        "find before the evidence is enough, at most 120 characters."
    ),
    user="Question: $question",
    answer=GuidanceFields,
    max_tokens=200,
    role="plan",
)


def guidance_text(fields: GuidanceFields) -> str:
    """Write the guidance on one line."""
    return " ".join(f"{fields.first_look} {fields.expansion} {fields.stop}".split())


def tightened(guidance: str, missing: str) -> str:
    """Add `missing` to the guidance, for a second round of selection (a refinement). `missing` says how to
    settle the contradiction that the verifier found."""
    return " ".join(f"{guidance} Settle above all: {missing}".split())
