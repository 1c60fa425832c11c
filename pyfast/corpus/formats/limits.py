"""Files that are refused: those with a huge content, and published question sets, which contain answers."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

from pyfast.errors import GoldError, InputError

MOST_CELLS = 20_000_000
_ALWAYS = 1 << 28
_GROWTH = 200
_MOST = 1 << 32
_BASE = 220_000_000
_TIMES = 3
_WHOLE = {".txt", ".text", ".md", ".markdown", ".csv", ".tsv", ".json", ".html", ".htm", ".xhtml"}
_WHOLE |= {".nt", ".ttl", ".turtle"}


def check_cells(path: Path, cells: int) -> None:
    """Raise InputError if a table has too many cells."""
    if cells > MOST_CELLS:
        raise InputError(f"{path}: a table has more than {MOST_CELLS:,} cells; split it into several files")


def check_growth(path: Path, packed: int, unpacked: int) -> None:
    """Raise InputError if the unpacked content of a file is far larger than the file."""
    if unpacked > _MOST or unpacked > max(_ALWAYS, _GROWTH * packed):
        raise InputError(f"{path}: {packed:,} bytes unpack to {unpacked:,} or more; unpack the file first")


def check_archive(path: Path) -> None:
    """Raise `InputError` if a file in the archive unpacks to far more bytes than it takes in the archive, or if
    Office has encrypted the file. Raise `BadZipFile` if the file is not an archive.
    """
    with path.open("rb") as file:
        if file.read(8) == b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1":  # an OLE container
            raise InputError(
                f"{path}: the file is protected by a password, or has the format of Office before 2007; save it"
                f" again as {path.suffix.lower()} without a password"
            )
    with zipfile.ZipFile(path) as archive:
        for part in archive.infolist():
            check_growth(path, part.compress_size, part.file_size)


def check_memory(path: Path, size: int, memory: int) -> None:
    """Raise InputError if a file of `size` bytes cannot be read in `memory` MB.

    Text, tables, JSON and RDF are in memory as a whole: as bytes, as characters and as the content of the index.
    So they take at least three times their size, beside the program itself.
    """
    needed = (_BASE + _TIMES * size) // 1_000_000 + 1
    if path.suffix.lower() in _WHOLE and needed > memory:
        raise InputError(
            f"{path}: this file of {size // 1_000_000:,} MB needs at least {needed:,} MB of memory, but the limit "
            f"is {memory:,} MB; split the file, or allow more memory (--memory)"
        )


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
        makes = f"{command} turns it into questions and gold answers, and a corpus if the set has one"
        raise GoldError(f"{path}: this is a published file of {name}; {makes}")
