"""Write the prompt of a turn: the conversation so far, the evidence as text, and the task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyfast.engine import plain
from pyfast.llm import Message, dialogue
from pyfast.token_budget import CHARACTERS_PER_TOKEN, fit, fit_last

History = tuple[tuple[str, str], ...]
"""The (question, answer) pairs of the earlier turns"""

SYSTEM = "You answer the last question of a conversation from facts, with the fact alone and no sentence."
_FACTS = "Facts:\n"
_TALK = "The conversation; say what answers its last question, a name, a number or a date:\n"


_TOKENS_FOR_INSTRUCTIONS = 100


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """A prompt as text, with the numbers of earlier turns and evidence items that it contains."""

    messages: tuple[Message, ...]
    items: int
    """How many evidence items the prompt contains. They are the best-ranked items"""
    turns: int
    """How many earlier turns the prompt contains. They are the most recent turns"""


@dataclass(frozen=True, slots=True)
class Parts:
    """Two parts of the user's message: the text before the evidence, and the text after the evidence."""

    before: str
    after: str


def query_of(history: History, question: str) -> str:
    """Write the query that finds evidence for a turn: all earlier questions and answers, then the question.

    Args:
        history: The (question, answer) pairs of the earlier turns.
        question: The question of this turn.

    Returns:
        All questions and answers in order, separated by spaces.
    """
    return " ".join([*(text for turn in history for text in turn if text), question])


def parts(history: History, question: str) -> Parts:
    """Write two parts of the prompt: the text before the evidence, and the text after the evidence
    (graph_convqa's paper, section 4.5).

    If a user or a model wrote a control token of the LLM, the token becomes plain text.
    """
    turns = "".join(f"Question: {plain(asked)}\nAnswer: {plain(answer)}\n" for asked, answer in history)
    return Parts(_FACTS, f"{_TALK}{turns}Question: {plain(question)}\nAnswer:")


def messages(history: History, question: str, facts: Sequence[str]) -> tuple[Message, ...]:
    """Write the prompt with the evidence as text, for LLMs that get no graph (figure 5 of graph_convqa's
    paper).

    Args:
        history: The (question, answer) pairs of the earlier turns.
        question: The question of this turn.
        facts: The evidence, one line for each item.

    Returns:
        The messages for the LLM.
    """
    around = parts(history, question)
    lines = "".join(f"{plain(fact)}\n" for fact in facts)
    return dialogue(f"{around.before}{lines}{around.after}", SYSTEM)


def text_prompt(history: History, question: str, facts: Sequence[str], max_tokens: int) -> TextPrompt:
    """Write the prompt with the evidence as text, within a limit of tokens.

    The conversation gets at most half of the tokens: if it is longer, the oldest turns are left out. The
    evidence gets the rest: the lowest-ranked items that do not fit are left out. The function estimates the
    number of tokens from the number of characters.

    Args:
        history: The (question, answer) pairs of the earlier turns.
        question: The question of this turn.
        facts: The evidence, best first.
        max_tokens: The maximum length of the prompt, in tokens.

    Returns:
        The messages, with the numbers of evidence items and earlier turns that they contain.
    """
    most = int((max_tokens - _TOKENS_FOR_INSTRUCTIONS) * CHARACTERS_PER_TOKEN)
    kept = most_recent(history, question, most // 2, len)
    shown = fit(facts, most - len(query_of(kept, question)))
    return TextPrompt(messages(kept, question, shown), len(shown), len(kept))


def most_recent(history: History, question: str, max_tokens: int, size: Callable[[str], int]) -> History:
    """Keep as many of the last turns of a conversation as fit into a limit.

    Args:
        history: The (question, answer) pairs of the earlier turns.
        question: The question of this turn.
        max_tokens: The maximum size of the prompt without the evidence, in the unit of `size`.
        size: A function that returns the size of a text, for example in tokens.

    Returns:
        The last pairs that fit, in the order of the conversation.
    """

    def fits(turns: Sequence[tuple[str, str]]) -> bool:
        around = parts(tuple(turns), question)
        return size(around.before + around.after) <= max_tokens

    return tuple(fit_last(history, fits))
