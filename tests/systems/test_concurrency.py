"""A run writes the same bytes at any concurrency, and in whatever order the model answers."""

import asyncio
import random

import orjson
import pytest
from scripted import run

from pyfast.engine import Question
from pyfast.llm import Completion, Request
from pyfast.llm.instant import Instant
from pyfast.retrieval import Index


class Jittery(Instant):
    """The instant LLM, except that its answers take each time another while."""

    async def complete(self, request: Request) -> Completion:
        await asyncio.sleep(random.random() / 100)
        return await super().complete(request)


def written(index: Index, questions: list[Question], concurrency: int, **settings: str) -> bytes:
    records = run(index, Jittery(), questions, concurrency=concurrency, **settings)
    return b"\n".join(orjson.dumps(vars(record)) for record in records)


@pytest.mark.parametrize(
    "settings",
    [
        *({}, {"ranking": "graph_rank"}, {"system": "rag"}, {"system": "decompose"}),
        *(
            {"system": "iter_retgen"},
            {"system": "ircot"},
            {"system": "self_ask"},
            {"system": "react"},
            {"system": "flare", "query": "questions"},
            {"system": "adaptive_rag"},
            {"system": "cascade"},
            {"system": "self_consistency", "samples": "3"},
        ),
    ],
    ids=str,
)
def test_the_same_bytes(hybridqa: Index, hybridqa_questions: list[Question], settings: dict[str, str]) -> None:
    asked = hybridqa_questions[:100]
    whole = written(hybridqa, asked, 32, **settings)
    assert whole.count(b'"state":"answered"') == len(asked) == 100
    assert written(hybridqa, asked, 512, **settings) == whole
    assert whole.startswith(written(hybridqa, asked[:20], 1, **settings))
