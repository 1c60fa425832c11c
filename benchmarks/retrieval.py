"""What reranking adds to bridge_rank and bridge_expand.

    python benchmarks/retrieval.py --rerank cross                     # the sets under PYFAST_DATA, the even half
    python benchmarks/retrieval.py --rerank cross --rerank both --scores DIR    # DIR keeps what was computed
    python benchmarks/retrieval.py --rerank both --of train --set hotpotqa --set musique    # other questions

The even half are the questions whose blake2b(id) is even; nothing was tuned on them. Differences are paired, with
95 % intervals by bootstrap. The mean of hotpotqa, musique and 2wiki draws within each set, and then takes the mean
of the sets.
"""

from __future__ import annotations

import json
import os
import tempfile
from enum import StrEnum, auto
from hashlib import blake2b
from pathlib import Path
from time import process_time
from typing import Annotated, Any

import numpy as np
import typer

import pyfast
from pyfast.evaluation.evaluate import ratio_draws

DATA = Path(os.environ.get("PYFAST_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
SETS = ("hotpotqa", "musique", "2wiki", "hybridqa", "nq")
POOLED = SETS[:3]
BASE = "ranking=bridge_rank expand=on"
Draws = np.ndarray[Any, np.dtype[np.float64]]


class Of(StrEnum):
    """Some questions of a set: a half of its questions, or all of its training questions."""

    even = auto()
    odd = auto()
    train = auto()


def questions_of(name: str, of: Of) -> list[dict[str, Any]]:
    """The questions of a set."""
    path = DATA / name / f"questions{'.train' if of is Of.train else ''}.jsonl"
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    odd = of is Of.odd
    return [line for line in lines if of is Of.train or blake2b(line["id"].encode()).digest()[-1] % 2 == odd]


def main(
    rerank: Annotated[list[str], typer.Option(help="As in pyfast.open_index; repeatable.")],
    at: Annotated[list[int], typer.Option(help="Where rankings are cut.")] = [2, 5, 10],  # noqa: B006
    only: Annotated[list[str], typer.Option("--set", help="The sets.")] = list(SETS),  # noqa: B006
    of: Annotated[Of, typer.Option(help="Which questions of the sets.")] = Of.even,
    limit: Annotated[int | None, typer.Option(help="Only the first of each set.")] = None,
    scores: Annotated[Path | None, typer.Option(help="A folder that keeps what rerankers computed.")] = None,
    base: Annotated[str, typer.Option(help="The setting to compare with.")] = BASE,
) -> None:
    """Print a table in Markdown."""
    settings = {"base": base, **{name: f"{base} rerank={name}" for name in rerank}}
    figures = [f"recall@{k}" for k in at]
    print("| set | questions | setting | " + " | ".join(figures) + " |")
    print("|---|---|---|" + "---|" * len(figures))
    apart: dict[str, dict[str, Draws]] = {}
    means: dict[str, dict[str, Draws]] = {}
    began, asked = process_time(), 0
    for name in only:
        with tempfile.TemporaryDirectory() as folder:
            index = pyfast.build_index(DATA / name / "corpus.jsonl", Path(folder) / "index")
            lines = questions_of(name, of)[:limit]
            report = pyfast.evaluate_retrieval(index, lines, settings, at=at, scores=scores)
        tables = {
            setting: np.array([[one.shares[figure][0] for figure in figures] for one in of.questions])
            for setting, of in report.settings.items()
        }
        count = len(tables["base"])
        asked += count * len(rerank)
        draws = {s: ratio_draws(t, np.ones_like(t), [str(i) for i in range(count)]) for s, t in tables.items()}
        apart[name] = {setting: draws[setting] - draws["base"] for setting in rerank}
        means[name] = {setting: table.mean(axis=0) for setting, table in tables.items()}
        for setting in settings:
            show(name, str(count), setting, means[name], apart[name].get(setting))
    if pooled := [name for name in POOLED if name in only]:
        mean = {setting: np.mean([means[name][setting] for name in pooled], axis=0) for setting in settings}
        for setting in settings:
            drawn = (
                np.mean([shuffled(apart[name][setting], i) for i, name in enumerate(pooled)], axis=0)
                if (setting in rerank)
                else None
            )
            show(f"mean of {', '.join(pooled)}", "", setting, mean, drawn)
    print(f"\n{(process_time() - began) / max(asked, 1):.2f} s of processor time a question and reranker")


def shuffled(draws: Draws, seed: int) -> Draws:
    """The draws in another order: sets of equal size would otherwise be drawn alike."""
    return np.random.default_rng(seed).permutation(draws)


def show(name: str, count: str, setting: str, means: dict[str, Draws], apart: Draws | None) -> None:
    """Print a row; beside a reranker's figures their differences to the base."""
    cells = [f"{value:.3f}" for value in means[setting]]
    if apart is not None:
        low, high = np.quantile(apart, [0.025, 0.975], axis=0)
        apart_by = means[setting] - means["base"]
        cells = [
            f"{c} ({d:+.3f}, {a:+.3f} to {b:+.3f})" for c, d, a, b in zip(cells, apart_by, low, high, strict=True)
        ]
    print(f"| {name} | {count} | {setting} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    typer.run(main)
