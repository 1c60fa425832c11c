"""Fit texts into a token budget: choose the texts to keep, and shorten them.

Only the LLM has a tokenizer, so pyfast counts characters and estimates the number of tokens from them. If the
estimate is too low, the LLM refuses the call, and only that question fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeVar

T = TypeVar("T")

# Common words are single tokens, and names are split into several. In practice, prompts fit with this number.
CHARACTERS_PER_TOKEN = 3.0
CHARACTERS_PER_TOKEN_OF_LISTS = 2.0  # In lists of names, each quote and comma is a token too.
_SHORTEST = 40  # the minimum number of characters of a text that is worth showing


def fit(texts: Iterable[str], budget: int, first: Literal["whole", "cut", "drop"] = "drop") -> list[str]:
    """Return the first texts that fit into the budget together. Each text's line end counts as one more character.

    Args:
        texts: The texts, best first. The result ends before the first text that does not fit.
        budget: The maximum number of characters.
        first: What to do if the very first text is too long: keep it `whole`, `cut` it, or `drop` it.
    """
    kept: list[str] = []
    for text in texts:
        if len(text) + 1 > budget and (kept or first == "drop"):
            break
        kept.append(text[: max(budget, 0)] if first == "cut" else text)
        budget -= len(text) + 1
    return kept


def fit_last(items: Sequence[T], fits: Callable[[Sequence[T]], bool]) -> Sequence[T]:
    """Return as many of the last items as fit into a budget together. `fits(items)` returns whether the items
    fit."""
    return next((items[first:] for first in range(len(items)) if fits(items[first:])), items[len(items) :])


def share(texts: Sequence[Callable[[int | None], str]], budget: int) -> list[str]:
    """Shorten texts to about `budget` characters in total. Each text's line end counts as one more character.

    Short texts stay whole, and the long ones share the remaining characters.

    Args:
        texts: A function for each text, which returns the text in about as many characters as its argument says,
            or the whole text if its argument is None.
        budget: The maximum number of characters.
    """
    sizes = [len(text(None)) for text in texts]
    shares = [""] * len(texts)
    for left, i in zip(range(len(texts), 0, -1), sorted(range(len(texts)), key=sizes.__getitem__), strict=True):
        shares[i] = texts[i](max(budget // left - 1, 0))
        budget -= len(shares[i]) + 1
    return shares


def cut_evenly(texts: Sequence[str], budget: int, frame: int) -> list[str]:
    """Cut the longest texts to one length, so that all texts fit into `budget` characters. If fewer than 40
    characters would remain for each text, the last texts are left out.

    Args:
        texts: The texts, best first.
        budget: The maximum number of characters.
        frame: How many characters each text needs in addition, for example for its number.
    """
    kept = list(texts[: max(budget // (_SHORTEST + frame), 0)])
    longest, spare = 0, budget
    for left, length in zip(range(len(kept), 0, -1), sorted(map(len, kept)), strict=True):
        each = spare // left - frame  # The space that short texts leave goes to the long ones.
        longest = min(length, each)
        if each < length:
            break
        spare -= length + frame
    return [text if len(text) <= longest else f"{text[: longest - 1]}…" for text in kept]


def join(values: Sequence[str], budget: int | None) -> str:
    """Join values with `; ` in about `budget` characters.

    The first value is always included. If values are left out, the text says how many. If `budget` is None, none
    are left out.
    """
    kept: list[str] = []
    for value in values:
        budget = None if budget is None else budget - len(value) - 2
        if budget is not None and budget < -2 and kept:  # There is no `; ` after the last text.
            return f"{'; '.join(kept)}; and {len(values) - len(kept)} more"
        kept.append(value)
    return "; ".join(kept)
