"""MTQA: a matrix of thought. Each node is a thought of the LLM, and sees a part of the node above it. Knowledge
units correct the summary of each column.
"""

from pyfast.systems.mtqa.system import SYSTEM

__all__ = ["SYSTEM"]
