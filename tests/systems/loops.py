"""Loops written from papers, beside the systems: what happens in the course of a question, as a list of events."""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from scripted import Scripted, run

from pyfast.knowledge import Session
from pyfast.llm import Request
from pyfast.retrieval import Index, Pool
from pyfast.retrieval.bm25 import BM25Retriever

QUESTIONS = [
    "Who discovered the moon that Huygens landed on?",
    "Which planet does Titan circle?",
    "In which year was the commander of Apollo 11 born?",
]
WORDS = ["moon", "Saturn", "Titan", "Huygens", "Apollo", "11", "commander", "landed", "orbit", "Mars", "rover"]
Event = tuple[Any, ...]
"""What happens in the course of a question: ("search", query, k), or (prompt, passages, other text)"""


@dataclass
class Library:
    """A corpus in which a loop searches, as its paper has it: a query, and the k best passages."""

    index: Index
    events: list[Event] = field(default_factory=list)

    def search(self, query: str, k: int) -> list[int]:
        self.events.append(("search", query, k))
        (pool,) = self.index.search([query], k)
        return [int(passage) for passage in pool.passages]

    def read(self, kind: str, passages: Sequence[int], *texts: str) -> None:
        self.events.append((kind, tuple(self.index.text(passage) for passage in passages), *texts))


def lines_of(context: str) -> tuple[str, ...]:
    """The passages in a text of numbered lines, without their numbers."""
    if not context:
        return ()
    lines = context.split("\n")
    assert [re.match(r"\[(\d+)\] ", line)[1] for line in lines] == [str(at + 1) for at in range(len(lines))]  # type: ignore[index]
    return tuple(line.partition(" ")[2] for line in lines)


def happened(
    small: Index,
    question: str,
    system: str,
    replies: dict[str, Any],
    parts: dict[str, str],
    session: Session | None = None,
    **settings: Any,
) -> tuple[list[Event], Any]:
    """The events of a system that answers a question, and its record.

    `parts`: for each prompt, a pattern whose first group is the passages, and whose others are texts.
    """
    events: list[Event] = []

    class Recorded(BM25Retriever):
        def search(self, queries: Sequence[str], k: int) -> list[Pool]:
            events.extend(("search", query, k) for query in queries)
            pools: list[Pool] = super().search(queries, k)
            return pools

    def heard(kind: str, given: Any) -> Callable[[Request], Any]:
        said = iter(given)

        def reply(request: Request) -> Any:
            found = re.fullmatch(parts[kind], request.messages[-1].content, re.DOTALL)
            assert found is not None, request.messages[-1].content
            context, *texts = found.groups()
            events.append((kind, lines_of(context), *texts))
            return next(said)

        return reply

    llm = Scripted(**{kind: heard(kind, given) for kind, given in replies.items()})
    (record,) = run(Index(small.folder, Recorded), llm, [question], system, session=session, **settings)
    return events, record


def drawn(*seed: object) -> Iterator[str]:
    """Texts of a few words of the corpus."""
    words = random.Random(repr(seed))
    while True:
        yield " ".join(words.choices(WORDS, k=words.randint(1, 5)))


REASONED = (
    r"Use at most 300 characters for the answer\.\n\nEvidence:\n(.*)\n\nThink step by step\.\nQuestion: (.*)"
)
ANSWER = r"Use at most 300 characters for the answer\.\n\nEvidence:\n(.*)\n\nQuestion: (.*)"
