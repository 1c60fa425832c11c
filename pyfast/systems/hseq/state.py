"""The state of one question before a step of HSEQ, and how the policy's prompt shows it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyfast.systems.hseq.windows import Candidate

_WORD = re.compile(r"\w{4,}")  # Most shorter words carry little meaning.


@dataclass(frozen=True, slots=True)
class State:
    """The state that the policy sees: question, guidance, picked segments and window (HSEQ, section 3.4)."""

    question: str
    guidance: str
    """The guidance, or "" if there is none"""
    selected: tuple[Candidate, ...]
    window: tuple[Candidate, ...]
    """The segments of the window. Label j denotes the j-th segment, counted from 1"""


def prompt_fields(state: State, k: int, characters: int) -> dict[str, str]:
    """Make the fields of `select_prompt`'s prompt. Each segment is cut to at most `characters` characters."""
    words = list(dict.fromkeys(_WORD.findall(state.question.lower())))
    window, selected = (
        [f"{it.level.name.lower()}: {excerpt(it.text, words, characters)}\n" for it in candidates]
        for candidates in (state.window, state.selected)
    )
    return {
        "question": state.question,
        "guidance": f"Guidance: {state.guidance}\n" if state.guidance else "",
        "selected": "".join(f"- {line}" for line in selected) or "(nothing)\n",
        "window": "".join(f"[{label}] {line}" for label, line in enumerate(window, start=1)),
        "k": str(k),
    }


def excerpt(text: str, words: Sequence[str], characters: int) -> str:
    """Shorten a text to at most `characters` characters (4 or more).

    A longer text is cut to two parts: its beginning (a third of `characters`), and the later part that
    contains the most of `words`. If each word occurs soon after the beginning, or not at all after it, the
    result is a single part: the first `characters` characters. The words must be in lower case.
    """
    if len(text) <= characters:
        return text
    head = characters // 3
    width = characters - head - 2
    lower = text.lower()
    places = [(at, len(word)) for word in words if (at := lower.find(word, head)) >= 0]
    if all(at + size < characters for at, size in places):
        return f"{text[: characters - 1]}…"

    def held(first: int) -> int:
        return sum(size for at, size in places if first <= at and at + size <= first + width)

    first = max(sorted(at for at, _ in places), key=held)
    first = min(max(first - width // 8, head), len(text) - width)
    last = "…" if first + width < len(text) else ""
    return f"{text[:head]}…{text[first : first + width]}{last}"


def chosen(state: State, labels: Iterable[int], k: int) -> tuple[Candidate, ...]:
    """Return the window's segments with these labels: at most `k`, without duplicates."""
    return tuple(state.window[label - 1] for label in list(dict.fromkeys(labels))[:k])
