"""How many words of the prompts does a prefix cache save, and what breaks the beginnings that prompts share?

    python benchmarks/prefix_cache.py FOLDER                     # FOLDER keeps the indexes and knowledge graphs
    python benchmarks/prefix_cache.py FOLDER --systems n2n,hseq --sets musique --reader

The LLM is `instant`, or with `--reader` the one of tests/oracle.py, which plans and picks by the gold (`n2n` and
`hseq` alone). With `--same`, the replies of `instant` do not depend on the layout of a prompt, so that layouts are
compared by the same searches, each of which is for other words. Each prompt goes, in the order in which it was
sent, through a cache as vLLM has it: blocks of words, of which the least recently used are dropped. A word counts
as 4/3 tokens, so a block is 12 words, and a token as 144 KiB, as of Qwen3-8B. Replies are not cached. `sent`,
`computed`: words a question; the last columns are computed words with a cache of so many GB. The recall is that of
gold documents, in the evidence of the record.

The questions are those whose blake2b(id) is odd; with `--even`, the others, on which no layout was chosen. `mtqa`
and `subqrag` search the passages of their questions' own contexts, and a graph that rules read from them.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from hashlib import blake2b
from math import inf
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from fewer_tokens import DATA, index_of
from rich.console import Console
from rich.table import Table

import pyfast
from pyfast.engine.journal.journal_reader import PrefixCache, words_of
from pyfast.llm import Completion, FullLLM, Message, Request, dialogue
from pyfast.llm.instant import Instant
from pyfast.retrieval import Index

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from oracle import Oracle

SIZES = (inf, 1, 5, 20)  # GB
TOKENS_PER_GB = 2**30 / (144 * 2**10)
KNOWING = ("mtqa", "subqrag")
Messages = tuple[Message, ...]


class Same(Instant):
    """Its replies depend on the question and on the number of the call, and not on the prompt around it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = Counter[tuple[str, int]]()

    async def complete(self, request: Request) -> Completion:
        said = request.messages[-1].content
        question = said.rpartition("Question: ")[2].partition("\n")[0]
        self.asked[question, request.seed] += 1
        number = self.asked[question, request.seed]
        return await super().complete(replace(request, messages=dialogue(question + " " * number)))


class Recorded:
    """An LLM that notes what it is sent."""

    def __init__(self, llm: Any) -> None:
        self.llm, self.sent = llm, list[Messages]()
        self.spec = self.fingerprint = f"recorded {llm.fingerprint}"
        self.context_window, self.slots = 32_768, 64

    async def complete(self, request: Request) -> Completion:
        self.sent.append(request.messages)
        completion: Completion = await self.llm.complete(request)
        return completion


def questions_of(name: str, limit: int, even: bool) -> list[dict[str, Any]]:
    rows = map(json.loads, (DATA / name / "questions.jsonl").read_text(encoding="utf-8").splitlines())
    chosen = [row for row in rows if row.get("supporting") and row.get("answers")]
    chosen = list({row["question"]: row for row in chosen}.values())
    return [row for row in chosen if blake2b(row["id"].encode()).digest()[-1] % 2 != even][:limit]


def measured(
    name: str, system: str, asked: list[dict[str, Any]], index: Index, llm: FullLLM, settings: dict[str, str]
) -> Iterable[list[str]]:
    """Rows of the table: the system's, and one for each of its prompts."""
    recorded = Recorded(llm)
    with TemporaryDirectory() as scratch:
        run = pyfast.answer(
            [{"id": row["id"], "question": row["question"]} for row in asked],
            index=index,
            llm=recorded,
            system=system,
            settings=settings,
            run=Path(scratch) / "run",
            concurrency=8,
        )
        names = {call.messages: call.prompt for row in asked for call in run.prompts(row["id"])}
        golds = {row["id"]: {row["table_id"]} if "table_id" in row else {*row["supporting"]} for row in asked}
        found = [len(golds[it.id] & {one.uri for one in it.evidence}) / len(golds[it.id]) for it in run.records]
    calls, sent = Counter[str](), Counter[str]()
    computed = [Counter[str]() for _ in SIZES]
    caches = [PrefixCache(size * TOKENS_PER_GB) for size in SIZES]
    for messages in recorded.sent:
        prompt, words = names.get(messages, "a call that failed"), words_of(messages)
        calls[prompt] += 1
        sent[prompt] += len(words)
        for counter, cache in zip(computed, caches, strict=True):
            counter[prompt] += len(words) - cache.read(words)
    shares = (each.total() / len(asked) for each in (calls, sent, *computed))
    yield [name, system, *(f"{share:,.1f}" for share in shares), f"{fmean(found):.3f}"]
    for prompt in calls:
        shares = (each[prompt] / len(asked) for each in (calls, sent, *computed))
        yield ["", f"  {prompt}", *(f"{share:,.1f}" for share in shares), ""]


def main(
    folder: Annotated[Path, typer.Argument()],
    sets: str = "hybridqa,musique,hotpotqa",
    systems: str = "rag,n2n,hseq,mtqa,subqrag",
    limit: int = 60,
    even: bool = False,
    reader: bool = False,
    same: bool = False,
    setting: Annotated[list[str] | None, typer.Option("--set", help="NAME=VALUE; repeatable.")] = None,
) -> None:
    """Print the table."""
    sizes = ("computed" if size == inf else f"{size} GB" for size in SIZES)
    table = Table("set", "system, prompt", "calls", "sent", *sizes, "recall")
    for name in sets.split(","):
        asked = questions_of(name, limit, even)
        for system in systems.split(","):
            knows = system in KNOWING
            if knows and name == "hybridqa":
                continue
            own = {uri for row in asked for uri in row.get("context", ())}
            index = index_of(name, own, knows, folder / f"{name}{'-even' * even}{f'-graph-{limit}' * knows}")
            llm: Any = Oracle(asked) if reader else Same() if same else Instant()
            given = dict(one.split("=", 1) for one in setting or ())
            for row in measured(name, system, asked, index, llm, given):
                table.add_row(*row)
    Console(width=120).print(table, highlight=False)


if __name__ == "__main__":
    typer.run(main)
