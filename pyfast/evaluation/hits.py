"""The metrics of ConvMix: H@1, H@5 and MRR. They depend on the rank of the correct answer among the entities of
the evidence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pyfast.engine import Record
from pyfast.errors import InputError
from pyfast.evaluation.gold import Gold
from pyfast.evaluation.metrics import normalise
from pyfast.evaluation.protocol import Values, of_answers

NEAREST = 5


@dataclass(frozen=True, slots=True)
class Hits:
    """The ranking metrics of one answer, each in [0, 1]."""

    first: float
    among_five: float
    reciprocal_rank: float


def hits(prediction: str | None, answers: Sequence[str], entities: Sequence[str]) -> Hits:
    """Compute H@1, H@5 and the reciprocal rank (graph_convqa's paper, section 5.2).

    If the answer is correct, the rank is 1. Otherwise the entities are sorted by the Levenshtein distance
    between their names and the answer. The rank is then the position of the first correct entity. Entities
    with equal distances keep their order. If no entity is correct, or if there is no answer, all three
    figures are 0.

    Args:
        prediction: The answer. None: there is no answer.
        answers: Accepted forms of the correct answer.
        entities: The names of the entities in the evidence of this turn.

    Returns:
        H@1, H@5 and the reciprocal rank.

    Example:
        >>> from pyfast.evaluation import hits
        >>> hits("Christian Huygens", ["Christiaan Huygens"], ["Saturn", "Christiaan Huygens"]).first
        1.0
    """
    gold = {normalise(answer) for answer in answers} - {""}
    rank = math.inf
    if prediction is not None and normalise(prediction) in gold:
        rank = 1
    elif prediction is not None and gold:
        ranked = enumerate(by_distance(prediction, entities), start=1)
        rank = next((place for place, entity in ranked if normalise(entity) in gold), math.inf)
    return Hits(float(rank == 1), float(rank <= NEAREST), 1 / rank)


def by_distance(prediction: str, entities: Sequence[str]) -> list[str]:
    """Sort the names of entities by their Levenshtein distance to the answer. Case is ignored."""
    from rapidfuzz import process
    from rapidfuzz.distance import Levenshtein

    nearest = process.extract(
        prediction, entities, scorer=Levenshtein.distance, processor=str.casefold, limit=None
    )
    return [entity for entity, _, _ in nearest]


@of_answers
def hits_at(record: Record, gold: Gold) -> Values:
    """Compute H@1, H@5 and MRR from the `entities` in the trace of the answer."""
    entities = record.trace.get("entities", [])
    if not isinstance(entities, list) or not all(isinstance(entity, str) for entity in entities):
        raise InputError(f"the record of {record.id!r}: `entities` of its trace is not a list of strings")
    ranks = hits(record.answer, gold.answers, entities)
    return {"h@1": ranks.first, "h@5": ranks.among_five, "mrr": ranks.reciprocal_rank}
