"""`pyfast.show`: a question's trace as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import indent, shorten
from typing import Any

from pyfast.api.evaluating import GoldLike
from pyfast.api.run import Run
from pyfast.evaluation import Metric
from pyfast.reports.details import question_of
from pyfast.reports.scores import scores_of, wrongness
from pyfast.reports.writing import folders_of

_LISTED = 10  # passages of a list
_BAR = 30  # characters of the longest stage
_REPLY = 300  # characters of a reply


def show(run: Run | str | Path, id: str, gold: GoldLike | None = None, *, prompts: bool = False) -> str:
    """Write one question of a run as text: its answer, its path, its gold passages, its LLM calls.

    Args:
        run: The run, or its folder.
        id: The id of the question.
        gold: As for `pyfast.evaluate`. None: the gold beside or in the questions, if there is any.
        prompts: Whether to show the full prompts and replies.

    Returns:
        Lines for a terminal, with the original texts, including control characters of documents.

    Raises:
        InputError: The run is in memory or damaged, no question with this id has ended, or the gold does not fit.

    Example:
        >>> import pyfast
        >>> run = pyfast.Run("RUN")
        >>> print(pyfast.show(run, run.records[0].id, "QUESTIONS.jsonl"))
    """
    (folder,) = folders_of(run)
    details = question_of(folder, id, gold)
    parts = (_head(details), _gold(details), _path(details), _time(details), _calls(details, prompts))
    return "\n\n".join("\n".join(part) for part in map(list, parts) if part)


def wrong_questions(
    run: Run | str | Path, gold: GoldLike | None = None, metrics: Sequence[str | Metric] | None = None
) -> list[str]:
    """The ids of a run's wrong answers, the most wrong first, by the first figure that a question has.

    Args:
        run: The run, or its folder.
        gold: As for `pyfast.evaluate`.
        metrics: As for `pyfast.evaluate`.

    Returns:
        Ids of questions whose first figure is below 1.

    Raises:
        InputError: The run is in memory or damaged, or the gold does not fit.

    Example:
        >>> from pyfast.reports import wrong_questions
        >>> wrong = wrong_questions("RUN", "QUESTIONS.jsonl")
    """
    (folder,) = folders_of(run)
    scores = scores_of(folder, gold, metrics)
    wrong = {id: wrongness(one.figures) for id, one in scores.by_id.items()}
    return sorted((id for id, value in wrong.items() if value > 0), key=lambda id: -wrong[id])


def _head(details: dict[str, Any]) -> Iterator[str]:
    yield f"{details['id']}: {details['state']}, by {details['system']}"
    yield f"Question  {details['question'] or '(not known)'}"
    yield f"Answer    {details['answer'] if details['answer'] is not None else '–'}"
    if details["reason"]:
        yield f"Reason    {details['reason']}"
    if details["gold"]:
        yield f"Gold      {'; '.join(details['gold']['answers'])}"
    if details["figures"]:
        yield "Scores    " + ", ".join(
            f"{name} {'–' if value is None else format(value, '.3f')}"
            for name, value in details["figures"].items()
        )
    usage, seconds = details["usage"], details["ledger"].get("seconds")
    took = "" if seconds is None else f", {seconds:.2f} s"
    yield (
        f"Used      {usage['llm_calls']} LLM calls, {usage['prompt_tokens']} tokens in,"
        f" {usage['completion_tokens']} out{took}"
    )


def _gold(details: dict[str, Any]) -> Iterator[str]:
    if details["gold_paths"]:
        yield "What became of the gold passages"
    for path in details["gold_paths"]:
        yield f"  {'ok  ' if path['reached'] else 'LOST'}  {path['uri']}: {path['outcome']}"
        for step, name, rank, size in path["ranks"]:
            yield f"        {step}, {name}: {'–' if rank is None else f'rank {rank}'} of {size}"


def _path(details: dict[str, Any]) -> Iterator[str]:
    supporting = set(details["gold"]["supporting"]) if details["gold"] else set()
    for step in details["path"]:
        yield step["name"] + (f": {step['query']}" if step["query"] else "")
        for each in step["lists"]:
            yield f"  {each['name']}, {len(each['segments'])}:"
            for rank, id in enumerate(each["segments"][:_LISTED], start=1):
                passage = details["passages"].get(id)
                mark = "*" if passage and passage["uri"] in supporting else " "
                shown = f"{passage.get('title', passage['uri'])}: {passage['text']}" if passage else id
                yield f"   {mark}{rank:3}. {shorten(shown, 100, placeholder='…')}"
            if len(each["segments"]) > _LISTED:
                yield f"        and {len(each['segments']) - _LISTED} more"
    if supporting:
        yield "(* gold)"


def _time(details: dict[str, Any]) -> Iterator[str]:
    stages = details["ledger"]["stages"]
    longest = max((stage["queued_ms"] + stage["running_ms"] for stage in stages), default=0)
    if longest:
        yield "Where the time went (. queued, # running)"
    for stage in stages if longest else ():
        waits, works = (round(_BAR * stage[name] / longest) for name in ("queued_ms", "running_ms"))
        yield (
            f"  {stage['name']:20} {'.' * waits + '#' * works:{_BAR + 1}} {stage['calls']} calls,"
            f" {stage['queued_ms']:.1f} ms queued, {stage['running_ms']:.1f} ms running"
        )


def _calls(details: dict[str, Any], whole: bool) -> Iterator[str]:
    for number, call in enumerate(details["calls"], start=1):
        done = call["completion"]
        used = f": {done['prompt_tokens']} tokens in, {done['completion_tokens']} out" if done else ""
        yield f"LLM call {number}, {call['prompt'] or '(name not kept)'} by {call['role'] or 'the LLM'}{used}"
        for message in (call["messages"] or ()) if whole else ():
            yield f"  [{message['role']}]"
            yield indent(message["content"], "    ")
        reply = done["text"] if done else f"failed: {call['error']}"
        yield indent(reply if whole else shorten(reply, _REPLY, placeholder="…"), "  -> ")
