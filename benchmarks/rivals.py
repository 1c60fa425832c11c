"""Rivals of pyfast's systems beside the same methods in FlashRAG: calls, passages read, questions per second.

    python benchmarks/rivals.py measure FOLDER --peer ENV/bin/python    # FOLDER keeps the index

peer_rivals.py says how to make ENV. The questions are those of HotpotQA, MuSiQue and 2WikiMultihopQA whose id has
an odd hash and that have two gold passages, over the passages of all three sets. One LLM with a script for each
question answers both sides, behind a server in a process of its own: it knows the question and counts its calls,
so that its replies do not depend on the words of a prompt. FlashRAG finds what pyfast's BM25 finds for the same
query. This is computed before, so FlashRAG's searches take no time. First the calls of each question are compared,
and the passages in the prompts. Then each process has one core: questions per second with an LLM that answers at
once, and with one that takes 200 ms.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Annotated, Any

import orjson
import scripted_server
import typer
from jobs import job, work
from overhead import DATA, of_sets
from rich.console import Console
from rich.table import Table

from pyfast.engine import Budget, Question, dedicate_process
from pyfast.llm import open_llm
from pyfast.retrieval import Index, build_index, search
from pyfast.systems import load_system

HERE = Path(__file__).parent
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
SETS = ("hotpotqa", "musique", "2wiki")
SYSTEMS: dict[str, tuple[str, dict[str, str]]] = {
    "iter_retgen": ("iter_retgen", {"k": "5", "abstain": "off"}),
    "ircot": ("ircot", {"k": "4", "abstain": "off"}),
    "self_ask": ("self_ask", {"k": "5", "abstain": "off"}),
    "search_r1": ("react", {"k": "3", "format": "search_r1"}),
}
CALLS = {"iter_retgen": 2, "ircot": 4, "self_ask": 5, "search_r1": 3}
"""pyfast's calls of a question"""
CONTEXT = 1 << 16  # so that nothing is cut off, as in FlashRAG
ASKED = re.compile(r"(?:Question: |answers this\? )([^\n]+)")
Script = dict[str, Any]


def scripts() -> list[Script]:
    """What the LLM says about each question: a fact of each of two gold passages, and the answer."""
    told = []
    for name in SETS:
        texts = {row["id"]: row for row in map(json.loads, (DATA / name / "corpus.jsonl").open(encoding="utf-8"))}
        for row in map(json.loads, (DATA / name / "questions.jsonl").open(encoding="utf-8")):
            gold = [texts[uri] for uri in row.get("supporting", ())[:2]]
            if blake2b(row["id"].encode()).digest()[-1] % 2 and len(gold) == 2 and row["answers"]:
                facts = [_plain(f"{one['title']} {one['text']}", 12) for one in gold]
                asked = [f"What is {_plain(one['title'] or one['text'], 6)} known for" for one in gold]
                question = " ".join(row["question"].split())
                told.append(
                    {"question": question, "facts": facts, "asked": asked, "answer": _plain(row["answers"][0], 8)}
                )
    distinct = list({script["question"]: script for script in told}.values())
    often = Counter(asked for script in distinct for asked in script["asked"])
    return [script for script in distinct if all(often[asked] == 1 for asked in script["asked"])]


def _plain(text: str, words: int) -> str:
    """The first words of a text, without marks at which a sentence or a line could end."""
    return " ".join(re.sub(r"[^\w\s'-]", " ", text).split()[:words])


def queries(script: Script) -> dict[str, list[str]]:
    """What FlashRAG searches for each question, by method."""
    question, (first, second), answer = script["question"], script["facts"], script["answer"]
    return {
        "iter_retgen": [question, f"{question} {first} {answer}"],
        "ircot": [question, f"{first}.", f"{second}."],
        "self_ask": [question, *(f"{asked}?" for asked in script["asked"])],
        "search_r1": list(script["asked"]),
    }


class Scripted:
    """The LLM: its reply depends on the question, on the method, and on how often it was asked."""

    def __init__(self, told: list[Script], log: Path | None) -> None:
        self.scripts = {script["question"]: script for script in told}
        self.facts = {
            f"{asked}?": fact
            for script in told
            for asked, fact in zip(script["asked"], script["facts"], strict=True)
        }
        self.calls: Counter[tuple[str, str, str]] = Counter()
        self.log = None if log is None else log.open("w", encoding="utf-8")

    async def answer(self, asked: dict[str, Any]) -> bytes:
        """The body of the reply. The model's name is the side, the method and the number of the run."""
        prompt = asked.get("prompt") or "\n".join(message["content"] for message in asked["messages"])
        side, method, _ = asked["model"].split("/")
        schema = asked.get("response_format", {}).get("json_schema", {}).get("schema", {}).get("properties", {})
        named = [text.strip() for text in ASKED.findall(prompt)]
        if "entity" in schema:
            text, question = json.dumps({"entity": self.facts[named[-1]][:120]}), named[-1]
        else:
            question = next(text for text in reversed(named) if text in self.scripts)
            form = next((name for name in ("sentence", "reasoning", "follow_up") if name in schema), "")
            self.calls[asked["model"], question, form] += 1
            step, script = self.calls[asked["model"], question, form] - 1, self.scripts[question]
            text = json_reply(form, step, script) if schema else text_reply(method, step, script)
        for stop in asked.get("stop") or ():
            text = text.split(stop)[0]
        if self.log is not None:
            self.log.write(json.dumps([side, method, question, prompt]) + "\n")
            self.log.flush()
        says = {"message": {"role": "assistant", "content": text}} if "messages" in asked else {"text": text}
        usage = {"prompt_tokens": len(prompt) // 4, "completion_tokens": 9, "total_tokens": len(prompt) // 4 + 9}
        kind = "chat.completion" if "messages" in asked else "text_completion"
        reply = {"id": "1", "object": kind, "created": 1, "model": asked["model"], "usage": usage}
        return orjson.dumps({**reply, "choices": [{"index": 0, "finish_reason": "stop", **says}]})


def json_reply(form: str, step: int, script: Script) -> str:
    """A reply to pyfast, by the first field of its schema."""
    facts, asked, answer = script["facts"], script["asked"], script["answer"]
    last = step >= len(facts)
    said = {
        "sentence": {"sentence": f"So the answer is: {answer}." if last else f"{facts[min(step, 1)]}."},
        "reasoning": {"reasoning": facts[min(step, 1)], "answer": answer},
        "follow_up": {"follow_up": "" if last else f"{asked[min(step, 1)]}?", "answer": answer if last else ""},
    }
    return json.dumps(said[form])


def text_reply(method: str, step: int, script: Script) -> str:
    """The text with which the LLM continues, up to where FlashRAG stops it."""
    (first, second), (one, two), answer = script["facts"], script["asked"], script["answer"]
    said = {
        "iter_retgen": [f"{first} {answer}", f"{second} {answer}"],
        "ircot": [first, second, f"So the answer is: {answer}"],
        "self_ask": [
            f"Follow up: {one}?\n",
            f"Intermediate answer: {first}\n",
            f"Follow up: {two}?\n",
            f"Intermediate answer: {second}\nSo the final answer is: {answer}\n",
        ],
        "search_r1": [
            f"<think>{first}</think> <search>{one}</search>",
            f"<think>{second}</think> <search>{two}</search>",
            f"<answer>{answer}</answer>",
        ],
    }
    return said[method][min(step, len(said[method]) - 1)]


app = typer.Typer()


@app.command(hidden=True)
def serve(given: Path, seconds: float, log: Path | None = None) -> None:
    """The server, which prints its port."""
    scripted_server.SECONDS = seconds
    scripted_server.answer = Scripted(json.loads(given.read_bytes())["scripts"], log).answer
    asyncio.run(scripted_server.main())


@app.command(hidden=True)
def ours(given: Path, url: str, method: str, run: str, count: int, concurrency: int) -> None:
    """Answer the first questions with pyfast, and print the seconds."""
    read = json.loads(given.read_bytes())
    index, (name, settings) = Index(Path(read["index"])), SYSTEMS[method]
    system = load_system(name)
    dedicate_process()  # as `pyfast answer` does

    def asked(model: str, scripts: list[Script], folder: Path) -> None:
        listed = [Question(str(number), script["question"]) for number, script in enumerate(scripts)]
        llm = open_llm(f"openai:{model}@{url}", concurrency=concurrency, context_window=CONTEXT)
        wanted = partial(iter, listed)
        asyncio.run(
            work(job(system, settings, None, llm, index, wanted, len(listed), folder, concurrency, Budget()))
        )
        records = [json.loads(line) for line in (folder / "answers.jsonl").read_text().splitlines()]
        assert [record["answer"] for record in records] == [script["answer"] for script in scripts]

    with tempfile.TemporaryDirectory() as scratch:
        asked(f"warm/{method}/{run}", read["scripts"][-8:], Path(scratch) / "warm-up")
        begun, before = process_time(), perf_counter()
        asked(f"pyfast/{method}/{run}", read["scripts"][:count], Path(scratch) / "run")
        print(json.dumps({"seconds": perf_counter() - before, "processor": process_time() - begun}))


@contextmanager
def server(given: Path, seconds: float, log: Path | None = None, script: Path = Path(__file__)) -> Iterator[str]:
    """The address of a server on the second core."""
    command = ["taskset", "-c", "1", sys.executable, str(script), "serve", str(given), str(seconds)]
    command += [] if log is None else ["--log", str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.kill()


def timed(command: list[str]) -> dict[str, float]:
    """Start one side on the first core, and return what it printed last."""
    told = subprocess.run(
        ["taskset", "-c", "0", *command], env=ONE_THREAD, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(told.stdout.splitlines()[-1])


def compare(log: Path, read: dict[str, Any], methods: list[str]) -> Table:
    """The calls of each question, and the passages whose text is in its prompts."""
    calls: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    seen: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    of_question = {f"{asked}?": script["question"] for script in read["scripts"] for asked in script["asked"]}
    texts = {uri: " ".join(text.split())[:60] for uri, text in read["passages"].items()}
    for line in log.read_text(encoding="utf-8").splitlines():
        side, method, named, prompt = json.loads(line)
        question = of_question.get(named, named)
        flat = " ".join(prompt.split())
        calls[side, method][question] += 1
        found = {uri for query in read["queries"][question][method] for uri in read["found"][query][method]}
        seen[side, method, question] |= {uri for uri in found if texts[uri] in flat}
    table = Table(
        "", "calls: pyfast", "FlashRAG", "passages: pyfast", "FlashRAG", "questions with the same passages"
    )
    for method in methods:
        ours, theirs = calls["pyfast", method], calls["flashrag", method]
        assert set(ours.values()) == {CALLS[method]}
        each = [[len(seen[side, method, question]) for question in ours] for side in ("pyfast", "flashrag")]
        same = 0
        for question in ours:
            # FlashRAG's Self-Ask searches for the question itself too, before it asks.
            apart = set(read["found"][question][method]) if method == "self_ask" else set()
            same += seen["pyfast", method, question] - apart == seen["flashrag", method, question] - apart
        shown = [f"{min(of.values())} to {max(of.values())}" for of in (ours, theirs)]
        means = [f"{sum(of) / len(of):.2f}" for of in each]
        table.add_row(method, *shown, *means, f"{same} of {len(ours)}")
    return table


@app.command()
def measure(
    folder: Annotated[Path, typer.Argument()],
    peer: Annotated[Path, typer.Option(help="A Python that has FlashRAG.")],
    repeats: int = 3,
    concurrency: int = 64,
    slow_count: Annotated[int, typer.Option(help="Questions with the LLM that takes 200 ms.")] = 128,
    only: Annotated[list[str], typer.Option("--only", help="A method; repeatable.")] = list(SYSTEMS),  # noqa: B006
) -> None:
    """Compare, then measure in turns."""
    index = (
        Index(folder)
        if folder.exists()
        else build_index((document for document in of_sets() if document.uri.partition("/")[0] in SETS), folder)
    )
    told = scripts()
    of_question = {script["question"]: queries(script) for script in told}
    found: dict[str, dict[str, list[str]]] = defaultdict(dict)
    searches: dict[str, float] = {}
    for method, (_, settings) in SYSTEMS.items():
        asked = list(dict.fromkeys(query for each in of_question.values() for query in each[method]))
        search(index, asked[:10], int(settings["k"]))
        begun = process_time()
        pools = search(index, asked, int(settings["k"]))
        searches[method] = 1000 * (process_time() - begun) / len(told)
        for query, pool in zip(asked, pools, strict=True):
            found[query][method] = [str(passage) for passage in pool.passages.tolist()]
    used = sorted({uri for each in found.values() for uris in each.values() for uri in uris}, key=int)
    read = {
        "index": str(folder),
        "scripts": told,
        "queries": of_question,
        "found": found,
        "passages": {uri: index.text(int(uri)) for uri in used},
        "titles": {uri: index.corpus.title(index.corpus.source[index.passages[int(uri)]]) for uri in used},
    }
    print(f"{len(told)} questions, {len(index.passages):,} passages, {concurrency} questions at once")
    with tempfile.TemporaryDirectory() as scratch:
        given, log = Path(scratch) / "given.json", Path(scratch) / "prompts.jsonl"
        given.write_text(json.dumps(read))

        def run(side: str, url: str, method: str, number: str, count: int) -> dict[str, float]:
            rest = [str(given), url, method, number, str(count), str(concurrency)]
            if side == "pyfast":
                return timed([sys.executable, __file__, "ours", *rest])
            return timed([str(peer), str(HERE / "peer_rivals.py"), *rest])

        with server(given, 0, log) as url:
            for method in only:
                for side in ("pyfast", "flashrag"):
                    run(side, url, method, "compare", len(told))
        Console(width=150).print(compare(log, read, only))
        heads = ("", "LLM", "questions", "pyfast, questions/s", "the LLM's limit", "FlashRAG", "ratio")
        table = Table(*heads, "processor time, ms/question: pyfast", "its searches", "FlashRAG", "ratio")
        for seconds, count, rounds in ((0.0, len(told), repeats), (0.2, slow_count, 1)):
            with server(given, seconds) as url:
                for method in only:
                    took: dict[str, list[dict[str, float]]] = {"pyfast": [], "flashrag": []}
                    for number in range(rounds):
                        for side, each in took.items():
                            each.append(run(side, url, method, str(number), count))
                    wall, processor = (
                        {side: median(one[what] for one in each) for side, each in took.items()}
                        for what in ("seconds", "processor")
                    )
                    limit = f"{concurrency / CALLS[method] / seconds:,.0f}" if seconds else ""
                    rates = {side: count / of for side, of in wall.items()}
                    table.add_row(
                        *(method, f"{seconds * 1000:.0f} ms", str(count), f"{rates['pyfast']:,.0f}", limit),
                        *(f"{rates['flashrag']:,.1f}", f"{rates['pyfast'] / rates['flashrag']:.1f}"),
                        *(f"{1000 * processor['pyfast'] / count:.1f}", f"{searches[method]:.1f}"),
                        f"{1000 * processor['flashrag'] / count:.1f}",
                        f"{processor['flashrag'] / processor['pyfast']:.1f}",
                    )
        Console(width=150).print(table)


if __name__ == "__main__":
    app()
