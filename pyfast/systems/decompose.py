"""Baseline: RAG with query decomposition, which is n2n without graphs. The LLM plans up to three searches."""

from __future__ import annotations

from typing import Literal

from pyfast.systems import n2n
from pyfast.systems.system import System


class Settings(n2n.Settings):
    """The settings of n2n that need no graph."""

    graph: Literal[False] = False


SYSTEM = System(
    "decompose",
    n2n.answer,
    Settings,
    n2n.SYSTEM.prompts,
    summary="baseline: `n2n` without evidence graphs; the LLM plans searches, and reads what they find",
    paper="a baseline of N2N-GQA",
)
