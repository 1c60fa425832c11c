"""Check that the example data set is complete and consistent.

Run ``python examples/check.py``, or call :func:`check` from a test. The first
fault found raises ``AssertionError`` with a message that names the place.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MODALITIES = {"passages": "text", "tables": "table", "triples.tsv": "triples"}
TYPES = {"1-hop", "2-hop", "3-hop"}
FIELDS = {"id", "question", "answers", "type", "modalities", "supporting"}


def normalise(text: str) -> str:
    """Lower-case ``text`` and turn each run of white space into one space."""
    return " ".join(text.casefold().split())


def read_lines(path: Path) -> list[str]:
    """Return the lines of a UTF-8 file without their line ends."""
    return path.read_text(encoding="utf-8").splitlines()


def require(condition: bool, message: str) -> None:
    """Raise ``AssertionError`` unless ``condition`` holds, even under ``-O``."""
    if not condition:
        raise AssertionError(message)


def questions(root: Path) -> Iterator[dict[str, Any]]:
    """Yield the questions of the data set in ``root``."""
    for line in read_lines(root / "questions.jsonl"):
        yield json.loads(line)


def check_corpus(corpus: Path) -> None:
    """Check the passages, tables and triples."""
    passages = sorted((corpus / "passages").glob("*.md"))
    require(len(passages) >= 28, f"only {len(passages)} passages")
    for path in passages:
        text = path.read_text(encoding="utf-8")
        require(text.startswith("# "), f"{path.name}: no title")
        require(50 <= len(text.split()) - 1 <= 110, f"{path.name}: length")

    tables = sorted((corpus / "tables").glob("*.csv"))
    require(len(tables) == 5, f"{len(tables)} tables, expected 5")
    for path in tables:
        with path.open(encoding="utf-8", newline="") as stream:
            header, *rows = csv.reader(stream)
        require(bool(rows) and all(header), f"{path.name}: header or rows missing")
        for row in rows:
            require(len(row) == len(header), f"{path.name}: not rectangular: {row}")

    triples = read_lines(corpus / "triples.tsv")
    require(len(triples) == 100, f"{len(triples)} triples, expected 100")
    require(len(set(triples)) == len(triples), "a triple is repeated")
    for triple in triples:
        fields = triple.split("\t")
        require(len(fields) == 3 and all(map(str.strip, fields)), f"bad triple: {triple!r}")


def check_question(question: dict[str, Any], corpus: Path) -> None:
    """Check one question and its gold evidence."""
    name, supporting = question["id"], question["supporting"]
    require(set(question) - {"supporting_cells"} == FIELDS, f"{name}: wrong fields")
    require(question["type"] in TYPES, f"{name}: unknown type")
    require(bool(supporting), f"{name}: no supporting document")
    require(question["type"] == "1-hop" or len(supporting) > 1, f"{name}: one document only")
    for uri in supporting:
        require((corpus / uri).is_file(), f"{name}: {uri} does not exist")
    for uri, cells in question.get("supporting_cells", {}).items():
        require(uri in supporting, f"{name}: {uri} has gold cells, but is not gold")
        text = (corpus / uri).read_text(encoding="utf-8")
        require(all(cell in text for cell in cells), f"{name}: {uri} lacks a gold cell")
    found = {MODALITIES[uri.split("/")[0]] for uri in supporting}
    require(set(question["modalities"]) == found, f"{name}: wrong modalities")

    answers = {normalise(answer) for answer in question["answers"]}
    require(bool(answers) and "" not in answers, f"{name}: empty answer")
    if answers <= {"yes", "no"}:
        return
    texts = [normalise((corpus / uri).read_text(encoding="utf-8")) for uri in supporting]
    require(
        any(answer in text for answer in answers for text in texts),
        f"{name}: no supporting document has the answer",
    )


def check(root: Path) -> None:
    """Check the whole data set in ``root``."""
    check_corpus(root / "corpus")
    asked = list(questions(root))
    require(len(asked) == 25, f"{len(asked)} questions, expected 25")
    require(len({question["id"] for question in asked}) == len(asked), "an id is repeated")
    for question in asked:
        check_question(question, root / "corpus")


if __name__ == "__main__":
    check(Path(__file__).resolve().parent)
    print("examples: ok")
