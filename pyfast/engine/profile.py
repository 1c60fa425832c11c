"""The limits of prompts and answers. The budget can set them. Otherwise they depend on the model's context
window."""

from __future__ import annotations

from dataclasses import dataclass

from pyfast.engine.budget import Budget


@dataclass(frozen=True, slots=True)
class Profile:
    """The limits of prompts that follow from the size of a model's context window.

    Example:
        >>> from pyfast.engine.profile import profile_of
        >>> print(profile_of(2048))
        profile small (a context window of 2,048 tokens): at most 25 passages in a prompt
    """

    name: str
    window: int
    passages: int
    """The maximum number of passages in a prompt"""
    answer_tokens: int | None = None
    """The maximum number of tokens in an answer. None: the limit of its prompt"""

    def __str__(self) -> str:
        """Return the limits as one line of text."""
        answers = "" if self.answer_tokens is None else f", {self.answer_tokens:,} tokens in an answer"
        window = f"a context window of {self.window:,} tokens"
        return f"profile {self.name} ({window}): at most {self.passages:,} passages in a prompt{answers}"


# (largest window, name, passages). Longer lists are cut to the window. Many short rows fit into it.
_PROFILES = ((4_096, "small", 25), (32_768, "medium", 50))
_LARGE = ("large", 10_000)


def profile_of(window: int, budget: Budget | None = None) -> Profile:
    """Compute the limits for a context window of `window` tokens. Limits in the budget take precedence."""
    budget = budget or Budget()
    name, passages = next(((name, most) for largest, name, most in _PROFILES if window <= largest), _LARGE)
    return Profile(name, window, passages if budget.passages is None else budget.passages, budget.answer_tokens)
