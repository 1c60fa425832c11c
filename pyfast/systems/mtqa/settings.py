"""The settings of MTQA."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import orjson
from pydantic import BeforeValidator, Field, model_validator

from pyfast.errors import InputError
from pyfast.systems import system
from pyfast.systems.combinations import Inert
from pyfast.systems.mtqa.weights import DRAWN, SEED, Weights, communication_weights


def _as_text(given: Any) -> Any:
    """Convert a weight matrix given as lists to the text form that the command line accepts."""
    return orjson.dumps(given).decode() if isinstance(given, list | tuple) else given


class Units(system.WithKnowledge):
    """The settings shared by systems with knowledge units: the retrieval of units, and the kind of answer."""

    inert: ClassVar[tuple[Inert, ...]] = (
        Inert(("source_text", "triples", "entities", "relations", "units"), "retrieval", (False,)),
        Inert(("abstain",), "long_answer", (True,)),
    )

    retrieval: bool = Field(
        default=True,
        description='Retrieve knowledge units (source texts with their triples). Off: the LLM gets none ("-RAG").',
        json_schema_extra={"paper": "equations 6 and 10; table 3"},
    )
    source_text: bool = Field(
        default=True,
        description='Put source texts into knowledge units. Off: only triples ("-origin").',
        json_schema_extra={"paper": "table 3"},
    )
    triples: bool = Field(
        default=True,
        description='Put triples into knowledge units. Off: only source texts ("-KG").',
        json_schema_extra={"paper": "table 3"},
    )
    entities: int = Field(
        default=3,
        ge=1,
        le=100,
        description="Number of entities to retrieve for each of the LLM's detailed keywords (names, dates and"
        " terms).",
        json_schema_extra={"paper": "step 2"},
    )
    relations: int = Field(
        default=3,
        ge=1,
        le=100,
        description="Number of relations, and of the graph's themes, to retrieve for each of the LLM's"
        " general keywords.",
        json_schema_extra={"paper": "step 2"},
    )
    units: int = Field(
        default=10,
        ge=1,
        le=1000,
        description="Number of knowledge units (source texts with their triples) that each retrieval returns.",
        json_schema_extra={"paper": "step 2"},
    )
    long_answer: bool = Field(
        default=False,
        description="Answer in several paragraphs, for open questions. Off: answer with the name, number or"
        " phrase that the question asks for.",
        json_schema_extra={"paper": "algorithm 1; table 2"},
    )

    @model_validator(mode="after")
    def _not_empty(self) -> Self:
        if not self.source_text and not self.triples:
            raise ValueError("source_text and triples cannot both be off: use retrieval=off instead")
        return self


class Thinking(Units):
    """The settings of systems in which the LLM writes thoughts."""

    temperature: float = Field(
        default=0.7,
        ge=0,
        le=2,
        allow_inf_nan=False,
        description="The LLM's temperature for thoughts (in `tot`, also for their evaluation). Each thought has"
        " its own seed. At 0, thoughts from the same prompt are identical.",
    )


class Settings(Thinking):
    """The parameters from MTQA's paper. Some settings switch off parts of the method, for the paper's
    ablations."""

    inert: ClassVar[tuple[Inert, ...]] = (
        *Units.inert,
        Inert(("earlier_units",), "retrieval", (False,)),
        Inert(("weights", "weights_seed"), "communication", (False,)),
        Inert(("weights", "weights_seed", "communication"), "rows", (1,)),  # A single row has no row above it.
    )

    rows: int = Field(
        default=3,
        ge=1,
        le=20,
        description="Number of thoughts in a column of the matrix (m).",
        json_schema_extra={"paper": "algorithm 1; figure 4"},
    )
    columns: int = Field(
        default=4,
        ge=1,
        le=20,
        description="Number of columns of the matrix (n). Each column ends with a summary.",
        json_schema_extra={"paper": "algorithm 1; figure 4"},
    )
    earlier_units: bool = Field(
        default=False,
        description="Start a prompt with the knowledge units of an earlier prompt for the same question, even if"
        " they were not retrieved for this prompt. The added text is at most as long as the prompt's own units."
        " The LLM reads more, but a server with a prefix cache computes less.",
    )
    weights: Annotated[str, BeforeValidator(_as_text)] = Field(
        default="vert&hor-0.1",
        description="The share of a thought that is shown to the next thought in its column. `const-C`: C"
        " everywhere. `vert-S`, `hor-S`, `vert&hor-S`: S, growing by S with each row, column, or both. `uniform`,"
        " `gaussian`: random. C and S are numbers from 0 to 1, as in `const-0.5`. You can also give (rows - 1)"
        " lists in JSON, each with one number per column.",
        json_schema_extra={"paper": "equations 8 and 9; figure 3"},
    )
    weights_seed: int = Field(
        default=SEED,
        ge=0,
        le=2**31,
        description="The seed for the random weights `uniform` and `gaussian`.",
        json_schema_extra={"paper": "figure 3"},
    )
    communication: bool = Field(
        default=True,
        description="Let a thought see a part of the thought above it in its column. Off: all weights are 0, as"
        ' in a tree of thoughts ("-comm").',
        json_schema_extra={"paper": "step 4; table 3"},
    )

    @model_validator(mode="after")
    def _fit(self) -> Self:
        self.matrix()  # Refuse weights of the wrong shape.
        if self.weights_seed != SEED and self.weights not in DRAWN:
            raise ValueError(f"weights_seed has no effect with weights={self.weights}: use {' or '.join(DRAWN)}")
        return self

    def matrix(self) -> Weights:
        """Return the weights in equation 9: how much each node sees of the node above, from 0 (nothing) to 1
        (all)."""
        weights = self.weights if self.communication else "const-0"
        return communication_weights(weights, self.rows, self.columns, self.weights_seed)


def shares_of(settings: Mapping[str, Any]) -> list[list[float]] | None:
    """Return a matrix [row][column] with the share of each thought that the thought below sees, without the
    last row of thoughts. None if the settings are from another release of pyfast and invalid.
    """
    with contextlib.suppress(ValueError, InputError):  # from a release with other settings
        matrix: list[list[float]] = np.asarray(Settings(**settings).matrix()).tolist()
        return matrix
    return None
