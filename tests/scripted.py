"""A language model that says what a test tells it to, and remembers what it was asked."""

import asyncio
import json
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

from runs import answer_all

from pyfast.engine import Budget, Question, Record
from pyfast.evaluation.judge import JUDGE, JUDGE_WITHOUT_TIES
from pyfast.knowledge import Session
from pyfast.llm import Completion, FullLLM, Request
from pyfast.retrieval import Index
from pyfast.systems import load_system, names
from pyfast.systems.conversations import RESOLVE_TURN, REWRITE_TURN
from pyfast.systems.hseq.head import head_prompt
from pyfast.systems.mtqa.prompts import SUMMARY, SUMMARY_ALONE
from pyfast.systems.prompts import ANSWER, COT, DIRECT, unless_known
from pyfast.systems.rivals.checked.rowen_prompts import REPAIR
from pyfast.systems.rivals.checked.searchain import CHAIN
from pyfast.systems.rivals.common import CONCLUDE, REASONED
from pyfast.systems.rivals.flare import LOOK_AHEAD
from pyfast.systems.rivals.react import ACT, ACT_ALONE
from pyfast.systems.rivals.self_ask import FOLLOW_UP
from pyfast.systems.rivals.tables.prompts import FROM_BOTH
from pyfast.systems.subqrag.prompts import FROM_MEMORY

KINDS = {prompt.system: prompt.name for name in names() for prompt in load_system(name).prompts}
MAY_ABSTAIN = (
    ANSWER,
    DIRECT,
    COT,
    REASONED,
    CONCLUDE,
    FOLLOW_UP,
    CHAIN,
    REPAIR,
    FROM_BOTH,
    LOOK_AHEAD,
    ACT,
    ACT_ALONE,
    SUMMARY,
    SUMMARY_ALONE,
    FROM_MEMORY,
    head_prompt(1),
)
KINDS |= {unless_known(prompt, False).system: prompt.name for prompt in MAY_ABSTAIN}
KINDS |= {prompt.system: prompt.name for prompt in (JUDGE, JUDGE_WITHOUT_TIES, REWRITE_TURN, RESOLVE_TURN)}
SAME = ("thought", "summary", "thought_alone", "summary_alone")  # pairs with one system message
Reply = str | dict[str, Any] | Completion | Exception


class Scripted:
    """Replies per kind of prompt: a reply, or a function of the request. What it was asked: `calls`."""

    spec = "scripted"
    context_window = 1_000_000
    slots = 1_000

    def __init__(self, **replies: Reply | Callable[[Request], Reply]) -> None:
        self.replies: dict[str, Any] = {"answer": {"answer": "yes"}, **replies}
        self.calls: list[tuple[str, Request]] = []

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.calls]

    def users(self, kind: str) -> list[str]:
        return [request.messages[-1].content for asked, request in self.calls if asked == kind]

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    @property
    def fingerprint(self) -> str:
        return "scripted"

    async def complete(self, request: Request) -> Completion:
        kind = KINDS[request.messages[0].content]
        if kind in SAME:
            sums_up = "\nWrite the summary.\n" in f"\n{request.messages[1].content}"
            kind = ("summary" if sums_up else "thought") + "_alone" * kind.endswith("_alone")
        self.calls.append((kind, request))
        await asyncio.sleep(0)
        reply = self.replies[kind]
        reply = reply(request) if callable(reply) else reply
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, Completion):
            return reply
        return Completion(reply if isinstance(reply, str) else json.dumps(reply), "stop")


def plan(*queries: str, hops: int | None = None, alternatives: tuple[str, ...] = ()) -> dict[str, Any]:
    """A reply to the plan prompt."""
    first, second, third = (*queries, "", "")[:3]
    return {
        "hops": len(queries) if hops is None else hops,
        "query": first,
        "entity_type": "thing",
        "second_query": second,
        "third_query": third,
        "alternatives": list(alternatives),
    }


def run(
    index: Index | None,
    llm: FullLLM,
    questions: Iterable[str | Question],
    system: str = "n2n",
    concurrency: int = 64,
    session: Session | None = None,
    attempts: int = 1,
    **settings: str,
) -> list[Any]:
    """The records of a run, one a question, as they are read back. An answer is asked for `attempts` times."""
    asked = [q if isinstance(q, Question) else Question(str(i), q) for i, q in enumerate(questions)]
    chosen = load_system(system)
    ask = chosen.ask(chosen.configure(settings), session)
    records: list[Record] = []
    budget = Budget(attempts=attempts)
    asyncio.run(answer_all(iter(asked), ask, index, llm, records.append, concurrency, budget=budget))
    return [SimpleNamespace(**{"reason": None, **record.as_json()}) for record in records]
