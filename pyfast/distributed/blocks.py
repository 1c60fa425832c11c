"""The blocks of a run. A block is an ordinary run of some consecutive questions. Its folder is inside of the
folder of the whole run.

The name of the folder has the numbers of the block's questions: `blocks/000000001-000000128` has the first
128 questions. The folder appears only after the block's file of questions is complete.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from pyfast.engine import Question, Questions, write_questions
from pyfast.engine.journal import Journal
from pyfast.engine.run_folder import BLOCKS, JOURNAL
from pyfast.files import built_aside, free_name

QUESTIONS = "questions.jsonl"
_NAME = re.compile(r"(\d{9,})-(\d{9,})")
_LARGEST, _SMALLEST = 4096, 8
"""The maximum and the minimum number of questions in a block.

With larger blocks, there is less overhead. With smaller blocks, all workers finish at about the same time
"""
_SHARES = 4
"""The maximum size of the next block is the number of remaining questions, divided by `_SHARES` and by the
number of workers. So the last blocks are the smallest"""


@dataclass(frozen=True, slots=True, order=True)
class Block:
    """Consecutive questions of a run, which one worker answers."""

    first: int
    """The position of the block's first question in the run"""
    count: int
    folder: Path

    @property
    def end(self) -> int:
        """The position after the block's last question."""
        return self.first + self.count


def blocks_in(run: Path) -> list[Block]:
    """Return the started blocks that are not merged into the run yet, in the order of their questions."""
    found = []
    if (run / BLOCKS).is_dir():
        for folder in (run / BLOCKS).iterdir():
            if match := _NAME.fullmatch(folder.name):
                first, last = int(match[1]) - 1, int(match[2])
                found.append(Block(first, last - first, folder))
    return sorted(found)


def cut(
    run: Path,
    questions: Iterator[Question],
    done: int,
    total: int,
    existing: Sequence[Block],
    workers: int,
    asked: int,
) -> Iterator[Block]:
    """Yield the blocks of the questions that are not merged yet, in order.

    A new block is made when a worker needs it. All turns of a conversation are in the same block. Only the
    questions of one block are in memory.

    Args:
        run: The folder of the run.
        questions: All questions of the run.
        done: How many questions are already merged.
        total: The number of all questions.
        existing: Blocks that were started before. Some questions of the first block may already be merged.
        workers: How many workers answer the blocks.
        asked: The run's journal may already have LLM calls of the first `asked` questions. Blocks with these
            questions get copies of the calls.
    """
    place = min([done, *(block.first for block in existing)])
    left = islice(questions, place, None)
    ahead: list[Question] = []
    for known in [*existing, Block(total, 0, run)]:
        while place < known.first:
            size = max(_SMALLEST, min(_LARGEST, (total - place) // (_SHARES * workers)))
            taken, ahead = _taken(ahead, left, min(size, known.first - place))
            block = Block(place, len(taken), run / BLOCKS / f"{place + 1:09}-{place + len(taken):09}")
            _make(run, block, taken, place < asked)
            place = block.end
            yield block
        if known.count:
            taken, ahead = [*ahead, *islice(left, known.count - len(ahead))], []
            place = known.end
            yield known


def _taken(
    ahead: list[Question], questions: Iterator[Question], size: int
) -> tuple[list[Question], list[Question]]:
    """Take the questions of the next block: first the list `ahead`, then questions from the iterator.

    Returns two lists. The first list has `size` questions, or more to complete the last conversation. The
    second list has the question that was read after these questions, if there is one. Pass it as `ahead` next
    time.
    """
    taken = [*ahead, *islice(questions, max(size - len(ahead), 0))]
    for question in questions:
        if question.conversation is None or question.conversation != taken[-1].conversation:
            return taken, [question]
        taken.append(question)
    return taken, []


def _make(run: Path, block: Block, questions: Sequence[Question], was_asked: bool) -> None:
    block.folder.parent.mkdir(mode=0o700, exist_ok=True)
    with built_aside(block.folder) as aside:
        aside.chmod(0o700)
        checked = Questions(partial(iter, questions), len(questions), digest="")
        write_questions(checked, aside / QUESTIONS)
        if was_asked:
            journal = Journal(aside / JOURNAL)
            journal.take_in(run / JOURNAL, block.first, block.end - 1, -block.first)
            journal.close()


def remove(block: Path) -> None:
    """Delete a block's folder.

    The folder is renamed first, so that a killed process leaves no incomplete block.
    """
    aside = free_name(block, "merged")
    block.rename(aside)
    shutil.rmtree(aside)
