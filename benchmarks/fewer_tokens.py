"""What does each system send to the LLM, before and after a change: words, words that a prefix cache does not
have, and gold sentences?

    python benchmarks/fewer_tokens.py record BEFORE                  # in a checkout of the earlier version
    python benchmarks/fewer_tokens.py record AFTER
    python benchmarks/fewer_tokens.py record SPARING --systems n2n,rag --set effort=auto --set evidence_share=0.8
    python benchmarks/fewer_tokens.py table BEFORE AFTER SPARING
    .venv-vllm/bin/python benchmarks/fewer_tokens.py replay BEFORE SPARING --model FOLDER --systems n2n --limit 20

`record` answers the questions, and writes the prompts and replies of each set and system into a file. It uses only
what earlier versions have too, so this file can be copied into an older checkout. `table` counts, for each system
and set of questions, what was sent; the first folder is what the others are compared with. `replay` sends the same
prompts to vLLM, the calls of a question one after the other, and measures the time and what vLLM's prefix cache
had.

The LLM is the same on both sides. To the prompts that tests/oracle.py knows (`n2n`, `hseq`, `rag`, `decompose`
and some rivals), it replies by the gold. To others, it replies with words of the question, which depend on the
question and the number of the call, and not on the layout of the prompt. Each prompt goes, in the order in which
it was sent, through a prefix cache without a limit: blocks of 12 words, as vLLM's of 16 tokens.

The questions are those whose blake2b(id) is even (`--odd`: the others), the first ones in the order of the hash.
Systems with a
knowledge graph search the documents that belong to these questions, and a graph that rules read from them; the
others search all documents. Gold are the annotated sentences of HotpotQA, for MuSiQue the sentences of supporting
passages that contain the answer of a step, and for HybridQA two things: a gold row of the table, and a sentence
with the answer in a linked text. A gold sentence is read if it stands in a prompt of the question, word by word.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import blake2b
from math import inf
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import pyfast
from pyfast.corpus import Level, TextDocument, encode, read
from pyfast.llm import Completion, Message, Request, open_llm
from pyfast.llm.instant import Instant
from pyfast.retrieval import Index, build_index
from pyfast.systems import load_system

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from oracle import PROMPTS, Oracle

DATA = Path(os.environ.get("PYFAST_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
SETS = "hybridqa,musique,hotpotqa"
SYSTEMS = (
    "n2n,hseq,mtqa,subqrag,rag,decompose,cot,direct,iter_retgen,ircot,self_ask,react,self_consistency,hipporag,flare,"
    "adaptive_rag,tot,rat,ratt,coa,lightrag,tog,searchain,slimplm,rowen,ttqa_rs,cascade"
)
Row = dict[str, Any]
Unit = tuple[tuple[str, ...], ...]
"""Alternatives, one of which must be read; each is a list of texts that must stand on one line of a prompt"""


class Scripted:
    """The LLM. It notes what it was sent, and what it replied."""

    context_window, slots = 32_768, 64

    def __init__(self, rows: Sequence[Row]) -> None:
        self.spec = self.fingerprint = "scripted"
        self.oracle, self.instant = Oracle(rows), Instant()
        self.questions = sorted((row["question"] for row in rows), key=len, reverse=True)
        self.asked = Counter[tuple[str, str, int]]()
        self.calls: list[tuple[list[list[str]], str]] = []

    async def complete(self, request: Request) -> Completion:
        messages = request.messages
        if len(messages) == 2 and hasattr(self.oracle, PROMPTS.get(messages[0].content, "-")):
            completion = await self.oracle.complete(request)
        else:
            said = messages[-1].content
            question = next((one for one in self.questions if one in said), "")
            key = messages[0].content, question, request.seed
            self.asked[key] += 1
            text = (question or said.rpartition("Question: ")[2].partition("\n")[0]) + " " * self.asked[key]
            completion = await self.instant.complete(
                replace(request, messages=(replace(messages[-1], content=text),))
            )
        self.calls.append(([[it.role, it.content] for it in messages], completion.text))
        return completion


def lines_of(path: Path) -> Iterator[Row]:
    return map(json.loads, path.read_text(encoding="utf-8").splitlines())


@cache
def documents_of(name: str) -> dict[str, Row]:
    return {row["id"]: row for row in lines_of(DATA / name / "corpus.jsonl")}


def questions_of(name: str, limit: int, odd: bool) -> list[Row]:
    rows = (
        row for row in lines_of(DATA / name / "questions.jsonl") if row.get("supporting") and row.get("answers")
    )
    unique = {row["question"]: row for row in rows if units_of(name, row)}.values()
    digests = {row["id"]: blake2b(row["id"].encode()).digest() for row in unique}
    chosen = [row for row in unique if digests[row["id"]][-1] % 2 == odd]
    return sorted(chosen, key=lambda row: digests[row["id"]])[:limit]


def own_documents(name: str, rows: Sequence[Row]) -> set[str]:
    """The documents of these questions: their contexts, or their tables with all linked texts."""
    own = {uri for row in rows for uri in row.get("context", ())}
    for row in rows:
        if "table_id" in row:
            linked = documents_of(name)[row["table_id"]]["links"].values()
            own |= {row["table_id"], *(uri for uris in linked for uri in uris)}
    return own


@cache
def sentences_of(name: str, uri: str) -> list[tuple[int, str]]:
    """(the offset in the text, the sentence with single blanks) for each sentence of a text."""
    one = documents_of(name).get(uri, {})
    if one.get("kind") != "text":
        return []
    corpus = encode([TextDocument(uri, one["title"], one["text"])])
    places = np.flatnonzero(corpus.level[:] == Level.SENTENCE).tolist()
    return [(int(corpus.start[i]), " ".join(corpus.content(i).split())) for i in places]


def units_of(name: str, row: Row) -> list[Unit]:
    """The gold of a question."""
    if "table_id" in row:
        table, nodes = documents_of(name)[row["table_id"]], row.get("answer_nodes") or ()
        numbers = sorted({at for _, (at, _), *_ in nodes if at < len(table["rows"])})
        rows = tuple(tuple(" ".join(cell.split()) for cell in table["rows"][at] if cell.strip()) for at in numbers)
        texts = {uri for _, _, uri, kind in nodes if kind == "passage"}
        wanted = [answer.lower() for answer in row["answers"]]
        said = (text for uri in sorted(texts) for _, text in sentences_of(name, uri))
        linked = tuple((text,) for text in said if any(answer in text.lower() for answer in wanted))
        return [unit for unit in (rows, linked) if unit]
    answers = {step.get("doc"): step["answer"].lower() for step in row.get("decomposition") or ()}
    facts = row.get("supporting_facts") or ()
    units = dict[Unit, None]()
    for uri in dict.fromkeys([*answers, *(uri for uri, _ in facts)]):
        starts = documents_of(name).get(uri, {}).get("sent_starts") or []
        named = [starts[at] for of, at in facts if of == uri and at < len(starts)]
        for begins, text in sentences_of(name, uri):
            if any(abs(begins - one) <= 1 for one in named) or (uri in answers and answers[uri] in text.lower()):
                units[((text,),)] = None
    return list(units)


def index_of(name: str, own: set[str], knows: bool, folder: Path) -> Index:
    """The index of a set in a folder, built if it is not there yet: of all documents, or if a system `knows` a
    graph, of the questions' own documents, with a graph that rules read from them."""
    if not folder.exists():
        documents = read([DATA / name / "corpus.jsonl"])
        build_index((it for it in documents if it.uri in own) if knows else documents, folder)
        if knows:
            pyfast.build_knowledge(folder)
    return Index(folder)


def record_one(rows: list[Row], system: str, index: Index, settings: dict[str, str], out: Path) -> None:
    llm = Scripted(rows)
    with TemporaryDirectory() as scratch:
        run = pyfast.answer(
            [{"id": row["id"], "question": row["question"]} for row in rows],
            index=index,
            llm=llm,
            system=system,
            settings=settings,
            run=Path(scratch) / "run",
            concurrency=8,
        )
        names = {
            json.dumps([[it.role, it.content] for it in call.messages]): (row["id"], call.prompt)
            for row in rows
            for call in run.prompts(row["id"])
            if call.messages
        }
        failed = [it.id for it in run.records if it.state == "failed"]
    with gzip.open(out, "wt", encoding="utf-8") as file:
        file.write(
            json.dumps({"settings": settings, "questions": [row["id"] for row in rows], "failed": failed}) + "\n"
        )
        for messages, reply in llm.calls:
            question, prompt = names.get(json.dumps(messages), ("", "a call that failed"))
            file.write(json.dumps([question, prompt, messages, reply]) + "\n")
    print(f"{out.name}: {len(llm.calls)} calls, {len(failed)} failed questions", flush=True)


def is_read(text: str, units: Sequence[Unit]) -> list[bool]:
    """Whether each unit stands in the text."""
    lines = [" ".join(line.split()) for line in text.split("\n")]
    whole = "\n".join(lines)
    return [
        any(
            all(part in whole for part in parts) and any(all(it in line for it in parts) for line in lines)
            for parts in unit
        )
        for unit in units
    ]


@dataclass(frozen=True)
class Recording:
    """One system on one set of questions."""

    label: str
    ids: list[str]
    failed: set[str]
    figures: dict[str, NDArray[np.float64]]
    """A number for each question"""
    by_prompt: Counter[str]
    """How many words of each prompt were computed"""


def recorded(path: Path) -> tuple[Row, list[list[Any]]]:
    """Read what `record_one` has written: the questions and settings, and the calls."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        head, *calls = map(json.loads, file)
    return head, calls


def recording_of(path: Path, golds: dict[str, list[Unit]]) -> Recording:
    # Older versions, in which `record` runs too, do not have it.
    from pyfast.engine.journal.journal_reader import PrefixCache, words_of

    head, calls = recorded(path)
    ids, cached = head["questions"], PrefixCache(inf)
    counts, texts = {it: Counter[str]() for it in (*ids, "")}, {it: [""] for it in (*ids, "")}
    by_prompt = Counter[str]()
    for question, prompt, messages, reply in calls:
        words = words_of(Message(role, content) for role, content in messages)
        computed, said = len(words) - cached.read(words), len(words_of([Message("assistant", reply)]))
        counts[question].update(calls=1, sent=len(words), computed=computed, replies=said)
        by_prompt[prompt] += computed
        texts[question].append("\n".join(content for _, content in messages))
    figures = {
        key: np.array([counts[it][key] for it in ids], float) for key in ("calls", "sent", "computed", "replies")
    }
    for key, first in (("any", 0), ("last", -1)):
        figures[key] = np.array([fmean(is_read("\n".join(texts[it][first:]), golds[it])) for it in ids])
    told = (f"{name}={value}" for name, value in head["settings"].items())
    return Recording(" ".join((path.parent.name, *told)), ids, set(head["failed"]), figures, by_prompt)


def difference(before: NDArray[np.float64], after: NDArray[np.float64]) -> str:
    """The mean difference in points, with its 95 % interval."""
    change = after - before
    drawn = np.random.default_rng(0).integers(0, len(change), (2000, len(change)))
    low, high = np.quantile(change[drawn].mean(axis=1), (0.025, 0.975)) * 100
    return f"{change.mean() * 100:+.1f} [{low:+.1f}, {high:+.1f}]"


app = typer.Typer(add_completion=False)


@app.command()
def record(
    folder: Path,
    sets: str = SETS,
    systems: str = SYSTEMS,
    limit: int = 40,
    odd: Annotated[bool, typer.Option(help="The other questions, to choose settings on.")] = False,
    setting: Annotated[list[str] | None, typer.Option("--set", help="NAME=VALUE; repeatable.")] = None,
    indexes: Annotated[Path | None, typer.Option(help="Where the indexes are kept. Default: in FOLDER.")] = None,
) -> None:
    """Answer the questions, and write what the LLM was sent."""
    given = dict(one.split("=", 1) for one in setting or ())
    folder.mkdir(parents=True, exist_ok=True)
    for name in sets.split(","):
        rows = questions_of(name, limit, odd)
        for system in systems.split(","):
            out = folder / f"{name}-{system}.jsonl.gz"
            if not out.exists():
                graph = load_system(system).opens is not None
                kind = f"-graph-{limit}{'-odd' * odd}" if graph else ""
                place = (indexes or folder) / f"index-{name}{kind}"
                record_one(rows, system, index_of(name, own_documents(name, rows), graph, place), given, out)


@app.command()
def table(
    folders: list[Path],
    systems: str = SYSTEMS,
    sets: str = SETS,
    prompts: Annotated[bool, typer.Option(help="Show the computed words of each prompt too.")] = False,
) -> None:
    """Print the table. Questions that failed in one of the folders do not count."""
    shown = Table(
        "system",
        "set",
        "questions",
        "calls",
        "sent",
        "computed",
        "",
        "replies",
        "gold read",
        "",
        "in the last",
        "",
    )
    golds = {
        (name, row["id"]): units_of(name, row)
        for name in sets.split(",")
        for odd in (False, True)
        for row in questions_of(name, 10**9, odd)
    }
    for system in systems.split(","):
        for name in sets.split(","):
            paths = [path for folder in folders if (path := folder / f"{name}-{system}.jsonl.gz").exists()]
            of_set = {id: units for (of, id), units in golds.items() if of == name}
            sides = [recording_of(path, of_set) for path in paths]
            failed = set[str]().union(*(side.failed for side in sides))
            for side in sides:
                keep = np.array([id not in failed for id in side.ids])
                was, now = ({key: values[keep] for key, values in it.figures.items()} for it in (sides[0], side))
                mean = {key: values.mean() for key, values in now.items()}
                shown.add_row(
                    *(
                        f"{system} {side.label}",
                        name,
                        f"{keep.sum()}",
                        f"{mean['calls']:.1f}",
                        f"{mean['sent']:,.0f}",
                    ),
                    *(
                        f"{mean['computed']:,.0f}",
                        f"{100 * (mean['computed'] / was['computed'].mean() - 1):+.0f} %",
                    ),
                    f"{mean['replies']:,.0f}",
                    *(f"{mean['any']:.3f}", difference(was["any"], now["any"])),
                    *(f"{mean['last']:.3f}", difference(was["last"], now["last"])),
                )
                for prompt, words in side.by_prompt.items() if prompts else ():
                    shown.add_row(f"  {prompt}", "", "", "", "", f"{words / len(side.ids):,.0f}")
    Console(width=190).print(shown, highlight=False)


def processor_time() -> float:
    """The seconds that the processes of vLLM have computed."""
    import psutil  # in vLLM's environment; the other commands do not need it

    times = (it.cpu_times() for it in psutil.Process().children(recursive=True))
    return sum(it.user + it.system for it in times)


async def replay_one(llm: Any, path: Path, keep: set[str], at_once: int) -> Row:
    """Send the prompts of some questions, with an empty prefix cache. Each reply may be as long as the recorded
    one, in words of 4/3 tokens."""
    from pyfast.engine.journal.journal_reader import PrefixCache, words_of

    _, calls = recorded(path)
    by_question: dict[str, list[tuple[tuple[Message, ...], int]]] = {}
    order = list[tuple[Message, ...]]()
    for question, _, messages, reply in calls:
        if question in keep:
            said = tuple(Message(role, content) for role, content in messages)
            size = max(1, len(words_of([Message("assistant", reply)])) * 4 // 3)
            by_question.setdefault(question, []).append((said, size))
    # The only way to start with an empty cache and without loading the model again
    await llm._shared.engines[0].reset_prefix_cache()
    free, done = asyncio.Semaphore(at_once), list[Completion]()

    async def ask(question: str) -> None:
        async with free:
            for messages, size in by_question[question]:
                order.append(messages)
                done.append(await llm.complete(Request(messages, size)))

    started, busy = time.perf_counter(), processor_time()
    await asyncio.gather(*map(ask, by_question))
    seconds = time.perf_counter() - started
    cache, words = PrefixCache(inf), [words_of(messages) for messages in order]
    expected = sum(map(cache.read, words)) / sum(map(len, words))
    prompt, cached = (sum(getattr(it, key) for it in done) for key in ("prompt_tokens", "cached_tokens"))
    written = sum(it.completion_tokens for it in done)
    return {
        "calls": len(done),
        "seconds": seconds,
        "busy": processor_time() - busy,
        "computed": prompt - cached,
        "written": written,
        "share": cached / prompt,
        "expected": expected,
    }


@app.command()
def replay(
    folders: list[Path],
    model: Annotated[str, typer.Option(help="A folder, or a name on the hub.")],
    systems: str = "n2n,mtqa",
    sets: str = SETS,
    limit: Annotated[int, typer.Option(help="Questions of each set.")] = 20,
    at_once: Annotated[int, typer.Option(help="Questions at once.")] = 8,
    most_words: Annotated[int, typer.Option(help="Leave out questions with a longer prompt.")] = 4_500,
    rounds: int = 1,
) -> None:
    """Send the recorded prompts to vLLM on both sides, and compare the time."""
    pairs = [(system, name) for system in systems.split(",") for name in sets.split(",")]
    asyncio.run(replay_all(folders, model, pairs, limit, at_once, most_words, rounds))


async def replay_all(
    folders: list[Path],
    model: str,
    pairs: list[tuple[str, str]],
    limit: int,
    at_once: int,
    most_words: int,
    rounds: int,
) -> None:
    from pyfast.engine.journal.journal_reader import words_of

    llm: Any = open_llm(f"vllm:{model}", dtype="float32")
    await llm.start()
    await llm.complete(Request((Message("user", "Hello"),), 4))
    for system, name in pairs:
        paths = [path for folder in folders if (path := folder / f"{name}-{system}.jsonl.gz").exists()]
        questions, left_out = list[str](), set[str]()
        for path in paths:
            head, calls = recorded(path)
            questions = questions or head["questions"]
            sizes = ((id, len(words_of(Message(*it) for it in messages))) for id, _, messages, _ in calls)
            left_out |= {*head["failed"], *(id for id, words in sizes if words > most_words)}
        chosen = [it for it in questions if it not in left_out][:limit]
        for turn in range(rounds):
            for path in paths if turn % 2 == 0 else paths[::-1]:
                found = await replay_one(llm, path, set(chosen), at_once)
                print(
                    f"{system} {name} {path.parent.name}: {len(chosen)} questions, {found['calls']} calls,"
                    f" {found['seconds']:.1f} s ({found['busy']:.1f} s of processor time),"
                    f" {found['computed']} tokens computed, {found['written']} written,"
                    f" cached {found['share']:.1%}, by the words {found['expected']:.1%}",
                    flush=True,
                )
    await llm.close()


if __name__ == "__main__":
    app()
