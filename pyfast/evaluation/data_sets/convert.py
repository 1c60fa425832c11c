"""Convert a published data set into corpus.jsonl, questions.jsonl and gold.jsonl."""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import orjson

from pyfast.engine.question_files import texts_of
from pyfast.errors import InputError
from pyfast.evaluation.data_sets.sets import CONVERTERS, Kind, Pieces
from pyfast.utils.files import built_aside

CORPUS, QUESTIONS, GOLD = "corpus.jsonl", "questions.jsonl", "gold.jsonl"
_FILES: dict[Kind, str] = {"document": CORPUS, "question": QUESTIONS, "gold": GOLD}
_NO_CORPUS = {
    "convmix": "this file cannot become a corpus: it has no texts, and its entities and answers are gold; index"
    " your own documents, or convert dev_ers.jsonl of CONVINSE or EXPLAIGNN, which has evidence",
}

_TITLES_SUFFICE = {"beir", "flashrag", "hipporag"}  # Judgements and questions mean documents without a text, too.


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
    notes: tuple[str, ...] = ()
    """What differs from the published files, with counts: ids that were changed, parts that were left out"""


def names() -> list[str]:
    """Return the names of the data sets that can be converted."""
    return list(CONVERTERS)


def convert(name: str, source: Path, out: Path) -> Converted:
    """Convert a published data set into the new folder `out`. If the conversion raises `InputError`, no
    folder is made.
    """
    converter = CONVERTERS.get(name)
    if converter is None:
        raise InputError(f"unknown data set {name!r}; known: {', '.join(names())}")
    if not source.exists():
        raise InputError(f"{source}: no such file or folder")
    if out.exists():
        raise InputError(f"{out} already exists; choose another folder")
    counts: Counter[Kind] = Counter()
    told: Counter[str] = Counter()
    with built_aside(out) as aside, ExitStack() as opened:
        files = {kind: opened.enter_context((aside / file).open("wb")) for kind, file in _FILES.items()}
        for kind, line in _takeable(converter(source), told, name in _TITLES_SUFFICE):
            kept = {key: value for key, value in line.items() if value is not None}
            files[kind].write(orjson.dumps(kept, option=orjson.OPT_APPEND_NEWLINE))
            counts[kind] += len(kept.get("turns", (None,)))
        opened.close()
        if not counts["question"]:
            raise InputError(f"{source} has no questions")
        for kind in ("document", "gold"):
            if not counts[kind]:
                (aside / _FILES[kind]).unlink()
    made = {kind: out / file if counts[kind] else None for kind, file in _FILES.items()}
    why = _NO_CORPUS.get(name, "the data set has no corpus: index your own documents")
    return Converted(
        made["document"],
        out / QUESTIONS,
        made["gold"],
        counts["document"],
        counts["question"],
        None if counts["document"] else why,
        tuple(f"{what}: {number}" for what, number in told.items()),
    )


def _takeable(pieces: Pieces, told: Counter[str], titles_suffice: bool) -> Pieces:
    """Change the pieces so that `pyfast index` and `pyfast answer` take them, and count each change in `told`.

    A repeated id gets a number. Documents and questions without a text are left out, and so are `documents` that
    the corpus does not have. The gold of a question comes after the question, with the same id.
    """
    contents: dict[str, bytes] = {}
    ids: Counter[str] = Counter()
    taken: set[str] = set()
    now: dict[str, list[str | None]] = defaultdict(list)  # the ids of the latest question or its turns

    def document(line: dict[str, Any]) -> bool:
        digest = blake2b(orjson.dumps(line), digest_size=8).digest()
        title = (line.get("title") or "") if titles_suffice else ""
        if line["kind"] == "text" and not (line["text"] + title).strip():
            told["documents left out because they have no text"] += 1
        elif line["id"] not in contents:
            contents[line["id"]] = digest
            return True
        elif contents[line["id"]] != digest:
            told["documents left out because an earlier document has the same id"] += 1
        return False

    def own_id(given: str, turn: bool) -> str:
        kind = "turns" if turn else "questions"
        name = base = given if given.strip() else str(len(taken) + 1)
        if base != given:
            told[f"{kind} without an id, which got a number as their id"] += 1
        while name in taken:
            ids[base] += 1
            name = f"{base} ({ids[base] + 1})"
        if name != base:
            told[f"{kind} with a repeated id, which got a new id of the form `ID (2)`"] += 1
        taken.add(name)
        return name

    def asked(line: dict[str, Any], turn: bool = False) -> dict[str, Any] | None:
        if not line["question"].strip():
            told["questions left out because they have no text"] += 1
            now[line["id"]].append(None)
            return None
        name = own_id(line["id"], turn)
        now[line["id"]].append(name)
        return {**line, "id": name}

    def known(line: dict[str, Any]) -> dict[str, Any]:
        if line.get("documents") is None:
            return line
        documents = [uri for uri in line["documents"] if uri in contents]
        if not documents:
            told["questions that search the whole corpus, because it has none of their own documents"] += 1
        return {**line, "documents": documents or None}

    def gold(line: dict[str, Any]) -> dict[str, Any] | None:
        name = now[line["id"]].pop(0)
        missing = [uri for uri in line.get("supporting") or () if contents and uri not in contents]
        told["questions with gold evidence that is missing in the corpus"] += bool(missing)
        answers = None if line.get("answers") is None else texts_of(line["answers"])
        return None if name is None else {**line, "id": name, "answers": answers}

    conversations: set[str] = set()
    conversation = ""
    for kind, line in pieces:
        if kind == "note":
            told[line["what"]] += line["number"]
        elif kind == "document":
            if document(line):
                yield kind, line
        elif "turns" in line:
            if kind == "question":
                now.clear()
                conversation = line["id"]
                while conversation in conversations:
                    conversation += " (2)"
                conversations.add(conversation)
            each = [gold(turn) if kind == "gold" else asked(turn, turn=True) for turn in line["turns"]]
            turns = [turn for turn in each if turn is not None]
            if turns:
                yield kind, {**line, "id": conversation, "turns": turns}
        elif kind == "question":
            now.clear()
            if (kept := asked(line)) is not None:
                yield kind, known(kept)
        elif (kept := gold(line)) is not None:
            yield kind, kept
    for what in [what for what, number in told.items() if not number]:
        del told[what]
