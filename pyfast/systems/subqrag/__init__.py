"""SubQRAG: the LLM splits a question into sub-questions. Triples answer each of them.

If triples do not suffice, documents answer it, and the LLM extracts new triples from them. The triples that were
used are the graph memory, and the final answer comes from this memory. Each part of section 2 of the paper has a
file.
"""

from pyfast.systems.subqrag.system import SYSTEM

__all__ = ["SYSTEM"]
