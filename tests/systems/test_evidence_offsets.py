"""Evidence is found where it says: the snippet at its offsets in the source file."""

import csv
from pathlib import Path

from scripted import run

from pyfast.engine import Evidence
from pyfast.llm import open_llm
from pyfast.retrieval import Index


def test_snippets_are_in_their_sources(
    small: Index, examples: Path, example_questions: list[dict[str, str]]
) -> None:
    kinds = set()
    for record in run(small, open_llm("instant"), [q["question"] for q in example_questions]):
        assert record.evidence
        for piece in record.evidence:
            path = examples / "corpus" / piece["uri"]
            start, end = piece["offsets"]
            kinds.add(path.suffix)
            if path.suffix == ".md":
                assert path.read_bytes().decode()[start:end] == piece["snippet"]
            elif path.suffix == ".csv":
                with path.open(encoding="utf-8", newline="") as file:
                    rows = list(csv.reader(file))
                assert rows[start + 1] == piece["snippet"].split("\t") and end == -1
                assert piece["header"] == rows[0] and piece["title"] == path.stem.replace("-", " ")
                named = zip(rows[0], rows[start + 1], strict=True)
                line = " | ".join(f"{name}: {cell}" for name, cell in named if cell)
                assert Evidence.read(piece).line == line
            else:
                triples = path.read_text(encoding="utf-8").splitlines()
                assert {fact.strip() for fact in piece["snippet"].split(";")} <= {
                    triple.replace("\t", " ") for triple in triples
                }
    assert kinds == {".md", ".csv", ".tsv"}
