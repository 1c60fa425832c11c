"""The policy's action in one step of HSEQ: its JSON schema, which depends on the window size, and the prompt
that asks the LLM for an action."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any, Literal

from pydantic import BaseModel, Field, create_model

from pyfast.engine import Prompt

Strategy = Literal["guided_topk", "children", "parent", "row", "column", "relation"]
"""What an action does. `guided_topk` only picks segments. All other strategies also add neighbours of the
picked segments to the next window, and are named after the kind of neighbours"""


class Args(BaseModel):
    """The labels of the picked segments, and whether to add their neighbours."""

    segment_ids: list[int]
    strategy: Strategy
    top_k: int


class Action(BaseModel):
    """The action of the policy in one step (HSEQ, A.3.2).

    An action picks segments, can add their neighbours, and says whether the evidence is sufficient.
    """

    type: Literal["select", "expand"]
    args: Args
    sufficiency: bool


_SYSTEM = """\
Gather evidence for a question, step by step, from numbered candidates. Reply only in JSON.
type: select to pick candidates; expand to pick candidates and see their neighbours in the next step.
args.segment_ids: the numbers of the candidates that best help to answer the question, best first; empty if none \
helps.
args.strategy: guided_topk with select. With expand: children (the parts of a pick), parent (the whole of which a \
pick is a part), row (the rows or paragraphs beside a pick; for a cell, its row), column (for a cell, its column; \
for a row, the rows with an equal value), relation (segments that name the same entity).
args.top_k: the largest number of candidates to pick.
sufficiency: true only if all picked evidence, from now and before, is enough to answer the question."""


@cache  # An LLM compiles a schema once for each schema object.
def select_prompt(width: int, k: int) -> Prompt[Action]:
    """Make the prompt that asks the LLM for an action, for a window of `width` segments (at least 1), of
    which the LLM picks at most `k`.

    The reply's schema allows only the labels 1 to `width`. It depends only on `width` and `k`, so that a run
    needs few different schemas.
    """
    labels: Any = Literal[tuple(range(1, width + 1))]
    only: Any = Literal[k]
    args = create_model("Args", __base__=Args, segment_ids=(list[labels], Field(max_length=k)), top_k=(only, ...))
    return Prompt(
        name="select",
        system=_SYSTEM,
        user="Question: $question\n${guidance}Picked before:\n${selected}Candidates:\n${window}At most $k.",
        answer=create_model("Action", __base__=Action, args=(args, ...)),
        max_tokens=60 + 6 * k,
        role="pick",
    )


def action_text(labels: Sequence[int], sufficient: bool, k: int, strategy: Strategy = "guided_topk") -> str:
    """Write an action as the LLM should reply: JSON on one line."""
    kind: Literal["select", "expand"] = "select" if strategy == "guided_topk" else "expand"
    args = Args(segment_ids=list(labels), strategy=strategy, top_k=k)
    return json.dumps(Action(type=kind, args=args, sufficiency=sufficient).model_dump())
