"""MTQA: a matrix of thought. Each node is a text that the LLM writes while it sees a part of the node above.
Each column ends with a summary, which the LLM corrects with knowledge units (source texts with their
triples).
"""

from pyfast.systems.mtqa.system import SYSTEM

__all__ = ["SYSTEM"]
