"""Figures and comparisons as tables: Markdown and LaTeX for people, other kinds of files for other programs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar, Protocol

import orjson
import pyarrow as pa
from numpy import format_float_positional

from pyfast.errors import InputError
from pyfast.evaluation.compare import AnswerChange, Comparison, Difference
from pyfast.evaluation.cost import Cost
from pyfast.evaluation.evaluate import Figure, Row, Unanswered
from pyfast.evaluation.results import KINDS, own_fields, own_values, unicode_of, write_results
from pyfast.utils.extras import explained
from pyfast.utils.files import write_atomically
from pyfast.utils.jsonl import in_json
from pyfast.utils.text_forms import counted, some

Grid = tuple[Sequence[str], Sequence[Sequence[object]]]
"""A header and rows, for people"""
Records = Sequence[Mapping[str, Any]]
"""Rows by the names of their columns, for programs"""
_STYLES = {".md": "github", ".tex": "latex_booktabs"}
_NUMBER = re.compile(r"[-+<.,±\d\s\[\]]*(?: to [-+.\d]*)?")  # also with its interval, or empty
_NEGATIVE = re.compile(r"(?<![^\s\[])-(?=[\d.])")
_SPENT: dict[str, tuple[str, int | None]] = {
    "llm_calls": ("LLM calls", 1),
    "prompt_tokens": ("tokens in", 1),
    "computed_tokens": ("computed", 1),
    "completion_tokens": ("tokens out", 1),
    "seconds": ("seconds", None),
}
_TEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
)


def check_new(path: Path, overwrite: bool = False, kinds: Sequence[str] = (*KINDS, *_STYLES)) -> None:
    """Raise `InputError` if a file's name ends in none of these kinds of tables, its folder does not exist, or the
    file itself exists and `overwrite` is False."""
    if path.suffix.lower() not in kinds:
        *others, last = kinds
        ends = f"{', '.join(others)} or {last}" if others else last
        raise InputError(f"{path}: expected a name that ends in {ends}")
    if path.exists() and not overwrite:  # It may be the file of the questions.
        raise InputError(f"{path} already exists; use overwrite (--overwrite) to replace it")
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist")


def write_table(path: Path, records: Records, grids: Sequence[Grid] = (), notes: Sequence[str] = ()) -> None:
    """Write a table into a file of the kind that its name says: `grids` with `notes` below them as Markdown or
    LaTeX, `records` otherwise."""
    kind = path.suffix.lower()
    if kind in _STYLES:
        write_atomically(path, "\n".join([*(f"{grid_text(one, kind)}\n" for one in grids), *listed(notes, kind)]))
    elif kind == ".jsonl":
        write_atomically(path, b"".join(orjson.dumps(one, in_json, orjson.OPT_APPEND_NEWLINE) for one in records))
    else:
        names = dict.fromkeys(name for one in records for name in one)
        table = pa.table({name: [one.get(name) for one in records] for name in names})
        write_results(path, table.schema, table.to_batches())


def grid_text(grid: Grid, kind: str) -> str:
    """Write a table as Markdown (`.md`) or LaTeX (`.tex`)."""
    with explained():
        from tabulate import tabulate
    head, *rows = ([str(cell) for cell in row] for row in (grid[0], *grid[1]))
    numbers = [all(map(_NUMBER.fullmatch, column)) for column in zip(*rows, strict=True)]
    if kind == ".md":
        head, *rows = ([cell.replace("|", r"\|") for cell in row] for row in (head, *rows))
    else:  # A hyphen is not a minus sign. tabulate would escape "$-$".
        rows = [[_NEGATIVE.sub("\u2212", cell) for cell in row] for row in rows]
    sides = ["right" if one else "left" for one in numbers]
    text = tabulate(rows, head, tablefmt=_STYLES[kind], disable_numparse=True, colalign=sides)
    return text if kind == ".md" else text.replace("\u2212", "$-$")


def listed(notes: Sequence[str], kind: str) -> list[str]:
    """Write notes as a list in Markdown (`.md`) or LaTeX (`.tex`). Without notes, there is no list."""
    if kind == ".md":  # A reason for a failure may contain what a server sent, which must not become HTML.
        items = "".join("- {}\n".format(note.replace("<", r"\<")) for note in notes)
    else:
        items = "".join(f"\\item {note.translate(_TEX)}\n" for note in notes)
        items = f"\\begin{{itemize}}\n{items}\\end{{itemize}}\n"
    return [items] if notes else []


def unanswered_columns(counts: Iterable[Unanswered | None]) -> list[str]:
    """Return the columns of `failed` and `abstained` questions that are not 0 in every row."""
    known = [one for one in counts if one is not None]
    return [name for name in ("failed", "abstained") if any(getattr(one, name) for one in known)]


def in_columns(figures: Mapping[str, Figure]) -> dict[str, float]:
    """Return the value and the bounds of each figure, by the names of their columns."""
    return {
        f"{name}{suffix}": value
        for name, figure in figures.items()
        for suffix, value in (("", figure.value), ("_low", figure.low), ("_high", figure.high))
    }


def cost_columns(cost: Cost | None) -> dict[str, Any]:
    """Return the costs of a run, of a question and of a right answer, by the names of their columns."""
    values = {} if cost is None else asdict(cost)
    each = {f"{name}_per_right": value for name, value in values.pop("per_right", {}).items()}
    return {name: value for name, value in values.items() if name != "run"} | each


def spent_on(costs: Iterable[Cost | None]) -> dict[str, tuple[str, int | None]]:
    """Return the costs that tables for people show: the column's heading and the digits, by the name in `Cost`.
    Empty without any cost."""
    known = [cost for cost in costs if cost is not None]
    currency = next((cost.currency for cost in known if cost.currency), None)
    return (_SPENT if known else {}) | ({"money": (currency, 6)} if currency else {})


def spent_cells(cost: Cost | None, spent: Mapping[str, tuple[str, int | None]]) -> list[str]:
    """Return a run's cells in the columns `spent`."""
    return [shown(getattr(cost, name, None), digits) for name, (_, digits) in spent.items()]


def with_interval(figure: Figure | None) -> str:
    """Write a figure with its 95 % interval."""
    return "" if figure is None else f"{figure.value:.3f} [{figure.low:.3f}, {figure.high:.3f}]"


class WithRows(Protocol):
    """A report of a run or of a way to retrieve: what tables show of it."""

    named: ClassVar[str]
    """What the reports of a table are of: `run` or `setting`"""

    @property
    def rows(self) -> list[Row]: ...
    @property
    def cost(self) -> Cost | None: ...
    @property
    def unanswered(self) -> Unanswered | None: ...


def tables_of(
    results: Mapping[str, WithRows] | Comparison | Sequence[AnswerChange], differences: Sequence[Difference] = ()
) -> tuple[Records, list[Grid], list[str]]:
    """Make the tables of reports, by the names of their runs, of a comparison, or of changed answers, and the
    notes below them. `differences` are those between the reports."""
    if isinstance(results, Sequence):
        changes = change_table(results)
        rows = changes.to_pylist()
        return rows, [(changes.column_names, [list(row.values()) for row in rows])], []
    if isinstance(results, Comparison):
        flips = {
            (one.a, one.b, one.figure): {"gained": list(one.gained), "lost": list(one.lost)}
            for one in results.flips
        }
        records = [asdict(one) | flips.get((one.a, one.b, one.figure), {}) for one in results.differences]
        records += _cost_records(results)
        names = [cost.run for cost in results.costs]
        notes = failure_notes(dict(zip(names, results.unanswered, strict=True)))
        return records, [cost_grid(results), difference_grid(results.differences, names)], notes
    named = next(iter(results.values())).named
    rows = [(run, row) for run, report in results.items() for row in report.rows]
    names = list(dict.fromkeys(name for _, row in rows for name in row.figures))
    records = [
        {named: run, "by": row.by, "group": row.value, "questions": row.questions}
        | (counts_of(row.unanswered) if results[run].unanswered else {})
        | in_columns(row.figures)
        | cost_columns(results[run].cost if row.by == "all" else None)
        for run, row in rows
    ]
    cells = ([with_interval(row.figures.get(name)) for name in names] for _, row in rows)
    lines = [(row, [run, str(row.questions), *line]) for (run, row), line in zip(rows, cells, strict=True)]
    head = [named, "questions", *(name.replace("_", " ") for name in names)]
    spent = spent_on(report.cost for report in results.values())
    unanswered = {run: report.unanswered for run, report in results.items()}
    also = unanswered_columns(unanswered.values())
    wholes = [
        [*line, *(getattr(unanswered[line[0]], name) for name in also), *spent_cells(results[line[0]].cost, spent)]
        for row, line in lines
        if row.by == "all"
    ]
    whole_head = [*head, *also, *(title for title, _ in spent.values())]
    if differences:  # The table of differences names each report by its place in this table.
        whole_head, wholes = ["", *whole_head], [[number, *line] for number, line in enumerate(wholes, start=1)]
    grids: list[Grid] = [(whole_head, wholes)]
    groups = [
        [row.by, row.value, *line, *(getattr(row.unanswered, name) for name in also)]
        for row, line in lines
        if row.by != "all"
    ]
    if groups:
        grids.append((["by", "", *head, *also], groups))
    if differences:
        grids.append(difference_grid(differences, list(results), f"{named}s"))
    records += [asdict(one) for one in differences]
    return without_empty(records), grids, failure_notes(unanswered)


def counts_of(unanswered: Unanswered | None) -> dict[str, int]:
    """Return how many questions failed and abstained, by the names of the columns."""
    return {} if unanswered is None else {"failed": unanswered.failed, "abstained": unanswered.abstained}


def failure_notes(unanswered: Mapping[str, Unanswered | None]) -> list[str]:
    """Make a note for each run, or row of a table, of which questions failed. Runs whose first questions failed
    for the same reason share a note, which counts all their questions. `unanswered` has the names."""
    notes: dict[str, tuple[list[str], Unanswered]] = {}
    for name, one in unanswered.items():
        if one is not None and one.failed:
            names, so_far = notes.setdefault(one.because, ([], Unanswered(0, 0, 0, one.reason)))
            notes[one.because] = [*names, name], so_far + one
    return [f"{some(names, 1)}: {together.note}" for names, together in notes.values()]


_NOTES = (
    ("not_run", "gold question was not run and is", "gold questions were not run and are", "not scored"),
    ("whole_tables", "question is", "questions are", "scored with any row, because no gold row has the answer"),
    ("not_indexed", "gold document is", "gold documents are", "not in the index and counted as not found"),
    ("without_gold", "question has no gold and is", "questions have no gold and are", "not scored"),
)


def notes_of(result: object, written: Callable[[str], str] = str, where: str = "") -> list[str]:
    """Say what was not scored, or was scored differently: a line for each reason, with the first ids.

    Args:
        result: A report or comparison. Its fields name the reasons, and have the ids.
        written: Writes an id, for example without control characters.
        where: Where all ids are. It follows a list that is cut.
    """
    return [
        f"{counted(len(ids), one, several)} {end}: {some([*map(written, ids)], where=where)}"
        for name, one, several, end in _NOTES
        if (ids := getattr(result, name, ()))
    ]


def without_empty(records: Records) -> Records:
    """Leave out the columns that are empty in every row, such as the cached tokens if nothing was cached."""
    kept = dict.fromkeys(name for one in records for name, value in one.items() if value is not None)
    return [{name: one.get(name) for name in kept} for one in records]


class AnswerChanges(list[AnswerChange]):
    """The result of `pyfast.changed_answers`: a list."""

    def to_arrow(self) -> pa.Table:
        """Return the changes as an Arrow table with one row per question, as `pyfast.write_figures` writes it."""
        return change_table(self)

    def to_pandas(self) -> Any:
        """Return the same table as `to_arrow`, as a pandas data frame.

        Raises:
            MissingPackageError: pandas is not installed.
        """
        with explained():
            return self.to_arrow().to_pandas()


def change_table(changes: Sequence[AnswerChange]) -> pa.Table:
    """Make a table with a row for each change, and the asker's own columns after the question."""
    own = own_fields([one.own for one in changes], _CHANGE)
    fields = [pa.field(name, kind) for name, kind in _CHANGE.items()]
    schema = pa.schema([*fields[:2], *own, *fields[2:]])
    return pa.Table.from_pylist([own_values(one.own, own) | _change_record(one) for one in changes], schema)


_TEXTS = pa.list_(pa.string())
_SIDE = {"state": pa.string(), "answer": pa.string(), "only": _TEXTS, "only_text": _TEXTS}
_CHANGE = dict.fromkeys(("id", "question", "differs"), pa.string()) | {
    f"{name}_{side}": kind for side in ("before", "after") for name, kind in _SIDE.items()
}


def _change_record(change: AnswerChange) -> dict[str, Any]:
    record: dict[str, Any] = {"id": change.id, "question": change.question, "differs": ", ".join(change.differs)}
    sides = zip(("before", "after"), (change.before, change.after), change.evidence, strict=True)
    for side, of_side, only in sides:
        record |= {f"state_{side}": of_side.state, f"answer_{side}": of_side.answer}
        record |= {f"only_{side}": [one.uri for one in only], f"only_text_{side}": [one.line for one in only]}
    return {name: unicode_of(value) for name, value in record.items()}


def _cost_records(comparison: Comparison) -> list[dict[str, Any]]:
    """Make a row for each cost of each pair of runs, and for the questions that failed and abstained. It has the
    columns of a `Difference`, without an interval."""
    spent = {name: title if name == "money" else name for name, (title, _) in spent_on(comparison.costs).items()}
    known = [
        {title: getattr(cost, name) for name, title in spent.items()} | counts_of(unanswered)
        for cost, unanswered in zip(comparison.costs, comparison.unanswered, strict=True)
    ]
    return [
        {"a": a.run, "b": b.run, "figure": name, "of_a": of_a, "of_b": of_b}
        | {"difference": of_b - of_a, "questions": comparison.questions}
        for (a, first), (b, second) in combinations(zip(comparison.costs, known, strict=True), 2)
        for name in first
        if (of_a := first[name]) is not None and (of_b := second[name]) is not None
    ]


def difference_grid(differences: Sequence[Difference], names: Sequence[str], named: str = "runs") -> Grid:
    """Make a table of the differences between runs. Each run is named by its place in `names`."""
    numbers = {name: number for number, name in enumerate(names, start=1)}
    rows = [[f"{numbers[one.a]}, {numbers[one.b]}", *difference_cells(one)] for one in differences]
    return [named, *DIFFERENCE], rows


DIFFERENCE = ("figure", "first", "second", "change", "95 %", "p", "p (Holm)")


def shown_p(p: float) -> str:
    """Return a p-value as text. The smallest p-value of a permutation test is only an upper bound of p."""
    return "<0.001" if p < 0.001 else f"{p:.4f}"


def difference_cells(one: Difference) -> list[str]:
    """Return a difference's cells in the columns `DIFFERENCE`."""
    return [
        *(one.figure.replace("_", " "), f"{one.of_a:.3f}", f"{one.of_b:.3f}", f"{one.difference:+.3f}"),
        *(f"{one.low:+.3f} to {one.high:+.3f}", shown_p(one.p), shown_p(one.p_holm)),
    ]


def cost_grid(comparison: Comparison) -> Grid:
    """Make a table of the runs' costs, per question and per right answer. `computed` counts the input tokens that
    did not come from the prefix cache."""
    spent, also = spent_on(comparison.costs), unanswered_columns(comparison.unanswered)
    rows = list[list[object]]()
    for number, (cost, one) in enumerate(zip(comparison.costs, comparison.unanswered, strict=True), start=1):
        counts = [getattr(one, name) for name in also]
        rows.append([number, cost.run, *counts, shown(cost.right, 3), *spent_cells(cost, spent)])
        if cost.right:
            each = (shown(cost.per_right[name], digits and max(digits, 2)) for name, (_, digits) in spent.items())
            rows.append(["", "per right", *("" for _ in also), "", *each])
    return ["", "run", *also, "right", *(title for title, _ in spent.values())], rows


def shown(value: float | None, digits: int | None = None) -> str:
    """Write a number with this many decimals. None: with three significant digits or, from 100 on, as an integer.
    A missing number becomes an empty string."""
    if value is None:
        return ""
    if digits is not None:
        return f"{value:.{digits}f}"
    # Not by `.3g`: for a small number, it writes 2.25e-05.
    return f"{value:,.0f}" if value >= 100 else format_float_positional(value, 3, fractional=False, trim="-")
