"""SubQRAG: sub-questions in order, each answered from triples, or else from documents, which give new triples.

The used triples are the memory from which the question is answered. Each part of section 2 has a file.
"""

from pyfast.systems.subqrag.system import SYSTEM

__all__ = ["SYSTEM"]
