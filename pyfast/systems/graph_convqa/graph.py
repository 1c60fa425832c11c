"""Write a turn's prompt (the conversation so far, the evidence and the task), either as text or as tokens around a
graph of the evidence. In the graph, each evidence item is a chain of tokens, and edges join mentions of the same
entity.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyfast.engine import plain
from pyfast.llm import Message, dialogue
from pyfast.llm.local import chat
from pyfast.ops.arrays import Int32, Int64
from pyfast.systems.graph_convqa.entities import Linear, Span
from pyfast.utils.token_budget import CHARACTERS_PER_TOKEN, fit, fit_last

History = tuple[tuple[str, str], ...]
"""The (question, answer) pairs of the earlier turns"""

SYSTEM = "You answer the last question of a conversation from facts, with the fact alone and no sentence."
_FACTS = "Facts:\n"
_TALK = "The conversation; say what answers its last question, a name, a number or a date:\n"


_TOKENS_FOR_INSTRUCTIONS = 100


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """A prompt as text, and how many earlier turns and evidence items it contains."""

    messages: tuple[Message, ...]
    items: int
    """How many evidence items the prompt contains, from the best-ranked on"""
    turns: int
    """How many earlier turns the prompt contains. They are the most recent turns"""


@dataclass(frozen=True, slots=True)
class Parts:
    """Two parts of the user's message: the text before and the text after the evidence."""

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
    """Write two parts of the prompt: the text before and the text after the evidence (graph_convqa's paper,
    section 4.5).

    Control tokens of the LLM in a user's or model's text become plain text.

    Args:
        history: The (question, answer) pairs of the earlier turns.
        question: The question of this turn.

    Returns:
        The two texts.
    """
    turns = "".join(f"Question: {plain(asked)}\nAnswer: {plain(answer)}\n" for asked, answer in history)
    return Parts(_FACTS, f"{_TALK}{turns}Question: {plain(question)}\nAnswer:")


def messages(history: History, question: str, facts: Sequence[str]) -> tuple[Message, ...]:
    """Write the prompt with the evidence as text, for LLMs that receive no graph (figure 5 of graph_convqa's
    paper).

    Args:
        history: The (question, answer) pairs of the earlier turns.
        question: The question of this turn.
        facts: The evidence, one line per item.

    Returns:
        The messages for the LLM.
    """
    around = parts(history, question)
    lines = "".join(f"{plain(fact)}\n" for fact in facts)
    return dialogue(f"{around.before}{lines}{around.after}", SYSTEM)


def text_prompt(history: History, question: str, facts: Sequence[str], max_tokens: int) -> TextPrompt:
    """Write the prompt with the evidence as text, within a token limit.

    The conversation gets at most half of the tokens: if it is longer, the oldest turns are left out. The
    evidence gets the rest: the lowest-ranked items that do not fit are left out. The function estimates the
    number of tokens from the number of characters.

    Args:
        history: The (question, answer) pairs of the earlier turns.
        question: The question of this turn.
        facts: The evidence, best first.
        max_tokens: The maximum length of the prompt, in tokens.

    Returns:
        The messages, and how many evidence items and earlier turns they contain.
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
        size: A function that returns a text's size, for example in tokens.

    Returns:
        The last pairs that fit, in the order of the conversation.
    """

    def fits(turns: Sequence[tuple[str, str]]) -> bool:
        around = parts(tuple(turns), question)
        return size(around.before + around.after) <= max_tokens

    return tuple(fit_last(history, fits))


@dataclass(frozen=True, slots=True)
class Chain:
    """An evidence item as a chain of the LLM's tokens."""

    tokens: tuple[int, ...]
    mentions: tuple[tuple[int, int, int], ...] = ()
    """(first token, last token, number of the entity) for each mention of an entity"""


@dataclass(frozen=True, slots=True, eq=False)
class TokenGraph:
    """A graph whose nodes are tokens, in the order in which the LLM reads them. Edges are directed."""

    tokens: Int32
    """[nodes] the LLM's token ids"""
    indptr: Int64
    """[nodes + 1] the position in `indices` at which each node's incoming edges start"""
    indices: Int32
    """[edges] the source nodes of the edges to node i are `indices[indptr[i]:indptr[i + 1]]`, ascending"""
    items: int
    """How many chains are in the graph, from the best-ranked on. If not even the first chain fits, the graph
    contains only its beginning"""


def token_graph(chains: Sequence[Chain], max_nodes: int) -> TokenGraph:
    """Build the graph of a turn's evidence (section 4.3 of graph_convqa's paper).

    A chain is one evidence item. Each token of a chain has an edge to the next token. A mention is a place
    where a chain names an entity. The last token of a mention has an edge to the first token of each of the other
    mentions of the same entity.

    Args:
        chains: The evidence items, best first.
        max_nodes: The maximum number of nodes. If the chains have more tokens, the last chains are left out.
            If the first chain alone is too long, its end is left out.

    Returns:
        The graph. Its nodes are the tokens of the chains, in order.
    """
    lengths = np.cumsum([len(chain.tokens) for chain in chains])
    items = int(np.searchsorted(lengths, max_nodes, side="right"))
    if items == 0 and chains and max_nodes > 0:
        first = chains[0]
        inside = tuple(mention for mention in first.mentions if mention[1] < max_nodes)
        chains, items = [Chain(first.tokens[:max_nodes], inside)], 1
    tokens: list[int] = []
    pairs = [np.empty((2, 0), np.int64)]  # the source and destination node of each edge
    mentions: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for chain in chains[:items]:
        begin = len(tokens)
        tokens += chain.tokens
        inner = np.arange(begin, len(tokens) - 1)
        pairs.append(np.stack([inner, inner + 1]))
        for first_token, last_token, entity in chain.mentions:
            mentions[entity].append((begin + first_token, begin + last_token))
    for places in (each for each in mentions.values() if len(each) > 1):
        first_tokens, last_tokens = np.array(places, np.int64).T
        a, b = np.nonzero(~np.eye(len(places), dtype=bool))
        pairs.append(np.stack([last_tokens[a], first_tokens[b]]))
    # The edges as CSR, grouped by destination and without duplicates.
    nodes, (sources, destinations) = len(tokens), np.concatenate(pairs, axis=1)
    edges = np.unique(destinations * nodes + sources)
    indptr = np.searchsorted(edges, np.arange(nodes + 1) * nodes).astype(np.int64)
    return TokenGraph(np.array(tokens, np.int32), indptr, (edges % max(nodes, 1)).astype(np.int32), items)


# a private-use Unicode character that marks where the graph's nodes go; only the first one counts
_GRAPH = "\ue000"


def frame(tokenizer: Any, around: Parts) -> tuple[list[int], list[int]]:
    """Return the tokens of the prompt around the graph, including the tokens of the chat template.

    Args:
        tokenizer: The tokenizer of the LLM.
        around: The texts before and after the evidence.

    Returns:
        The tokens before and after the graph.
    """
    text = chat(tokenizer, dialogue(f"{around.before}{_GRAPH}{around.after}", SYSTEM))
    before, _, after = text.partition(_GRAPH)
    return tokenizer.encode(before, add_special_tokens=False), tokenizer.encode(after, add_special_tokens=False)


def chains(tokenizer: Any, linear: Linear) -> list[Chain]:
    """Turn each line of the evidence into a chain.

    Args:
        tokenizer: The tokenizer of the LLM.
        linear: The evidence as lines, best first.

    Returns:
        For each line: its tokens, including that of the line end, and the places where tokens name an entity.
    """
    if not linear.lines:
        return []
    lines = [f"{line}\n" for line in linear.lines]
    # Special tokens are split: a document's text must not end a turn.
    cut = tokenizer(lines, add_special_tokens=False, return_offsets_mapping=True, split_special_tokens=True)
    return [
        Chain(tuple(tokens), tuple(mentions(offsets, spans)))
        for tokens, offsets, spans in zip(cut["input_ids"], cut["offset_mapping"], linear.spans, strict=True)
    ]


def mentions(offsets: Sequence[tuple[int, int]], spans: Sequence[Span]) -> list[tuple[int, int, int]]:
    """Find the tokens of each character span. A token belongs to a span if they share a character.

    Args:
        offsets: For each token: the positions of its first character and of the character after its last.
        spans: The spans of the entities.

    Returns:
        (first token, last token, entity) for each span.
    """
    starts, ends = [start for start, _ in offsets], [end for _, end in offsets]
    return [(bisect_right(ends, start), bisect_left(starts, end) - 1, entity) for start, end, entity in spans]
