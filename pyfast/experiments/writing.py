"""Write the cells of an experiment as tables and as a plot."""

from __future__ import annotations

import csv
import io
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from pyfast.experiments.differences import Searched, differences
from pyfast.experiments.plan import Plan
from pyfast.files import write_atomically, written_aside

if TYPE_CHECKING:
    from pyfast.experiments.cells import Cell

_LOG = logging.getLogger("pyfast")


def write_tables(plan: Plan, cells: Sequence[Cell], folder: Path, sets: Mapping[str, Searched]) -> None:
    """Write tables.md, tables.tex, tables.csv, cells.parquet and, if matplotlib is installed, pareto.png into
    `folder`. Under each table stand the differences from the paper, and what the questions of each set search
    (`sets`)."""
    from tabulate import tabulate

    for name, style in (("tables.md", "github"), ("tables.tex", "latex_booktabs")):
        texts = [f"# {plan.title}\n"] if plan.title and name.endswith("md") else []
        for model in plan.models:
            head, rows = table_of(plan, cells, model)
            lines = differences(plan, cells, model, sets)
            comment = "%% " if name.endswith("tex") else ""
            shown = tabulate(rows, head, tablefmt=style, disable_numparse=True)
            texts += [f"{comment}Model: {model}.\n", f"{shown}\n", _listed(lines, name.endswith("tex"))]
        write_atomically(folder / name, "\n".join(texts))
    records = [_record(cell) for cell in cells]
    text = io.StringIO(newline="")
    table = csv.DictWriter(text, list(dict.fromkeys(key for record in records for key in record)))
    table.writeheader()
    table.writerows(records)
    write_atomically(folder / "tables.csv", text.getvalue())
    with written_aside(folder / "cells.parquet") as aside:
        pq.write_table(pa.Table.from_pylist(records), aside)
    _plot(plan, cells, folder / "pareto.png")


def _listed(lines: Sequence[str], tex: bool) -> str:
    if not tex:
        return "".join(f"- {line}\n" for line in lines)
    items = "".join(f"\\item {_TEX.sub(lambda found: _ESCAPED[found[0]], line)}\n" for line in lines)
    return f"\\begin{{itemize}}\n{items}\\end{{itemize}}\n" if lines else ""


_ESCAPED = {character: f"\\{character}" for character in "&%$#_{}"}
_ESCAPED |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_TEX = re.compile(r"[&%$#_{}\\~^]")


def table_of(plan: Plan, cells: Sequence[Cell], model: str) -> tuple[list[str], list[list[str]]]:
    """Make the table of one model, as a header and rows. A published figure has its own column, after the column
    of the measured figure."""
    head = ["row"]
    published = {(name, column) for row in plan.rows for name, figures in row.paper.items() for column in figures}
    for name in plan.sets:
        for column in plan.columns:
            head += [f"{name} {column}", *(["paper"] if (name, column) in published else [])]
    head += ["LLM calls", "tokens", "seconds"]
    currency = next((cell.cost.currency for cell in cells if cell.cost.currency), None)
    head += [currency] if currency else []
    by_place = {(cell.set, cell.row): cell for cell in cells if cell.model == model}
    rows = []
    for row in plan.rows:
        line = [row.name]
        of_row = [by_place[name, row.name] for name in plan.sets if (name, row.name) in by_place]
        for name in plan.sets:
            cell = by_place.get((name, row.name))
            for column in plan.columns:
                figure = None if cell is None else cell.figures.get(column)
                shown = "" if figure is None else f"{figure.value:.3f} [{figure.low:.3f}, {figure.high:.3f}]"
                paper = row.paper.get(name, {}).get(column)
                line.append(row.not_run or shown)
                if (name, column) in published:
                    line.append("" if paper is None else f"{paper:.3f}")
        costs = [cell.cost for cell in of_row]
        line.append(_mean([cost.llm_calls for cost in costs]))
        line.append(_mean([cost.prompt_tokens + cost.completion_tokens for cost in costs]))
        line.append(_mean([cost.seconds for cost in costs if cost.seconds is not None]))
        if currency:
            line.append(_mean([cost.money for cost in costs if cost.money is not None], 6))
        rows.append(line)
    return head, rows


def _mean(values: Sequence[float], digits: int = 1) -> str:
    return f"{sum(values) / len(values):.{digits}f}" if values else ""


def _record(cell: Cell) -> dict[str, Any]:
    """Convert a cell to one flat record."""
    figures = {
        f"{name}{suffix}": value
        for name, figure in cell.figures.items()
        for suffix, value in (("", figure.value), ("_low", figure.low), ("_high", figure.high))
    }
    cost = {name: value for name, value in asdict(cell.cost).items() if name not in ("run", "per_right")}
    each = {f"{name}_per_right": value for name, value in cell.cost.per_right.items()}
    paper = {f"{name}_paper": value for name, value in cell.paper.items()}
    place = {"set": cell.set, "row": cell.row, "model": cell.model, "runs": " ".join(map(str, cell.runs))}
    return {**place, "questions": len(cell.scored), **figures, **paper, **cost, **each}


def _plot(plan: Plan, cells: Sequence[Cell], path: Path) -> None:
    try:
        from pyfast.experiments.plots import plot_pareto
    except ModuleNotFoundError:
        _LOG.warning("no plot: matplotlib is not installed (pip install 'pyfast-qa[experiments]')")
        return
    points = [
        (f"{cell.row} ({cell.set})", _price(cell), cell.figures[plan.columns[0]].value)
        for cell in cells
        if plan.columns[0] in cell.figures
    ]
    currency = next((cell.cost.currency for cell in cells if cell.cost.currency), None)
    plot_pareto(points, f"{currency or 'tokens'} a question", plan.columns[0], path)


def _price(cell: Cell) -> float:
    if cell.cost.money is not None:
        return cell.cost.money
    return cell.cost.prompt_tokens + cell.cost.completion_tokens
