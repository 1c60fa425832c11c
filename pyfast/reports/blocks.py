"""Write the details of a block (some consecutive questions of a run). A block can be written without the
other blocks.

A chunk is a file that has a gzip member for each question, so that a page can unpack a single question. Documents
are in files of their own, because several questions of a block can show the same document.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import orjson
from isal import igzip

from pyfast.engine import Question
from pyfast.evaluation.prices import Price
from pyfast.reports.details import Source, details_of
from pyfast.reports.passages import Part, PassageFinder, content_of, index_of
from pyfast.reports.reading import Asked, RunReader, Scores, wrongness
from pyfast.reports.summary import Series

CHUNK = 256
"""The number of questions whose details are in one file"""
LISTED = 4096
"""The maximum number of questions in a block. For each block, there is one file with its part of the list of
questions"""
SHOWN = 160
"""The maximum number of characters of each text in the list of questions"""
DOCUMENTS = 4_000_000
"""A size in bytes. If a file with parts of documents is larger, the next part goes into a new file"""
_LEVEL = 2  # of igzip: level 3 takes a third more time and gives a thirtieth


@dataclass(frozen=True, slots=True)
class Block:
    """A block: consecutive questions of a run, which are written together."""

    number: int
    """The number of the block, from 0. It is in the names of the files"""
    first: int
    """The position of the first question among the answers, from 0"""
    questions: int
    asked: Sequence[Question]
    """These questions, and all turns of their conversations"""
    scores: Scores
    """The figures and the gold of these questions"""
    price: tuple[Price, Mapping[str, Price]] | None
    """The price of the default model, and the price for each role. None without a price list"""

    @property
    def file(self) -> str:
        """The name of the file with this block's part of the list of questions."""
        return f"list-{self.number:05}.json.gz"


class BlockWriter:
    """Writes blocks of a run into a folder."""

    def __init__(self, run: Path, out: Path) -> None:
        """Open the run and its index. Raises `InputError` if the folder has no run."""
        self.reader = RunReader(run)
        self.out = out
        self._finder = PassageFinder(index_of(run))

    def write(self, block: Block) -> Series:
        """Write a block: its chunks, its documents and its part of the list of questions.

        Returns the `Series` of its questions: their times, tokens, costs and other numbers. Raises
        `InputError` if the run is damaged.
        """
        golds = block.scores.gold()
        self._finder.look_for(golds.values())
        documents = _Documents(self.out, self._finder, block.number)
        source = Source(self.reader, self._finder, block.scores.figures, golds, documents.place)
        entries = self.reader.entries(Asked(block.asked), block.first, block.questions)
        series, rows = Series(), list[dict[str, Any]]()
        for chunk in range(block.number * (LISTED // CHUNK), (block.number + 1) * (LISTED // CHUNK)):
            if not (some := list(islice(entries, CHUNK))):
                break
            start = 0
            with (self.out / f"questions-{chunk:05}.bin").open("wb") as file:
                for entry, details in zip(some, details_of(some, source), strict=True):
                    size = file.write(_packed(details))
                    row = _row(details, block.scores.names) | {"chunk": chunk, "start": start, "size": size}
                    money = _money(details["ledger"], block.price)
                    series.add(row, entry.ledger, wrongness(details["figures"]), money)
                    rows.append(row)
                    start += size
        documents.save()
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        (self.out / block.file).write_bytes(_packed(columns))
        return series


class _Documents:
    """Writes the parts of documents that a block needs into files, each part only once."""

    def __init__(self, out: Path, finder: PassageFinder, block: int) -> None:
        self._out, self._finder, self._block = out, finder, block
        self._places: dict[Part, tuple[str, int, int]] = {}
        self._waiting: list[bytes] = []
        self._files = self._size = 0

    def place(self, part: Part) -> tuple[str, int, int]:
        """Return where a part of a document is: (the name of its file, without `documents-` and `.bin`; its
        first byte in the file; its size in bytes)."""
        if part not in self._places:
            assert self._finder.index is not None
            content = _packed(content_of(self._finder.index.corpus, part))
            self._places[part] = (self._name, self._size, len(content))
            self._waiting.append(content)
            self._size += len(content)
            if self._size > DOCUMENTS:
                self.save()
        return self._places[part]

    @property
    def _name(self) -> str:
        return f"{self._block:05}-{self._files}"

    def save(self) -> None:
        """Write the parts that are new since the last call into a file."""
        if self._waiting:
            (self._out / f"documents-{self._name}.bin").write_bytes(b"".join(self._waiting))
            self._waiting, self._size, self._files = [], 0, self._files + 1


def _packed(content: Any) -> bytes:
    """Write `content` as JSON, and compress it in the format of gzip."""
    return igzip.compress(orjson.dumps(content), _LEVEL, mtime=0)


def _money(ledger: Mapping[str, Any], price: tuple[Price, Mapping[str, Price]] | None) -> dict[str, float]:
    """Return the cost of each prompt of a question in money, by the name of the prompt. It assumes the same share
    of cached tokens for all prompts. Empty without a price list.
    """
    if price is None:
        return {}
    default, of_role = price
    stages = [stage for stage in ledger["stages"] if stage["role"]]
    cached = ledger.get("cached_tokens", 0) / max(sum(stage["tokens_in"] for stage in stages), 1)
    money = {}
    for stage in stages:
        price_of_stage, read = of_role.get(stage["role"], default), stage["tokens_in"]
        money[stage["name"]] = price_of_stage.of(read, cached * read, stage["tokens_out"])
    return money


def _row(details: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    """Return the row of a question for the list of questions. Its figures are in the order of `names`."""
    gold, paths, usage = details["gold"], details["gold_paths"], details["usage"]
    return {
        "id": details["id"],
        **{name: _short(details[name]) for name in ("question", "answer", "state", "reason")},
        "type": "" if gold is None else gold["groups"].get("type", ""),
        "figures": [details["figures"].get(name) for name in names] if details["figures"] else [],
        "seconds": details["ledger"].get("seconds"),
        "tokens": usage.prompt_tokens + usage.completion_tokens,
        "calls": usage.llm_calls,
        "gold": [sum(path.reached for path in paths), len(paths)],
    }


def _short(text: str | None) -> str | None:
    return text if text is None or len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
