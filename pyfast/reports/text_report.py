"""`pyfast.show`: a question's trace as text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from textwrap import indent, shorten
from typing import Any

from pyfast.api.run import GoldLike, Run, gold_of, report_of
from pyfast.evaluation import Metric
from pyfast.reports.details import question_of
from pyfast.reports.pages import folders_of
from pyfast.reports.run_reader import Scoring, wrongness
from pyfast.systems.traces import steps_of
from pyfast.utils.text_forms import counted

_LISTED = 10  # passages of a list
_LINE = 120  # characters of a passage
_NOTE = 200  # characters of any other value of a trace
_BAR = 30  # characters of the bar of the longest stage
_REPLY = 300  # characters of a reply


def show(
    run: Run | str | Path, id: str, gold: GoldLike | None = None, *, prompts: bool = False, whole: bool = False
) -> str:
    """Write one question of a run as text: its answer, its trace, its gold passages, its LLM calls.

    This works for your own systems too: it shows each list of segments in the trace (ids, or objects with
    `segment`) as a list of passages, and each list of other objects as steps.

    Args:
        run: The run, or its folder.
        id: The id of the question.
        gold: As in `pyfast.evaluate`. None: the gold answers in gold.jsonl in the folder of the run's
            questions. If there is no such file: the gold answers in the questions themselves, if they have
            any.
        prompts: Whether to show the full prompts and replies.
        whole: Whether to show all passages of each list, and complete texts.

    Returns:
        Lines for a terminal. Texts are unchanged and can contain control characters of documents.

    Raises:
        InputError: The run is in memory or damaged, no question with this id has ended, or the gold file has
            none of the run's questions.

    Example:
        >>> import pyfast
        >>> run = pyfast.Run("RUN")
        >>> print(pyfast.show(run, run.records[0].id, "QUESTIONS.jsonl"))
    """
    (folder,) = folders_of(run)
    details = question_of(folder, id, Scoring(gold))
    parts = (_head(details), _gold(details), _path(details, whole), _time(details), _calls(details, prompts))
    return "\n\n".join("\n".join(part) for part in map(list, parts) if part)


def wrong_questions(
    run: Run | str | Path, gold: GoldLike | None = None, metrics: Sequence[str | Metric] | None = None
) -> list[str]:
    """Find the wrong answers of a run, those with the lowest first figure first.

    Args:
        run: The run, or its folder.
        gold: As in `pyfast.evaluate`.
        metrics: As in `pyfast.evaluate`.

    Returns:
        The ids of the questions whose first figure (such as `em`) is below 1.

    Raises:
        InputError: The run is in memory or damaged, or there are no gold answers to its questions.

    Example:
        >>> from pyfast.reports import wrong_questions
        >>> wrong = wrong_questions("RUN", "QUESTIONS.jsonl")
    """
    (folder,) = folders_of(run)
    scored = report_of(folder, gold_of(folder, gold), metrics).questions
    wrong = {one.id: wrongness(one.figures) for one in scored}
    return sorted((id for id, value in wrong.items() if value > 0), key=lambda id: -wrong[id])


def _head(details: dict[str, Any]) -> Iterator[str]:
    yield f"{details['id']}: {details['state']}, by {details['system']}"
    yield f"Question  {details['question'] or '(not known)'}"
    yield f"Answer    {_answer(details)}"
    if details["reason"]:
        yield f"Reason    {details['reason']}"
    if details["gold"]:
        without = "no gold answer" if details["gold"]["answerable"] else "none, so abstaining is correct"
        yield f"Gold      {'; '.join(details['gold']['answers']) or f'({without})'}"
    if details["figures"]:
        yield "Scores    " + ", ".join(
            f"{name} {'–' if value is None else format(value, '.3f')}"
            for name, value in details["figures"].items()
        )
    usage, seconds = details["usage"], details["ledger"].get("seconds")
    took = "" if seconds is None else f", {seconds:.2f} s"
    yield (
        f"Used      {counted(usage.llm_calls, 'LLM call')}, {usage.prompt_tokens} tokens in,"
        f" {usage.completion_tokens} out{took}"
    )
    if fall_backs := details["ledger"].get("fall_backs"):
        counts = ", ".join(f"{name} {count}" for name, count in fall_backs.items())
        yield f"No usable reply to: {counts}; the system continued without it"


def _answer(details: dict[str, Any]) -> str:
    """Return the answer, or say in words that there is none. app/dom.js has the same words."""
    if details["answer"] is None:
        return "(none: the question failed)" if details["state"] == "failed" else "(none: the system abstained)"
    return str(details["answer"]) if details["answer"].strip() else "(an empty text)"


def _gold(details: dict[str, Any]) -> Iterator[str]:
    if details["gold_paths"]:
        yield "Where the gold passages ended up"
    for path in details["gold_paths"]:
        yield f"  {'ok  ' if path.reached else 'LOST'}  {path.uri}: {path.outcome}"
        for step, name, rank, size in path.ranks:
            yield f"        {step}, {name}: {'–' if rank is None else f'rank {rank}'} of {size}"


def _path(details: dict[str, Any], whole: bool) -> Iterator[str]:
    evidence = list(zip(details["evidence"], details["scores"], strict=True))
    marks = set[str]()
    for step in steps_of(details["system"], details["trace"], evidence):
        yield step.name + (f": {step.query}" if step.query else "")
        for name, value in step.notes.items():
            yield f"  {name}: {_value(value) if whole else _cut(_value(value), _NOTE)}"
        before = set[str]()
        for each in step.lists:
            added = {id for id in each.segments if id not in before} if each.chosen and before else set()
            yield f"  {each.name}, {len(each.segments)}:"
            shown = each.segments if whole else each.segments[:_LISTED]
            for rank, (id, score) in enumerate(zip_longest(shown, each.scores[: len(shown)]), start=1):
                mark = _gold_mark(details, id) + ("+" if id in added else " ")
                marks.update(mark)
                number = "" if score is None else f"{score:.3f}  "
                text = _passage(details, id)
                yield f"   {mark}{rank:3}. {number}{text if whole else _cut(text, _LINE)}"
            if len(shown) < len(each.segments):
                yield f"        and {len(each.segments) - len(shown)} more (--all shows them)"
            before.update(each.segments)
    yield from (line for mark, line in _MARKS.items() if mark in marks)


_MARKS = {
    "*": "(* gold: the passage has a gold sentence or row, or the gold evidence names only its document)",
    "o": "(o the passage belongs to a gold document, but has no gold sentence or row)",
    "+": "(+ the passage is in no list above; n2n adds such passages when it expands an evidence graph)",
}


def _gold_mark(details: dict[str, Any], id: str) -> str:
    passage, gold = details["passages"].get(id), details["gold"]
    if not gold or not passage or passage["uri"] not in gold["supporting"]:
        return " "
    return "*" if id in details["gold_passages"].get(passage["uri"], (id,)) else "o"


def _passage(details: dict[str, Any], id: str) -> str:
    passage = details["passages"].get(id)
    if passage is None:
        return id
    uri, title = passage["uri"], passage.get("title")
    return f"{f'{title} ({uri})' if title else uri}: {passage['text']}"


def _value(value: Any) -> str:
    """Write a value of a trace on one line: texts unchanged, other values as JSON."""
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return "; ".join(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _cut(text: str, most: int) -> str:
    return shorten(text, most, placeholder="…")


def _time(details: dict[str, Any]) -> Iterator[str]:
    stages = details["ledger"]["stages"]
    longest = max((stage["queued_ms"] + stage["running_ms"] for stage in stages), default=0)
    if longest:
        yield "Time by stage (. queued, # running)"
    for stage in stages if longest else ():
        waits, works = (round(_BAR * stage[name] / longest) for name in ("queued_ms", "running_ms"))
        yield (
            f"  {stage['name']:20} {'.' * waits + '#' * works:{_BAR + 1}} {stage['calls']} calls,"
            f" {stage['queued_ms']:.1f} ms queued, {stage['running_ms']:.1f} ms running"
        )


def _calls(details: dict[str, Any], whole: bool) -> Iterator[str]:
    for number, call in enumerate(details["calls"], start=1):
        done = call.completion
        used = f": {done.prompt_tokens} tokens in, {done.completion_tokens} out" if done else ""
        yield f"LLM call {number}, {call.prompt or '(name not kept)'} by {call.role or 'the LLM'}{used}"
        for message in (call.messages or ()) if whole else ():
            yield f"  [{message.role}]"
            yield indent(message.content, "    ")
        if whole and not call.messages:
            yield f"  (the prompt was {'not kept' if call.messages is None else 'embeddings'})"
        reply = done.text if done else f"failed: {call.error}"
        yield indent(reply if whole else _cut(reply, _REPLY), "  -> ")
        if done and done.finish_reason != "stop":
            yield f"  (ended by: {done.finish_reason})"
