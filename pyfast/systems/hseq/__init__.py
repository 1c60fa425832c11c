"""HSEQ: a policy (an LLM or a rule) chooses evidence from text, tables and knowledge graphs. Each part of the
paper's section 3 has a file.
"""

from pyfast.systems.hseq.system import SYSTEM

__all__ = ["SYSTEM"]
