"""A run: questions in, answers out, as many coroutines in between as are admitted."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from time import perf_counter

from pyfast.engine.context import Context, Engine
from pyfast.engine.questions import Question
from pyfast.engine.records import Answer, Record, State
from pyfast.errors import BackendError, CallError
from pyfast.llm import Backend
from pyfast.retrieval import Index

System = Callable[[Question, Context], Awaitable[Answer]]


@dataclass(slots=True)
class Summary:
    """What a run did."""

    states: Counter[str] = field(default_factory=Counter)
    llm_calls: int = 0
    seconds: float = 0.0


async def answer_all(
    questions: Iterator[Question],
    system: System,
    index: Index | None,
    llm: Backend,
    write: Callable[[Record], None],
    concurrency: int = 64,
) -> Summary:
    """Answer all questions, at most `concurrency` at a time; `write` gets the records in the questions' order.

    Memory does not grow with the number of questions: answers that wait for an earlier one hold back admission.
    Every question ends as answered, abstained or failed. Raises `BackendError` when the LLM is gone; what was
    written by then stays.
    """
    summary = Summary()
    started = perf_counter()
    finished: dict[int, Record] = {}
    written = 0
    ahead = asyncio.Semaphore(4 * concurrency + 256)

    def finish(ordinal: int, record: Record) -> None:
        nonlocal written
        finished[ordinal] = record
        summary.states[record.state] += 1
        while (ready := finished.pop(written, None)) is not None:
            write(ready)
            written += 1
            ahead.release()

    with ThreadPoolExecutor(2, thread_name_prefix="pyfast-batch") as executor:
        engine = Engine(index, llm, executor)

        async def work() -> None:
            while True:
                await ahead.acquire()
                question = next(questions, None)
                if question is None:
                    ahead.release()
                    return
                context = Context(engine, question.text)
                record = await _answer(question, system, context)
                summary.llm_calls += context.llm_calls
                finish(question.ordinal, record)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(concurrency):
                    group.create_task(work())
        except ExceptionGroup as errors:  # the others were cancelled by the first
            raise errors.exceptions[0] from None
    summary.seconds = perf_counter() - started
    return summary


async def _answer(question: Question, system: System, context: Context) -> Record:
    try:
        answer = await system(question, context)
    except BackendError:
        raise
    except CallError as error:
        return Record(question.id, "failed", None, [], {"reason": str(error)})
    except Exception as error:  # a poison question fails alone, and says how
        return Record(question.id, "failed", None, [], {"reason": f"{type(error).__name__}: {error}"})
    evidence = [_evidence(context.index, unit, score) for unit, score in answer.evidence]
    state: State = "answered" if answer.text is not None else "abstained"
    return Record(question.id, state, answer.text, evidence, answer.trace)


def _evidence(index: Index, unit: int, score: float) -> dict[str, object]:
    segment = index.corpus.segment(int(index.units[unit]))
    return {
        "segment": segment["id"],
        "uri": segment["uri"],
        "offsets": segment["offsets"],
        "snippet": segment["snippet"],
        "score": round(score, 6),
    }
