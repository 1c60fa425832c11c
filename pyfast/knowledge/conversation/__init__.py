"""The parts of the conversational system graph_convqa (Jain and Lapata 2024).

Each file has one step: to remember evidence of earlier turns, to build a graph of the evidence's tokens, to
encode this graph, and to write the prompt. The system and its training both use these files.
"""

from pyfast.knowledge.conversation.entities import Entities, Linear, known_entities, linearise, names_in
from pyfast.knowledge.conversation.evidence_memory import SHARE, Memory, MemoryQuery, apply_memory, embedder
from pyfast.knowledge.conversation.graph import (
    Chain,
    History,
    Parts,
    TextPrompt,
    TokenGraph,
    messages,
    most_recent,
    query_of,
    text_prompt,
    token_graph,
)

__all__ = [
    "SHARE",
    "Chain",
    "Entities",
    "History",
    "Linear",
    "Memory",
    "MemoryQuery",
    "Parts",
    "TextPrompt",
    "TokenGraph",
    "apply_memory",
    "embedder",
    "known_entities",
    "linearise",
    "messages",
    "most_recent",
    "names_in",
    "query_of",
    "text_prompt",
    "token_graph",
]
