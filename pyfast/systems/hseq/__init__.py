"""HSEQ: a policy (an LLM or a rule) chooses evidence from text, tables and knowledge graphs. For each part of
section 3 of HSEQ's paper, there is a file.
"""

from pyfast.systems.hseq.system import SYSTEM

__all__ = ["SYSTEM"]
