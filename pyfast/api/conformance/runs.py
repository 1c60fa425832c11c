"""Carry out runs of the checked system, in this process or in one that a check kills."""

from __future__ import annotations

import json
import logging
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyfast.api.answer import answer
from pyfast.api.conformance.material import CheckLLM, questions_about
from pyfast.engine import Question
from pyfast.engine.run_folder import ANSWERS
from pyfast.engine.traces import records_of
from pyfast.errors import InputError
from pyfast.retrieval import Index
from pyfast.systems.registry import load_system, names
from pyfast.systems.system import System
from pyfast.utils.log import LOG
from pyfast.utils.processes import end_with_parent

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
    concurrency: int,
    budget: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Answer questions in a run's folder, or resume the run. Returns the records of the run, with their traces.

    Raises the errors of `pyfast.answer`. A run that hangs is ended after `PATIENCE_S` seconds.
    """
    before = LOG.level
    LOG.setLevel(logging.ERROR)  # A check reports itself: the warnings of its runs would repeat with each run.
    try:
        answer(
            questions,
            index=subject.index,
            llm=llm,
            system=subject.system,
            settings=subject.settings,
            run=folder,
            concurrency=concurrency,
            budget={"run_seconds": PATIENCE_S, **budget},
        )
    finally:
        LOG.setLevel(before)
    return recorded(folder)


def recorded(run: Path) -> list[dict[str, Any]]:
    """Read each record of a run, with its trace."""
    return [record for _, record in records_of(run / ANSWERS)]


def main() -> None:
    """Start or resume a run in a process that a check kills. The first argument of the process is a JSON object
    with the system's name, the settings, the folder for temporary files, the paths of index, run and log, the
    LLM's delay, and the concurrency."""
    end_with_parent()
    order = json.loads(sys.argv[1])
    tempfile.tempdir = order["place"]  # A killed process leaves its temporary files.
    index = None if order["index"] is None else Index(Path(order["index"]))
    subject = Subject(load_system(order["system"]), order["settings"], index)
    llm = CheckLLM(delay_s=order["delay_s"], log=Path(order["log"]))
    answered(subject, questions_about(index), llm, Path(order["run"]), order["concurrency"], {})


def name_of(system: System) -> str:
    """Return a name by which another process can load the system, such as `MODULE:NAME`. Raises `InputError`
    if there is none."""
    if system.name in names() and load_system(system.name) is system:
        return system.name
    for module, loaded in list(sys.modules.items()):
        if module != "__main__":
            for name, value in list(vars(loaded).items()) if hasattr(loaded, "__dict__") else ():
                if value is system:
                    return f"{module}:{name}"
    raise InputError(
        f"{system.name}: other processes cannot import this system; define it in a module, as SYSTEM = System(...)"
    )
