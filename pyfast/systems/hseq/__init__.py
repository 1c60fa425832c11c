"""HSEQ: one policy over text, tables and knowledge graphs; a file per part of the paper's section 3."""

from pyfast.systems.hseq.system import SYSTEM

__all__ = ["SYSTEM"]
