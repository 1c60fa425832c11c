"""MTQA: a matrix of thought. Nodes of a column see part of each other. Knowledge units correct each column."""

from pyfast.systems.mtqa.system import SYSTEM

__all__ = ["SYSTEM"]
