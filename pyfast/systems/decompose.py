"""Baseline: RAG with query decomposition. N2N-GQA's plan and hops, but lists in place of graphs."""

from __future__ import annotations

from typing import Literal

from pyfast.systems import n2n
from pyfast.systems.system import System


class Settings(n2n.Settings):
    """Those of n2n, without the graph."""

    graph: Literal[False] = False


SYSTEM = System("decompose", n2n.answer, Settings, n2n.SYSTEM.prompts)
