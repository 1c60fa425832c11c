"""SubQRAG: sub-questions in order. Triples answer each of them, or else documents, which also give new triples.

The used triples are the graph memory. The final answer comes from this memory. Each part of section 2 has a file.
"""

from pyfast.systems.subqrag.system import SYSTEM

__all__ = ["SYSTEM"]
