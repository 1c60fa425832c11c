"""Convert a published data set into corpus.jsonl, questions.jsonl and gold.jsonl."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import orjson

from pyfast.errors import InputError
from pyfast.evaluation.data_sets import convmix, hipporag, hotpotqa, hybridqa, metaqa, musique, open_domain, tatqa
from pyfast.evaluation.data_sets.layout import Kind, Pieces
from pyfast.files import built_aside

CORPUS, QUESTIONS, GOLD = "corpus.jsonl", "questions.jsonl", "gold.jsonl"
_FILES: dict[Kind, str] = {"document": CORPUS, "question": QUESTIONS, "gold": GOLD}
_CONVERTERS: dict[str, Callable[[Path], Pieces]] = {
    "hotpotqa": hotpotqa.read,
    "2wiki": hotpotqa.read,
    "musique": musique.read,
    "hybridqa": hybridqa.hybridqa,
    "metaqa": metaqa.read,
    "tatqa": tatqa.read,
    "convmix": convmix.read,
    "ottqa": hybridqa.ottqa,
    "nq": open_domain.nq,
    "triviaqa": open_domain.triviaqa,
    "popqa": open_domain.popqa,
    "hipporag": hipporag.read,
}
_NO_CORPUS = {
    "convmix": "this file has no text, and its entities and answers are gold, so no index can come from it: index"
    " documents of your own, or convert dev_ers.jsonl of CONVINSE or EXPLAIGNN, which has evidence"
}


@dataclass(frozen=True, slots=True)
class Converted:
    """The files that `pyfast.convert` made, with the numbers of documents and questions."""

    corpus: Path | None
    """The file of the corpus. None if the set has no corpus"""
    questions: Path
    gold: Path | None
    """The file of the gold. None if the source has no answers, as in test sets"""
    documents: int
    count: int
    """The number of questions. Every turn of a conversation is one question"""
    no_corpus: str | None = None
    """Why there is no corpus, and what to index instead"""


def names() -> list[str]:
    """Return the names of the data sets that can be converted."""
    return list(_CONVERTERS)


def convert(name: str, source: Path, out: Path) -> Converted:
    """Convert a published data set into the new folder `out`. If the conversion raises `InputError`, no
    folder is made.
    """
    converter = _CONVERTERS.get(name)
    if converter is None:
        raise InputError(f"unknown data set {name!r}; there are: {', '.join(names())}")
    if not source.exists():
        raise InputError(f"{source}: there is no such file or folder")
    if out.exists():
        raise InputError(f"{out}: exists already; choose another folder")
    counts: Counter[Kind] = Counter()
    with built_aside(out) as aside, ExitStack() as opened:
        files = {kind: opened.enter_context((aside / file).open("wb")) for kind, file in _FILES.items()}
        for kind, line in converter(source):
            kept = {key: value for key, value in line.items() if value is not None}
            files[kind].write(orjson.dumps(kept, option=orjson.OPT_APPEND_NEWLINE))
            counts[kind] += len(kept.get("turns", (None,)))
        opened.close()
        if not counts["question"]:
            raise InputError(f"{source}: has no question")
        for kind in ("document", "gold"):
            if not counts[kind]:
                (aside / _FILES[kind]).unlink()
    made = {kind: out / file if counts[kind] else None for kind, file in _FILES.items()}
    why = _NO_CORPUS.get(name, "the set has no corpus: index documents of your own")
    return Converted(
        made["document"],
        out / QUESTIONS,
        made["gold"],
        counts["document"],
        counts["question"],
        None if counts["document"] else why,
    )
