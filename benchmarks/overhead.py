"""What pyfast itself costs: questions per second with an LLM that answers at once, journal on.

    python benchmarks/overhead.py                       # HybridQA of PYFAST_DATA, 2,000 questions, n2n and rag
    python benchmarks/overhead.py --profile n2n         # where a system's time goes
    python benchmarks/overhead.py --own                 # questions that search their own documents, and all
    python benchmarks/overhead.py --export FOLDER       # the passages and questions, for peer_flashrag.py

The questions of the set are repeated under new ids; answers of 1 and of 512 at a time are compared first. With
`--own`, the questions are those of HotpotQA, MuSiQue, 2WikiMultihopQA and TAT-QA that have their own documents and
whose id has an odd hash, each once. One index has the documents of all four sets. Nothing here says anything about
answers: the LLM's are without meaning. Processor time is without the LLM's own.
"""

from __future__ import annotations

import asyncio
import cProfile
import gc
import json
import os
import pstats
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from itertools import cycle, islice
from pathlib import Path
from time import process_time, thread_time
from typing import Annotated

import typer
from bm25s_peer import asked_terms, bm25s_of
from jobs import job, work
from rich.console import Console
from rich.table import Table

from pyfast.corpus import Document, read
from pyfast.engine import Budget, Job, Question, Summary, dedicate_process, read_questions
from pyfast.llm import Completion, Request
from pyfast.llm.instant import Instant
from pyfast.retrieval import Index, build_index
from pyfast.systems import load_system

DATA = Path(os.environ.get("PYFAST_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


class TimedLLM(Instant):
    """The LLM `instant`, and the processor time that it took: time that is not pyfast's."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    async def complete(self, request: Request) -> Completion:
        began = thread_time()  # It answers without a pause, so no other code runs meanwhile.
        try:
            return await super().complete(request)
        finally:
            self.seconds += thread_time() - began


SYSTEMS: dict[str, tuple[str, dict[str, str]]] = {
    "rag": ("rag", {}),
    "n2n, the paper's": ("n2n", {"ranking": "graph_rank"}),
    "n2n": ("n2n", {}),
    "decompose": ("decompose", {}),
}


def repeated(path: Path, count: int) -> Iterator[Question]:
    """`count` questions: those of the file, again and again, each under an id of its own."""
    asked = cycle(list(read_questions(path)))
    return (Question(f"{i}-{question.id}", question.text) for i, question in enumerate(islice(asked, count)))


OWN = ("hotpotqa", "musique", "2wiki", "tatqa")


def of_sets() -> Iterator[Document]:
    """The documents of the sets whose questions have their own documents."""
    for name in OWN:
        yield from (replace(it, uri=f"{name}/{it.uri}") for it in read([DATA / name / "corpus.jsonl"]))


def with_own(limited: bool) -> list[Question]:
    """The questions of these sets whose id has an odd hash. `limited`: each has its own documents."""
    asked = []
    for name in OWN:
        rows = list(map(json.loads, (DATA / name / "corpus.jsonl").read_text(encoding="utf-8").splitlines()))
        groups: dict[str, list[str]] = {}
        for row in rows:
            groups.setdefault(row.get("context_id", ""), []).append(row["id"])
        for line in (DATA / name / "questions.jsonl").read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if blake2b(row["id"].encode()).digest()[-1] % 2:
                own = row.get("context") or groups.get(row.get("context_id", "none"), [])
                uris = tuple(f"{name}/{uri}" for uri in own)
                if not uris:
                    continue
                asked.append(Question(f"{name}-{row['id']}", row["question"], documents=uris if limited else ()))
    return asked


def export(index: Index, questions: Path, count: int, folder: Path) -> None:
    """Write the passages and the questions in FlashRAG's layout: the first line of `contents` is the title."""
    titles = [index.corpus.title(index.corpus.source[i]) for i in index.passages]
    passages = ({"id": str(i), "contents": f"{title}\n{index.text(i)}"} for i, title in enumerate(titles))
    asked = ({"id": asked.id, "question": asked.text} for asked in repeated(questions, count))
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("corpus", passages), ("questions", asked)):
        with (folder / f"{name}.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


def main(
    questions: Annotated[Path, typer.Option()] = DATA / "hybridqa" / "questions.jsonl",
    corpus: Annotated[Path, typer.Option()] = DATA / "hybridqa" / "corpus.jsonl",
    count: int = 2_000,
    concurrency: int = 512,
    repeats: int = 5,
    profile: Annotated[str | None, typer.Option(help="A system.")] = None,
    own: Annotated[bool, typer.Option("--own", help="Questions that search their own documents.")] = False,
    keep: Annotated[Path | None, typer.Option(help="With --own: copy the answers into this folder.")] = None,
    export_to: Annotated[
        Path | None, typer.Option("--export", help="Only write corpus and questions there.")
    ] = None,
) -> None:
    """Measure."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        index = build_index(of_sets() if own else read([corpus]), place / "index")
        gc.collect()  # what building left behind is no part of a run
        dedicate_process()
        if export_to is not None:
            export(index, questions, count, export_to)
            return
        runs = 0
        llm = TimedLLM()

        def wanted(system: str, number: int, folder: Path, width: int) -> Job:
            asked = partial(repeated, questions, number)
            if own:
                some = limited[:number] if system.startswith("own ") else everywhere[:number]
                asked, system = partial(iter, some), system.removeprefix("own ")
            name, given = SYSTEMS[system]
            return job(load_system(name), given, None, llm, index, asked, number, folder, width, Budget())

        def measured(system: str, number: int, width: int) -> tuple[Summary, bytes]:
            nonlocal runs
            runs += 1
            folder = place / f"run-{runs}"
            summary = asyncio.run(work(wanted(system, number, folder, width)))
            return summary, (folder / "answers.jsonl").read_bytes()

        limited, everywhere = (with_own(True), with_own(False)) if own else ([], [])
        count = min(count, len(limited)) if own else count
        if profile is not None:
            profiler = cProfile.Profile()
            measured(profile, 100, concurrency)
            profiler.runcall(measured, profile, count, concurrency)
            pstats.Stats(profiler).sort_stats("tottime").print_stats(30)
            return
        if own:
            in_turns(measured, llm, count, concurrency, repeats, keep)
            return
        search = search_seconds(index, [question.text for question in repeated(questions, 200)])
        table = Table(
            *("system", "questions/s", "best", "µs/question", "µs/LLM call", "processor, µs/question"),
            *("of the LLM, not counted", "in searches of bm25s", "journal + answers, kB/question"),
        )
        for system in list(SYSTEMS)[:3]:
            _, alone = measured(system, 50, 1)
            _, together = measured(system, 50, concurrency)
            assert alone == together and all(json.loads(line)["state"] != "failed" for line in alone.splitlines())
            began, before = process_time(), llm.seconds
            summaries = sorted((measured(system, count, concurrency)[0] for _ in range(repeats)), key=_seconds)
            of_llm = (llm.seconds - before) / repeats / count
            processor = (process_time() - began) / repeats / count - of_llm
            middle, best = summaries[len(summaries) // 2], summaries[0]
            size = sum(path.stat().st_size for path in (place / f"run-{runs}").iterdir()) / count
            table.add_row(
                system,
                f"{count / middle.seconds:,.0f}",
                f"{count / best.seconds:,.0f}",
                f"{middle.seconds / count * 1e6:.0f}",
                f"{middle.seconds / middle.llm_calls * 1e6:.0f}",
                f"{processor * 1e6:.0f}",
                f"{of_llm * 1e6:.0f}",
                f"{processor / search:.1f}",
                f"{size / 1000:.1f}",
            )
        Console().print(table)
        print(f"one search of bm25s (NumPy, k = 20): {search * 1e6:.0f} µs of processor time")


def in_turns(
    measured: Callable[[str, int, int], tuple[Summary, bytes]],
    llm: TimedLLM,
    count: int,
    concurrency: int,
    repeats: int,
    keep: Path | None,
) -> None:
    """Run each system over own and over all documents, one after the other, `repeats` times."""
    names = [f"{of}{system}" for system in ("n2n", "rag", "decompose") for of in ("own ", "")]
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    answers = {}
    for _ in range(repeats):
        for name in names:
            began, before = process_time(), llm.seconds
            summary, answers[name] = measured(name, count, concurrency)
            taken = process_time() - began - (llm.seconds - before)
            seconds[name].append((summary.seconds, taken))
    table = Table("questions/s of", "median", "best", "processor, µs/question", "digest of the answers")
    for name, of_runs in seconds.items():
        (middle, _), (best, _) = sorted(of_runs)[repeats // 2], min(of_runs)
        processor = sorted(taken for _, taken in of_runs)[repeats // 2] / count * 1e6
        digest = blake2b(answers[name], digest_size=6).hexdigest()
        table.add_row(name, f"{count / middle:,.0f}", f"{count / best:,.0f}", f"{processor:.0f}", digest)
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            (keep / f"{name.replace(' ', '-')}.jsonl").write_bytes(answers[name])
    Console().print(table)
    print(f"{count} questions")


def search_seconds(index: Index, queries: list[str]) -> float:
    """Processor time of one search of bm25s with NumPy, k = 20, over the same passages and terms."""
    engine = bm25s_of(index, "numpy")
    asked = asked_terms(index, queries)
    engine.retrieve(asked[:10], k=20, show_progress=False)
    began = process_time()
    engine.retrieve(asked, k=20, show_progress=False)
    return (process_time() - began) / len(queries)


def _seconds(summary: Summary) -> float:
    return summary.seconds


if __name__ == "__main__":
    typer.run(main)
