"""The triples that the questions of a run learn, while the run is in progress."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pyfast.knowledge import Session, Statement
from pyfast.knowledge.names import name_key, named_in, words_of
from pyfast.knowledge.session import learned_extracts
from pyfast.knowledge.store import Knowledge, fact_text
from pyfast.ops.arrays import Float32
from pyfast.retrieval.vectors.vector_search import Vectors


@dataclass(slots=True, eq=False)
class Learned:
    """The statements (triples) that a run has learned so far, in the order in which they were added. They are
    not in the store.

    One thread adds statements. Other threads may search at the same time.
    """

    statements: list[Statement] = field(default_factory=list)
    _keys: set[tuple[str, str, str]] = field(default_factory=set)
    _matrix: Float32 = field(default_factory=lambda: np.empty((0, 0), np.float32))
    """[rows, dimensions]: the vector of each statement, from `encode_statements`. Rows after the last
    statement are not yet used"""
    _by_words: dict[str, list[int]] = field(default_factory=dict)
    """For the words of each name: the positions of the statements with this name as head or tail"""

    def add(self, statement: Statement, vector: Float32) -> bool:
        """Add a statement, unless the same triple (ignoring case and spaces) was added before. Returns
        whether it was added."""
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
        """Return the positions of the statements whose head or tail occurs in a text, ascending."""
        return named_in(text, self._by_words)


def encode_statements(statements: Sequence[Statement], store: Knowledge) -> list[Float32]:
    """Compute a vector for each statement, float32[dimensions], as for a fact with one triple. In a system,
    call this function through `Context.call`.
    """
    texts = [fact_text(one.head, one.relation, [one.tail], backward=False) for one in statements]
    return list(store.encode(texts))


def shared_by(session: Session) -> Learned:
    """Return the statements that all questions of a run together have learned, with the setting
    `shared_updates`."""
    learned: Learned = session.shared.setdefault("learned", Learned())
    return learned


def share_again(session: Session, answers: Path) -> None:
    """When a run resumes, share the triples that its finished questions learned, in question order. `answers`
    is the run's `answers.jsonl` file."""
    statements = [statement for extract in learned_extracts(answers) for statement in extract.statements]
    for statement, vector in zip(statements, encode_statements(statements, session.store), strict=True):
        shared_by(session).add(statement, vector)
