"""SubQRAG: the LLM splits a question into sub-questions, and answers them from triples.

If the triples do not answer a sub-question, the LLM reads documents and extracts new triples from them. The
triples that answered sub-questions are the graph memory, from which the LLM gives the final answer.
Each part of section 2 of SubQRAG's paper has its own file.
"""

from pyfast.systems.subqrag.system import SYSTEM

__all__ = ["SYSTEM"]
