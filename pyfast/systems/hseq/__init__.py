"""HSEQ: one policy over text, tables and knowledge graphs. Each part of section 3 of HSEQ's paper has a file."""

from pyfast.systems.hseq.system import SYSTEM

__all__ = ["SYSTEM"]
