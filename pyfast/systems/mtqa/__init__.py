"""MTQA: a matrix of thought. Each node is a text by the LLM, which sees a part of the text above it. Knowledge
units (source texts with their triples) correct the summary of each column.
"""

from pyfast.systems.mtqa.system import SYSTEM

__all__ = ["SYSTEM"]
