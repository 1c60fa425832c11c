"""Facts: groups of triples, which a search in a knowledge graph finds together. A fact has all triples with
the same head and relation, or all triples with the same relation and tail.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pyfast.ops.arrays import Int32, Int64

IN_TEXT = 3
"""How many values of a fact are in the text from which its vector is computed. If the triples share the head,
their tails are the values. If they share the tail, their heads are the values. With more values, the vector
would say too little about the entity that the triples share"""


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """The facts of a knowledge graph. All triples with the same head and relation are together one fact. If
    several triples have the same relation and tail, they are together one more fact.

    A question is often about several triples, such as all twenty films of an actor. A search for the five
    nearest triples would find only five of these films. One fact has all twenty films, so a search for facts
    finds them together.
    """

    offsets: Int64
    """[facts + 1]: the position in `triples` at which each fact starts"""
    triples: Int32
    """the numbers of the triples of each fact, fact by fact"""
    by_tail: npt.NDArray[np.bool_]
    """[facts] True if the triples of a fact share the tail, False if they share the head"""
    about_offsets: Int64
    """[entities + 1]: the position in `about` at which the facts of each entity start"""
    about: Int32
    """The numbers of the facts about each entity, entity by entity. Together, the facts about an entity have
    all triples of this entity"""

    def __len__(self) -> int:
        return len(self.by_tail)

    def of(self, fact: int) -> Int32:
        """Return the numbers of the triples of a fact."""
        return self.triples[self.offsets[fact] : self.offsets[fact + 1]]

    def with_any_of(self, triples: Int32) -> Int64:
        """Return the numbers of the facts that have at least one of these triples, ascending."""
        held = np.flatnonzero(np.isin(self.triples, triples))
        facts: Int64 = np.unique(np.searchsorted(self.offsets, held, side="right") - 1)
        return facts

    def around(self, entities: Int32) -> tuple[Int32, Int64]:
        """Return (facts, positions): the facts about each of the `entities`, and for each fact the position
        of its entity in `entities`. For the entities [7, 3], a fact about entity 3 has the position 1."""
        begin = self.about_offsets[entities]
        sizes = self.about_offsets[entities + 1] - begin
        which = np.repeat(np.arange(len(entities)), sizes)
        return self.about[np.arange(len(which)) + (begin - np.cumsum(sizes) + sizes)[which]], which


def group_facts(head: Int32, relation: Int32, tail: Int32, entities: int) -> Facts:
    """Group triples into facts: by head and relation, and also by relation and tail.

    Within a fact, triples keep their order. `entities` is the number of entities.
    """
    forward, forward_ends = _runs(head, relation)
    backward, backward_ends = _runs(tail, relation)
    sizes = np.diff(backward_ends)
    several = np.repeat(sizes > 1, sizes)
    lengths = np.concatenate([np.diff(forward_ends), sizes[sizes > 1]])
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    triples = np.concatenate([forward, backward[several]]).astype(np.int32)
    is_backward = np.arange(len(lengths)) >= len(forward_ends) - 1
    first = triples[offsets[:-1]]
    fact_of = np.empty(len(head), np.int64)  # the fact of the triple's head and relation
    fact_of[forward] = np.repeat(np.arange(len(forward_ends) - 1), np.diff(forward_ends))
    alone = backward[~several]
    entity = np.concatenate([np.where(is_backward, tail[first], head[first]), tail[alone]])
    fact = np.concatenate([np.arange(len(lengths)), fact_of[alone]])
    pairs = np.unique(np.stack([entity, fact], axis=1), axis=0)
    about_offsets = np.searchsorted(pairs[:, 0], np.arange(entities + 1))
    return Facts(offsets, triples, is_backward, about_offsets, pairs[:, 1].astype(np.int32))


def _runs(entity: Int32, relation: Int32) -> tuple[Int64, Int64]:
    """Group triples by entity and relation. Returns two arrays: the numbers of the triples, group by group;
    then the position at which each group starts, followed by the number of all triples."""
    order = np.lexsort((relation, entity))
    changes = (np.diff(entity[order]) != 0) | (np.diff(relation[order]) != 0)
    starts = np.concatenate([[0], np.flatnonzero(changes) + 1]) if len(order) else np.empty(0, np.int64)
    return order, np.concatenate([starts, [len(order)]]).astype(np.int64)


def fact_text(subject: str, relation: str, values: Sequence[str], backward: bool) -> str:
    """Write the text from which a fact's vector is computed: the name of the entity that the triples of the
    fact share, the relation, and the first values. `backward` is True if the entity is the tail."""
    listed = ", ".join(values[:IN_TEXT])
    return f"{subject}: {relation} of {listed}" if backward else f"{subject} {relation} {listed}"
