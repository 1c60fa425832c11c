"""What can be set of MTQA."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from pyfast.systems import system
from pyfast.systems.mtqa.weights import Weights, communication_weights


class Settings(system.WithKnowledge):
    """The paper's parameters, and its ablations as switches. One row or one column is a chain of thought."""

    rows: int = Field(default=3, ge=1, le=20)
    """Nodes of a column (m)."""
    columns: int = Field(default=4, ge=1, le=20)
    """Columns (n), each ended by a summary."""
    weights: str = "vert&hor-0.1"
    """A scheme of `communication_weights`, or (rows - 1) lists of one number per column, in JSON."""
    retrieval: bool = True
    """Off: no knowledge at all (the paper's "-RAG")."""
    source_text: bool = True
    """Off: units are triples alone ("-origin")."""
    triples: bool = True
    """Off: units are source texts alone ("-KG")."""
    communication: bool = True
    """Off: all weights are 0, a tree of thought ("-comm")."""
    entities: int = Field(default=3, ge=1, le=100)
    """Entities for a detailed keyword."""
    relations: int = Field(default=3, ge=1, le=100)
    """Relation keys for a general keyword."""
    units: int = Field(default=10, ge=1, le=1000)
    """Knowledge units for a retrieval."""
    temperature: float = Field(default=0.7, ge=0, le=2, allow_inf_nan=False)
    """Of thoughts, each with a seed of its own; at 0 nodes that see nothing of each other are all the same."""
    long_answer: bool = False
    """The answer is the whole last summary, for open questions; off: the name, number or phrase asked for."""

    @model_validator(mode="after")
    def _fit(self) -> Self:
        if not self.source_text and not self.triples:
            raise ValueError("units without source_text and triples are empty: give retrieval=off")
        if not self.retrieval and not (self.source_text and self.triples):
            raise ValueError("source_text and triples want retrieval=on")
        if not self.communication and "weights" in self.model_fields_set:
            raise ValueError("weights wants communication=on")
        self.matrix()  # refuses weights that do not fit
        return self

    def matrix(self) -> Weights:
        """Equation 9: what each node sees of the one above it."""
        return communication_weights(self.weights if self.communication else "const-0", self.rows, self.columns)
