"""graph_convqa (Jain and Lapata 2024): the LLM answers the questions of a conversation, and reads embeddings of
the nodes of an evidence graph in place of the evidence's text.

Each file has one step: to remember evidence of earlier turns, to build a graph of the evidence's tokens, to
encode this graph, and to write the prompt. The system and its training both use these files.
"""

from pyfast.systems.graph_convqa.system import SYSTEM

__all__ = ["SYSTEM"]
