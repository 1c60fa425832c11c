"""The data of a report: figures over all questions for the first screen, a list of all questions, and the details
of each, in compressed chunks.

The list of questions has a column for each field. Its columns `chunk`, `start` and `size` locate the details of a
question.

A block consists of consecutive questions of a run, and can be written without the other blocks. A chunk is a file
with a gzip member for each question, so that a page can unpack a single question. Documents are in separate files,
because several questions of a block can show the same document.
"""

from __future__ import annotations

import heapq
import logging
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from subprocess import Popen
from tempfile import TemporaryFile
from typing import IO, Any

import numpy as np
import orjson
from isal import igzip
from pydantic import TypeAdapter

from pyfast.engine import Question, Status, dedicate_process
from pyfast.engine.journal.journal_reader import ended_ids
from pyfast.engine.run_folder import JOURNAL
from pyfast.errors import PyfastError, RunError, error_of, told_of
from pyfast.evaluation.cost import Price, prices_of
from pyfast.llm import ROLES
from pyfast.reports.details import Source, details_of
from pyfast.reports.passages import Part, PassageFinder, index_of
from pyfast.reports.run_reader import BY_DEFAULT, Asked, RunReader, Scores, Scoring, scores_of, wrongness
from pyfast.utils.processes import end_with_parent, process_of

BINS = 60  # the number of bins of the run's time in the charts
EXTREMES = 10  # the number of questions of each kind
HIDDEN = ("prompts", "code", "format")  # digests tell a reader nothing
_USAGE = ("llm_calls", "prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens")
_OF_STAGE = {name: name for name in ("name", "role", "calls", "queued_ms", "running_ms", "batch")}
_OF_STAGE |= {"tokens_in": "prompt_tokens", "tokens_out": "completion_tokens"}
"""What a page shows of a stage: the name on the page, and the name in `StageStatus`"""


@dataclass
class Series:
    """Numbers about each finished question. They are collected while the run is read."""

    ids: list[str] = field(default_factory=list)
    texts: list[str | None] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    """When each question ended, in seconds since the epoch"""
    seconds: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    wrong: list[float] = field(default_factory=list)
    batches: list[float] = field(default_factory=list)
    """For each question: the mean number of LLM calls in flight, over the calls of this question"""
    worked: list[float] = field(default_factory=list)
    """For each question: the mean size of the batches of its other calls, such as searches"""
    money: dict[str, float] = field(default_factory=dict)
    """The cost of each stage in money, over all questions. Empty without a price list"""
    paid: list[float] = field(default_factory=list)
    """The cost of each question in money. 0 without a price list"""
    gold: list[bool] = field(default_factory=list)
    """For each question with gold documents: whether all of them are in the evidence of the answer"""
    reasons: list[tuple[str, str]] = field(default_factory=list)
    """(state, reason) of each question without an answer"""

    def add(
        self, row: Mapping[str, Any], ledger: Mapping[str, Any], wrong: float, money: Mapping[str, float]
    ) -> None:
        """Add one question: its row in the list, its usage (ledger), how wrong its answer is, and the cost of
        its stages.
        """
        self.ids.append(row["id"])
        self.texts.append(row["question"])
        self.seconds.append(row["seconds"] or 0.0)
        self.ends.append(float(ledger.get("started", 0.0)) + self.seconds[-1])
        self.tokens.append(row["tokens"])
        self.wrong.append(wrong)
        for sizes, of_prompts in ((self.batches, True), (self.worked, False)):  # prompts' stages have a role
            some = [stage for stage in ledger.get("stages", {}).values() if any(stage[4:5]) == of_prompts]
            calls = sum(stage[0] for stage in some)
            sizes.append(sum(stage[3] for stage in some) / calls if calls else 0.0)
        reached, gold = row["gold"]
        self.gold += [reached == gold] * bool(gold)
        self._pay(money)
        self.paid.append(sum(money.values()))
        if row["state"] != "answered":
            self.reasons.append((row["state"], row["reason"] or "the evidence does not contain the answer"))

    def extend(self, other: Series) -> None:
        """Add the questions of another series."""
        for name, values in vars(other).items():
            if name != "money":
                getattr(self, name).extend(values)
        self._pay(other.money)

    def _pay(self, money: Mapping[str, float]) -> None:
        for stage, value in money.items():
            self.money[stage] = self.money.get(stage, 0.0) + value

    def extremes(self) -> dict[str, list[tuple[str, float, str | None]]]:
        """Return the slowest, the most expensive and the most wrong questions, each as (id, number, text).
        The number is the time in seconds, the cost in money (without prices, the number of tokens), or how
        wrong the answer is, from 0 to 1.
        """
        ranked: dict[str, Sequence[float]] = {"wrong": self.wrong, "slowest": self.seconds}
        ranked |= {"money": self.paid} if any(self.paid) else {"tokens": self.tokens}
        return {
            name: [
                (self.ids[at], numbers[at], self.texts[at])
                for at in heapq.nlargest(EXTREMES, range(len(numbers)), key=numbers.__getitem__)
                if numbers[at] > 0
            ]
            for name, numbers in ranked.items()
        }

    def over_time(self) -> list[dict[str, float]]:
        """Return throughput and batch sizes over the time of the run. Empty if the run has stored no times."""
        known = np.array([self.ends, self.seconds, self.batches, self.worked])
        ends, seconds, batches, worked = known[:, known[0] > 1]
        if not len(ends):
            return []
        first = float(ends.min() - seconds[ends.argmin()])
        width = max(float(ends.max()) - first, 1e-3) / BINS
        place = np.minimum(((ends - first) / width).astype(int), BINS - 1)
        counts = np.bincount(place, minlength=BINS)
        bins = {"second": (np.arange(BINS) + 0.5) * width, "rate": counts / width}
        for name, values in (("batch", batches), ("worked", worked)):
            bins[name] = np.bincount(place, weights=values, minlength=BINS) / np.maximum(counts, 1)
        return [dict(zip(bins, row, strict=True)) for row in np.column_stack([*bins.values()]).tolist()]

    def latencies(self) -> list[dict[str, float]]:
        """Return a histogram of the seconds that questions took."""
        seconds = [one for one in self.seconds if one > 0]
        if not seconds:
            return []
        counts, edges = (values.tolist() for values in np.histogram(seconds, bins=40))
        bars = zip(edges, edges[1:], counts, strict=False)
        return [{"from": low, "to": high, "questions": count} for low, high, count in bars]


def summary_of(
    status: Status, scores: Scores, series: Series, configuration: Mapping[str, Any], currency: str | None
) -> dict[str, Any]:
    """Collect what the first screen of a report shows about one run, in JSON types. `currency` is the currency of
    the prices, if prices are given.
    """
    return {
        "configuration": {name: table for name, table in configuration.items() if name not in HIDDEN},
        "questions": status.questions,
        "running": status.running,
        "seconds_left": status.seconds_left,
        "waiting": status.waiting and {"llm": status.waiting.llm, "reason": status.waiting.reason},
        "states": status.states,
        "reasons": [(state, why, count) for (state, why), count in Counter(series.reasons).most_common(20)],
        "usage": {name: getattr(status, name) for name in _USAGE},
        "currency": currency,
        "percentiles": {f"p{percent}": value for percent, value in status.seconds.items()},
        "fall_backs": status.fall_backs,
        "left_out": status.left_out,
        "stages": [
            {shown: getattr(stage, name) for shown, name in _OF_STAGE.items()}
            | ({} if currency is None else {"money": series.money.get(stage.name, 0)})
            for stage in status.stages
        ],
        "gold": {"questions": len(series.gold), "lost": series.gold.count(False)},
        "scores": scores.rows,
        "not_run": scores.not_run[:100],
        "extremes": series.extremes(),
        "over_time": series.over_time(),
        "latencies": series.latencies(),
    }


CHUNK = 256
"""The number of questions whose details are in one file"""
LISTED = 4096
"""The maximum number of questions in a block. For each block, there is one file with its part of the list of
questions"""
_CHUNKS = LISTED // CHUNK  # the maximum number of chunks of a block
SHOWN = 160
"""The maximum number of characters of each text in the list of questions"""
DOCUMENTS = 4_000_000
"""A size in bytes. If a file with parts of documents is larger, the next part goes into a new file"""
_LEVEL = 2  # igzip's level. Level 3 takes a third more time and saves only a thirtieth of the size.


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
        for chunk in range(block.number * _CHUNKS, (block.number + 1) * _CHUNKS):
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
            content = _packed(self._finder.content(part))
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
    """Return the cost of each prompt of a question in money, by the prompt's name. All prompts are assumed to have
    the same share of cached tokens. Empty without a price list."""
    if price is None:
        return {}
    default, of_role = price
    stages = [stage for stage in ledger["stages"] if stage["role"]]
    cached = ledger.get("cached_tokens", 0) / max(sum(stage["tokens_in"] for stage in stages), 1)
    return {
        stage["name"]: of_role.get(stage["role"], default).of(
            read := stage["tokens_in"], cached * read, stage["tokens_out"]
        )
        for stage in stages
    }


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


VERSION = 1
"""The version of the data's format"""


class RunData:
    """The data of one run in a folder. `update` adds the questions that have ended since its last call."""

    def __init__(self, path: Path, out: Path, scoring: Scoring = BY_DEFAULT) -> None:
        """Start to write the data of the run `path` into the folder `out`.

        Raises `InputError` if the folder has no run, or if a model of the run is missing in the price list.
        """
        out.mkdir(parents=True, exist_ok=True)
        self._writer = BlockWriter(path, out)
        self.reader = self._writer.reader
        self._asked = self.reader.asked()
        self._scoring, prices = scoring, scoring.prices
        self._currency = None if prices is None else prices.currency
        self._price = None if prices is None else prices_of(path, ROLES, prices)
        self._series = Series()
        self.done = 0
        """How many questions have been written into the folder"""
        self._lists: list[dict[str, Any]] = []

    def update(self, processes: int = 1) -> dict[str, Any]:
        """Write the questions that have ended since the last call. Returns the entry of the run in the report's
        manifest.

        `processes` is how many processes may work at the same time. The files do not depend on this number.

        Raises `InputError` if the run is damaged, or if the gold file has none of its questions.
        """
        reader = self.reader
        status = reader.run.status
        scores = scores_of(reader.path, self._scoring) if status.ended else Scores()
        blocks = self._blocks(scores)
        for block, series in zip(blocks, write_blocks(self._writer, blocks, processes), strict=True):
            self._lists.append({"file": block.file, "questions": block.questions})
            self._series.extend(series)
            self.done += block.questions
        return {
            "system": reader.system,
            "folder": self._writer.out.name,
            "figures": scores.names,
            "lists": self._lists,
            **summary_of(status, scores, self._series, reader.configuration, self._currency),
        }

    def _blocks(self, scores: Scores) -> list[Block]:
        """Divide the questions that have ended since the last call into blocks."""
        first, end = self.done, len(self.reader.run.records)
        ids = ended_ids(self.reader.path / JOURNAL, first)[: end - first]
        blocks = []
        for number, start in enumerate(range(0, len(ids), LISTED), start=len(self._lists)):
            some = ids[start : start + LISTED]
            asked = self._asked.around(some)
            blocks.append(Block(number, first + start, len(some), asked, scores.of(some), self._price))
        return blocks


_BLOCK = TypeAdapter(Block)
_WRITTEN = TypeAdapter[Series | tuple[str, str]](Series | tuple[str, str])  # or the class and the text of an error


def write_blocks(writer: BlockWriter, blocks: Sequence[Block], processes: int) -> list[Series]:
    """Write blocks. This process writes a share of them, and additional processes write all others at the
    same time.

    Returns the `Series` of each block, in the order of `blocks`. Raises `InputError` if the run is damaged,
    and `RunError` if another process was killed. At the end of the call, even if it raises an error, all
    additional processes have ended.
    """
    count = max(min(processes, len(blocks)), 1)
    mine, *others = (blocks[first::count] for first in range(count))
    with ExitStack() as stack:
        started = [stack.enter_context(_process(writer, share)) for share in others]
        written = [[writer.write(block) for block in mine], *(_written(*one) for one in started)]
    return [written[number % count][number // count] for number in range(len(blocks))]


@contextmanager
def _process(writer: BlockWriter, blocks: Sequence[Block]) -> Iterator[tuple[Popen[bytes], IO[bytes]]]:
    """Start a process that writes blocks. Yields the process, and the file into which the process writes its
    lines. At the end of the `with` block, the process is killed if it is still running."""
    folders = str(writer.reader.path), str(writer.out)
    with TemporaryFile(dir=writer.out) as source, TemporaryFile(dir=writer.out) as sink:
        source.writelines(_BLOCK.dump_json(block) + b"\n" for block in blocks)
        source.seek(0)
        with process_of(__name__, *folders, stdin=source, stdout=sink) as process:
            yield process, sink


def _written(process: Popen[bytes], sink: IO[bytes]) -> list[Series]:
    """Wait until a process has written its blocks. Returns the `Series` of each block that the process wrote,
    or raises the error that ended the process."""
    if code := process.wait():
        raise RunError(f"a process that wrote a part of the report died ({code}); it may need more memory")
    sink.seek(0)
    written = []
    for line in sink:
        told = _WRITTEN.validate_json(line)
        if not isinstance(told, Series):
            raise error_of(*told)
        written.append(told)
    return written


def main() -> None:
    """Read blocks of questions from the standard input (a block is a JSON line), and write their pages."""
    logging.disable()  # The process that started this one warns.
    end_with_parent()
    run, out = sys.argv[1:]

    def tell(what: Series | tuple[str, str]) -> None:
        sys.stdout.buffer.write(_WRITTEN.dump_json(what) + b"\n")

    try:
        writer = BlockWriter(Path(run), Path(out))
        dedicate_process()
        for line in sys.stdin.buffer:
            tell(writer.write(_BLOCK.validate_json(line)))
    except PyfastError as error:
        tell(told_of(error))
