"""Collect everything that a page shows about one question, in types that orjson can write as JSON."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from pyfast.engine import Record
from pyfast.evaluation.gold import Gold
from pyfast.reports.passages import Part, Passage, PassageFinder, index_of
from pyfast.reports.paths import gold_paths
from pyfast.reports.run_reader import BY_DEFAULT, Entry, RunReader, Scoring, scores_of
from pyfast.systems.mtqa.settings import shares_of
from pyfast.systems.n2n_graphs import Graph, Pool, graphs_of, pools_of, with_joined
from pyfast.systems.traces import Step, segments_in, steps_of


@dataclass(frozen=True, slots=True)
class Source:
    """Where the details of questions come from."""

    reader: RunReader
    finder: PassageFinder
    """It must already have found the gold documents (`look_for`)"""
    figures: Mapping[str, Mapping[str, float | None]]
    """The figures of each question, by its id"""
    golds: Mapping[str, Gold]
    """The gold of each question, by its id"""
    place_of: Callable[[Part], Any]
    """A function that takes a part of a document and returns where a page finds it"""


def details_of(entries: Sequence[Entry], source: Source) -> Iterator[dict[str, Any]]:
    """Yield everything about each question: record, gold answers, the path through its steps, passages, LLM
    calls and stages.
    """
    reader, finder = source.reader, source.finder
    steps = [
        steps_of(reader.system, one.record.trace, [(piece.segment, piece.score) for piece in one.record.evidence])
        for one in entries
    ]
    segments = finder.segments(set(chain.from_iterable(map(segments_in, steps))))
    graphs: list[list[Graph]] = [[] for _ in entries]
    searched = reader.configuration.get("index", {}).get("corpus")
    # An index with other documents than the run's has other neighbours.
    if reader.system == "n2n" and finder.index is not None and finder.index.manifest["corpus"] == searched:
        graphs = _graphs(entries, steps, reader.settings, finder)
        segments |= finder.segments(chain.from_iterable(one["nodes"] for some in graphs for one in some))
        steps = [with_joined(*one) for one in zip(steps, graphs, strict=True)]
    for one in zip(entries, steps, graphs, strict=True):
        yield _details(*one, segments, source)


def _graphs(
    entries: Sequence[Entry], steps: Sequence[Sequence[Step]], settings: Mapping[str, Any], finder: PassageFinder
) -> list[list[Graph]]:
    """Compute the graphs of each question from the documents that the question could see. An unknown question gets
    no graph, because its documents are unknown, too."""
    together: dict[tuple[str, ...], list[Pool]] = defaultdict(list)
    for number, entry in enumerate(entries):
        if entry.question is not None and (pools := pools_of(steps[number], number, entry.question.text)):
            together[entry.question.documents] += pools
    graphs: list[list[Graph]] = [[] for _ in entries]
    for documents, pools in together.items():
        own = finder.within(documents)
        if own.index is not None:
            named = {id for pool in pools for id in (*pool.retrieved, *pool.kept)}
            for pool, graph in graphs_of(pools, own.index, own.segments(named), settings, own.shared_terms):
                graphs[pool.question].append(graph)
    return graphs


def _details(
    entry: Entry, steps: Sequence[Step], graphs: Sequence[Graph], segments: Mapping[str, int], source: Source
) -> dict[str, Any]:
    record, question, finder = entry.record, entry.question, source.finder
    system, gold = source.reader.system, source.golds.get(record.id)
    kept = [id for step in steps for each in step.lists[-1:] for id in each.segments]
    named = dict.fromkeys([*segments_in(steps), *chain.from_iterable(graph["nodes"] for graph in graphs)])
    passages = finder.find(named, kept, segments, record)
    supporting = () if gold is None else gold.supporting or ()
    documents = {uri: found for uri in supporting if (found := finder.document(uri)) is not None}
    around = [found.first for found in documents.values()]
    for one in record.evidence:
        if one.segment in segments:
            part, place = finder.part(segments[one.segment])
            passages[one.segment] |= place
            around.append(part)
    gold_passages = _gold_passages(passages, gold, record, segments, finder)
    followed = {id: one["uri"] for id, one in passages.items() if id in gold_passages.get(one["uri"], passages)}
    return {
        **{name: getattr(record, name) for name in ("id", "state", "answer", "reason", "usage", "trace")},
        "system": system,
        "question": question and question.text,
        "conversation": question and question.conversation,
        "ledger": _ledger(entry.ledger),
        "gold": gold
        and {
            "answers": gold.answers,
            "answerable": gold.answerable,
            "supporting": supporting,
            "groups": gold.groups(),
        },
        "figures": source.figures.get(record.id, {}),
        "evidence": [one.segment for one in record.evidence],
        "scores": [one.score for one in record.evidence],
        "calls": entry.calls,
        "passages": passages,
        "documents": {part.key: source.place_of(part) for part in dict.fromkeys(around)},
        "gold_passages": gold_passages,
        "gold_documents": {uri: found.shown for uri, found in documents.items()},
        "path": [step.as_json() for step in steps if step.lists],
        "graphs": graphs,
        "turns": [{"id": turn.id, "question": turn.text} for turn in entry.turns],
        **({"weights": shares_of(source.reader.settings)} if system == "mtqa" else {}),
        "gold_paths": gold_paths(steps, supporting, followed),
    }


def _gold_passages(
    passages: Mapping[str, Passage],
    gold: Gold | None,
    record: Record,
    segments: Mapping[str, int],
    finder: PassageFinder,
) -> dict[str, list[str]]:
    """Return the ids of the passages with a gold sentence or a gold row, by the document's uri. Documents with
    unknown gold sentences or rows are left out."""
    if gold is None or not gold.supporting_facts:
        return {}
    facts = set(gold.supporting_facts)
    starts = gold.sentence_starts or {}
    tables = {uri for uri, _ in facts if (found_in := finder.document(uri)) is not None and found_in.is_table}
    found: dict[str, list[str]] = {uri: [] for uri, _ in facts if uri in starts or uri in tables}
    offsets = {one.segment: one.offsets for one in record.evidence}
    for id, one in passages.items():
        uri = one["uri"]
        if uri in found:
            if id not in offsets and finder.index is not None:
                corpus, at = finder.index.corpus, segments[id]
                offsets[id] = int(corpus.start[at]), int(corpus.end[at])
            first, end = offsets[id]
            numbers = (gold.sentences(uri, first, end) or ()) if uri in starts else (first,)
            if any((uri, number) in facts for number in numbers):
                found[uri].append(id)
    return found


def question_of(run: Path, id: str, scoring: Scoring = BY_DEFAULT) -> dict[str, Any]:
    """Collect everything about one question in a run's folder, as `details_of` does. Raises `InputError` if
    no question with this id has ended.
    """
    reader = RunReader(run)
    entry = reader.entry(id, reader.asked())
    finder = PassageFinder(index_of(run))

    scores = scores_of(run, scoring).of([id])
    golds = scores.gold()
    finder.look_for(golds.values())
    return next(details_of([entry], Source(reader, finder, scores.figures, golds, finder.content)))


def _ledger(ledger: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ledger of a question, with a name for each field of each stage."""
    stages = [_stage(name, stage) for name, stage in ledger.get("stages", {}).items()]
    return {**{name: ledger[name] for name in _KEPT if name in ledger}, "stages": stages}


_KEPT = (
    *("started", "seconds", "cached_tokens", "reasoning_tokens", "fall_backs", "left_out", "repaired"),
    *("nothing_found", "spans"),
)
"""The other entries of a ledger that a page shows"""


def _stage(name: str, stage: list[Any]) -> dict[str, Any]:
    """Return one stage of a ledger's row, with a name for each field."""
    calls, queued, running, batches, *of_prompt = stage
    role, tokens_in, tokens_out = of_prompt if len(of_prompt) == 3 else ("", 0, 0)
    return {
        "name": name,
        "calls": calls,
        "queued_ms": queued / 1000,
        "running_ms": running / 1000,
        "batch": batches / max(calls, 1),
        "role": role,
        "tokens_in": tokens_in,
        "tokens_out": tokens_out,
    }
