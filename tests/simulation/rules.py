"""What must be true of a run when its last session has ended: the promises G1 to G7 of docs/architecture.md."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import orjson

import pyfast.api.verification
from pyfast.engine.status import read_status
from pyfast.engine.traces import read_traces
from simulation.llm import FELLS, HTTP_S, STALLED, TRANSIENT, WRONG, Asked, in_fields, tokens
from simulation.scenario import History, Scenario, Session, ViolationError
from simulation.systems import FELL_BACK, SAMPLES, SLEEP_S, expected, user

_AT_ONCE_S, _SOON_S = 1.0, 45.0
"""How many seconds a session may take after a second Ctrl-C, and after its last call"""
_PROBE_S = 31.0
"""How many seconds an unanswered probe takes"""
_TRIES = 60
"""How often a prompt may be asked in a session: ten times if the LLM is busy, and twice as often over HTTP"""
_IDLE_S = 2.0
"""How many seconds may pass in which the LLM works on no call, although nothing goes wrong"""
_PAUSE_S = 60.0
"""How many seconds a request to a provider waits at most for its reply, and before it is tried again"""
_ENDED_BATCHES = ("failed: too much at once", "the batch was cancelled")
_REPLY_TOKENS = tokens(orjson.dumps(in_fields("")).decode())
"""How many tokens a good reply has: all are equally long"""
ANSWERED = ("good", *WRONG)
"""The outcomes of calls that got a reply"""


def check(history: History) -> None:
    """Raise `ViolationError` if a promise does not hold."""
    faults = [f"an end with {told}" for told in history.ends] + list(_faults(history))
    if faults:
        raise ViolationError("; ".join(faults[:3]))


def _faults(history: History) -> Iterator[str]:
    scenario, last = history.scenario, history.sessions[-1]
    if history.world.most_in_flight > 2 * scenario.slots and not scenario.batches:
        yield f"{history.world.most_in_flight} calls at the same time, and {scenario.slots} slots"
    yield from (f"a second process: {told!r}" for told in history.refused if "another process" not in told)
    for number in range(len(history.sessions)):
        yield from _of_session(history, number)
    if last.error is not None:
        if any(session.flipped for session in history.sessions) and "does not match" in str(last.error):
            return  # The bit was in the name of the run, so pyfast does not take the journal for this run's.
        yield f"the last session could not continue: {last.error}"
        return
    try:
        answers = [orjson.loads(line) for line in (history.folder / "answers.jsonl").read_bytes().splitlines()]
    except ValueError as error:
        yield f"answers.jsonl: {error}"
        return
    lines = list(read_traces(history.folder / "traces.jsonl.zst"))
    if [record["id"] for record in answers] != [question.id for question in scenario.questions]:  # G1
        yield f"answers of {[record['id'] for record in answers]}"
        return
    flipped = scenario.flips if any(session.flipped for session in history.sessions) else ""
    if flipped == "traces":  # Resuming reads only the last ones again.
        traces = None
    elif len(lines) != len(answers):
        yield f"{len(lines)} traces of {len(answers)} answers"
        return
    else:
        try:
            traces = list(map(orjson.loads, lines))
        except ValueError as error:
            yield f"traces.jsonl.zst: {error}"
            return
    verification = pyfast.api.verification.verify(history.folder)
    for one in verification.checks:
        # What verify finds, though nothing mends it: the journal has a digest of each trace, and of each prompt.
        # A run that is done is not read again when it is resumed, apart from its answers.
        known = flipped == "traces" and "traces" in one.name
        known |= flipped == "journal" and one.name in ("journal.sqlite", "traces.jsonl.zst")
        if not one.passed and not known:
            yield f"verify: {one.name}: {one.detail}"
    status = read_status(history.folder)
    states = Counter(record["state"] for record in answers)
    if status.states != states or status.ended != len(answers):  # G3
        yield f"status counts {dict(status.states)}, the answers have {dict(states)}"
    yield from _answers(history, answers, traces)
    yield from _calls(history)


def _of_session(history: History, number: int) -> Iterator[str]:
    """A session ends with an error only for a reason."""
    scenario, session = history.scenario, history.sessions[number]
    yield from (f"session {number}: {one}" for one in session.lost)
    told = str(session.error or "")
    yield from _in_time(history, number)
    if (
        session.error is None
        and session.result is not None
        and session.stopped == math.inf
        and session.result.summary.left
    ):
        yield f"session {number} ended with {session.result.summary.left} questions left"
    if session.ending == "other settings" and session.error is None and not session.killed:  # G2
        yield f"session {number} went on with other settings"
    if session.error is None or session.at_once < math.inf:
        return
    causes = {
        "disk full": session.ending == "disk full",
        "disk error": session.ending == "disk error",
        "other settings": session.ending == "other settings" and "different values" in told,
        "outage": any(seconds >= 60 * scenario.patience for seconds in _without_replies(history, session)),
        "moods": any(mood in scenario.moods for mood in TRANSIENT),
        "tokens": "run_tokens" in scenario.budget
        and "the run has reached its limit of" in told
        and " tokens (" in told,
        # A scenario poisons at most three questions, and so many are no sign that the LLM answers only probes.
        "poison": bool(scenario.poisoned) and "its prompt may be the reason" in told,
        "flips": any(one.flipped for one in history.sessions) and "does not match" in told,
        "start": bool(scenario.batches)
        and any(one <= session.began + 1.0 and session.began < end for one, end, _ in scenario.outages),
        "batch": bool(scenario.provider) and any(said in told for said in _ENDED_BATCHES),
        "late": {"late", "call_seconds"} & {*scenario.moods, *scenario.budget}
        and ("did not answer" in told or "only short test calls" in told),
    }
    if not any(causes.values()):
        yield f"session {number} ({session.ending}) ended with: {told}"


def _without_replies(history: History, session: Session) -> Iterator[float]:
    """For how many seconds, at most, the LLM answered no call of a session, each time."""
    asked = [call for call in history.world.asked if call.session == history.sessions.index(session)]
    since = until = -math.inf
    for begins, ends, how in history.scenario.outages:
        if since < session.began or any(until < one.ended <= begins and one.outcome in ANSWERED for one in asked):
            since = max(begins, session.began)
        until = ends
        if begins < session.ended and ends > session.began:
            yield until - since + (_PROBE_S if how == "hangs" else 1.0)  # The last probe of an outage may hang.


def _in_time(history: History, number: int) -> Iterator[str]:
    """A session ends soon after everything that it may wait for (G6), and continues soon after an outage (G7)."""
    scenario, session = history.scenario, history.sessions[number]
    if session.killed:
        return
    if session.ended > session.at_once + _AT_ONCE_S:
        yield f"session {number} ended {session.ended - session.at_once:.1f} s after it was told to stop at once"
    calls = [call for call in history.world.asked if call.session == number]
    yield from _waits(scenario, session, calls)
    if not scenario.outages or session.stopped < math.inf:
        # A session also waits for the batches of sessions before.
        of_others = (call for call in history.world.asked if call.batch and call.ended > session.began)
        until = max([session.began, *(call.ended for call in (*calls, *of_others))])
        until = max(until, session.stopped) if session.stopped < math.inf else until
        provider = history.world.provider
        failed = [one for one in provider.failed if one > until - 2 * _PAUSE_S] if provider else []
        if session.ended > until + _SOON_S + 2 * _PAUSE_S * len(failed):
            yield f"session {number} ended {session.ended - until:.1f} s after its last call"
    started = {_id(call.prompt) for call in calls if call.began <= session.stopped}
    later = {_id(call.prompt) for call in calls} - started
    if len(later) > scenario.concurrency:
        yield f"session {number} began {len(later)} questions after it was told to stop"
    if scenario.moods or scenario.slow_disk or number == len(history.sessions) - 1:
        return
    begins = [begins for begins, _, _ in scenario.outages]
    for first, end, how in scenario.outages:
        # Pauses between probes double, and then each call draws a pause of its own.
        soon = end + min(2 * (end - first) + 0.5, 15.0) + 4.0
        soon += 2 * _PAUSE_S if scenario.batches else 0.0  # A call may be on its way into a batch.
        is_met = any(first <= call.ended < end and call.outcome == "OutageError" for call in calls)
        if how == "hangs" or not is_met or session.ended <= soon or any(end <= one < soon for one in begins):
            continue
        if not any(end <= call.began <= soon for call in calls):
            yield f"session {number} made no call within {soon - end:.1f} s after an outage of {end - first:.1f} s"


def _waits(scenario: Scenario, session: Session, calls: list[Asked]) -> Iterator[str]:
    """A call that hangs costs its time limit and a few tries, and the run itself waits for nothing."""
    limit = min(scenario.budget.get("call_seconds", math.inf), HTTP_S if scenario.http else math.inf)
    online = [call for call in calls if not call.batch]
    for call in online:
        if call.ended > call.began + limit + _AT_ONCE_S:
            yield f"{call.prompt} took {call.ended - call.began:.1f} s of {limit:.1f} s"
    if scenario.outages or scenario.batches:
        return
    for prompt, count in Counter(call.prompt for call in online).items():
        if count > _TRIES:
            yield f"{prompt} was asked {count} times"
    if scenario.moods or scenario.slow_disk or {*scenario.poisoned.values()} & {*STALLED, FELLS}:
        return
    until = session.began
    most = _IDLE_S + SLEEP_S * len(scenario.questions) * scenario.stages.count("sleep")
    for began, ended in sorted([*((call.began, call.ended) for call in calls), (session.ended, session.ended)]):
        if began > until + most:
            yield f"the run did nothing from {until:.1f} to {began:.1f}"
        until = max(until, ended if ended >= 0 else math.inf)


def _id(prompt: str) -> str:
    return prompt.partition("> stage ")[0]


def _may_fail(scenario: Scenario, id: str) -> bool:
    limits = scenario.budget.keys() & {"calls", "steps", "strict", "call_seconds"}
    # Outages do not count, but a call may wait for ever for a server that has forgotten it.
    hangs = any(how == "hangs" for _, _, how in scenario.outages)
    limits |= {"seconds"} if scenario.budget.get("seconds", 1e9) < (1001 if hangs else 1000) else set()
    # What did not reach the LLM is tried again, and the last session has no such calls.
    return bool(f"<{id}>" in scenario.poisoned or limits or scenario.moods.keys() - {"down"})


def _answers(
    history: History, answers: list[dict[str, Any]], traces: list[dict[str, Any]] | None
) -> Iterator[str]:
    """Each answer is right, and only what must fail has failed (G3, G4, G7)."""
    scenario = history.scenario
    past: list[str | None] = []
    of = None
    for question, record, trace in zip(scenario.questions, answers, traces or [None] * len(answers), strict=True):
        past = past if question.conversation is not None and question.conversation == of else []
        of = question.conversation
        replies = trace["trace"].get("replies", []) if trace else []
        answer, carried, prompts = expected(question, scenario.stages, past, replies)
        if record["state"] == "failed":
            if not _may_fail(scenario, question.id):
                yield f"{question.id} failed: {record.get('reason')}"
            if "Error: " in str(record.get("reason")) or not record.get("reason"):
                yield f"{question.id} failed with {record.get('reason')!r}"
            if trace and replies != carried[: len(replies)]:
                yield f"{question.id}: its trace has {replies}, not {carried}"
        elif not trace and {"may fail", *SAMPLES} & {*scenario.stages}:
            pass  # Only the trace says what was carried.
        elif record.get("answer") != answer or record["state"] != ("abstained" if answer is None else "answered"):
            yield f"{question.id}: {record['state']} {record.get('answer')!r}, right is {answer!r}"
        elif trace and replies != carried:
            yield f"{question.id}: its trace has {replies}, not {carried}"
        elif "calls" in scenario.budget and record["usage"]["llm_calls"] > scenario.budget["calls"]:
            yield f"{question.id} made {record['usage']['llm_calls']} calls"
        elif trace and trace["evidence"] != [{"uri": f"doc:{question.id}", "snippet": carried[-1]}]:
            yield f"{question.id}: its evidence is {trace['evidence']}"
        elif FELL_BACK in replies and trace and not _may_fail(scenario, question.id):
            yield f"{question.id} fell back"
        elif (
            not scenario.moods
            and not {*SAMPLES} & {*scenario.stages}
            and f"<{question.id}>" not in scenario.poisoned
        ):
            asked = [prompt for of_stage in prompts for prompt in of_stage]
            right = {
                "llm_calls": len(asked),
                "prompt_tokens": sum(map(tokens, asked)),
                "completion_tokens": len(asked) * _REPLY_TOKENS,
            }
            if asked and {name: record["usage"].get(name) for name in right} != right:
                yield f"{question.id}: usage {record['usage']}, right is {right}"
        past = [*past, record.get("answer") if record["state"] != "failed" else None]


def _calls(history: History) -> Iterator[str]:
    """What was answered and stored is not asked again (G1), unless it is to be tried again."""
    scenario = history.scenario
    if scenario.retries_failed and not (scenario.flips or scenario.budget or history.cut):
        yield from _asked_again(history)
    if scenario.flips or scenario.retries_failed:
        return
    paid: dict[str, list[int]] = {}
    for call in history.world.asked:
        if scenario.batches or call.outcome != "good":
            continue
        if "samples" not in scenario.stages:
            paid.setdefault(call.request, []).append(call.session)
    if scenario.batches:
        yield from _paid_in_batches(history)
    for request, sessions in paid.items():
        crashed = {number for number in sessions if _loses(history, number)}
        # In each session that did not end in order, the call may have been in flight.
        if len(sessions) > 1 + len(crashed) or len(set(sessions)) < len(sessions):
            yield f"the call {request[:8]} was answered in the sessions {sessions}"
    yield from _progress(history)


def _asked_again(history: History) -> Iterator[str]:
    """Each question that had failed is asked again, and what was said before is not used again."""
    last = len(history.sessions) - 1
    asked = {_id(call.prompt): call.session for call in history.world.asked}  # its last session
    for number, session in enumerate(history.sessions[:last]):
        for event in session.events if session.error is None and not session.killed else ():
            if event.record is None or event.record.state != "failed":
                continue
            # Each session asks it again if a call failed in transit; only the last one asks the others.
            before = number if event.record.error == "call" else last - 1
            if asked.get(user(f"<{event.record.id}"), -1) <= before:
                yield f"{event.record.id} failed in session {number}, and was not asked again"


def _paid_in_batches(history: History) -> Iterator[str]:
    """What a batch has answered is not asked again, however often the process is killed. Of calls outside of
    batches, those in flight may be."""
    yield from history.world.provider.faults
    paid: dict[str, list[str]] = {}
    may_be_lost = Counter[str]()
    for call in history.world.asked:
        if call.outcome != "good":
            continue
        paid.setdefault(call.prompt, []).append(call.batch or f"session {call.session}")
        may_be_lost[call.prompt] += not call.batch and _loses(history, call.session)
    for prompt, answered in paid.items():
        wanted = 2 if history.scenario.stages[_stage(prompt)] in SAMPLES else 1
        if len(answered) > wanted + may_be_lost[prompt]:
            yield f"{prompt} was answered in {answered}"


def _loses(history: History, number: int) -> bool:
    """Whether calls in flight at the end of a session may be lost."""
    session = history.sessions[number]
    return session.killed or session.error is not None


def _progress(history: History) -> Iterator[str]:
    """A question that went on after a reply has it for good, unless the power was cut and commits need not be
    synced."""
    scenario = history.scenario
    turns = {question.id for question in scenario.questions if question.conversation is not None}
    answered: dict[str, dict[str, tuple[int, int]]] = {}
    """Of each question: its prompts with a good reply, with their stages and sessions"""
    gone_on = set[str]()
    for call in history.world.asked:
        if scenario.sync == "normal" and any(number < call.session for number in history.cut):
            return
        id, stage = call.prompt[len(user("<")) :].partition(">")[0], _stage(call.prompt)
        if call.prompt in gone_on:
            yield f"{call.prompt} was asked again in session {call.session}"
            return
        of = answered.setdefault(id, {})
        # In another session, an earlier turn that had failed may have an answer, and then this is another prompt.
        gone_on |= {
            prompt
            for prompt, (before, session) in of.items()
            if before < stage and (session == call.session or id not in turns)
        }
        if call.outcome == "good":
            of[call.prompt] = stage, call.session


def _stage(prompt: str) -> int:
    return int(prompt.partition("> stage ")[2].split()[0])
