"""The data of a report: a list of all questions, and the details of each, in compressed chunks.

The list of questions has a column for each field. Its columns `chunk`, `start` and `size` say where the details of
a question are.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyfast.api.evaluation import GoldLike
from pyfast.engine.ended_questions import ended_ids
from pyfast.engine.run_folder import JOURNAL
from pyfast.evaluation import Metric
from pyfast.evaluation.cost import prices_of
from pyfast.evaluation.prices import Prices
from pyfast.llm import ROLES
from pyfast.reports.blocks import LISTED, Block, BlockWriter
from pyfast.reports.processes import write_blocks
from pyfast.reports.reading import read_asked
from pyfast.reports.scores import Scores, scores_of
from pyfast.reports.summary import Series, summary_of

VERSION = 1
"""The version of the data's format"""


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
        out.mkdir(parents=True, exist_ok=True)
        self._writer = BlockWriter(path, out)
        self.reader = self._writer.reader
        self._asked = read_asked(path)
        self._currency = None if prices is None else prices.currency
        self._price = None if prices is None else prices_of(path, ROLES, prices)
        self._gold, self._metrics = gold, metrics
        self._series = Series()
        self._done = 0
        self._lists: list[dict[str, Any]] = []

    @property
    def done(self) -> int:
        """How many questions have been written into the folder."""
        return self._done

    def update(self, processes: int = 1) -> dict[str, Any]:
        """Write the questions that have ended since the last call. Returns the entry of the run in the report's
        manifest.

        `processes` is how many processes may work at the same time. The files do not depend on this number.

        Raises `InputError` if the run is damaged, or if the gold file has none of its questions.
        """
        reader = self.reader
        status = reader.run.status
        scores = scores_of(reader.path, self._gold, self._metrics) if status.ended else Scores()
        blocks = self._blocks(scores)
        for block, series in zip(blocks, write_blocks(self._writer, blocks, processes), strict=True):
            self._lists.append({"file": block.file, "questions": block.questions})
            self._series.extend(series)
            self._done += block.questions
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
        answers = len(self.reader.run.records)
        ids = ended_ids(self.reader.path / JOURNAL, self._done)[: answers - self._done]
        parts = [ids[start : start + LISTED] for start in range(0, len(ids), LISTED)]
        return [
            Block(
                len(self._lists) + at,
                self._done + at * LISTED,
                len(part),
                self._asked.around(part),
                scores.of(part),
                self._price,
            )
            for at, part in enumerate(parts)
        ]
