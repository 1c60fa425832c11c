"""Baseline: RAG with query decomposition. N2N-GQA's plan and hops, but lists instead of graphs."""

from __future__ import annotations

from pyfast.engine import Answer, Context, Question
from pyfast.systems import n2n


class Settings(n2n.Settings):
    """Those of n2n; the graph is off."""

    graph: bool = False


answer = n2n.answer
__all__ = ["Answer", "Context", "Question", "Settings", "answer"]
