"""HSEQ driven by a test: policies that are no LLM, and ledgers to look at."""

import asyncio
import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from runs import answer_all

from pyfast.engine import Answer, Budget, Context, Ledger, Question, Record
from pyfast.llm import LLM
from pyfast.llm.instant import Instant
from pyfast.retrieval import Index
from pyfast.systems import load_system
from pyfast.systems.hseq.iterator import Decision, Limits, Policy, Progress, iterate
from pyfast.systems.hseq.state import State
from pyfast.systems.hseq.windows import open_window


def ledgers(
    index: Index, llm: LLM, questions: Sequence[str], budget: Budget, **settings: str
) -> list[tuple[Record, Ledger]]:
    """The records of a run of HSEQ with their ledgers."""
    system = load_system("hseq")
    ask = system.ask(system.configure(settings))
    kept: dict[str, Ledger] = {}

    async def watched(question: Question, ctx: Context) -> Answer:
        kept[question.id] = ctx.ledger
        return await ask(question, ctx)

    records: list[Record] = []
    asked = (Question(str(i), text) for i, text in enumerate(questions))
    asyncio.run(answer_all(asked, watched, index, llm, records.append, 64, budget=budget))
    return [(record, kept[record.id]) for record in records]


def iterated(
    index: Index, questions: Sequence[str], policies: Sequence[Policy], limits: Limits, prior: int
) -> list[Progress]:
    """Algorithm 1 alone, with a policy for each question."""
    found: dict[int, Progress] = {}

    async def ask(question: Question, ctx: Context) -> Answer:
        number = int(question.id)
        view = await ctx.call(open_window, question.text, limits.width, prior, limits.priority)
        found[number] = await iterate(Progress("", view), policies[number], ctx, limits, 0)
        return Answer("")

    asked = (Question(str(i), text) for i, text in enumerate(questions))
    asyncio.run(answer_all(asked, ask, index, Instant(), lambda record: None, 64))
    return [found[i] for i in range(len(questions))]


def selected(progress: Progress) -> list[int]:
    """M_t."""
    return [it.position for it in progress.selected]


def oracle(gold: set[int], k: int, fill: bool) -> Policy:
    """Picks gold segments when they are in the window, and says so when it has them all.

    With `fill` it takes as many as it may: the earliest of the others beside them.
    """

    async def policy(state: State) -> Decision:
        places = [it.position for it in state.window]
        picked = [place for place in places if place in gold]
        picked = [*picked, *(place for place in places if fill and place not in gold)][:k]
        have = {it.position for it in state.selected} | set(picked)
        return Decision(tuple(places.index(place) + 1 for place in picked), float(gold <= have))

    return policy


Asked = tuple[list[str], list[set[int]], list[list[int]]]


def gold_questions(index: Index, path: Path, prior: int, most: int) -> Asked:
    """(questions, their gold passages, the beginning of their streams), where a search finds any gold.

    Gold are the passages found of the gold documents; where none are named, as for graphs, those with an answer.
    """
    questions, golds, streams = [], [], []
    with path.open(encoding="utf-8") as file:
        for record in map(json.loads, islice(file, 4 * most)):
            (pool,) = index.search([record["question"]], prior)
            passages = index.passages[pool.passages].tolist()
            corpus = index.corpus
            uris = {record["table_id"]} if "table_id" in record else set(record.get("supporting") or ())
            if uris:
                gold = {i for i in passages if corpus.uri(corpus.source[i]) in uris}
            else:
                gold = {i for i in passages if any(answer in corpus.content(i) for answer in record["answers"])}
            if gold and len(questions) < most:
                questions.append(record["question"])
                golds.append(gold)
                streams.append(passages)
    return questions, golds, streams
