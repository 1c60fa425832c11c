"""MTQA's knowledge units in plain Python: dictionaries and loops over the triples, one search at a time.

What a keyword matches, and cosines, are the store's: what is compared is how units are put together.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from pyfast.knowledge import Session
from pyfast.knowledge.store import IN_TEXT
from pyfast.systems.mtqa.knowledge_units import DECAY, MAX_NEIGHBOURS, MAX_TRIPLES, Keywords, KnowledgeUnit


class PlainUnits:
    """The facts of a store, by entity."""

    def __init__(self, session: Session) -> None:
        self.session, store = session, session.store
        self.ends = list(zip(store.head.tolist(), store.tail.tolist(), strict=True))
        relations = store.relation.tolist()
        forward, backward = defaultdict(list), defaultdict(list)
        for triple, (head, tail) in enumerate(self.ends):
            forward[head, relations[triple]].append(triple)
            backward[tail, relations[triple]].append(triple)
        several = [(key, triples) for key, triples in sorted(backward.items()) if len(triples) > 1]
        facts = [*sorted(forward.items()), *several]
        self.facts = [triples for _, triples in facts]
        self.fact_of = {triple: fact for fact in range(len(forward)) for triple in self.facts[fact]}
        self.about: dict[int, set[int]] = defaultdict(set)
        for fact, ((entity, _), _) in enumerate(facts):
            self.about[entity].add(fact)
        for (entity, _), triples in backward.items():
            if len(triples) == 1:
                self.about[entity].add(self.fact_of[triples[0]])
        self.near: dict[int, set[int]] = defaultdict(set)
        for head, tail in self.ends:
            if head != tail:
                self.near[head].add(tail)
                self.near[tail].add(head)

    def matched(self, what: str, words: tuple[str, ...], k: int) -> dict[int, float]:
        """What keywords match, and how well."""
        store, best = self.session.store, {}
        for word in words:
            places, cosines = store.search(what, store.encode([word]), k)
            for place, cosine in zip(places[0].tolist(), cosines[0].tolist(), strict=True):
                best[place] = max(cosine, best.get(place, 0.0))
        return best

    def __call__(self, item: Keywords, entities: int, relations: int, units: int) -> list[KnowledgeUnit]:
        """As `knowledge_units`, for one search."""
        store = self.session.store
        names = self.matched("entities", item.detailed, entities)
        keys = self.matched("keys", item.general, relations)
        query = store.encode([", ".join((*item.detailed, *item.general))])[0]
        weight: dict[int, float] = {}
        best: dict[int, float] = {}
        for key, match in keys.items():
            for triple in store.triples_of_key(key, query, MAX_TRIPLES).tolist():
                weight[self.fact_of[triple]] = max(match, weight.get(self.fact_of[triple], 0.0))
                for entity in self.ends[triple]:
                    best[entity] = max(match, best.get(entity, 0.0))
        for name, match in names.items():
            for entity in self.near[name]:
                best[entity] = max(match, best.get(entity, 0.0))
        fewest = sorted(best, key=lambda entity: (len(self.about[entity]), entity))[:MAX_NEIGHBOURS]
        for entity, match in [*names.items(), *((entity, DECAY * best[entity]) for entity in fewest)]:
            for fact in self.about[entity]:
                weight[fact] = max(match, weight.get(fact, 0.0))
        cosine = store.cosines(np.array(sorted(weight), np.int32), query)
        scores = {
            fact: float(np.float32(weight[fact]) * near) for fact, near in zip(sorted(weight), cosine, strict=True)
        }
        found: dict[int, tuple[float, list[tuple[str, str, str]]]] = {}
        for fact in sorted(scores, key=lambda fact: (-scores[fact], fact)):
            budget = min(len(found) + IN_TEXT, units)
            for triple in self.facts[fact][:MAX_TRIPLES]:
                here = self.session.passages(store.sources([triple])[0])
                for unit in ([unit for unit in here if unit in found] or here)[:1]:
                    if unit in found or len(found) < budget:
                        said = found.setdefault(unit, (scores[fact], []))[1]
                        if store.triple(triple) not in said:
                            said.append(store.triple(triple))
            if len(found) == units:
                break
        return [KnowledgeUnit(unit, tuple(triples), score) for unit, (score, triples) in found.items()]
