"""The checks of a system: real runs with an LLM whose replies depend only on the request."""

from __future__ import annotations

import json
import logging
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from textwrap import shorten
from typing import Any

import orjson

from pyfast.api.answer import answer
from pyfast.api.conformance.material import CheckLLM, build_corpus, marked, poisoned, questions_about, spoiled
from pyfast.engine import Answer, Context, Question
from pyfast.engine.run_folder import ANSWERS
from pyfast.engine.traces import records_of
from pyfast.errors import InputError, PyfastError
from pyfast.retrieval import Index
from pyfast.systems.registry import load_system, names
from pyfast.systems.system import System
from pyfast.utils.log import LOG
from pyfast.utils.processes import end_with_parent, process_of, scratch_folder

KILLS = 5
_PATIENCE_S = 600.0
_KILLED_CONCURRENCY = 4  # So few that a kill finds finished, running and waiting questions.
_DELAY_S = 0.02  # seconds of an LLM call in the process that is killed
_QUESTION_S = 60.0  # seconds; a question that takes longer with an LLM that answers at once never ends
_FOREIGN = re.compile(r"[A-Z]\w*(Error|Exception|Exit|Iteration): ")  # an error that is not one of pyfast's


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check."""

    name: str
    passed: bool
    detail: str
    """What was checked. If the check failed: which guarantee is violated, and where"""
    causes: str = ""
    """The likely causes of a violated guarantee. Empty if `detail` is clear enough"""


class _NotHeldError(Exception):
    """Raised if the system violates a guarantee. The arguments are `detail` and `causes` of `CheckResult`."""


@dataclass(slots=True)
class _Checked:
    """The system, its questions, and the records of an undisturbed run."""

    system: System
    settings: Mapping[str, Any]
    index: Index | None
    name: str
    questions: list[Question]
    place: Path
    plain: list[dict[str, Any]] = field(default_factory=list)
    steps: Counter[str] = field(default_factory=Counter)
    """How many steps (LLM calls and batched calls) each question took in the last run, by the question's id"""

    def run(
        self, folder: str, questions: Sequence[Question], llm: CheckLLM, concurrency: int, **limits: int
    ) -> list[dict[str, Any]]:
        """Carry out a new run in this process, and return its records. Raises `_NotHeldError` unless each question
        has one record."""
        self.steps.clear()
        budget = {"seconds": _QUESTION_S, **limits}
        given: dict[str, Any] = {"index": self.index, "settings": self.settings, "concurrency": concurrency}
        counted = replace(self.system, answer=self._counted)
        records = _carry_out(questions, self.place / folder, budget, llm=llm, system=counted, **given)
        _check_complete(records, questions)
        return records

    async def _counted(self, question: Question, ctx: Context, *rest: Any, **more: Any) -> Answer:
        try:
            return await self.system.answer(question, ctx, *rest, **more)
        finally:
            self.steps[question.id] = ctx.ledger.steps


def check_system(
    system: str | System,
    index: Path | None = None,
    settings: Mapping[str, Any] | None = None,
    on_result: Callable[[CheckResult], None] | None = None,
) -> list[CheckResult]:
    """Check that a system meets the guarantees that pyfast gives for every system.

    The check runs the system many times, with an LLM whose replies depend only on the request:

    - with one question at a time, and with many questions at once
    - in a separate process that is killed with SIGKILL, and resumed
    - with budgets that are too small
    - with hostile questions
    - with replies that are cut off, malformed or hostile

    This takes tens of seconds.

    Args:
        system: A system, its name, or `MODULE:NAME`.
        index: The folder of an index. None: the check makes a small index in a temporary folder, unless the
            system needs no index.
        settings: The settings, as in `System.configure`.
        on_result: A function that is called with each result.

    Returns:
        A result for each check. If the system cannot run at all, there is only the result of the first check.

    Raises:
        InputError: The system or a setting does not exist, or another process cannot load the `System`, because
            it is not a global variable of a module.
        IndexFormatError: The index cannot be opened.

    Example:
        >>> from pyfast.api.conformance import check_system
        >>> all(result.passed for result in check_system("direct"))  # doctest: +SKIP
        True
    """
    chosen = load_system(system) if isinstance(system, str) else system
    name = system if isinstance(system, str) else name_of(system)
    chosen.configure(settings or {})
    results: list[CheckResult] = []
    with scratch_folder() as place:
        opened = None
        if chosen.needs_index:
            opened = Index(build_corpus(place) if index is None else index)
        checked = _Checked(chosen, settings or {}, opened, name, questions_about(opened), place)
        for check, does in _CHECKS.items():
            result = _result(check, does, checked)
            results.append(result)
            if on_result is not None:
                on_result(result)
            if not checked.plain:
                break  # The system does not even run.
    return results


def _result(name: str, check: Callable[[_Checked], str], checked: _Checked) -> CheckResult:
    try:
        return CheckResult(name, True, check(checked))
    except _NotHeldError as fault:
        return CheckResult(name, False, *fault.args)
    except PyfastError as error:
        return CheckResult(name, False, f"the run ended: {error}")
    except TimeoutError:
        return CheckResult(name, False, f"the run did not end within {_PATIENCE_S:g} s")
    except Exception as error:
        return CheckResult(name, False, f"the run ended: {type(error).__name__}: {error}")


def _answers(checked: _Checked) -> str:
    """Check that every question ends and none fails, if the LLM follows each schema."""
    records = checked.plain = checked.run("plain", checked.questions, CheckLLM(), 16)
    failed = [record for record in records if record["state"] == "failed"]
    if failed:
        first = failed[0]
        raise _NotHeldError(
            f"{len(failed)} of {len(records)} questions failed, among them {first['id']}: {first['reason']}"
        )
    return f"{len(records)} questions, {sum(_used(checked, 'calls'))} LLM calls"


def _same_at_any_concurrency(checked: _Checked) -> str:
    """Check that the record of a question does not depend on how many questions are in progress at once."""
    for concurrency in (1, 64):
        lines = checked.run(f"concurrency-{concurrency}", checked.questions, CheckLLM(), concurrency)
        _check_same(lines, checked.plain, f"at concurrency {concurrency} from concurrency 16")
    return "the same bytes at concurrency 1, 16 and 64"


def _killed_and_resumed(checked: _Checked) -> str:
    """Check that a run that is killed at any moment can be resumed, and that its records are then the same
    bytes as the records of the undisturbed run."""
    chance = random.Random(0)
    index = checked.index
    run, log, output_path = (checked.place / name for name in ("killed", "killed.log", "killed.txt"))
    order = {
        "system": checked.name,
        "settings": dict(checked.settings),
        "index": None if index is None else str(index.folder),
        "place": str(checked.place),
        "run": str(run),
        "log": str(log),
    }
    started = partial(process_of, __name__, json.dumps(order, default=str), stdin=subprocess.DEVNULL)
    deadline = time.monotonic() + _PATIENCE_S
    killed_at: list[int] = []
    with output_path.open("wb") as output:
        while True:
            with started(stdout=output, stderr=output) as process:
                if len(killed_at) == KILLS:
                    process.wait(max(deadline - time.monotonic(), 1))
                elif not killed_at:
                    time.sleep(0.3 * chance.random())  # a moment during its start
                else:
                    more = _lines(run) + chance.randrange(1, len(checked.questions) // KILLS)
                    while process.poll() is None and _lines(run) < more and time.monotonic() < deadline:
                        time.sleep(0.002)
                    time.sleep(chance.random() * _DELAY_S)
                if process.poll() is not None:
                    break
            killed_at.append(_lines(run))
    if process.returncode:
        last = (output_path.read_text(errors="replace").strip().splitlines() or ["no output"])[-1]
        raise _NotHeldError(
            f"after {len(killed_at)} kills, the run ended with exit code {process.returncode}: {last}"
        )
    records = _recorded(run)
    _check_complete(records, checked.questions)
    _check_same(records, checked.plain, "after the run was killed and resumed")
    asked = Counter(log.read_text().split() if log.exists() else [])
    again = asked.total() - sum(_used(checked, "calls"))
    when = ", ".join(map(str, killed_at))
    return f"killed {len(killed_at)} times, after {when} answers; LLM calls that were repeated: {again}"


def _used(checked: _Checked, limit: str) -> list[int]:
    """Return how many LLM calls, tokens or steps each question takes in an undisturbed run."""
    if limit == "steps":
        checked.run("steps", checked.questions, CheckLLM(), 16)
        return [checked.steps[question.id] for question in checked.questions]
    names = ("llm_calls",) if limit == "calls" else ("prompt_tokens", "completion_tokens")
    return [sum(record["usage"][name] for name in names) for record in checked.plain]


def _budget(limit: str, checked: _Checked) -> str:
    """Check a budget of LLM calls, tokens or steps (`limit`): only questions that need more fail, because of the
    limit, and each question ends in the same way as it does alone."""
    used = _used(checked, limit)
    allowed = sorted(used)[len(used) // 2]  # a limit that only some questions exceed
    if allowed == max(used):
        allowed -= 1  # Then all questions that use the same number exceed it.
    if limit == "tokens":
        allowed //= 2  # The last call may exceed the budget, so half of it stops more questions.
    if allowed < 1:
        return f"not tested, because no question needs more than one {limit[:-1]}"
    records = checked.run(f"{limit}-64", checked.questions, CheckLLM(), 64, **{limit: allowed})
    steps = dict(checked.steps)
    alone = checked.run(f"{limit}-1", checked.questions, CheckLLM(), 1, **{limit: allowed})
    _check_same(records, alone, f"with {limit}={allowed} together with other questions")
    failed = 0
    for record, took, question in zip(records, used, checked.questions, strict=True):
        if record["state"] == "failed":
            failed += 1
            if record["error"] != "budget":
                raise _NotHeldError(
                    f"{question.id} failed with {limit}={allowed}, but for another reason: {record['reason']}"
                )
            if took < allowed and question.conversation is None:  # Citing the evidence may take one more step.
                raise _NotHeldError(f"{question.id} needs {took} {limit}, but failed with {limit}={allowed}")
        elif limit == "steps" and steps[question.id] > allowed:
            raise _NotHeldError(
                f"{question.id} continued after its {allowed} steps were used up: do not catch BudgetError"
            )
    return f"with {limit}={allowed}, {failed} of {len(records)} questions failed, as they do when they run alone"


def _poison(checked: _Checked) -> str:
    """Check that a hostile question changes the record of no other question. Also check that the control tokens
    in a question or a document reach the LLM only as plain text."""
    llm = CheckLLM()
    records = _beside(checked, "poison", poisoned(checked.questions), llm, "hostile questions")
    if llm.leaks:
        raise _NotHeldError(
            f"control tokens in a question reached the LLM ({', '.join(llm.leaks)}): fill the question into a"
            " Prompt, or pass it through pyfast.engine.plain"
        )
    return _states(records)


def _malformed(checked: _Checked) -> str:
    """Check that an unusable reply of the LLM affects only the question that got the reply. If this question
    fails, the cause must be an error of pyfast, not of Python, and not the time limit."""
    when = "questions with malformed LLM replies"
    records = _beside(checked, "malformed", marked(checked.questions), CheckLLM(spoiled), when)
    for record in records:
        reason = record.get("reason") or ""
        if _FOREIGN.match(reason):
            raise _NotHeldError(f"an LLM reply made the system raise {reason}")
        if record.get("error") == "budget":
            raise _NotHeldError(f"with some LLM replies, the system did not finish: {reason}")
    return _states(records)


def _beside(
    checked: _Checked, name: str, questions: Sequence[Question], llm: CheckLLM, when: str
) -> list[dict[str, Any]]:
    """Run the ordinary questions beside others, and check that their records do not change. Returns the records
    of the others."""
    records = checked.run(name, questions, llm, 16)
    known = {question.id for question in checked.questions}
    _check_same([record for record in records if record["id"] in known], checked.plain, f"together with {when}")
    return [record for record in records if record["id"] not in known]


def _states(records: Sequence[Mapping[str, Any]]) -> str:
    states = sorted(Counter(record["state"] for record in records).items())
    return ", ".join(f"{count} {state}" for state, count in states) + "; the other questions are unchanged"


_CHECKS: dict[str, Callable[[_Checked], str]] = {
    "answers": _answers,
    "concurrency": _same_at_any_concurrency,
    "kill and resume": _killed_and_resumed,
    **{f"budget of {limit}": partial(_budget, limit) for limit in ("calls", "tokens", "steps")},
    "poison questions": _poison,
    "malformed answers": _malformed,
}


def _check_complete(records: Sequence[Mapping[str, Any]], questions: Sequence[Question]) -> None:
    """Raise `_NotHeldError` unless each question has one record, in the order of the questions."""
    ids = [record["id"] for record in records]
    if ids != [question.id for question in questions]:
        raise _NotHeldError(f"there are {len(ids)} records for {len(set(ids))} of the {len(questions)} questions")


def _check_same(records: Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]], when: str) -> None:
    """Raise `_NotHeldError` unless the records of two runs are the same bytes."""
    for new, old in zip(records, before, strict=True):
        if orjson.dumps(new) != orjson.dumps(old):
            part, value, was = _first_difference(new, old)
            raise _NotHeldError(
                f"{new['id']} differs {when}: {part} is {_cut(value)} instead of {_cut(was)}",
                "the clock, random numbers without a seed, the order of a set, or a variable that questions or"
                " processes share",
            )


def _first_difference(new: Any, old: Any, path: str = "") -> tuple[str, Any, Any]:
    """Return (the path of the first difference between two JSON values, the new value there, the old value
    there)."""
    if isinstance(new, list) and isinstance(old, list):
        new, old = (dict(enumerate(each)) for each in (new, old))
    if not (isinstance(new, dict) and isinstance(old, dict)):
        return path, new, old
    for place in {**new, **old}:
        if place not in new or place not in old or new[place] != old[place]:
            deeper = f"{path}.{place}" if path else str(place)
            return _first_difference(new.get(place, "missing"), old.get(place, "missing"), deeper)
    return path or "the order of its keys", list(new), list(old)


def _cut(value: Any) -> str:
    return shorten(json.dumps(value, ensure_ascii=False), 80, placeholder=" …")


def _lines(run: Path) -> int:
    path = run / ANSWERS
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _carry_out(
    questions: Sequence[Question], run: Path, budget: Mapping[str, float], **given: Any
) -> list[dict[str, Any]]:
    """Answer questions in a run's folder, or resume the run, with the arguments `given` of `pyfast.answer`. A run
    that hangs is ended after `_PATIENCE_S` seconds. Returns the records of the run, with their traces."""
    before = LOG.level
    LOG.setLevel(logging.ERROR)  # The check itself reports what it finds, and warnings would repeat with each run.
    try:
        answer(questions, run=run, budget={"run_seconds": _PATIENCE_S, **budget}, **given)
    finally:
        LOG.setLevel(before)
    return _recorded(run)


def _recorded(run: Path) -> list[dict[str, Any]]:
    return [record for _, record in records_of(run / ANSWERS)]


def main() -> None:
    """Start or resume a run in a process that a check kills. The first argument of the process is a JSON object
    with the system's name, the settings, the folder for temporary files, and the paths of index, run and log."""
    end_with_parent()
    order = json.loads(sys.argv[1])
    tempfile.tempdir = order["place"]  # A killed process leaves its temporary files.
    index = None if order["index"] is None else Index(Path(order["index"]))
    llm = CheckLLM(delay_s=_DELAY_S, log=Path(order["log"]))
    given = {"index": index, "llm": llm, "system": load_system(order["system"]), "settings": order["settings"]}
    _carry_out(questions_about(index), Path(order["run"]), {}, concurrency=_KILLED_CONCURRENCY, **given)


def name_of(system: System) -> str:
    """Return a name by which another process can load the system, such as `MODULE:NAME`. Raises `InputError`
    if there is none."""
    if system.name in names() and load_system(system.name) is system:
        return system.name
    for module, loaded in list(sys.modules.items()):
        if module != "__main__":
            for name, value in list(vars(loaded).items()) if hasattr(loaded, "__dict__") else ():
                if value is system:
                    return f"{module}:{name}"
    raise InputError(
        f"{system.name}: other processes cannot import this system; define it in a module, as SYSTEM = System(...)"
    )
