"""Carry out runs of the checked system. Only the function `answered` calls the engine."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from pyfast.api.answer import answer
from pyfast.conformance.llm import CheckLLM
from pyfast.engine import Budget, Question
from pyfast.engine.run_folder import ANSWERS
from pyfast.engine.traces import records_of
from pyfast.errors import InputError
from pyfast.retrieval import Index
from pyfast.systems.registry import load_system, names
from pyfast.systems.system import System

PATIENCE_S = 600.0


@dataclass(frozen=True, slots=True)
class Subject:
    """The checked system, with its index and settings."""

    system: System
    settings: Mapping[str, Any]
    index: Index | None


def answered(
    subject: Subject,
    questions: Sequence[Question],
    llm: CheckLLM,
    folder: Path,
    concurrency: int = 16,
    budget: Budget | None = None,
) -> list[bytes]:
    """Answer questions in a run's folder, or resume the run. Returns each record of the run as a line of JSON.

    Raises the errors of `pyfast.answer`. If the budget has no limit `run_seconds`, a run that hangs is ended
    after `PATIENCE_S` seconds.
    """
    limits = {"run_seconds": PATIENCE_S, **(budget or Budget()).model_dump(exclude_none=True)}
    answer(
        questions,
        index=subject.index,
        llm=llm,
        system=subject.system,
        settings=subject.settings,
        run=folder,
        concurrency=concurrency,
        budget=limits,
    )
    return recorded(folder)


def recorded(run: Path) -> list[bytes]:
    """Read each record of a run, with its trace, as a line of JSON."""
    return [orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE) for _, record in records_of(run / ANSWERS)]


def name_of(system: System) -> str:
    """Return a name by which another process can load the system, such as `MODULE:NAME`. Raises `InputError`
    if there is none."""
    if system.name in names() and load_system(system.name) is system:
        return system.name
    for name in _bound_to(system):
        return name
    raise InputError(
        f"{system.name}: bound to no name in a module that can be imported, so that no other process could run it:"
        " put it in a module, as SYSTEM = System(...)"
    )


def _bound_to(system: System) -> Iterator[str]:
    for module, loaded in list(sys.modules.items()):
        if module != "__main__":
            for name, value in list(vars(loaded).items()) if hasattr(loaded, "__dict__") else ():
                if value is system:
                    yield f"{module}:{name}"
