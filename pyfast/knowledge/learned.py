"""Learned statements: triples that a run extracts from documents while it answers questions. They are not in the
store.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

import numpy as np
import orjson

from pyfast.engine.traces import records_of
from pyfast.knowledge.extracts import LEARNED, Extract, Statement
from pyfast.knowledge.facts import fact_text
from pyfast.knowledge.names import name_key, named_in, words_of
from pyfast.knowledge.store import Knowledge
from pyfast.ops.arrays import Float32
from pyfast.retrieval.vectors import Vectors


@dataclass(slots=True, eq=False)
class Learned:
    """The learned statements (triples) of a run so far, in the order in which they were added. They are not
    in the store.

    One thread adds statements. Other threads may search at the same time.
    """

    statements: list[Statement] = field(default_factory=list)
    _keys: set[tuple[str, str, str]] = field(default_factory=set)
    _matrix: Float32 = field(default_factory=lambda: np.empty((0, 0), np.float32))
    """[rows, dimensions]: the vector of each statement, from `encode_statements`. Rows after the last
    statement are not used yet"""
    _by_words: dict[str, list[int]] = field(default_factory=dict)
    """For the words of each name: the positions of the statements that have this name as head or tail"""

    def add(self, statement: Statement, vector: Float32) -> bool:
        """Add a statement, unless the same triple was added before. Case and spaces do not matter. Returns whether
        the statement was added."""
        keys = (name_key(statement.head), name_key(statement.relation), name_key(statement.tail))
        if keys in self._keys:
            return False
        self._keys.add(keys)
        place = len(self.statements)
        if place == len(self._matrix):
            grown = np.empty((max(2 * place, 8), len(vector)), np.float32)
            grown[:place] = self._matrix.reshape(place, len(vector))
            self._matrix = grown
        self._matrix[place] = vector
        self.statements.append(statement)
        for words in {words_of(statement.head), words_of(statement.tail)} - {""}:
            self._by_words.setdefault(words, []).append(place)
        return True

    def vectors(self) -> Vectors:
        """Return the vectors of the statements so far."""
        # Another thread may add rows. Read the number first: the matrix has at least as many.
        count = len(self.statements)
        return Vectors(self._matrix[:count])

    def named_in(self, text: str) -> list[int]:
        """Find the statements whose head or tail occurs in a text. Returns their positions, ascending."""
        return named_in(text, self._by_words)


def encode_statements(statements: Sequence[Statement], store: Knowledge) -> list[Float32]:
    """Compute a vector for each statement, float32[dimensions], as for a fact with one triple. In a system,
    call this function through `Context.call`.
    """
    texts = [fact_text(one.head, one.relation, [one.tail], backward=False) for one in statements]
    return list(store.encode(texts))


def learned_extracts(answers: Path) -> Iterator[Extract]:
    """Read the triples that the questions of a run learned, in the order of the questions. For each question
    with learned triples, there is one extract. `answers` is the file `answers.jsonl` of the run."""
    for _, record in records_of(answers):
        if learned := record["trace"].get("learned"):
            statements = (
                Statement(one["head"], one["relation"], one["tail"], int(one["segment"], 16)) for one in learned
            )
            digest = blake2b(orjson.dumps((LEARNED, record["id"], learned)), digest_size=16).hexdigest()
            yield Extract(digest, LEARNED, tuple(statements))
