"""HSEQ: one policy chooses evidence from text, tables and knowledge graphs. Each part of section 3 of the paper
has a file.
"""

from pyfast.systems.hseq.system import SYSTEM

__all__ = ["SYSTEM"]
