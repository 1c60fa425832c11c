"""The plan of an experiment: its data sets, systems with settings, language models, and seeds."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

import pyfast.utils.plugins as plugins
from pyfast.errors import InputError, did_you_mean, first_fault
from pyfast.evaluation.metrics import FIGURES, open_metric

READY = files("pyfast.api.experiments") / "tables"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Row(_Strict):
    """A row of the table: a system with settings."""

    name: str = Field(min_length=1)
    system: str = ""
    """The name of the system. Only a row that is not run can lack it"""
    settings: Mapping[str, Any] = {}
    retriever: str = "bm25"
    rerank: str = "off"
    follow_ups: str = "off"
    paper: Mapping[str, Mapping[str, float]] = {}
    """Published figures of the row, by data set and then by column"""
    not_run: str = ""
    """Why the row is not run and shows only published figures. Empty: the row is run"""

    @model_validator(mode="after")
    def _has_system(self) -> Row:
        if not (self.system or self.not_run):
            raise ValueError(f"the row {self.name!r} needs either `system`, or `not_run` with the reason")
        return self


class Model(_Strict):
    """A language model, or several models for the roles of a system."""

    llm: str | Mapping[str, str]
    """A string that names the model, or a mapping from roles to such strings"""
    options: Mapping[str, Any] = {}
    """Options of the models, as `llm_options` of `pyfast.answer`"""


class Plan(_Strict):
    """The plan of an experiment. Each row is run with each model and seed on each data set."""

    title: str = ""
    sets: tuple[str, ...] = Field(min_length=1)
    """The names of the data sets. Each is a folder with corpus.jsonl, questions.jsonl or conversations.jsonl, and
    optionally gold.jsonl"""
    columns: tuple[str, ...] = ("em", "f1")
    """The figures that the table shows for each data set"""
    metrics: tuple[str, ...] | None = None
    """The metrics to compute, as in `pyfast.evaluate`"""
    rows: tuple[Row, ...] = Field(min_length=1)
    models: Mapping[str, Model] = {"embedded": Model(llm="embedded")}
    paper_model: str = ""
    """The model that produced the published figures"""
    paper_questions: Mapping[str, int] = {}
    """The number of questions behind the published figures, by data set"""
    paper_differences: tuple[str, ...] = ()
    """Other known differences between the rows and the paper, each a sentence. They appear under each table"""
    knowledge: Literal["rules", "llm"] = "rules"
    """What extracts the knowledge graph of a set, for systems that use one: rules, or the model of the table"""
    summaries: bool = False
    """Whether the model of the table writes the summaries of a set, for systems that read them"""
    vectors: tuple[str, ...] = ()
    """The models that encode the passages of a set, for retrievers other than BM25, as in `pyfast.build_index`"""
    documents: Literal["own", "all"] = "own"
    """What a question with the field `documents` searches: these documents, or the whole corpus"""
    seeds: tuple[int, ...] = (0,)
    temperature: float = Field(0.0, ge=0, allow_inf_nan=False)
    limit: int | None = Field(None, ge=1)
    sample: int | None = Field(None, ge=1)
    latency: int = Field(0, ge=0)
    """The number of questions that one client asks, one by one, to measure the latency of each cell. 0: none"""

    @field_validator("columns", "seeds")
    @classmethod
    def _named_once(cls, values: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(set(values)) < len(values):
            raise ValueError(f"{next(one for one in values if values.count(one) > 1)!r} is named twice")
        return values

    @model_validator(mode="after")
    def _has_distinct_folders(self) -> Self:
        _check_folders("rows", (row.name for row in self.rows))
        _check_folders("models", self.models)
        _check_folders("sets", self.sets)
        return self


def folder_name(name: str) -> str:
    """Return the name of the folder for a row, a model or a set of an experiment."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "row"


def is_published(plan: Plan, column: str) -> bool:
    """Return whether a row of the plan has a published figure for this column."""
    return any(column in figures for row in plan.rows for figures in row.paper.values())


def unused_figures(plan: Plan) -> list[str]:
    """Return a note on each published figure that the tables do not show, because its set or column is not in the
    plan."""
    published = [(name, column) for row in plan.rows for name, figures in row.paper.items() for column in figures]
    sets, columns = (dict.fromkeys(some) for some in zip(*published, strict=True)) if published else ((), ())
    counts = [
        f"paper_questions: the plan has no set {name!r}{did_you_mean(name, plan.sets)}"
        for name in plan.paper_questions
        if name not in plan.sets
    ]
    return counts + [
        f"published figures of {name!r} are not shown: the plan has no such {what}{did_you_mean(name, known)}"
        for what, used, known in (("set", sets, plan.sets), ("column", columns, plan.columns))
        for name in used
        if name not in known
    ]


def check_figures(plan: Plan) -> None:
    """Import the metrics of a plan, and check its columns before anything is run. Raises `InputError` if a metric
    cannot be imported, or if no metric has the figure of a column. The figures of metrics outside of pyfast are
    only known after the runs."""
    for name in plan.metrics or ():
        open_metric(name)
    metrics = plugins.names("metrics") if plan.metrics is None else plan.metrics
    known = list(dict.fromkeys(figure for name in metrics for figure in FIGURES.get(name, ())))
    # A figure of two metrics has the name METRIC.FIGURE for the second.
    also = {f"{name}.{figure}" for name in metrics for figure in FIGURES.get(name, ())}
    unknown = [one for one in plan.columns if one not in (*known, *also) and not is_published(plan, one)]
    if unknown and all(name in FIGURES for name in metrics):
        raise InputError(
            f"`columns` of the plan: unknown figure {unknown[0]!r}{did_you_mean(unknown[0], known)}; known:"
            f" {', '.join(known)}"
        )


def _check_folders(what: str, names: Iterable[str]) -> None:
    """Raise `ValueError` if two names are equal, or their runs would have the same folder."""
    taken: dict[str, str] = {}
    for name in names:
        folder = folder_name(name)
        if (other := taken.get(folder)) == name:
            raise ValueError(f"two {what} are called {name!r}")
        if other is not None:
            raise ValueError(f"the {what} {other!r} and {name!r} would share the folder {folder!r}; rename one")
        taken[folder] = name


def ready_plans() -> dict[str, str]:
    """Return the title of each plan that comes with pyfast, by the name of the plan."""
    return {name: read_plan(name).title for name in _names()}


def _names() -> list[str]:
    return sorted(path.name.removesuffix(".toml") for path in READY.iterdir() if path.name.endswith(".toml"))


def read_plan(given: str | Path | Mapping[str, Any] | Plan) -> Plan:
    """Read a plan from a TOML file, by the name of a plan that comes with pyfast, or from a mapping with the
    content of a plan.

    Raises:
        InputError: There is no such file or plan, or the plan has an error. The message is one line that names
            the error.
    """
    if isinstance(given, Plan):
        return given
    content: Any = given
    names = _names()
    try:
        if isinstance(given, str | Path):
            path = Path(given)
            ready = READY / f"{given}.toml"
            text = path.read_text(encoding="utf-8") if path.is_file() or not ready.is_file() else ready.read_text()
            content = tomllib.loads(text)
        return Plan.model_validate(content)
    except FileNotFoundError:
        near = did_you_mean(str(given), names)
        known = f"pyfast's plans: {', '.join(names)}"
        raise InputError(f"{given}: there is no such file or plan{near}; {known}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{given}: {error}") from None
    except ValidationError as error:
        where = str(given) if isinstance(given, str | Path) else "the experiment"
        place, fault = first_fault(error)
        first, _, rest = place.rpartition(".")
        kinds: dict[str, type[_Strict]] = {"": Plan, "rows": Row, "models": Model}
        of = kinds.get(first.partition(".")[0])
        if error.errors()[0]["type"] == "extra_forbidden" and of is not None:
            keys = list(of.model_fields)
            fault = f"unknown key{did_you_mean(rest, keys)}; known: {', '.join(keys)}"
        raise InputError(": ".join(filter(None, (where, place, fault)))) from None
