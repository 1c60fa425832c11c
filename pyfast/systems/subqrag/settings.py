"""What can be set of SubQRAG."""

from __future__ import annotations

from pydantic import Field

from pyfast.systems import system


class Settings(system.WithKnowledge):
    """The paper's parameters, and its ablations as switches."""

    decompose: bool = True
    """Off: one sub-question, the question itself."""
    rewrite: bool = True
    """Off: sub-questions are asked as they stand, with `#1` in them."""
    update: bool = True
    """Learn triples from the documents that the graph had to be helped out with."""
    shared_updates: bool = False
    """What a question learns others see at once, as in the paper: answers then depend on what runs beside them."""
    k: int = Field(default=5, ge=1, le=100)
    """Facts for a sub-question."""
    documents: int = Field(default=5, ge=1, le=100)
    """Units for a sub-question that the graph does not answer."""
    named: int = Field(default=4, ge=0, le=100)
    """Of these, how many may be there because the sub-question names what they are about; 0 is the paper's."""
    branches: int = Field(default=256, ge=1, le=10_000)
    """How many questions a sub-question may become that refers to several answers."""
