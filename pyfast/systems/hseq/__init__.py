"""HSEQ: a policy (an LLM or a rule) chooses evidence from text, tables and knowledge graphs. Each part of
section 3 of HSEQ's paper has its own file.
"""

from pyfast.systems.hseq.system import SYSTEM

__all__ = ["SYSTEM"]
