"""Everything that a page shows of one question, in JSON types."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from pyfast.api.evaluating import GoldLike
from pyfast.engine.kept_prompts import LLMCall
from pyfast.errors import InputError
from pyfast.evaluation import Metric
from pyfast.evaluation.gold import Gold
from pyfast.reports.graphs import graphs_of, pools_of
from pyfast.reports.passages import PassageFinder, as_json, index_of
from pyfast.reports.paths import Step, gold_paths, steps_of
from pyfast.reports.reading import Entry, RunReader
from pyfast.reports.scores import Scores, scores_of
from pyfast.systems.mtqa.settings import Settings


def details_of(entry: Entry, reader: RunReader, scores: Scores, finder: PassageFinder) -> dict[str, Any]:
    """One question: its record, gold, path, passages, calls and stages."""
    record, system = entry.record, reader.system
    question = entry.question
    text = "" if question is None else question.text
    gold = scores.gold.get(record.id)
    steps = steps_of(system, record)
    named = [id for step in steps for each in step.lists for id in each.segments]
    kept = [id for step in steps for each in step.lists[-1:] for id in each.segments]
    graphs = graphs_of(pools_of(steps, text), finder, reader.settings) if system == "n2n" else []
    named += [node["id"] for graph in graphs for node in graph["nodes"]]
    passages = finder.find(named, kept, record)
    supporting = () if gold is None else gold.supporting or ()
    uri_of = {id: one.uri for id, one in passages.items()}
    return {
        "id": record.id,
        "system": system,
        "question": None if question is None else question.text,
        "conversation": None if question is None else question.conversation,
        "state": record.state,
        "answer": record.answer,
        "reason": record.reason,
        "usage": asdict(record.usage),
        "ledger": _ledger(entry.ledger),
        "gold": _gold(gold),
        "figures": scores.figures(record.id),
        "evidence": [one.segment for one in record.evidence],
        "scores": [one.score for one in record.evidence],
        "trace": record.trace,
        "calls": [_call(call) for call in entry.calls],
        "passages": as_json(passages),
        "path": [_step(step) for step in steps],
        "graphs": graphs,
        "turns": [{"id": turn.id, "question": turn.text} for turn in reader.turns(question)],
        **({"weights": _weights(reader.settings)} if system == "mtqa" else {}),
        "gold_paths": [asdict(one) for one in gold_paths(steps, supporting, uri_of)],
    }


def _weights(settings: Mapping[str, Any]) -> list[list[float]] | None:
    """What share of a thought the one below it sees, by row and column."""
    with contextlib.suppress(ValueError, InputError):  # of a release with other settings
        matrix: list[list[float]] = np.asarray(Settings(**settings).matrix()).tolist()
        return matrix
    return None


def question_of(
    run: Path, id: str, gold: GoldLike | None = None, metrics: Sequence[str | Metric] | None = None
) -> dict[str, Any]:
    """One question of a run's folder. Raises `InputError` if no such question has ended."""
    reader = RunReader(run)
    entry = reader.entry(id)
    return details_of(entry, reader, scores_of(run, gold, metrics), PassageFinder(index_of(run)))


def _gold(gold: Gold | None) -> dict[str, Any] | None:
    if gold is None:
        return None
    return {"answers": gold.answers, "supporting": gold.supporting or (), "groups": gold.groups()}


def _step(step: Step) -> dict[str, Any]:
    lists = [{"name": each.name, "segments": each.segments} for each in step.lists]
    return {"name": step.name, "query": step.query, "lists": lists}


def _call(call: LLMCall) -> dict[str, Any]:
    messages = call.messages
    return {
        "prompt": call.prompt,
        "role": call.role,
        "messages": None if messages is None else [asdict(message) for message in messages],
        "completion": None if call.completion is None else asdict(call.completion),
        "error": call.error,
    }


def _ledger(ledger: Mapping[str, Any]) -> dict[str, Any]:
    """The ledger with named fields for each stage."""
    if not ledger:
        return {"stages": []}
    known = ("started", "seconds", "cached_tokens", "reasoning_tokens", "fall_backs", "left_out", "spans")
    return {
        **{name: ledger[name] for name in known if name in ledger},
        "stages": [stage_of(name, stage) for name, stage in ledger["stages"].items() if isinstance(stage, list)],
    }


def stage_of(name: str, stage: list[Any]) -> dict[str, Any]:
    """One stage of a ledger's row, with named fields."""
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
