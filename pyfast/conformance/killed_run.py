"""Carry out a run in a separate process, which a check then kills: `python -m pyfast.conformance.killed_run
JSON`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyfast.conformance.llm import CheckLLM
from pyfast.conformance.material import questions_about
from pyfast.conformance.runs import Subject, answered
from pyfast.retrieval import Index
from pyfast.systems.registry import load_system


def main(order: dict[str, Any]) -> None:
    """Start or resume a run. `order` has the system's name, the settings, the paths of index, run and log, the
    LLM's delay, and the concurrency."""
    index = None if order["index"] is None else Index(Path(order["index"]))
    subject = Subject(load_system(order["system"]), order["settings"], index)
    llm = CheckLLM(delay_s=order["delay_s"], log=Path(order["log"]))
    answered(subject, questions_about(index), llm, Path(order["run"]), order["concurrency"])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
