"""Rivals of pyfast's systems that read a graph or a tree, beside the packages of their authors and others: calls,
passages read, questions per second.

    python benchmarks/graph_rivals.py measure FOLDER --nano NANO/bin/python --light LIGHT/bin/python \\
        --raptor RAPTOR/bin/python                                       # FOLDER keeps the indexes

peer_graphs.py says how to make the environments; what is not named is left out. The questions are those of
HotpotQA whose id has an odd hash, over the paragraphs that come with them. The same for both sides: the passages,
the triples, which rules read from them, the vectors, which a static model makes in each process, and the LLM, in
a process of its own. It knows the questions, answers each form of prompt in the same sense on both sides,
and keeps all facts that it is shown. Each process has one core: questions per second with an LLM that answers at
once, and with one that takes 200 ms. The calls of each question, and the passages in its prompts, are compared in
the first run of each method.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tempfile
from collections import Counter, defaultdict
from functools import partial
from hashlib import blake2b
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Annotated, Any

import numpy as np
import orjson
import scripted_server
import typer
from graph_rag import graph_of, static_model
from jobs import job, work
from knowledge import opened
from overhead import DATA
from rich.console import Console
from rich.table import Table
from rivals import CONTEXT, server, timed

from pyfast.api.summaries import summarize_index
from pyfast.corpus import TextDocument, read
from pyfast.engine import Budget, Question, dedicate_process
from pyfast.knowledge import Session, open_knowledge
from pyfast.llm import open_llm
from pyfast.retrieval import Index, build_index
from pyfast.retrieval.vectors.embeddings import Embedder
from pyfast.systems import load_system
from pyfast.utils.options import Hardware

HERE = Path(__file__).parent
K = 20
COMPARED = "0"
"""The run whose prompts are compared"""
SYSTEMS: dict[str, tuple[str, str, dict[str, str]]] = {
    "graphrag": ("graphrag", "reports", {"k": "20"}),
    "graphrag_global": ("graphrag", "reports", {"mode": "global", "tokens": "16384"}),
    "lightrag": ("lightrag", "index", {"mode": "hybrid", "k": "40"}),
    "lightrag_mix": ("lightrag", "index", {"mode": "mix", "k": "40"}),
    "hipporag": ("hipporag", "index", {}),
    "raptor": ("raptor", "tree", {"k": str(K), "tokens": "1000000"}),
}
"""The system, the folder of its index, and settings that are the defaults of the peer"""
PEERS = {"graphrag": "nano", "lightrag": "light", "hipporag": "light", "raptor": "raptor"}
LLM_CALLS = {"graphrag": 1, "graphrag_global": 2, "lightrag": 2, "lightrag_mix": 2, "hipporag": 2, "raptor": 1}
"""How many calls of a question wait for each other"""
_ASKED = re.compile(r"(?:Question: |Query: |## question ## \]\]\n)([^\n]+)")


def chosen(count: int) -> tuple[list[dict[str, Any]], set[str]]:
    """(the first questions, the names of their paragraphs)."""
    rows = map(json.loads, (DATA / "hotpotqa/questions.jsonl").open(encoding="utf-8"))
    asked = [row for row in rows if blake2b(row["id"].encode()).digest()[-1] % 2 and row.get("context")][:count]
    return asked, {name for row in asked for name in row["context"]}


class Scripted:
    """The LLM: its reply depends on the question, and on what the prompt asks for."""

    def __init__(self, given: dict[str, Any], log: Path | None) -> None:
        self.answers = dict(zip(given["questions"], given["answers"], strict=True))
        self.log = None if log is None else log.open("w", encoding="utf-8")

    async def answer(self, asked: dict[str, Any]) -> bytes:
        """The body of the reply. The model's name is the side, the method and the number of the run."""
        said = [message["content"] for message in asked["messages"]]
        said = [one if isinstance(one, str) else "".join(part["text"] for part in one) for one in said]
        prompt, named = "\n".join(said), [said[-1].strip(), *reversed(_ASKED.findall(said[-1]))]
        question = next((text.strip() for text in named if text.strip() in self.answers), "")
        schema = asked.get("response_format", {}).get("json_schema", {}).get("schema", {}).get("properties", {})
        text = self.text(set(schema), prompt, said[-1], question)
        if self.log is not None:
            side, method, run = asked["model"].split("/")
            if run == COMPARED:
                self.log.write(json.dumps([side, method, question, prompt]) + "\n")
                self.log.flush()
        usage = {"prompt_tokens": len(prompt) // 4, "completion_tokens": 9, "total_tokens": len(prompt) // 4 + 9}
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        reply = {"id": "1", "object": "chat.completion", "created": 1, "model": asked["model"], "usage": usage}
        return orjson.dumps({**reply, "choices": [choice]})

    def text(self, fields: set[str], prompt: str, last: str, question: str) -> str:
        """The reply to pyfast, by the fields of its schema, and to a peer, by the words of its prompts."""
        answer, words = self.answers.get(question, ""), question.split()
        pieces = [" ".join(words[at : at + 3]) for at in range(0, len(words), 3)]
        details, themes = pieces[:4], pieces[-2:]
        titled = re.search(r"[A-Z]\w+(?: [A-Z]\w+)*", last)
        report = {"title": titled[0] if titled else "Things", "summary": last[-400:-40], "rating": 5.0}
        if "detailed" in fields:
            return json.dumps({"detailed": details, "general": themes})
        if '"high_level_keywords"' in prompt:
            return json.dumps({"high_level_keywords": themes, "low_level_keywords": details})
        if "useful" in fields:
            return json.dumps({"useful": [int(number) for number in re.findall(r"^(\d+)\. ", last, re.MULTILINE)]})
        if "[[ ## fact_before_filter ## ]]" in last:
            facts = last.split("[[ ## fact_before_filter ## ]]\n")[-1].split("\n")[0]
            return f"[[ ## fact_after_filter ## ]]\n{facts}\n\n[[ ## completed ## ]]"
        if "findings" in fields or ('"findings"' in prompt and not question):
            return json.dumps({**report, "findings": []})
        if "used" in fields:
            return json.dumps({"answer": answer, "score": 50, "used": [1]})
        if '"points"' in prompt:
            return json.dumps({"points": [{"description": answer, "score": 50}]})
        if fields == {"summary"}:
            return json.dumps({"summary": last[7:407]})
        return json.dumps({"answer": answer}) if fields else f"Thought: it is known.\nAnswer: {answer}"


app = typer.Typer()


@app.command(hidden=True)
def serve(given: Path, seconds: float, log: Path | None = None) -> None:
    """The server, which prints its port."""
    scripted_server.SECONDS = seconds
    scripted_server.answer = Scripted(json.loads(given.read_bytes()), log).answer
    asyncio.run(scripted_server.main())


@app.command(hidden=True)
def ours(given: Path, url: str, method: str, run: str, count: int) -> None:
    """Answer the first questions with pyfast, and print the seconds."""
    read = json.loads(given.read_bytes())
    name, folder, settings = SYSTEMS[method]
    index = Index(Path(read["folder"]) / folder, f"dense:{read['model']}", hardware=Hardware("cpu"))
    system = load_system(name)
    options = system.configure({**settings, "abstain": "off"})
    ask = None
    if folder != "tree":
        ask = system.ask(options, Session(index, open_knowledge(index, Embedder(read["model"], Hardware("cpu")))))
    dedicate_process()  # as `pyfast answer` does

    def asked(model: str, questions: list[str], folder: Path) -> list[str]:
        listed = [Question(str(number), question) for number, question in enumerate(questions)]
        concurrency = read["concurrency"]
        llm = open_llm(f"openai:{model}@{url}", concurrency=concurrency, context_window=CONTEXT)
        given = {**settings, "abstain": "off"}
        wanted = job(
            system, given, ask, llm, index, partial(iter, listed), len(listed), folder, concurrency, Budget()
        )
        asyncio.run(work(wanted))
        return [json.loads(line)["answer"] for line in (folder / "answers.jsonl").read_text().splitlines()]

    with tempfile.TemporaryDirectory() as scratch:
        asked(f"warm/{method}/{run}", read["questions"][-8:], Path(scratch) / "warm-up")
        begun, before = process_time(), perf_counter()
        answered = asked(f"pyfast/{method}/{run}", read["questions"][:count], Path(scratch) / "run")
        took = {"seconds": perf_counter() - before, "processor": process_time() - begun}
    assert answered == read["answers"][:count], answered[:3]
    print(json.dumps(took))


def prepared(folder: Path, count: int, concurrency: int) -> dict[str, Any]:
    """Build what is not there yet, and return what both sides are given."""
    asked, names = chosen(count)
    model = static_model(folder / "model")
    place = folder / "index"
    if not place.exists():
        documents = read([DATA / "hotpotqa/corpus.jsonl"])
        wanted = (one for one in documents if isinstance(one, TextDocument) and one.uri in names)
        build_index(wanted, place, vectors=[f"dense:{model}"])
    index, embedder = Index(place, f"dense:{model}"), Embedder(str(model), Hardware("cpu"))
    store = opened(index, embedder)
    passages = {str(number): index.text(number) for number in range(len(index.passages))}
    ids = {int(index.corpus.ids[passage]): str(number) for number, passage in enumerate(index.passages.tolist())}
    places = range(len(store))
    triples = [
        [*triple, list(dict.fromkeys(ids[one] for one in stated))]
        for triple, stated in zip(
            store.triples(np.arange(len(store), dtype=np.int32)), store.sources(places), strict=True
        )
    ]
    questions = [" ".join(row["question"].split()) for row in asked]
    given: dict[str, Any] = {
        "folder": str(folder),
        "model": str(model),
        "concurrency": concurrency,
        "k": K,
        "questions": questions,
        "answers": [f"answer {number}" for number in range(len(asked))],
        "vectors": embedder.encode([*questions[:8], *list(passages.values())[:8]]).tolist(),
        "passages": passages,
        "triples": triples,
        "graph": graph_of(index, store),
    }
    file = folder / "given.json"
    for made, kind in (("reports", "communities"), ("tree", "clusters")):
        file.write_text(json.dumps(given))
        if not (folder / made).exists():
            with server(file, 0, script=Path(__file__)) as url:
                llm = f"openai:build/{made}/0@{url}"
                summarize_index(place, llm, out=folder / made, of=kind, embedder=str(model))  # type: ignore[arg-type]
    tree = Index(folder / "tree")
    given["tree"] = {str(number): tree.text(number) for number in range(len(tree.passages))}
    file.write_text(json.dumps(given))
    print(f"{len(questions)} questions, {len(passages)} passages, {len(triples)} triples")
    print(f"{Index(folder / 'reports').corpus.documents - index.corpus.documents} reports, ", end="")
    print(f"{len(given['tree']) - len(passages)} summaries")
    return given


def _letters(text: str) -> str:
    """A text as it reads in any form: without marks, spaces and escapes."""
    return re.sub(r"[\W_]+", "", re.sub(r"\\u[0-9a-f]{4}|\\[nrt]", "", re.sub(r"[^\x00-\x7f]", "", text)))


def compare(log: Path, given: dict[str, Any], methods: list[str]) -> list[dict[str, Any]]:
    """The least and the most calls of a question, and the passages whose beginning is in its prompts."""
    calls: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    seen: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    texts = {method: given["tree"] if method == "raptor" else given["passages"] for method in methods}
    begins = {method: {key: _letters(text)[:80] for key, text in of.items()} for method, of in texts.items()}
    for line in log.read_text(encoding="utf-8").splitlines():
        side, method, question, prompt = json.loads(line)
        calls[side, method][question] += 1
        if side not in ("pyfast", "peer") or not question:
            continue
        flat = _letters(prompt)
        seen[side, method, question] |= {key for key, begin in begins[method].items() if begin in flat}
    found = []
    for method in methods:
        ours, theirs = calls["pyfast", method], calls["peer", method]
        pairs = [[seen[side, method, question] for side in ("pyfast", "peer")] for question in ours]
        found.append(
            {
                "method": method,
                "questions": len(pairs),
                "calls": [[min(of.values()), max(of.values())] for of in (ours, theirs)],
                "passages": [sum(len(pair[side]) for pair in pairs) / len(pairs) for side in (0, 1)],
                "in both": sum(len(one & other) for one, other in pairs) / len(pairs),
                "same for": sum(one == other for one, other in pairs),
            }
        )
    return found


def shown(found: list[dict[str, Any]]) -> Table:
    """What `compare` found."""
    table = Table("", "calls: pyfast", "peer", "passages: pyfast", "peer", "in both", "same for")
    for one in found:
        calls = [f"{least} to {most}" for least, most in one["calls"]]
        means = [f"{mean:.2f}" for mean in (*one["passages"], one["in both"])]
        table.add_row(one["method"], *calls, *means, f"{one['same for']} of {one['questions']}")
    return table


@app.command()
def measure(
    folder: Annotated[Path, typer.Argument()],
    nano: Annotated[Path | None, typer.Option(help="A Python that has nano-graphrag.")] = None,
    light: Annotated[Path | None, typer.Option(help="A Python that has LightRAG and HippoRAG.")] = None,
    raptor: Annotated[Path | None, typer.Option(help="A Python that has LlamaIndex's pack.")] = None,
    questions: int = 100,
    repeats: int = 3,
    concurrency: int = 64,
    only: Annotated[list[str], typer.Option("--only", help="A method; repeatable.")] = list(SYSTEMS),  # noqa: B006
    save: Annotated[Path | None, typer.Option(help="A JSON file for the figures.")] = None,
) -> None:
    """Measure in turns, and compare the prompts of the first run."""
    found, figures = list[dict[str, Any]](), list[dict[str, Any]]()
    pythons = {"nano": nano, "light": light, "raptor": raptor}
    python_of = {method: pythons[PEERS[SYSTEMS[method][0]]] for method in only}
    methods = [method for method in only if python_of[method] is not None]
    folder.mkdir(exist_ok=True)
    given = prepared(folder.resolve(), questions, concurrency)
    file, count = folder / "given.json", len(given["questions"])
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "prompts.jsonl"

        def run(side: str, url: str, method: str, number: str) -> dict[str, float]:
            rest = [str(file), url, method, number, str(count)]
            if side == "pyfast":
                return timed([sys.executable, __file__, "ours", *rest])
            return timed([str(python_of[method]), str(HERE / "peer_graphs.py"), *rest])

        console = Console(width=150)
        heads = ("", "LLM", "questions/s: pyfast", "the LLM's limit", "peer", "ratio")
        table = Table(*heads, "processor time, ms/question: pyfast", "peer", "ratio")
        for seconds, rounds in ((0.0, repeats), (0.2, 1)):
            with server(file, seconds, None if seconds else log, Path(__file__)) as url:
                for method in methods:
                    took: dict[str, list[dict[str, float]]] = {"pyfast": [], "peer": []}
                    for number in range(rounds):
                        for side, each in took.items():
                            each.append(run(side, url, method, str(number)))
                    wall, processor = (
                        {side: median(one[what] for one in each) / count for side, each in took.items()}
                        for what in ("seconds", "processor")
                    )
                    limit = f"{concurrency / LLM_CALLS[method] / seconds:,.0f}" if seconds else ""
                    table.add_row(
                        *(method, f"{seconds * 1000:.0f} ms", f"{1 / wall['pyfast']:,.0f}", limit),
                        *(f"{1 / wall['peer']:,.1f}", f"{wall['peer'] / wall['pyfast']:.1f}"),
                        *(f"{1000 * processor['pyfast']:.1f}", f"{1000 * processor['peer']:.1f}"),
                        f"{processor['peer'] / processor['pyfast']:.1f}",
                    )
                    figures.append({"method": method, "llm": seconds, "seconds": wall, "processor": processor})
                    print(figures[-1], file=sys.stderr, flush=True)
            if not seconds:
                found = compare(log, given, methods)
                console.print(shown(found))
        console.print(table)
    if save is not None:
        save.write_text(json.dumps({"comparison": found, "figures": figures}, indent=1) + "\n")


if __name__ == "__main__":
    app()
