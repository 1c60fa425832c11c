"""The settings of SubQRAG."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from pyfast.systems import system
from pyfast.systems.combinations import Inert


class Settings(system.WithKnowledge, system.Sparing):
    """The parameters from SubQRAG's paper. Some settings switch off parts of the method, for the paper's
    ablations."""

    inert: ClassVar[tuple[Inert, ...]] = (
        Inert(("rewrite", "branches"), "decompose", (False,)),
        Inert(("branches",), "rewrite", (False,)),
        Inert(("shared_updates",), "update", (False,)),
    )

    decompose: bool = Field(
        default=True,
        description="Split the question into sub-questions. Off: the question itself is the only sub-question"
        ' ("w/o Decomposition").',
        json_schema_extra={"paper": "section 2.2.1; table 2"},
    )
    rewrite: bool = Field(
        default=True,
        description="Put the answers to earlier sub-questions into later ones. Off: sub-questions stay"
        ' unchanged, with references such as `#1` ("w/o Rewriting").',
        json_schema_extra={"paper": "section 2.2.2, equation 2; table 2"},
    )
    update: bool = Field(
        default=True,
        description="Let the LLM extract triples from the documents that it reads when the graph contains no "
        'answer, and add them to the graph. Off: it extracts none ("w/o Update").',
        json_schema_extra={"paper": "section 2.3, equation 4; table 2"},
    )
    shared_updates: bool = Field(
        default=False,
        description="Share the triples extracted for one question with all questions, as in the paper. Answers"
        " then depend on the order in which questions run.",
        json_schema_extra={"paper": "section 2.3"},
    )
    k: int = Field(
        default=5,
        ge=1,
        le=100,
        description="Number of facts (triples that share a relation and an entity) retrieved per sub-question.",
        json_schema_extra={"paper": "equation 3; section 3.4"},
    )
    documents: Annotated[int, system.OF_PASSAGES] = Field(
        default=5,
        ge=1,
        le=100,
        description="Number of passages retrieved for a sub-question that the graph cannot answer.",
        json_schema_extra={"paper": "section 2.3"},
    )
    named: int = Field(
        default=4,
        ge=0,
        le=100,
        description="Maximum number of the `k` facts chosen because the sub-question names one of their entities."
        " The others are the nearest by cosine. 0: all facts are chosen by cosine, as in the paper.",
        json_schema_extra={"paper": "equation 3"},
    )
    branches: int = Field(
        default=4,
        ge=1,
        le=10_000,
        description="If a sub-question refers to several earlier answers, it becomes one question per answer, up"
        " to this maximum. The trace counts the rest. The paper uses 1, but in a knowledge graph, a sub-question"
        " can have dozens of answers.",
        json_schema_extra={"paper": "section 2.2.2"},
    )
    sufficient: bool = Field(
        default=False,
        description="Ask the LLM whether the facts suffice before it answers from them. Recommended for larger"
        " models.",
        json_schema_extra={"paper": "section 2.3"},
    )
