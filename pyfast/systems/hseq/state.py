"""What the iterator's policy sees: the state of one question before a step, and how the LLM reads it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyfast.retrieval import Candidate


@dataclass(frozen=True, slots=True)
class State:
    """(q, g, M_t, C_t) of section 3.4."""

    question: str
    guidance: str
    """"" for none"""
    selected: tuple[Candidate, ...]
    window: tuple[Candidate, ...]
    """The candidate with the label j is the j-th of them, counted from 1"""


def prompt_fields(state: State, k: int, characters: int) -> dict[str, str]:
    """What `select_prompt(len(state.window), k)` is filled with; `characters` of each segment are shown."""
    window = (f"[{label}] {line(it, characters)}\n" for label, it in enumerate(state.window, start=1))
    return {
        "question": state.question,
        "guidance": f"Guidance: {state.guidance}\n" if state.guidance else "",
        "selected": "".join(f"- {line(it, characters)}\n" for it in state.selected) or "(nothing)\n",
        "window": "".join(window),
        "k": str(k),
    }


def line(candidate: Candidate, characters: int) -> str:
    """Level and text on one line, cut after `characters` of the text."""
    text = candidate.text
    shown = text if len(text) <= characters else f"{text[: characters - 1]}…"
    return f"{candidate.level.name.lower()}: {shown}"


def chosen(state: State, labels: Iterable[int], k: int) -> tuple[Candidate, ...]:
    """The candidates of these labels, each once, at most `k`."""
    return tuple(state.window[label - 1] for label in list(dict.fromkeys(labels))[:k])
