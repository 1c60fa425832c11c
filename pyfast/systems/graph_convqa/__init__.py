"""graph_convqa (Jain and Lapata 2024): the LLM answers the questions of a conversation, and reads embeddings
of an evidence graph's nodes in place of the evidence's text.

Each file contains one step: remembering evidence from earlier turns, building a graph of the evidence's tokens,
encoding this graph, and writing the prompt. The system and its training share these files.
"""

from pyfast.systems.graph_convqa.system import SYSTEM

__all__ = ["SYSTEM"]
