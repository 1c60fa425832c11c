"""MTQA: a matrix of thought. Nodes of a column see a part of each other; knowledge units correct each column."""

from pyfast.systems.mtqa.system import SYSTEM

__all__ = ["SYSTEM"]
