"""The knowledge store and SubQRAG on real data, with a scripted model in place of an LLM: what is found, how fast.

    python benchmarks/knowledge.py metaqa FOLDER             # the whole graph; FOLDER keeps index and store
    python benchmarks/knowledge.py musique FOLDER --limit 60 # the passages around 60 questions
    python benchmarks/knowledge.py units FOLDER --limit 60   # the same passages, for MTQA's knowledge units
    python benchmarks/knowledge.py update FOLDER             # what a change costs, in processor time
    python benchmarks/knowledge.py sufficient --llm embedded # subqrag's `sufficient`, on and off

metaqa: the gold paths are followed by reading facts (tests/gold_paths.py): how many answer sets are found; how
many searches a second, beside encoding all facts for each sub-question. musique: the published decompositions: how
many of the gold passages the graph memory rests on, beside BM25's first as many. units: searches
a second, with vectors of words in place of a model's, beside plain Python (plain_units.py), whose results are
compared first; its FOLDER is another one. update: metaqa's store with vectors of words is built, then a triple
added; and 20,000 statements that a run shares are searched, beside a look at each; its FOLDER is a new one.
sufficient: questions made of 2WikiMultiHopQA's triples, with five triples of which one tells, or none: how often a
model gives that answer, or none.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from statistics import fmean
from time import perf_counter, process_time
from typing import Annotated, Any

import numpy as np
import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from gold_paths import FollowsDecompositions, FollowsGoldPaths, closure
from plain_units import PlainUnits
from runs import answer_all
from word_vectors import WordVectors

from pyfast.api.models import started
from pyfast.corpus import TextDocument, read
from pyfast.engine import Answer, Context, Question
from pyfast.errors import AnswerError
from pyfast.knowledge import (
    Extract,
    Knowledge,
    Session,
    Statement,
    add_extracts,
    extract_by_rules,
    has_knowledge,
    open_knowledge,
)
from pyfast.knowledge.extracts import LEARNED
from pyfast.knowledge.names import is_named_in, name_key
from pyfast.llm import FullLLM, open_llm
from pyfast.retrieval import Index, build_index
from pyfast.retrieval.vectors.embeddings import Embedder
from pyfast.systems import load_system
from pyfast.systems.mtqa.knowledge_units import Keywords, knowledge_units
from pyfast.systems.mtqa.settings import Settings as MtqaSettings
from pyfast.systems.prompts import answers_in
from pyfast.systems.subqrag.fact_retrieval import retrieve_facts
from pyfast.systems.subqrag.learned import Learned, encode_statements
from pyfast.systems.subqrag.prompts import FROM_FACTS, JUDGE_FACTS
from pyfast.utils.options import Hardware

DATA = Path(os.environ.get("PYFAST_DATA") or Path(__file__).parents[2] / "shared/data")
app = typer.Typer()
_Folder = Annotated[Path, typer.Argument()]


@app.command()
def metaqa(folder: _Folder, films: int | None = None) -> None:
    """Gold paths over 133,582 triples, or over those of the first films and the questions that start there."""
    questions = [json.loads(line) for line in (DATA / "metaqa/questions.jsonl").read_text().splitlines()]
    if not folder.exists():
        build_index(islice(read([DATA / "metaqa/corpus.jsonl"]), films), folder)
    store = opened(Index(folder))
    known = set(store.entities)
    questions = [question for question in questions if question["topic_entity"] in known]
    questions = [question for question in questions if closure(store, question)]
    for named in ("4", "0"):
        records = asked(
            Session(Index(folder), store), FollowsGoldPaths(questions), questions, named=named, branches="256"
        )
        found: dict[str, list[bool]] = defaultdict(list)
        for question, record in zip(questions, records, strict=True):
            answers = {name for step in record["trace"]["path"][-1] for name in step["answers"]}
            found[question["type"]].append(answers == closure(store, question))
        shares = ", ".join(f"{kind}: {sum(right)} of {len(right)}" for kind, right in found.items())
        print(f"named={named}: the answer set of the gold path found: {shares}")
    paths = [step["question"] for record in records for steps in record["trace"]["path"] for step in steps]
    searches(store, paths[:2048])


@app.command()
def musique(folder: _Folder, limit: int = 60) -> None:
    """Published decompositions over the passages around some questions."""
    index, known = around_questions(folder, limit)
    store = opened(index)
    for update in ("on", "off"):
        records = asked(Session(index, store), FollowsDecompositions(known), known, update=update)
        memory, listed, sizes = [], [], []
        for question, record in zip(known, records, strict=True):
            gold = set(question["supporting"])
            uris = {one["uri"] for one in record["evidence"]}
            pool = index.search([question["question"]], max(len(uris), 1))[0]
            near = {index.corpus.uri(index.corpus.source[index.passages[unit]]) for unit, _ in pool}
            memory.append(len(gold & uris) / len(gold))
            listed.append(len(gold & near) / len(gold) if uris else 0.0)
            sizes.append(len(uris))
        sources = Counter(s["source"] for r in records for steps in r["trace"]["path"] for s in steps)
        print(
            f"update={update}: {len(known)} questions, {fmean(sizes):.1f} passages in a memory; support recall"
            f" {fmean(memory):.3f}, of BM25's first as many {fmean(listed):.3f}; answers from {dict(sources)}"
        )


@app.command()
def units(folder: _Folder, limit: int = 60) -> None:
    """Knowledge units of the questions' names and of the questions as themes, in batches of 128 and one by one."""
    index, known = around_questions(folder, limit)
    store = opened(index, WordVectors())  # type: ignore[arg-type]
    asked = [question["question"] for question in known]
    named = [tuple(store.entities[entity] for entity in store.entities_named_in(text)) for text in asked]
    items = [Keywords(names or (text,), (text,)) for names, text in zip(named, asked, strict=True)]
    session = Session(index, store)
    sizes = MtqaSettings()
    parameters = sizes.entities, sizes.relations, sizes.units

    begun = perf_counter()
    plain = PlainUnits(session)
    print(f"plain Python: prepared in {perf_counter() - begun:.2f} s")
    expected = [plain(item, *parameters) for item in items]
    assert knowledge_units(items, session, *parameters) == expected
    print(f"{len(items)} searches, {fmean(map(len, expected)):.1f} units each: the same")
    batches = [items[first : first + 128] for first in range(0, len(items), 128)]
    took = best(lambda: [knowledge_units(batch, session, *parameters) for batch in batches])
    alone = best(lambda: [knowledge_units([item], session, *parameters) for item in items])
    peer = best(lambda: [plain(item, *parameters) for item in items])
    for who, seconds in (("batched", took), ("one by one", alone), ("plain Python", peer)):
        print(f"{who}: {len(items) / seconds:.0f} searches a second, {peer / seconds:.1f} times plain Python")


@app.command()
def update(folder: _Folder, shared: int = 20_000) -> None:
    """Processor time of building a store, of adding one triple, and of a search with much that was learned."""
    index, vectors = build_index(read([DATA / "metaqa/corpus.jsonl"]), folder), WordVectors()
    begun = process_time()
    store = add_extracts(index, vectors, extract_by_rules(index))  # type: ignore[arg-type]
    whole = process_time() - begun
    print(f"{len(store)} triples: built in {whole:.2f} s")
    for number in range(3):
        said = Statement(f"Nobody {number}", "directed", "Kismet", int(index.corpus.ids[0]))
        begun = process_time()
        store = add_extracts(index, vectors, [Extract(str(number), LEARNED, (said,))])  # type: ignore[arg-type]
        took = process_time() - begun
        print(f"one more: {took:.2f} s, {took / whole:.0%} of building it; {len(store)} triples")
    begun = process_time()
    open_knowledge(index, vectors)  # type: ignore[arg-type]
    print(f"opened in {process_time() - begun:.2f} s")
    learned, names = Learned(), store.entities
    facts = [Statement(names[i % len(names)], "is linked to", names[7 * i % len(names)], i) for i in range(shared)]
    for pair in zip(facts, encode_statements(facts, store), strict=True):
        learned.add(*pair)
    texts = [f"Who directed {name}?" for name in names[:: len(names) // 64]]
    retrieve_facts([(text, learned, None) for text in texts], store, 5, 4)  # what is made once
    for what, given in (("nothing", Learned()), (f"{len(learned.statements)} statements", learned)):
        begun = process_time()
        retrieve_facts([(text, given, None) for text in texts], store, 5, 4)
        print(f"{what} learned: {1000 * (process_time() - begun) / len(texts):.2f} ms a search")
    begun = process_time()
    for text in texts[:4]:
        key = name_key(text)
        query = store.encode([text])[0]
        sorted(
            (-float(query @ learned.vectors().matrix[i]), is_named_in(name_key(one.head), key))
            for i, one in enumerate(facts)
        )
    print(f"the peer, a look at each: {1000 * (process_time() - begun) / 4:.0f} ms")


@app.command()
def sufficient(llm: str = "embedded", limit: int = 20) -> None:
    """What a model answers from facts that tell and from facts that do not, asked first whether they do or not."""
    lines = (DATA / "2wiki/questions.jsonl").read_text().splitlines()
    known = sorted({tuple(triple) for line in lines for triple in json.loads(line).get("evidences") or ()})
    right: dict[tuple[str, bool], list[bool]] = defaultdict(list)

    async def ask(question: Question, ctx: Context) -> Answer:
        number, _, prompt = question.id.partition("-")
        head, relation, tail = known[int(number)]
        others, drawn = [triple for triple in known if triple[0] != head], random.Random(number)
        for tells in (True, False):
            facts = drawn.sample(others, 5 - tells) + [(head, relation, tail)] * tells
            drawn.shuffle(facts)
            listed = "\n".join(f"{i}. {' | '.join(fact)}" for i, fact in enumerate(facts, start=1))
            chosen = JUDGE_FACTS if prompt == "on" else FROM_FACTS
            try:
                reply = await ctx.generate(chosen, facts=listed, question=question.text)
                answers = answers_in(reply.answers) if getattr(reply, "sufficient", True) else []
            except AnswerError:
                answers = []
            right[prompt, tells].append(tail in answers if tells else not answers)
        return Answer("")

    picked = random.Random(1).sample(range(len(known)), limit)
    pairs = [(i, prompt) for i in picked for prompt in ("on", "off")]
    inputs = iter([Question(f"{i}-{way}", f"What is the {known[i][1]} of {known[i][0]}?") for i, way in pairs])
    model = open_llm(llm)

    async def run() -> None:
        async with started(model):
            await answer_all(inputs, ask, None, model, lambda record: None, 4)

    asyncio.run(run())
    for prompt in ("on", "off"):
        told, untold = (fmean(right[prompt, tells]) for tells in (True, False))
        print(f"sufficient={prompt}: of {limit} that tell {told:.2f} right, of {limit} others {untold:.2f} empty")


def best(work: Callable[[], object], rounds: int = 5) -> float:
    """Seconds, of the fastest of some rounds."""
    took = []
    for _ in range(rounds):
        begun = perf_counter()
        work()
        took.append(perf_counter() - begun)
    return min(took)


def around_questions(folder: Path, limit: int) -> tuple[Index, list[dict[str, Any]]]:
    """(the passages around MuSiQue's first questions with decompositions, those questions)."""
    lines = (DATA / "musique/questions.jsonl").read_text().splitlines()
    known = [q for q in map(json.loads, lines) if q.get("decomposition") and q.get("supporting")][:limit]
    if not folder.exists():
        wanted = {name for question in known for name in question["context"]}
        documents = read([DATA / "musique/corpus.jsonl"])
        build_index((d for d in documents if isinstance(d, TextDocument) and d.uri in wanted), folder)
    return Index(folder), known


def opened(index: Index, embedder: Embedder | None = None) -> Knowledge:
    """The store, built where there is none yet."""
    embedder = embedder or Embedder(hardware=Hardware("cpu"))
    print(f"vectors of {embedder.fingerprint}")  # read before anything is timed: no part of a store
    if not has_knowledge(index):
        begun = perf_counter()
        extracts = list(extract_by_rules(index))
        print(f"extracted by rules in {perf_counter() - begun:.1f} s")
        add_extracts(index, embedder, extracts)
        print(f"store built in {perf_counter() - begun:.0f} s")
    begun = perf_counter()
    store = open_knowledge(index, embedder)
    took = perf_counter() - begun
    print(
        f"opened in {took:.2f} s: {len(store)} triples, {len(store.facts)} facts, {len(store.entities)} entities"
    )
    return store


def asked(session: Session, llm: FullLLM, questions: list[dict[str, Any]], **settings: str) -> list[Any]:
    """The records of a run of subqrag."""
    system = load_system("subqrag")
    records: list[Any] = []
    ask = system.ask(system.configure(settings), session)
    begun = perf_counter()
    inputs = (Question(question["id"], question["question"]) for question in questions)
    asyncio.run(answer_all(inputs, ask, session.index, llm, records.append, 64))
    print(f"{len(questions)} questions in {perf_counter() - begun:.1f} s")
    return [record.as_json() for record in records]


def searches(store: Knowledge, texts: list[str]) -> None:
    """Searches a second in batches of 128, and what they find of the nearest five; the peer beside them."""
    begun = perf_counter()
    queries = store.encode(texts)
    print(f"{len(texts) / (perf_counter() - begun):.0f} sub-questions encoded a second")
    found = np.concatenate([store.search("facts", queries[i : i + 128], 5)[0] for i in range(0, 1024, 128)])
    begun = perf_counter()
    for i in range(0, len(queries), 128):
        store.search("facts", queries[i : i + 128], 5)
    print(f"{len(queries) / (perf_counter() - begun):.0f} searches a second, batched")
    matrix = store.matrix("facts")
    exact = np.argsort(-(queries[:100] @ matrix.T), axis=1)[:, :5]
    share = np.mean([len({*a} & {*b}) / 5 for a, b in zip(found.tolist(), exact.tolist(), strict=False)])
    print(f"{share:.4f} of the five nearest found")
    sample = store.texts("facts")[:512]
    begun = perf_counter()
    store.encode(sample)
    each = (perf_counter() - begun) * len(matrix) / len(sample)
    print(f"the peer, all facts encoded for each sub-question: {each:.0f} s each, from {len(sample)} of them")
    items = [(text, Learned()) for text in texts]
    begun = perf_counter()
    for i in range(0, len(items), 128):
        retrieve_facts(items[i : i + 128], store, 5, 4)
    print(f"{len(items) / (perf_counter() - begun):.0f} fact retrievals a second, from words to facts in words")


if __name__ == "__main__":
    app()
