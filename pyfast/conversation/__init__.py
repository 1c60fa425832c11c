"""Conversations over evidence: what is remembered, the token graph, its encoder, the prompt around it.

The parts of graph_convqa (Jain and Lapata 2024), for its system and its training alike.
"""

from pyfast.conversation.entities import Entities, Linear, known_entities, linearise
from pyfast.conversation.evidence_memory import Memory, MemoryQuery, apply_memory, embedder
from pyfast.conversation.graph import Chain, TokenGraph, token_graph
from pyfast.conversation.history import History, Parts, messages, most_recent, query_of

__all__ = [
    "Chain",
    "Entities",
    "History",
    "Linear",
    "Memory",
    "MemoryQuery",
    "Parts",
    "TokenGraph",
    "apply_memory",
    "embedder",
    "known_entities",
    "linearise",
    "messages",
    "most_recent",
    "query_of",
    "token_graph",
]
