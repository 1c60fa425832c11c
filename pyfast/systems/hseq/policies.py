"""The two policies of HSEQ's iterator. One asks the LLM; the other, the lexical policy, compares segments
with the question's words.

The lexical policy is an ablation, and the fallback if the LLM's reply is unusable.
"""

from __future__ import annotations

from pyfast.engine import Context
from pyfast.errors import AnswerError
from pyfast.systems.hseq.actions import Action, select_prompt
from pyfast.systems.hseq.head import affordable
from pyfast.systems.hseq.iterator import Decision, Policy
from pyfast.systems.hseq.state import State, prompt_fields
from pyfast.systems.hseq.windows import select_lexically

_SHORTEST = 40  # the minimum number of characters of a segment that is worth showing
_FRAME = 24  # characters in a line, besides its text: label and level


def lexical_policy(ctx: Context, k: int) -> Policy:
    """Make a policy that picks at most `k` segments of a window, one at a time. The next segment is always the one
    with the highest value.

    Each word of the question has a weight, which is higher for rare words. A segment's value is the sum of the
    weights of the question's words that it contains; words that no picked segment contains count twice. The score
    of a decision is the weight of the question's words in the picked segments, divided by the weight of all the
    question's words.
    """

    async def policy(state: State) -> Decision:
        before = tuple(it.text for it in state.selected)
        selection = await ctx.call(
            select_lexically, (state.question, before, tuple(it.text for it in state.window)), k
        )
        return Decision(tuple(at + 1 for at in selection.picked), selection.share, "relation")

    return policy


def llm_policy(ctx: Context, k: int, characters: int, head_tokens: int) -> Policy:
    """Make a policy that lets the LLM decide. The score of a decision is 1 if the LLM says that the evidence
    is sufficient, and 0 otherwise.

    The policy reserves one call and `head_tokens` tokens of the budget for the head, which writes the answer.
    If the remaining budget is too small for a call, the policy stops with the segments picked so far. The
    lexical policy picks if no segment is picked yet, and if the LLM's reply is unusable.
    """
    lexical = lexical_policy(ctx, k)

    async def policy(state: State) -> Decision:
        # Leave one call for the head, and three steps: the lexical policy, the package and the head.
        left = ctx.remaining().without(calls=1, tokens=head_tokens, steps=3)
        prompt = select_prompt(len(state.window), k)
        fields = fitted(state, k, characters, ctx.text_budget(prompt, left.tokens))
        if left.calls < 1 or fields is None:
            if state.selected:
                return Decision((), 0.0, last=True)
            note = "no budget for the LLM"
            ctx.fell_back(prompt, f"{prompt.name}: {note}")
            return _noted(await lexical(state), note, last=True)
        attempts = affordable(ctx, left, sum(map(len, fields.values())))
        try:
            return decision_of(await ctx.generate(prompt.tried(attempts), **fields))
        except AnswerError as error:
            ctx.fell_back(prompt, error)
            return _noted(await lexical(state), str(error))

    return policy


def decision_of(action: Action) -> Decision:
    """Convert the LLM's action to a decision."""
    strategy = action.args.strategy
    expand = None if action.type == "select" or strategy == "guided_topk" else strategy
    return Decision(tuple(action.args.segment_ids), float(action.sufficiency), expand)


def fitted(state: State, k: int, characters: int, budget: int) -> dict[str, str] | None:
    """Make the fields of the policy's prompt. Each segment is cut to at most `characters` characters, or to
    fewer if the fields would otherwise exceed `budget` characters. Returns None if too little would be left
    of each segment."""
    shown = len(state.window) + len(state.selected)
    each = (budget - len(state.question) - len(state.guidance)) // shown - _FRAME
    return prompt_fields(state, k, min(characters, each)) if each >= _SHORTEST else None


def _noted(decision: Decision, note: str, last: bool = False) -> Decision:
    return Decision(decision.labels, 0.0, None if last else decision.expand, note, last)
