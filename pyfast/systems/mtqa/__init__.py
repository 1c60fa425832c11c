"""MTQA: a matrix of thought. A node sees a part of the node above it. Knowledge units correct each column."""

from pyfast.systems.mtqa.system import SYSTEM

__all__ = ["SYSTEM"]
