"""The data of a report: a list of all questions, and the details of each, in compressed chunks.

A chunk is a file that has a gzip member for each question, so that a page can unpack a single question. The
list of questions has a column for each field. Its columns `chunk`, `start` and `size` say where the details of
a question are. Documents are in separate chunks, because several questions can show the same document.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from pyfast.api.evaluating import GoldLike
from pyfast.evaluation import Metric
from pyfast.evaluation.cost import prices_of
from pyfast.evaluation.prices import Prices
from pyfast.llm import ROLES
from pyfast.reports.details import details_of
from pyfast.reports.documents import Part, content_of
from pyfast.reports.passages import PassageFinder, index_of
from pyfast.reports.reading import Entry, RunReader
from pyfast.reports.scores import Scores, scores_of, wrongness
from pyfast.reports.summary import Series, summary_of

VERSION = 1
"""The version of the data's format"""
CHUNK = 256
"""The number of questions whose details are in one file"""
LISTED = 4096
"""The maximum number of questions in one file of the list"""
SHOWN = 160
"""The maximum number of characters of each text in the list"""
_LEVEL = 2  # of gzip: higher ones take twice the time and give a tenth


DOCUMENTS = 4_000_000
"""If a file of parts of documents has more bytes than this number, the next part goes into a new file"""


class _Documents:
    """Writes parts of documents into files, each part only once."""

    def __init__(self, out: Path, finder: PassageFinder) -> None:
        self._out, self._finder = out, finder
        self._places: dict[Part, tuple[int, int, int]] = {}
        self._chunk = self._end = 0

    def place(self, part: Part) -> tuple[int, int, int]:
        """Return where a part of a document is: (the number of its chunk, its first byte, its size in bytes).
        If the part is not written yet, write it first.
        """
        if part not in self._places:
            assert self._finder.index is not None
            content = _packed(orjson.dumps(content_of(self._finder.index.corpus, part)))
            if self._end > DOCUMENTS:
                self._chunk, self._end = self._chunk + 1, 0
            with (self._out / f"documents-{self._chunk:05}.bin").open("ab") as file:
                file.write(content)
            self._places[part] = (self._chunk, self._end, len(content))
            self._end += len(content)
        return self._places[part]


class RunData:
    """The data of one run in a folder. `update` adds the questions that have ended since its last call."""

    def __init__(
        self,
        path: Path,
        out: Path,
        gold: GoldLike | None = None,
        metrics: Sequence[str | Metric] | None = None,
        prices: Prices | None = None,
    ) -> None:
        """Start to write the data of the run `path` into the folder `out`.

        Raises `InputError` if the folder has no run, or if a model of the run is missing in `prices`.
        """
        self.reader = RunReader(path)
        self._currency = None if prices is None else prices.currency
        self._price = None if prices is None else prices_of(path, ROLES, prices)
        self._out = out
        self._gold, self._metrics = gold, metrics
        self._finder = PassageFinder(index_of(path))
        self._documents = _Documents(out, self._finder)
        self._series = Series()
        self._done = self._chunks = 0
        self._lists: list[dict[str, Any]] = []
        out.mkdir(parents=True, exist_ok=True)

    @property
    def done(self) -> int:
        """How many questions have been written into the folder."""
        return self._done

    def update(self) -> dict[str, Any]:
        """Write the questions that have ended since the last call. Returns the entry of the run in the report's
        manifest.

        Raises `InputError` if the run is damaged, or if the gold file has none of its questions.
        """
        status = self.reader.run.status
        scores = self._scores() if status.ended else Scores()
        self._finder.look_for(uri for gold in scores.gold.values() for uri in gold.supporting or ())
        entries = self.reader.entries(self._done)
        with ThreadPoolExecutor(2) as packers:  # gzip releases the interpreter's lock
            while rows := self._write_chunks(islice(entries, LISTED), scores, packers):
                self._write_list(rows)
        return {
            "name": self.reader.path.name,
            "system": self.reader.system,
            "folder": self._out.name,
            "figures": scores.names,
            "lists": self._lists,
            **summary_of(status, scores, self._series, self.reader.configuration, self._currency),
        }

    def _scores(self) -> Scores:
        return scores_of(self.reader.path, self._gold, self._metrics)

    def _write_chunks(
        self, entries: Iterator[Entry], scores: Scores, packers: ThreadPoolExecutor
    ) -> list[dict[str, Any]]:
        """Write the details of the questions `entries`, and return their rows for the list of questions."""
        rows: list[dict[str, Any]] = []
        while some := list(islice(entries, CHUNK)):
            every = details_of(some, self.reader, scores, self._finder, self._documents.place)
            packed = packers.map(_packed, [orjson.dumps(details) for details in every])
            place = self._out / f"questions-{self._chunks:05}.bin"
            start = 0
            with place.open("wb") as file:
                for entry, details, content in zip(some, every, packed, strict=True):
                    file.write(content)
                    row = _row(details, scores.names) | {
                        "chunk": self._chunks,
                        "start": start,
                        "size": len(content),
                    }
                    money = self._money(details["ledger"])
                    self._series.add(row, entry.ledger, wrongness(details["figures"]), money)
                    rows.append(row)
                    start += len(content)
            self._chunks += 1
        self._done += len(rows)
        return rows

    def _money(self, ledger: Mapping[str, Any]) -> dict[str, float]:
        """Return the cost of each prompt of a question in money, by the name of the prompt. It assumes the
        same share of cached tokens for all prompts. Empty without a price list.
        """
        if self._price is None:
            return {}
        default, of_role = self._price
        stages = [stage for stage in ledger["stages"] if stage["role"]]
        cached = ledger.get("cached_tokens", 0) / max(sum(stage["tokens_in"] for stage in stages), 1)
        return {
            stage["name"]: of_role.get(stage["role"], default).of(
                stage["tokens_in"], cached * stage["tokens_in"], stage["tokens_out"]
            )
            for stage in stages
        }

    def _write_list(self, rows: Sequence[Mapping[str, Any]]) -> None:
        file = f"list-{len(self._lists):05}.json.gz"
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        (self._out / file).write_bytes(_packed(orjson.dumps(columns)))
        self._lists.append({"file": file, "questions": len(rows)})


def _packed(content: bytes) -> bytes:
    return gzip.compress(content, _LEVEL, mtime=0)


def _row(details: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return the row of a question for the list of questions. Its figures are in the order of `names`."""
    gold, paths, ledger = details["gold"], details["gold_paths"], details["ledger"]
    usage = details["usage"]
    return {
        "id": details["id"],
        "question": _short(details["question"]),
        "answer": _short(details["answer"]),
        "state": details["state"],
        "reason": _short(details["reason"]),
        "type": "" if gold is None else gold["groups"].get("type", ""),
        "figures": [details["figures"].get(name) for name in names] if details["figures"] else [],
        "seconds": ledger.get("seconds"),
        "tokens": usage["prompt_tokens"] + usage["completion_tokens"],
        "calls": usage["llm_calls"],
        "gold": [sum(path["reached"] for path in paths), len(paths)],
    }


def _short(text: str | None) -> str | None:
    return text if text is None or len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
