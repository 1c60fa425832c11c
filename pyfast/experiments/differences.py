"""What differs between the measured figures of an experiment and the published ones, as lines under each table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyfast.engine import read_questions
from pyfast.experiments.plan import Plan
from pyfast.systems import load_system

if TYPE_CHECKING:
    from pyfast.experiments.cells import Cell
    from pyfast.retrieval import Index


@dataclass(frozen=True, slots=True)
class Searched:
    """What the questions of a data set search."""

    questions: int
    """The number of questions in the data set"""
    documents: int
    """The number of documents in the corpus"""
    own: float | None
    """The mean number of documents to which a question is limited. None: no question is limited"""
    retriever: str


def searched(questions: Path, index: Index) -> Searched:
    """Count the questions of a data set, their own documents, and the documents of its corpus."""
    limits = [len(question.documents) for question in read_questions(questions)]
    limited = [number for number in limits if number]
    own = sum(limited) / len(limited) if limited else None
    return Searched(len(limits), int(index.manifest["documents"]), own, index.opened_with[0])


def differences(plan: Plan, cells: Sequence[Cell], model: str, sets: Mapping[str, Searched]) -> list[str]:
    """Return a line for each known difference between a table and the paper, and for what the runs searched.

    Args:
        plan: The plan.
        cells: The cells of all tables.
        model: The name of the model of this table.
        sets: What the questions of each set search.
    """
    published = any(row.paper for row in plan.rows)
    lines = []
    if published:
        other = plan.paper_model or "the paper's model"
        lines.append(f"Model: the measured figures are of {model}, the published figures (paper) of {other}.")
    for name, of_set in sets.items():
        scored = max((len(cell.scored) for cell in cells if (cell.set, cell.model) == (name, model)), default=0)
        paper = f", in the paper {plan.paper_questions[name]:,}" if name in plan.paper_questions else ""
        lines.append(f"Questions of {name}: {scored:,} of the {of_set.questions:,} in the data set{paper}.")
        if of_set.own is None or plan.documents == "all":
            where = f"all {of_set.documents:,} documents of the corpus"
        else:
            where = f"its own documents ({of_set.own:.1f} on average), of {of_set.documents:,} in the corpus"
        lines.append(f"Search in {name}: each question searches {where}. Retriever: {of_set.retriever}.")
    if uses_knowledge(plan):
        by = f"the model of this table ({model})" if plan.knowledge == "llm" else "rules, without an LLM"
        lines.append(f"Knowledge graph: extracted by {by}.")
    if len(plan.seeds) > 1 or plan.temperature:
        lines.append(f"Runs: {len(plan.seeds)} for each cell, at temperature {plan.temperature:g}.")
    return [*lines, *(plan.paper_differences if published else ())]


def uses_knowledge(plan: Plan) -> bool:
    """Return whether the system of a row that is run uses a knowledge graph."""
    return any(load_system(row.system).opens is not None for row in plan.rows if not row.not_run)
