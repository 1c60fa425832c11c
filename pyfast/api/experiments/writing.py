"""The cells of an experiment, as tables with the known differences from the paper, and as a plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from pyfast.api.experiments.plan import Plan
from pyfast.api.experiments.plots import plot_pareto
from pyfast.engine import read_questions
from pyfast.evaluation import Figure, Scored
from pyfast.evaluation.cost import Cost
from pyfast.evaluation.evaluate import Unanswered
from pyfast.evaluation.tables import (
    cost_columns,
    counts_of,
    failure_notes,
    grid_text,
    in_columns,
    listed,
    shown,
    unanswered_columns,
    with_interval,
    without_empty,
    write_table,
)
from pyfast.retrieval import Index
from pyfast.systems import System, load_system
from pyfast.systems.combinations import as_text
from pyfast.utils.files import write_atomically

_SPOKEN = {"em": "EM", "f1": "F1"}
COMPARISONS = ("comparisons.csv", "comparisons.md", "comparisons.tex")


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of an experiment's table: one row (a system) on one data set with one model. It has a run for
    each seed."""

    set: str
    row: str
    model: str
    runs: tuple[Path, ...]
    """One run for each seed"""
    figures: Mapping[str, Figure]
    """The figures by name. Each is a mean over questions and seeds, with a 95 % interval over the questions"""
    paper: Mapping[str, float]
    """The published figures of this row on this set, by the name of the column"""
    cost: Cost
    """The mean cost of a question, over all seeds"""
    scored: Sequence[Scored]
    """The scores of each question. If there are several seeds, each score is the sum over the seeds"""
    unanswered: Unanswered
    """How many questions failed or abstained. If there are several seeds, a question counts once for each seed"""
    notes: Sequence[str] = ()
    """Which questions were not scored, or were scored differently, and why"""
    throughput: float | None = None
    """Questions per second, the mean over all seeds. None: not known"""
    latency: Mapping[str, float] = field(default_factory=dict)
    """The latency with one client in seconds, as `p50`, `p95` and `p99`. Empty: not measured"""
    spread: Mapping[str, float] = field(default_factory=dict)
    """The standard deviation of each figure over the seeds. Empty: there is only one seed"""


@dataclass(frozen=True, slots=True)
class Searched:
    """What the questions of a data set search with one model."""

    questions: int
    """The number of questions in the data set"""
    documents: int
    """The number of documents in the corpus"""
    own: float | None
    """The mean number of documents to which a question is limited. None: no question is limited"""
    retriever: str
    summaries: str
    """Which summaries the systems read that read some. Empty: there is no such system"""
    knowledge: str
    """What extracted the knowledge graph, and the calls and tokens. Empty: no system uses one"""


def searched(questions: Path, index: Index, summaries: str, knowledge: str) -> Searched:
    """Count the questions of a data set, their own documents, and the documents of its corpus."""
    limits = [len(question.documents) for question in read_questions(questions)]
    limited = [number for number in limits if number]
    own = sum(limited) / len(limited) if limited else None
    return Searched(len(limits), int(index.manifest["documents"]), own, index.opened_with[0], summaries, knowledge)


def write_tables(
    plan: Plan, cells: Sequence[Cell], folder: Path, sets: Mapping[tuple[str, str], Searched]
) -> None:
    """Write tables.md, tables.tex, tables.csv, cells.parquet and, if matplotlib is installed, pareto.png and
    pareto.pdf into `folder`. The first table is followed by the `failures`, and each other one by the differences
    from the paper, and by what the questions of each set and model search (`sets`)."""
    for name in COMPARISONS:
        (folder / name).unlink(missing_ok=True)  # It belongs to earlier tables.
    for kind in (".md", ".tex"):
        texts = [f"# {plan.title}\n"] if plan.title and kind == ".md" else []
        texts += [f"{grid_text(summary_of(plan, cells), kind)}\n", *listed(failures(cells), kind)]
        for model in plan.models:
            of_model = {name: of_set for (name, used), of_set in sets.items() if used == model}
            lines = _differences(plan, cells, model, of_model)
            comment = "%% " if kind == ".tex" else ""
            table = grid_text(_table(plan, cells, model), kind)
            texts += [f"{comment}Model: {model}.\n", f"{table}\n", *listed(lines, kind)]
        write_atomically(folder / f"tables{kind}", "\n".join(texts))
    records = [_record(cell) for cell in cells]
    for name in ("tables.csv", "cells.parquet"):
        write_table(folder / name, without_empty(records))
    quality = plan.columns[0]
    panels: dict[str, list[tuple[str, float, float]]] = {}
    for cell in cells:
        if quality in cell.figures:
            name = cell.row if len(plan.models) == 1 else f"{cell.row} ({cell.model})"
            panels.setdefault(cell.set, []).append((name, _price(cell.cost), cell.figures[quality].value))
    plot_pareto(
        panels,
        f"{_currency(cells) or 'tokens'} per question",
        _SPOKEN.get(quality, _spaced(quality)),
        folder / "pareto.png",
    )


def summary_of(plan: Plan, cells: Sequence[Cell]) -> tuple[list[str], list[list[str]]]:
    """Return the main figures of each cell as a table: a header and rows."""
    measured = list(dict.fromkeys(name for cell in cells for name in cell.latency))
    currency = _currency(cells)
    also = unanswered_columns(cell.unanswered for cell in cells)
    head = ["row", "set", "model", *also, *map(_spaced, plan.columns)]
    head += ["LLM calls", "tokens", "seconds", "questions/s"]
    rows = []
    for cell in cells:
        cost, figures = cell.cost, [cell.figures.get(name) for name in plan.columns]
        spent = cost.llm_calls, cost.prompt_tokens + cost.completion_tokens
        rows.append(
            [
                *(cell.row, cell.set, cell.model, *(str(getattr(cell.unanswered, name)) for name in also)),
                *("" if one is None else f"{one.value:.3f}" for one in figures),
                *(shown(value, 1) for value in spent),
                *(shown(cost.seconds), shown(cell.throughput)),
                *(shown(cell.latency.get(name), 3) for name in measured),
                *([shown(cost.money, 6)] if currency else []),
            ]
        )
    return [*head, *(f"{name} s, 1 client" for name in measured), *([currency] if currency else [])], rows


def failures(cells: Sequence[Cell]) -> list[str]:
    """Return notes on the cells with failed questions (one for each reason of a first failure), and on questions
    that were not scored or were scored differently."""
    notes = dict.fromkeys(f"{cell.set}: {note}" for cell in cells for note in cell.notes)
    return [*failure_notes({name_of(cell): cell.unanswered for cell in cells}), *notes]


def name_of(cell: Cell) -> str:
    """Return the name of a cell in notes and comparisons."""
    return f"{cell.row}, {cell.set}, {cell.model}"


def _spaced(column: str) -> str:
    return column.replace("_", " ")


def _price(cost: Cost) -> float:
    return cost.prompt_tokens + cost.completion_tokens if cost.money is None else cost.money


def _differences(plan: Plan, cells: Sequence[Cell], model: str, sets: Mapping[str, Searched]) -> list[str]:
    """Return a line for each known difference between the table of one model and the paper, and for what the
    questions of each set search."""
    published = any(row.paper for row in plan.rows)
    lines = []
    for row in plan.rows:
        if row.settings and not row.not_run:
            settings = ", ".join(f"{name} = {as_text(value)}" for name, value in row.settings.items())
            lines.append(f"{row.name}: the system {row.system} with {settings}.")
        if (row.retriever, row.rerank) != ("bm25", "off") and not row.not_run:
            lines.append(f"{row.name}: searches with the retriever {row.retriever} and the reranker {row.rerank}.")
    if published:
        other = plan.paper_model or "the paper's model"
        lines.append(f"Model: the measured figures are from {model}, the published figures (paper) from {other}.")
    for name, of_set in sets.items():
        scored = max((len(cell.scored) for cell in cells if (cell.set, cell.model) == (name, model)), default=0)
        paper = f", in the paper {plan.paper_questions[name]:,}" if name in plan.paper_questions else ""
        first = "" if plan.limit is None else f" from the first {plan.limit:,}"
        how = f", drawn at random{first}" if plan.sample is not None and scored < of_set.questions else ""
        lines.append(f"Questions of {name}: {scored:,} of the {of_set.questions:,} in the data set{how}{paper}.")
        if of_set.own is None or plan.documents == "all":
            where = f"all {of_set.documents:,} documents of the corpus"
        else:
            where = f"its own documents ({of_set.own:.1f} on average), of {of_set.documents:,} in the corpus"
        lines.append(f"Search in {name}: each question searches {where}. Retriever: {of_set.retriever}.")
        if of_set.summaries:
            lines.append(f"Summaries of {name}: {of_set.summaries}.")
        if of_set.knowledge:
            lines.append(f"Knowledge graph of {name}: extracted by {of_set.knowledge}.")
    if len(plan.seeds) > 1 or plan.temperature:
        lines.append(f"Runs: {len(plan.seeds)} for each cell, at temperature {plan.temperature:g}.")
    lines.append("In brackets: the 95 % bootstrap interval of the figure over the questions.")
    if len(plan.seeds) > 1:
        lines.append("The number after ± is the standard deviation over the seeds.")
    return [*lines, *(plan.paper_differences if published else ())]


def systems_of(plan: Plan) -> list[System]:
    """Return the system of each row that is run."""
    return [load_system(row.system) for row in plan.rows if not row.not_run]


def _table(plan: Plan, cells: Sequence[Cell], model: str) -> tuple[list[str], list[list[str]]]:
    """Return the table of one model: a header and rows. A published figure has its own column, after that of the
    measured figure."""
    published = {(name, column) for row in plan.rows for name, figures in row.paper.items() for column in figures}
    columns = [(name, column) for name in plan.sets for column in plan.columns]
    titles = [(f"{name} {_spaced(column)}", (name, column) in published) for name, column in columns]
    heads = [[title, *[f"{title}, paper"] * is_published] for title, is_published in titles]
    head = ["row", *chain.from_iterable(heads)]
    by_place = {(cell.set, cell.row): cell for cell in cells if cell.model == model}
    rows = []
    for row in plan.rows:
        line = [row.name]
        for name, column in columns:
            cell = by_place.get((name, row.name))
            figure = None if cell is None else cell.figures.get(column)
            spread = "" if cell is None or column not in cell.spread else f" ± {cell.spread[column]:.3f}"
            line.append(row.not_run or with_interval(figure) + spread)
            if (name, column) in published:
                paper = row.paper.get(name, {}).get(column)
                line.append("" if paper is None else f"{paper:.3f}")
        rows.append(line)
    return head, rows


def _currency(cells: Sequence[Cell]) -> str | None:
    return next((cell.cost.currency for cell in cells if cell.cost.currency), None)


def _record(cell: Cell) -> dict[str, Any]:
    """Convert a cell to one flat record."""
    paper = {f"{name}_paper": value for name, value in cell.paper.items()}
    speed = {"throughput": cell.throughput, **{f"{name}_seconds": value for name, value in cell.latency.items()}}
    place = {"set": cell.set, "row": cell.row, "model": cell.model, "runs": " ".join(map(str, cell.runs))}
    figures = {"questions": len(cell.scored), **counts_of(cell.unanswered), **in_columns(cell.figures)}
    figures |= {f"{name}_sd": value for name, value in cell.spread.items()}
    return {**place, **figures, **paper, **cost_columns(cell.cost), **speed}
