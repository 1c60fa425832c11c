"""The data of a report: a list of all questions, and the details of each, in compressed chunks.

The list of questions has a column for each field. Its columns `chunk`, `start` and `size` say where the details of
a question are.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import Popen
from tempfile import TemporaryFile
from typing import IO, Any

from pydantic import TypeAdapter

from pyfast.engine import dedicate_process
from pyfast.engine.ended_questions import ended_ids
from pyfast.engine.run_folder import JOURNAL
from pyfast.errors import PyfastError, RunError, error_of, told_of
from pyfast.evaluation.cost import prices_of
from pyfast.evaluation.prices import Prices
from pyfast.llm import ROLES
from pyfast.processes import end_with_parent, process_of
from pyfast.reports.blocks import LISTED, Block, BlockWriter
from pyfast.reports.reading import BY_DEFAULT, Scores, Scoring, read_asked, scores_of
from pyfast.reports.summary import Series, summary_of

VERSION = 1
"""The version of the data's format"""


class RunData:
    """The data of one run in a folder. `update` adds the questions that have ended since its last call."""

    def __init__(self, path: Path, out: Path, scoring: Scoring = BY_DEFAULT, prices: Prices | None = None) -> None:
        """Start to write the data of the run `path` into the folder `out`.

        Raises `InputError` if the folder has no run, or if a model of the run is missing in `prices`.
        """
        out.mkdir(parents=True, exist_ok=True)
        self._writer = BlockWriter(path, out)
        self.reader = self._writer.reader
        self._asked = read_asked(path)
        self._currency = None if prices is None else prices.currency
        self._price = None if prices is None else prices_of(path, ROLES, prices)
        self._scoring = scoring
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
            "name": reader.path.name,
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
        raise RunError(f"a process that wrote a part of the report ended ({code}); does it need more memory?")
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
