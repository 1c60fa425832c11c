"""Recognise files of published question sets by their first bytes.

These files contain answers, so they must not become part of a corpus.
"""

from __future__ import annotations

import re
from pathlib import Path

from pyfast.errors import GoldError

_HEAD = 1 << 16  # the number of bytes that are examined
_SUFFIXES = (".json", ".jsonl", ".txt", ".tsv")
# Sets of keys. A file is recognized by the first set that its first record has.
_KEYS = {
    "2wiki": ("_id", "context", "question", "evidences"),
    "hotpotqa": ("_id", "context", "question"),
    "musique": ("paragraphs", "paragraph_text", "question"),
    "tatqa": ("table", "paragraphs", "questions", "uid"),
    "convmix": ("conv_id", "questions"),
    "ottqa": ("question_id", "question", "table_id", "version"),
    "hybridqa": ("question_id", "question", "table_id"),
    "triviaqa": ("QuestionId", "Question"),
}
_KEY = re.compile(rb'"(\w+)"\s*:')
_METAQA = re.compile(rb"[^\t\n]*\[[^\]\t\n]+\][^\t\n]*\t[^\t\n]+\r?(\n|$)")
_METAQA_GRAPH = re.compile(rb"[^|\n]+\|[a-z_]+\|[^|\n]+\r?\n[^|\n]+\|[a-z_]+\|[^|\n]+\r?\n")
_NQ = re.compile(rb'\s*\{\s*"question"\s*:\s*"[^\n]*"answer"\s*:\s*\[[^\n]*\]\s*\}\s*(\n|$)')


def published_set(path: Path) -> str | None:
    """Return the name of the published data set that has the layout of this file. Returns None for any other
    file."""
    if path.suffix.lower() not in _SUFFIXES:
        return None
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD).removeprefix(b"\xef\xbb\xbf")
    except OSError:
        return None  # The reader reports the error.
    if path.name == "queries.jsonl" and any((path.parent / "qrels").glob("*.tsv")):
        return "beir"
    if path.suffix.lower() == ".tsv":
        if path.parent.name == "qrels" and (path.parent.parent / "queries.jsonl").is_file():
            return "beir"
        first = head.partition(b"\n")[0].split(b"\t")
        return "popqa" if {b"question", b"possible_answers"} <= set(first) else None
    if path.suffix.lower() == ".txt":
        return "metaqa" if _METAQA.match(head) or _METAQA_GRAPH.match(head) else None
    if not head.lstrip().startswith((b"[", b"{")):
        return None
    keys = {key.decode() for key in _KEY.findall(head)}
    name_of_set = next((name for name, wanted in _KEYS.items() if keys.issuperset(wanted)), None)
    return name_of_set or ("nq" if _NQ.match(head) else None)


def refuse_published(path: Path) -> None:
    """Raise `GoldError` for a file of a published set. The message names the command that converts the file."""
    name = published_set(path)
    if name is not None:
        command = f"`pyfast data convert {name} {path} --out DIR`"
        makes = f"{command} makes questions and gold of it, and a corpus if the set has one"
        raise GoldError(f"{path}: a file of {name} as it is published: {makes}")
