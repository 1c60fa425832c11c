"""What `pyfast report` takes for a large run: time, processor time, memory of all its processes, bytes.

    python benchmarks/reports.py FOLDER --questions 100000 --processes 2

FOLDER keeps the run, so that a second call only writes the report again. In the run, `n2n` answers distinct
questions with an LLM that answers at once. Each is a question of HybridQA behind the title of a document, so that
it has passages of its own. Memory counts a page that several processes map only once.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from contextlib import suppress
from itertools import islice, product
from pathlib import Path
from typing import Annotated, Any

import typer

import pyfast
from pyfast.corpus import read

DATA = Path(os.environ.get("PYFAST_DATA", Path(__file__).resolve().parents[2] / "shared" / "data")) / "hybridqa"


def answered(folder: Path, questions: int) -> Path:
    """Answer the questions, if FOLDER does not have their run yet."""
    index = folder / "index"
    if not index.exists():
        pyfast.build_index(read([DATA / "corpus.jsonl"]), index)
    asked = folder / f"{questions}.jsonl"
    if not asked.exists():
        lines = map(json.loads, (DATA / "questions.jsonl").open(encoding="utf-8"))
        titles = [json.loads(line)["title"] for line in (DATA / "corpus.jsonl").open(encoding="utf-8")]
        with asked.open("w", encoding="utf-8") as file:
            for number, (title, line) in enumerate(islice(product(titles, list(lines)), questions)):
                fields: dict[str, Any] = {name: line[name] for name in ("answers", "type", "supporting")}
                one = {"id": f"{number}-{line['id']}", "question": f"{title}: {line['question']}", **fields}
                file.write(json.dumps(one) + "\n")
    run = folder / f"run-{questions}"
    if not run.exists() or pyfast.Run(run).status.ended < questions:  # Changed code cannot resume a run.
        pyfast.answer(asked, index=index, llm="instant", system="n2n", run=run)
    return run


def memory(group: int) -> int:
    """kB of a process and of those that it started. Each counts only its share of a page that several map."""
    total = 0
    with suppress(OSError):  # A process may have ended.
        others = Path(f"/proc/{group}/task/{group}/children").read_text(encoding="ascii").split()
        for pid in [str(group), *others]:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total


def main(folder: Path, questions: int = 10_000, processes: Annotated[int, typer.Option()] = 2) -> None:
    """Measure."""
    folder.mkdir(parents=True, exist_ok=True)
    run, out = answered(folder, questions), folder / "report"
    command = [sys.executable, "-m", "pyfast", "report", str(run), "--out", str(out)]
    began, peak = time.perf_counter(), 0
    with subprocess.Popen([*command, "--processes", str(processes)]) as process:
        while process.poll() is None:
            peak = max(peak, memory(process.pid))
            time.sleep(0.5)
    wall, used = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    processor = used.ru_utime + used.ru_stime
    print(f"{questions:,} questions, {processes} processes: {wall:.1f} s, processor {processor:.1f} s,")
    print(f"{peak / 1e3:,.0f} MB of memory, {size / 1e6:,.0f} MB written")


if __name__ == "__main__":
    typer.run(main)
