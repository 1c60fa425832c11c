"""The systems, one file each, written against `engine.Context` and nothing else."""

from __future__ import annotations

from importlib import import_module

from pyfast.errors import InputError
from pyfast.systems.system import System

NAMES = ("n2n", "subqrag", "mtqa", "hseq", "graph_convqa", "rag", "decompose", "cot", "direct")

__all__ = ["NAMES", "System", "load_system"]


def load_system(name: str) -> System:
    """The system of that name. Raises `InputError` for an unknown one."""
    if name not in NAMES:
        raise InputError(f"unknown system {name!r}; there are: {', '.join(NAMES)}")
    system: System = import_module(f"pyfast.systems.{name}").SYSTEM
    return system
