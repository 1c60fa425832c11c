"""A run: questions in, answers out, as many coroutines in between as are admitted."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import orjson

from pyfast.engine.context import Context, Engine
from pyfast.engine.questions import Question
from pyfast.engine.records import Answer, Evidence, Record, State
from pyfast.errors import BackendError, InputError, PyfastError
from pyfast.llm import Backend
from pyfast.retrieval import Index

Ask = Callable[[Question, Context], Awaitable[Answer]]
"""A system with its settings."""

_AHEAD = 4096  # answers that may wait for an earlier one


@dataclass(slots=True)
class Summary:
    """What a run did."""

    states: Counter[str] = field(default_factory=Counter)
    llm_calls: int = 0
    seconds: float = 0.0
    first_failure: str | None = None


async def answer_all(
    questions: Iterator[Question],
    ask: Ask,
    index: Index | None,
    llm: Backend,
    write: Callable[[Record], None],
    concurrency: int = 64,
) -> Summary:
    """Answer all questions, at most `concurrency` at a time; `write` gets the records in the questions' order.

    Every question ends as answered, abstained or failed. Memory does not grow with their number: answers that
    wait for an earlier one hold back admission. Raises `BackendError` when the LLM is gone, and `InputError`
    where the run makes no sense as it is set up; whatever stops it, all that was finished is written first.
    """
    summary = Summary()
    started = perf_counter()
    numbered = enumerate(questions)
    finished: dict[int, Record] = {}
    written = 0
    ahead = asyncio.Semaphore(max(_AHEAD, 4 * concurrency))

    def finish(number: int, record: Record) -> None:
        nonlocal written
        finished[number] = record
        summary.states[record.state] += 1
        summary.llm_calls += record.llm_calls
        if summary.first_failure is None:
            summary.first_failure = record.reason
        while (ready := finished.pop(written, None)) is not None:
            write(ready)
            written += 1
            ahead.release()

    with ThreadPoolExecutor(2, thread_name_prefix="pyfast-batch") as executor:
        engine = Engine(index, llm, executor)

        async def work() -> None:
            while True:
                await ahead.acquire()
                number, question = next(numbered, (0, None))
                if question is None:
                    ahead.release()
                    return
                finish(number, await _answer(question, ask, Context(engine, question)))
                await asyncio.sleep(0)  # an LLM that answers at once must not keep a signal from being heard

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(concurrency):
                    group.create_task(work())
        except ExceptionGroup as errors:  # the others were cancelled by the first
            raise errors.exceptions[0] from None
        finally:
            for number in sorted(finished):
                write(finished[number])
    summary.seconds = perf_counter() - started
    return summary


async def _answer(question: Question, ask: Ask, context: Context) -> Record:
    try:
        answer = await ask(question, context)
        evidence = _as_written(context, answer.evidence)
        orjson.dumps(answer.trace)  # a trace that cannot be written fails its own question
    except (BackendError, InputError):
        raise
    except Exception as error:  # a poison question fails alone, and says how
        reason = str(error) if isinstance(error, PyfastError) else f"{type(error).__name__}: {error}"
        return Record(question.id, "failed", reason=reason, llm_calls=context.llm_calls)
    state: State = "answered" if answer.text is not None else "abstained"
    return Record(
        question.id, state, answer.text, evidence=evidence, trace=answer.trace, llm_calls=context.llm_calls
    )


def _as_written(context: Context, evidence: Sequence[Evidence]) -> list[dict[str, Any]]:
    pieces = []
    for piece in evidence:
        segment = context.index.corpus.segment(piece.segment)
        pieces.append(
            {
                "segment": segment["id"],
                "uri": segment["uri"],
                "offsets": segment["offsets"],
                "snippet": segment["snippet"],
                "score": round(piece.score, 6),
            }
        )
    return pieces
