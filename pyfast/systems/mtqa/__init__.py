"""MTQA: a matrix of thought. Each node of the matrix is a text by the LLM. When the LLM writes a node, it
sees a part of the node above. Each column ends with a summary, which the LLM corrects with knowledge units
(source texts with their triples).
"""

from pyfast.systems.mtqa.system import SYSTEM

__all__ = ["SYSTEM"]
