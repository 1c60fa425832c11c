"""Quality against tokens: `rag`, `n2n` and `cascade` with several values of `sure`.

    python benchmarks/cascade_front.py OUT --llm embedded

The weights of the confidence come from 20 questions of 2wiki from which the embedded model may have learned (the
hash of the id is odd). The figures are those of the 25 example questions, and of 20 questions of 2wiki from which
the model learned nothing (the hash is even). One run of `cascade` asks the LLM for the replies of all systems. The
runs with other values of `sure` reuse them, and count their tokens as if they had asked. To resume, repeat the
command.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from overhead import DATA

import pyfast
from pyfast.api.training import calibrate_cascade
from pyfast.systems.confidence import FEATURES, confidence_of

ROOT = Path(__file__).resolve().parents[1]
# Small contexts, nearly as in examples/demo.py.
RAG: dict[str, Any] = {"k": 5, "abstain": False}
N2N: dict[str, Any] = {"hop_min": 2, "hop_max": 5, "final_min": 3, "final_max": 8, "abstain": False}


def _hash(row: dict[str, Any]) -> bytes:
    return blake2b(row["id"].encode()).digest()


def _rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / "2wiki" / name).read_text(encoding="utf-8").splitlines()]


def subset(folder: Path, odd: bool, questions: int, documents: int) -> tuple[Path, Path]:
    """Write questions of 2wiki whose hash is odd or even, with their documents and others. Returns (the file of
    questions, the corpus)."""
    usable = [row for row in _rows("questions.jsonl") if row.get("supporting") and _hash(row)[-1] % 2 == odd]
    asked = sorted(usable, key=_hash)[:questions]
    needed = {uri for row in asked for uri in (*row["supporting"], *row.get("context", ()))}
    others = sorted((row for row in _rows("corpus.jsonl") if row["id"] not in needed), key=_hash)
    corpus = [*(row for row in _rows("corpus.jsonl") if row["id"] in needed), *others]
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("questions", asked), ("corpus", corpus[: max(documents, len(needed))])):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return folder / "questions.jsonl", folder / "corpus.jsonl"


def main(
    out: Annotated[Path, typer.Argument()], llm: str = "embedded", questions: int = 20, documents: int = 400
) -> None:
    """Answer, fit the weights, and print a table for each set."""
    sets = {
        "odd": subset(out / "odd", True, questions, documents),
        "examples": (ROOT / "examples/questions.jsonl", ROOT / "examples/corpus"),
        "even": subset(out / "even", False, questions, documents),
    }
    whole: dict[str, Any] = RAG | N2N | {"then": ("n2n",)}
    weights: tuple[float, ...] = ()
    rows: list[tuple[str, str, dict[str, Any]]] = [("rag", "rag", RAG), ("n2n", "n2n", N2N)]
    for name, (file, corpus) in sets.items():
        place = out / name
        index = place / "index"
        if not index.exists():
            pyfast.build_index(corpus, index)
        given: dict[str, Any] = {"index": index, "llm": llm, "concurrency": 8}
        asked = pyfast.answer(
            file, system="cascade", settings=whole | {"sure": 1, "temperature": 0.7}, run=place / "all", **given
        )
        if name == "odd":
            found = calibrate_cascade(asked)
            weights = tuple(round(weight, 3) for weight in found.weights)
            drafts = [record.trace["attempts"][0] for record in asked.records]
            for drawn, temperature, changed in (("one draft", 0, {"agreement": 0.5}), ("two drafts", 0.7, {})):
                values = [one | changed for one in drafts if one["answer"] is not None]
                sure = [confidence_of([1, 0, *(one[name] for name in FEATURES[2:])], weights) for one in values]
                # With these values, none, a quarter, a half, three quarters and all of the drafts go on.
                for cut in [0, *(round(float(it), 3) for it in np.quantile(sure, [0.25, 0.5, 0.75])), 1]:
                    settings = whole | {"temperature": temperature, "sure": cut, "weights": weights}
                    rows.append((f"cascade, {drawn}, sure={cut}", "cascade", settings))
            print(f"{found.right} of {found.answers} right; weights={','.join(map(str, weights))}")
            print(f"log loss {found.loss:.3f}, of a constant {found.constant_loss:.3f}\n", flush=True)
            continue
        print(f"| {name} | EM | F1 | LLM calls | tokens | computed tokens | passed on |")
        print("|---|---|---|---|---|---|---|")
        for row, system, settings in rows:
            reusing = pyfast.RunOptions(reuse=[place / "all"])
            run = pyfast.answer(
                file,
                system=system,
                settings=settings,
                run=place / row.replace(", ", "-").replace(" ", "-"),
                options=reusing,
                **given,
            )
            total = pyfast.evaluate(run).rows[0].figures
            used, count = run.status, len(run.records)
            tokens = used.prompt_tokens + used.completion_tokens
            costs = used.llm_calls / count, tokens / count, (tokens - used.cached_tokens) / count
            went = sum(len(record.trace.get("attempts", ())) > 1 for record in run.records) / count
            figures = " | ".join(
                f"{total[f].value:.2f} [{total[f].low:.2f}, {total[f].high:.2f}]" for f in ("em", "f1")
            )
            told = f"{costs[0]:.1f} | {costs[1]:,.0f} | {costs[2]:,.0f} | {went:.0%}"
            print(f"| `{row}` | {figures} | {told} |")
        print()


if __name__ == "__main__":
    typer.run(main)
