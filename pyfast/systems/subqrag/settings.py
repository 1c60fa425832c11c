"""The settings of SubQRAG."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from pyfast.systems import system
from pyfast.systems.combinations import Inert


class Settings(system.WithKnowledge):
    """The paper's parameters. Switches choose its ablations."""

    inert: ClassVar[tuple[Inert, ...]] = (
        Inert(("rewrite", "branches"), "decompose", (False,)),
        Inert(("branches",), "rewrite", (False,)),
        Inert(("shared_updates",), "update", (False,)),
    )

    decompose: bool = Field(
        default=True,
        description='Split the question into sub-questions. Off: one, the question itself ("w/o Decomposition").',
        json_schema_extra={"paper": "section 2.2.1; table 2"},
    )
    rewrite: bool = Field(
        default=True,
        description="Rewrite sub-questions with earlier answers. Off: they are asked as they stand, with `#1` in"
        ' them ("w/o Rewriting").',
        json_schema_extra={"paper": "section 2.2.2, equation 2; table 2"},
    )
    update: bool = Field(
        default=True,
        description="Learn triples from the documents that had to be read where the graph did not tell. Off:"
        ' "w/o Update".',
        json_schema_extra={"paper": "section 2.3, equation 4; table 2"},
    )
    shared_updates: bool = Field(
        default=False,
        description="What a question learns the others see at once, as in the paper; answers then depend on what"
        " runs beside them.",
        json_schema_extra={"paper": "section 2.3"},
    )
    k: int = Field(
        default=5,
        ge=1,
        le=100,
        description="Facts retrieved for a sub-question.",
        json_schema_extra={"paper": "equation 3; section 3.4"},
    )
    documents: int = Field(
        default=5,
        ge=1,
        le=100,
        description="Passages retrieved for a sub-question that the graph does not answer.",
        json_schema_extra={"paper": "section 2.3"},
    )
    named: int = Field(
        default=4,
        ge=0,
        le=100,
        description="Of the `k` facts, how many may be there because the sub-question names what they are about;"
        " 0, cosines alone, is the paper's.",
        json_schema_extra={"paper": "equation 3"},
    )
    branches: int = Field(
        default=4,
        ge=1,
        le=10_000,
        description="Maximum number of questions that one sub-question becomes where it refers to several answers;"
        " the trace counts what is left out. 1 is the paper's; knowledge graphs, whose questions have dozens of"
        " answers, need more.",
        json_schema_extra={"paper": "section 2.2.2"},
    )
    sufficient: bool = Field(
        default=False,
        description="Ask whether the facts suffice before they are answered from; for larger models.",
        json_schema_extra={"paper": "section 2.3"},
    )
