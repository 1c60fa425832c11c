"""Convert text to the LLM's tokens, for the evidence graph and for the rest of the prompt."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

from pyfast.conversation.entities import Linear, Span
from pyfast.conversation.graph import Chain
from pyfast.conversation.history import SYSTEM, Parts
from pyfast.llm import dialogue
from pyfast.llm.local import chat

# a private character of Unicode that marks where the graph's nodes go; only the first one counts
_GRAPH = "\ue000"


def frame(tokenizer: Any, around: Parts) -> tuple[list[int], list[int]]:
    """Return the tokens of the prompt before the graph and after the graph, including the tokens of the chat
    template."""
    text = chat(tokenizer, dialogue(f"{around.before}{_GRAPH}{around.after}", SYSTEM))
    before, _, after = text.partition(_GRAPH)
    return tokenizer.encode(before, add_special_tokens=False), tokenizer.encode(after, add_special_tokens=False)


def chains(tokenizer: Any, linear: Linear) -> list[Chain]:
    """Make a chain from each line of the evidence: the tokens of the line and of its line end, and the places
    where tokens name an entity.
    """
    if not linear.lines:
        return []
    lines = [f"{line}\n" for line in linear.lines]
    cut = tokenizer(
        lines, add_special_tokens=False, return_offsets_mapping=True, split_special_tokens=True
    )  # In any field: the text of a document must not end a turn.
    return [
        Chain(tuple(tokens), tuple(mentions(offsets, spans)))
        for tokens, offsets, spans in zip(cut["input_ids"], cut["offset_mapping"], linear.spans, strict=True)
    ]


def mentions(offsets: Sequence[tuple[int, int]], spans: Sequence[Span]) -> list[tuple[int, int, int]]:
    """Return (first token, last token, entity) for each span of characters. `offsets` has the first character
    of each token and the character after its last. A token belongs to a span if they share a character.
    """
    starts, ends = [start for start, _ in offsets], [end for _, end in offsets]
    return [(bisect_right(ends, start), bisect_left(starts, end) - 1, entity) for start, end, entity in spans]
