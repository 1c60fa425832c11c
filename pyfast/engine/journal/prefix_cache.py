"""Estimate what a prefix cache of an LLM's server saves, from the prompts that a run stores."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyfast.engine.journal.journal import read_outcome, reading
from pyfast.engine.journal.prompt_store import KeptPrompts
from pyfast.errors import InputError
from pyfast.llm import Completion, Message

BLOCK = 12
"""The number of words in a block of the cache. A word counts as 4/3 tokens: a block has 16 tokens, as in vLLM"""
_TOKENS_PER_WORD = 4 / 3
_WORD = re.compile(r"\n*[^\S\n]*\S+")
_AT_ONCE = 1_000  # calls
_ENTRIES = "SELECT question, entry FROM completions ORDER BY rowid"


@dataclass(slots=True)
class CachedTokens:
    """An estimate for the calls of one prompt."""

    calls: int = 0
    tokens: float = 0.0
    """The tokens of the prompts"""
    cached: float = 0.0
    """How many of these tokens a prefix cache has"""


class PrefixCache:
    """A model of a prefix cache: blocks of words, each known by all words up to its end. The least recently used
    blocks are dropped first."""

    def __init__(self, tokens: float) -> None:
        """Make a cache for at most `tokens` tokens."""
        self._most = tokens / _TOKENS_PER_WORD / BLOCK
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def read(self, words: Sequence[str]) -> int:
        """Read a prompt, and return how many of its first words are there from earlier prompts."""
        chain, state = [], 0
        for first in range(0, len(words) - BLOCK + 1, BLOCK):
            state = hash((state, *words[first : first + BLOCK]))
            chain.append(state)
        kept = next((at for at, block in enumerate(chain) if block not in self._blocks), len(chain))
        for block in reversed(chain):  # The end of a prompt is dropped before its beginning.
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > self._most:
            self._blocks.popitem(last=False)
        return min(kept * BLOCK, len(words) - 1)  # A server computes the last token again.


def words_of(messages: Iterable[Message]) -> list[str]:
    """Return the words of a prompt, each with the blanks before it."""
    return [word for it in messages for word in (f"<{it.role}>", *_WORD.findall(it.content))]


def cached_tokens(journal: Path, tokens: float) -> dict[str, CachedTokens]:
    """Send the prompts of a run through a prefix cache, in the order in which their calls ended. Returns an
    estimate for each prompt, by its name. Raises `InputError` if the run stores no prompts, or the journal is
    damaged."""
    cache, found = PrefixCache(tokens), dict[str, CachedTokens]()
    with reading(journal) as database:
        prompts, rows = KeptPrompts(database), database.execute(_ENTRIES)
        while some := rows.fetchmany(_AT_ONCE):
            read = [one for number, entry in some if (one := read_outcome(entry, number)) is not None]
            asked = prompts.of({digest for (digest, _), _ in read})
            for (digest, _), outcome in read:
                if digest not in asked or not (words := words_of(asked[digest].messages)):
                    continue
                each = found.setdefault(asked[digest].name, CachedTokens())
                told = outcome.prompt_tokens if isinstance(outcome, Completion) else 0
                size = told or len(words) * _TOKENS_PER_WORD
                each.calls += 1
                each.tokens += size
                each.cached += size * cache.read(words) / len(words)
    if not found:
        raise InputError(f"{journal.parent}: the run stores no prompts, which the estimate needs")
    return found
