"""What a run learns from the documents that it reads, before it joins the store."""

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
from pyfast.knowledge.names import name_key
from pyfast.knowledge.store import Knowledge
from pyfast.ops.arrays import Float32


@dataclass(slots=True, eq=False)
class Learned:
    """Statements that are not in the store, in the order in which they were learned."""

    statements: list[Statement] = field(default_factory=list)
    vectors: list[Float32] = field(default_factory=list)
    """[dimensions] of each statement, as `encode_statements` gives it"""
    keys: set[tuple[str, str, str]] = field(default_factory=set)

    def add(self, statement: Statement, vector: Float32) -> bool:
        """Whether it is new."""
        keys = (name_key(statement.head), name_key(statement.relation), name_key(statement.tail))
        if keys in self.keys:
            return False
        self.keys.add(keys)
        self.statements.append(statement)
        self.vectors.append(vector)
        return True

    def cosines(self, query: Float32) -> list[float]:
        """Of each statement to a query's vector."""
        return [float(np.dot(vector, query)) for vector in self.vectors]


def encode_statements(statements: Sequence[Statement], store: Knowledge) -> list[Float32]:
    """The vector of each statement, [dimensions], made from its text as that of a fact; for `Context.call`."""
    texts = [fact_text(one.head, one.relation, [one.tail], backward=False) for one in statements]
    return list(store.encode(texts))


def learned_extracts(answers: Path) -> Iterator[Extract]:
    """What the answers of a run say was learned, one extract for each question that learned, in their order."""
    for _, record in records_of(answers):
        if found := record["trace"].get("learned"):
            statements = (
                Statement(one["head"], one["relation"], one["tail"], int(one["segment"], 16)) for one in found
            )
            digest = blake2b(orjson.dumps((LEARNED, record["id"], found)), digest_size=16).hexdigest()
            yield Extract(digest, LEARNED, tuple(statements))
