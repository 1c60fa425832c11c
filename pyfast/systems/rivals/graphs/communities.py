"""GraphRAG's communities: groups of entities in a knowledge graph, which consist of smaller groups (hierarchical
Leiden). An LLM writes a report on each community, starting with the smallest. Each report becomes a document."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson

from pyfast.corpus import Outline, TextDocument
from pyfast.engine.traces import records_of
from pyfast.errors import InputError
from pyfast.knowledge import Session, has_knowledge, open_knowledge
from pyfast.knowledge.snapshots import make_snapshot, set_current
from pyfast.knowledge.store import Knowledge
from pyfast.retrieval import Index
from pyfast.retrieval.index.index import KNOWLEDGE
from pyfast.retrieval.vectors.embeddings import Embedder
from pyfast.systems.rivals.common import Layers
from pyfast.systems.rivals.graphs.levels import Found, described
from pyfast.systems.rivals.graphs.reports import REPORT, URI, write_report
from pyfast.utils.extras import explained
from pyfast.utils.files import link_folder, write_atomically
from pyfast.utils.jsonl import read_lines
from pyfast.utils.token_budget import CHARACTERS_PER_TOKEN, fit

COMMUNITIES = "communities.jsonl"
LARGEST = 10
"""The number of entities from which a community is divided again, as in the authors' code"""
LONGEST = int(8000 * CHARACTERS_PER_TOKEN)
"""The maximum number of characters that the LLM reads per community"""
Line = tuple[str, frozenset[int]]
"""A line about an entity or a relation, and the entities that it is about"""


class Community(NamedTuple):
    level: int
    """0 for the largest communities"""
    entities: frozenset[int]
    children: tuple[int, ...]
    """The numbers of the communities that make it up"""


def communities_of(store: Knowledge, levels: int) -> dict[int, Community]:
    """Find the communities of a knowledge graph by hierarchical Leiden. An edge's weight is how often texts
    state the triples that join its two entities. Returns the communities of the `levels` highest levels, by
    number. Communities without an inner edge are left out."""
    with explained():
        from graspologic_native import hierarchical_leiden

    stated = np.maximum(np.diff(store.statements.offsets), 1).tolist()
    weights: dict[tuple[int, int], float] = defaultdict(float)
    for head, tail, times in zip(store.head.tolist(), store.tail.tolist(), stated, strict=True):
        if head != tail:
            weights[min(head, tail), max(head, tail)] += times
    edges = [(str(one), str(other), weight) for (one, other), weight in weights.items()]
    of_entity: dict[int, dict[int, int]] = defaultdict(dict)  # for each entity: its community at each level
    above: dict[int, int | None] = {}
    for place in hierarchical_leiden(edges, max_cluster_size=LARGEST, seed=0) if edges else ():
        if place.level < levels:
            of_entity[int(place.node)][place.level] = place.cluster
            above[place.cluster] = place.parent_cluster
    held = {
        number: level
        for one, other in weights
        for level, number in of_entity[one].items()
        if of_entity[other].get(level) == number
    }
    entities, children = defaultdict(set), defaultdict(list)
    for entity, numbers in of_entity.items():
        for number in numbers.values():
            entities[number].add(entity)
    for number in sorted(held):
        children[above[number]].append(number)
    return {
        number: Community(held[number], frozenset(entities[number]), tuple(children[number]))
        for number in sorted(held)
    }


def lines_about(community: Community, session: Session) -> list[Line]:
    """Write the relations inside a community as lines. Relations whose ends have the most relations come first,
    and each follows the entities that it joins."""
    store = session.store
    inside = np.array(sorted(community.entities))
    triples = np.unique(np.concatenate([session.around(entity) for entity in inside]))
    triples = triples[np.isin(store.head[triples], inside) & np.isin(store.tail[triples], inside)]
    worth = store.degree[store.head[triples]] + store.degree[store.tail[triples]]
    triples = triples[np.lexsort((triples, -worth))]
    ends = [(int(store.head[triple]), int(store.tail[triple])) for triple in triples]
    entities = tuple(dict.fromkeys(end for pair in ends for end in pair))
    ((names, relations),) = described([(Found(entities, tuple(triples.tolist())), session)], store)
    lines, told = list[Line](), dict(zip(entities, names, strict=True))
    for pair, relation in zip(ends, relations, strict=True):
        lines += [(told.pop(end), frozenset([end])) for end in pair if end in told]
        lines.append((relation, frozenset(pair)))
    return lines


def shortened(lines: Sequence[Line], parts: Sequence[tuple[frozenset[int], str]], longest: int) -> list[str]:
    """Replace the lines about parts of a community with the reports on these parts, starting with the part
    that has the most text, until the whole has at most `longest` characters."""
    part_of = {entity: number for number, (members, _) in enumerate(parts) for entity in members}
    owners = [
        next(iter(of)) if len(of := {part_of.get(one, -1) for one in about}) == 1 else -1 for _, about in lines
    ]
    sizes, replaced = [0] * len(parts), list[int]()
    for (text, _), owner in zip(lines, owners, strict=True):
        if owner >= 0:
            sizes[owner] += len(text) + 1
    left = sum(len(text) + 1 for text, _ in lines)
    for part in sorted(range(len(parts)), key=lambda part: -sizes[part]):
        if left <= longest:
            break
        left += len(parts[part][1]) + 1 - sizes[part]
        replaced.append(part)
    kept = [text for (text, _), owner in zip(lines, owners, strict=True) if owner not in replaced]
    return fit([*(parts[part][1] for part in replaced), *kept], longest, first="cut")


def community_layers(index: Index, embedder: Embedder, levels: int) -> Layers:
    """Return how to write the reports on the communities in an index's knowledge graph, the lowest level first.

    Raises `InputError` if the index already has reports, or has no knowledge graph with relations.
    """
    if any(index.corpus.uri(document).startswith(URI) for document in range(index.corpus.documents)):
        raise InputError(f"{index.folder} already has reports; use the index from which they were made")
    if not has_knowledge(index):
        raise InputError(
            f"{index.folder} has no knowledge graph; build it with `pyfast knowledge build {index.folder}`"
        )
    session = Session(index, open_knowledge(index, embedder))
    communities = communities_of(session.store, levels)
    if not communities:
        raise InputError(f"{index.folder}: no relation joins two entities of the knowledge graph")
    highest = 1 + max(community.level for community in communities.values())
    reports: dict[int, tuple[str, str]] = {}  # for each community with a report: its uri, and its text on one line

    def asked(number: int) -> dict[str, Any]:
        """Describe a community, and write what the LLM reads about it as the text of a question."""
        level, entities, children = communities[number]
        below = [child for child in children if child in reports]
        parts = [(communities[child].entities, reports[child][1]) for child in below]
        text = "\n".join(shortened(lines_about(communities[number], session), parts, LONGEST))
        names = [session.store.entities[entity] for entity in sorted(entities)]
        digest = blake2b("\n".join([text, *names]).encode(), digest_size=8).hexdigest()
        about = {"level": level, "is_leaf": not children, "entities": names}
        return {
            "id": digest,
            "question": text,
            "number": number,
            **about,
            "children": [reports[one][0] for one in below],
        }

    def plan(folder: Path, layer: int) -> Path | None:
        if layer > highest:
            return None
        path = folder / COMMUNITIES
        if not path.is_file():
            here = [number for number, community in communities.items() if community.level == highest - layer]
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, b"\n".join(orjson.dumps(asked(number)) for number in here))
        return path

    def written(folder: Path, layer: int) -> list[TextDocument]:
        documents = []
        answers = {record["id"]: record for _, record in records_of(folder / "answers.jsonl")}
        for _, one in read_lines(folder / COMMUNITIES):
            record = answers[one["id"]]
            if record["state"] == "answered":
                about = {name: one[name] for name in ("level", "is_leaf", "entities", "children")}
                about["rating"] = record["trace"]["rating"]
                outline = Outline(about=orjson.dumps(about).decode())
                uri, title, text = f"{URI}{one['level']}/{one['id']}", record["trace"]["title"], record["answer"]
                documents.append(TextDocument(uri, title, text, outline=outline))
                reports[one["number"]] = uri, f"{title}: {' '.join(text.split())}"
        return documents

    def finish(made: Path) -> None:
        """Add the knowledge graph to the index with the reports, where it counts as extracted from that
        index's documents.
        """
        (made / KNOWLEDGE).mkdir()
        link_folder(session.store.folder, made / KNOWLEDGE / "1")
        set_current(made / KNOWLEDGE, 1)
        whole = Index(made)
        make_snapshot(whole, embedder, lambda database: None, {"corpus": whole.manifest["corpus"]})

    begun = {"of": "communities", "knowledge": session.store.fingerprint, "levels": levels}
    return Layers(REPORT, write_report, plan, written, begun, finish)
