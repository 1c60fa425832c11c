"""SubQRAG: the LLM splits a question into sub-questions, and answers them from triples.

If the triples do not answer a sub-question, the LLM reads documents and extracts new triples from them. The used
triples are the graph memory, from which the LLM gives the final answer. Each part of the paper's section 2 has a
file.
"""

from pyfast.systems.subqrag.system import SYSTEM

__all__ = ["SYSTEM"]
