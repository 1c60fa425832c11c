"""Runs with a folder, in the test's own process, and a language model that can be watched and stopped."""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any
from zlib import crc32

import orjson
import zstandard

from pyfast.api.models import OpenedModels
from pyfast.engine import (
    Answer,
    Ask,
    Budget,
    Configuration,
    Context,
    Event,
    Job,
    Prompt,
    Question,
    Questions,
    Record,
    Summary,
    Waiting,
    work_on,
)
from pyfast.engine.outages import hear_nothing
from pyfast.engine.run import _answer_all
from pyfast.engine.traces import records_of
from pyfast.errors import CallError
from pyfast.llm import Completion, FullLLM, Request, Role, by_role
from pyfast.llm.instant import Instant
from pyfast.retrieval import Index
from pyfast.systems.prompts import COT, DIRECT, AnswerFields
from pyfast.utils.options import RunOptions

DESCRIBED: Configuration = {"questions": {"count": 9, "digest": "9f"}, "llm": {"fingerprint": "watched"}}
WORD = Prompt("word", "", "A word about $question", AnswerFields, max_tokens=20)


class Watched(Instant):
    """Answers as `reply` says, by default as the instant LLM, after some turns of the event loop.

    `asked` holds the digests of all requests; `watch` is called before each answer with how many went before.
    """

    def __init__(
        self,
        reply: Callable[[Request], Any] | None = None,
        watch: Callable[[int], None] | None = None,
        **options: int,
    ) -> None:
        super().__init__(**options)
        self.asked: Counter[str] = Counter()
        self.given = 0
        self.reply, self.watch = reply, watch

    async def complete(self, request: Request) -> Completion:
        digest = request.digest().hex()
        self.asked[digest] += 1
        for _ in range(crc32(digest.encode()) % 7):
            await asyncio.sleep(0)
        if self.watch is not None:
            self.watch(self.given)
        self.given += 1
        if self.reply is None:
            return await super().complete(request)
        reply = self.reply(request)
        reply = await reply if asyncio.iscoroutine(reply) else reply
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, Completion):
            return reply
        text = reply if isinstance(reply, str) else orjson.dumps(reply).decode()
        return Completion(text, "stop", 100, 0, 10)


class Described(Job):
    """A job that says of itself what DESCRIBED says, however it is made."""

    def describe(self) -> Configuration:
        return DESCRIBED


def ask_about(number: int) -> list[Question]:
    """Questions q0, q1, ..."""
    return [Question(f"q{i}", f"question {i}") for i in range(number)]


def go(
    folder: Path,
    ask: Ask,
    llm: FullLLM | Mapping[Role, FullLLM],
    questions: Sequence[Question],
    index: Index | None = None,
    budget: Budget | None = None,
    stop: asyncio.Event | None = None,
    retry_failed: bool = False,
    **options: Any,
) -> Summary:
    """Start a run, or resume it; it may not hang."""
    if retry_failed:
        options["options"] = RunOptions(retry_failed=True)
    job = Described(
        folder=folder,
        questions=Questions(lambda: iter(questions), len(questions), "of a test"),
        system="test",
        ask=ask,
        index=index,
        llm=llm,
        budget=budget or Budget(),
        **options,
    )

    async def inside() -> Summary:
        async with OpenedModels(by_role(llm), frozenset()).started():
            return (await asyncio.wait_for(work_on(job, stop), 120)).summary

    return asyncio.run(inside())


async def answer_all(
    questions: Iterator[Question],
    ask: Ask,
    index: Index | None,
    llm: Any,
    write: Callable[[Record], None],
    concurrency: int = 64,
    *,
    budget: Budget | None = None,
    stop: asyncio.Event | None = None,
    outage_seconds: float = 0.0,
    on_outage: Callable[[Waiting | None], None] = hear_nothing,
    **others: Any,
) -> Summary:
    """Answer questions that nobody has counted, in memory, with a model that has started. `write` is called with
    each record, in the order of the questions. `others` are values of other fields of `Job`."""

    def hear(event: Event) -> None:
        if event.kind in ("waiting", "answering"):
            on_outage(event.waiting)

    job = Job(
        folder=None,
        questions=Questions(lambda: questions, sys.maxsize, ""),
        system="",
        ask=ask,
        index=index,
        llm=llm,
        options=RunOptions(outage=outage_seconds / 60),
        concurrency=concurrency,
        budget=budget or Budget(),
        **others,
    )
    summary = await _answer_all(job, write, stop, hear)
    summary.left = 0
    return summary


def checksums(folder: Path) -> dict[str, str]:
    """Of each file in a folder."""
    return {str(path): sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*") if path.is_file()}


def answers(folder: Path) -> bytes:
    """The answers' file."""
    return (folder / "answers.jsonl").read_bytes()


def traces(folder: Path) -> bytes:
    """What zstd makes of the traces' file: of all its frames, which have to be whole."""
    with (folder / "traces.jsonl.zst").open("rb") as file:
        return zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read()


def records(folder: Path) -> list[dict[str, Any]]:
    """The answers, with their evidence and traces."""
    return [record for _, record in records_of(folder / "answers.jsonl")]


async def direct(question: Question, ctx: Context) -> Answer:
    """One call."""
    return Answer((await ctx.generate(DIRECT, question=question.text)).answer)


async def winding(question: Question, ctx: Context) -> Answer:
    """All that a system may do with the LLM: one call after another, equal ones at once, those that fail."""
    reasoned = await ctx.generate(COT, question=question.text)
    words = await asyncio.gather(*(ctx.generate(WORD, question=reasoned.answer) for _ in range(3)))
    try:
        last = (await ctx.generate(DIRECT, question=f"{words[0].answer} {words[2].answer}")).answer
    except CallError as error:
        last = f"{type(error).__name__}: {error}"
    return Answer(last, trace={"reasoned": reasoned.answer, "words": [word.answer for word in words]})


def moody(request: Request) -> Any:
    """A reply that follows from the request alone, and is not always one that can be used."""
    mood = crc32(orjson.dumps(request.messages))
    if mood % 11 == 0:
        return CallError(f"no answer to {mood}")
    if mood % 3 == 0:
        return ["", '{"answer": ', "[]", Completion("{}", "length"), Completion("", "filter")][mood % 5]
    return {"reasoning": "so", "answer": f"answer {mood}"}
