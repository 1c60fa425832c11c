"""SubQRAG: sub-questions one after the other, each answered from triples, or from documents that then give new
ones; the triples used are the memory from which the question is answered. A file per part of section 2.
"""

from pyfast.systems.subqrag.system import SYSTEM

__all__ = ["SYSTEM"]
