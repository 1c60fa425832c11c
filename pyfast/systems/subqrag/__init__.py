"""SubQRAG: sub-questions in order, each answered from triples, or from documents, which then give new triples.
The used triples are the memory from which the question is answered. One file for each part of section 2.
"""

from pyfast.systems.subqrag.system import SYSTEM

__all__ = ["SYSTEM"]
