"""Small data sets for `pyfast experiment quality`, for a machine without a GPU.

    python benchmarks/quality_sets.py FOLDER            # from PYFAST_DATA
    pyfast experiment quality --data FOLDER --out OUT --llm embedded

Of each set, the questions are those from which the embedded model learned nothing (the hash of the id is even), in
the order of the hash. The documents are those that belong to these questions, and others up to `documents`.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from overhead import DATA

SETS = "musique,hybridqa,nq,metaqa"
Row = dict[str, Any]


def _hash(row: Row) -> bytes:
    return blake2b(row["id"].encode()).digest()


def _rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _of_questions(questions: list[Row], corpus: list[Row]) -> set[str]:
    """The documents of these questions: those that they name; of metaqa, the records on the way to the answers."""
    found = {uri for row in questions for uri in (*row.get("supporting", ()), *row.get("context", ()))}
    triples = [(row["id"], *triple) for row in corpus for triple in row.get("triples", ())]
    for row in questions:
        here = {row.get("topic_entity")}
        for step in row.get("path", ()):
            met = [
                (uri, head if step[0] == "~" else tail)
                for uri, head, relation, tail in triples
                if relation == step.lstrip("~") and (tail if step[0] == "~" else head) in here
            ]
            found |= {uri for uri, _ in met}
            here = {thing for _, thing in met}
    return found


def main(
    folder: Annotated[Path, typer.Argument()],
    questions: int = 40,
    documents: int = 1000,
    sets: Annotated[str, typer.Option(help="Which, by their folders.")] = SETS,
) -> None:
    """Write the sets."""
    for name in sets.split(","):
        asked = [
            row
            for row in _rows(DATA / name / "questions.jsonl")
            if row.get("answers") and not _hash(row)[-1] % 2 and (name == "metaqa" or row.get("supporting"))
        ]
        asked = sorted(asked, key=_hash)[:questions]
        corpus = _rows(DATA / name / "corpus.jsonl")
        needed = _of_questions(asked, corpus) & {row["id"] for row in corpus}
        others = sorted((row for row in corpus if row["id"] not in needed), key=_hash)
        kept = needed | {row["id"] for row in islice(others, max(documents - len(needed), 0))}
        (folder / name).mkdir(parents=True, exist_ok=True)
        for file, rows in (("questions", asked), ("corpus", [row for row in corpus if row["id"] in kept])):
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (folder / name / f"{file}.jsonl").write_text(text, encoding="utf-8")
        print(f"{name}: {len(asked)} questions, {len(kept)} documents, {len(needed)} of them for the questions")


if __name__ == "__main__":
    typer.run(main)
