"""The action of one step: its schema for a window of a given size, and its prompt."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any, Literal

from pydantic import BaseModel, Field, create_model

from pyfast.engine import Prompt

Strategy = Literal["guided_topk", "children", "parent", "row", "column", "relation"]
"""`guided_topk` only picks; the others name the neighbours that an expansion brings into the window"""


class Args(BaseModel):
    """The picked labels, and the expansion."""

    segment_ids: list[int]
    strategy: Strategy
    top_k: int


class Action(BaseModel):
    """One step (A.3.2): pick segments, perhaps also look at their neighbours, and say whether the evidence
    suffices.
    """

    type: Literal["select", "expand"]
    args: Args
    sufficiency: bool


_SYSTEM = """\
You gather evidence for a question, step by step, from numbered candidates. Reply in JSON alone.
type: select to pick candidates; expand to pick them and be shown next what lies beside them.
args.segment_ids: the numbers of the candidates that best help to answer, best first; none if none helps.
args.strategy: guided_topk with select; with expand, where to look: children (the parts of a pick), parent (what \
it is a part of), row (the rows or paragraphs beside it; of a cell its row), column (of a cell its \
column; of a row those with a value in common), relation (what names the same entity).
args.top_k: how many may be picked at most.
sufficiency: true only if all that is picked, before and now, is enough to answer the question."""


@cache  # schemas are compiled by LLMs, once for each schema object
def select_prompt(width: int, k: int) -> Prompt[Action]:
    """The iterator's prompt for a window of `width` >= 1 candidates, of which at most `k` are picked.

    The schema allows only the labels 1 to `width`. It depends on these two numbers alone, so a run has few
    schemas.
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
    """The action as the model should write it: JSON on one line, with the spacing of the local LLMs."""
    kind: Literal["select", "expand"] = "select" if strategy == "guided_topk" else "expand"
    args = Args(segment_ids=list(labels), strategy=strategy, top_k=k)
    return json.dumps(Action(type=kind, args=args, sufficiency=sufficient).model_dump())
