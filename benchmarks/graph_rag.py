"""Processor time a question of `subqrag` and `mtqa`, beside LightRAG's mix mode; and what their embedder takes.

    python benchmarks/graph_rag.py questions FOLDER                         # FOLDER keeps index and store
    python benchmarks/graph_rag.py questions FOLDER --peer ENV/bin/python   # peer_lightrag.py says how to make ENV
    python benchmarks/graph_rag.py questions FOLDER --static                # vectors that are sums of words'
    python benchmarks/graph_rag.py embedder

questions: the passages around MuSiQue's questions, the graph that rules read from them, the same for all; a server
in a process of its own that answers at once (scripted_server.py), each system in a process of its own, one thread.
embedder: beside sentence-transformers, texts that are new each time. Wall time plays no part.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from time import process_time, thread_time
from typing import Annotated, Any

import numpy as np
import typer
from jobs import job, work
from knowledge import around_questions, opened
from rich.console import Console
from rich.table import Table

from pyfast.engine import Budget, Question
from pyfast.knowledge import Knowledge, Session, open_knowledge
from pyfast.llm import open_llm
from pyfast.ops.arrays import Float32
from pyfast.retrieval import Index
from pyfast.retrieval.vectors.embeddings import DEFAULT, Embedder, find_embedder
from pyfast.systems import load_system
from pyfast.utils.options import Hardware

HERE = Path(__file__).parent
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
WARM_UP = 4
app = typer.Typer()


@app.command()
def questions(
    folder: Annotated[Path, typer.Argument()],
    limit: int = 60,
    peer: Annotated[Path | None, typer.Option(help="A Python that has LightRAG.")] = None,
    static: Annotated[bool, typer.Option(help="Words' vectors in place of the model.")] = False,
) -> None:
    """Milliseconds of processor time a question."""
    index, known = around_questions(folder, limit)
    model = static_model(folder.with_name(f"{folder.name}-static-model")) if static else find_embedder(DEFAULT)
    store = opened(index, Embedder(str(model), Hardware("cpu")))
    table = Table("", "ms of processor time a question", "in the embedder", "outside")
    with server() as url, tempfile.TemporaryDirectory() as scratch:
        given = {"url": url, "model": str(model), "questions": [question["question"] for question in known]}
        file = Path(scratch) / "given.json"
        file.write_text(json.dumps({**given, "folder": str(folder), "graph": graph_of(index, store)}))
        wanted = [
            (name, [sys.executable, __file__, "one", name, str(file)]) for name in ("rag", "subqrag", "mtqa")
        ]
        if peer is not None:
            wanted.append(("LightRAG, mix", [str(peer), str(HERE / "peer_lightrag.py"), str(file)]))
        for name, command in wanted:
            told = subprocess.run(command, env=ONE_THREAD, stdout=subprocess.PIPE, text=True, check=True).stdout
            found = json.loads(told.splitlines()[-1])
            outside = found["all"] - found["embedder"]
            table.add_row(name, f"{found['all']:.1f}", f"{found['embedder']:.1f}", f"{outside:.1f}")
    Console().print(table)


@contextmanager
def server() -> Iterator[str]:
    """The address of a scripted server."""
    command = [sys.executable, HERE / "scripted_server.py"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.kill()


def graph_of(index: Index, store: Knowledge) -> dict[str, Any]:
    """Passages, entities and relations as LightRAG takes them."""
    passages = index.passages.tolist()
    ids = {int(index.corpus.ids[passage]): str(number) for number, passage in enumerate(passages)}
    chunks = [
        {"content": index.text(number), "source_id": str(number), "file_path": "passages"}
        for number in range(len(passages))
    ]
    triples = list(store.triples(np.arange(len(store), dtype=np.int32)))
    sources = store.sources(range(len(store)))
    said = [(triple, ids[here[0]]) for triple, here in zip(triples, sources, strict=True) if here]
    first = {name: source for (head, _, tail), source in reversed(said) for name in (head, tail)}
    entities = [
        {"entity_name": name, "entity_type": "thing", "description": name, "source_id": source}
        for name, source in first.items()
    ]
    relationships = [
        {
            "src_id": head,
            "tgt_id": tail,
            "description": f"{head} {relation} {tail}",
            "keywords": relation,
            "weight": 1.0,
            "source_id": source,
        }
        for (head, relation, tail), source in said
    ]
    return {"chunks": chunks, "entities": entities, "relationships": relationships}


@app.command(hidden=True)
def one(name: str, file: Path) -> None:
    """What `questions` starts for each system."""
    given = json.loads(file.read_bytes())
    spent = 0.0

    class Counted(Embedder):
        def encode(self, texts: Sequence[str]) -> Float32:
            nonlocal spent
            begun = thread_time()
            found = super().encode(texts)
            spent += thread_time() - begun
            return found

    index, system = Index(Path(given["folder"])), load_system(name)
    ask = None
    if name != "rag":
        store = open_knowledge(index, Counted(given["model"], "cpu"))
        ask = system.ask(system.configure({}), Session(index, store))

    def asked(texts: list[str], folder: Path) -> None:
        listed = [Question(str(number), text) for number, text in enumerate(texts)]
        llm = open_llm(f"openai:m@{given['url']}")
        asyncio.run(
            work(job(system, {}, ask, llm, index, partial(iter, listed), len(listed), folder, 64, Budget()))
        )
        lines = (folder / "answers.jsonl").read_text().splitlines()
        assert len(lines) == len(texts) and all(json.loads(line)["state"] == "answered" for line in lines)

    with tempfile.TemporaryDirectory() as scratch:
        asked(given["questions"][:WARM_UP], Path(scratch) / "warm-up")
        spent, begun = 0.0, process_time()
        rest = given["questions"][WARM_UP:]
        asked(rest, Path(scratch) / "run")
        took = process_time() - begun
    print(json.dumps({"all": 1000 * took / len(rest), "embedder": 1000 * spent / len(rest)}))


def static_model(folder: Path) -> Path:
    """A static model: the default model's vectors of tokens, a text's their mean."""
    if not folder.exists():
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import StaticEmbedding

        whole = SentenceTransformer(str(find_embedder(DEFAULT)), device="cpu", local_files_only=True)
        words = whole[0].auto_model.embeddings.word_embeddings.weight.detach().numpy()
        tokens = whole.tokenizer.backend_tokenizer
        tokens.no_padding()
        SentenceTransformer(modules=[StaticEmbedding(tokens, embedding_weights=words)]).save(str(folder))
    return folder


@app.command()
def embedder() -> None:
    """One text at a time, many at once, and from nothing to the first vector."""
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(1)
    folder = find_embedder(DEFAULT)
    load = "from time import process_time; from pyfast.retrieval.vectors.embeddings import Embedder; "
    load += "from pyfast.utils.options import Hardware; "
    load += "Embedder(hardware=Hardware('cpu')).encode(['Who commanded Apollo 11?']); print(process_time())"
    own = "from time import process_time; from sentence_transformers import SentenceTransformer as S; "
    own += f"S({str(folder)!r}, device='cpu').encode('Who commanded Apollo 11?'); print(process_time())"
    for who, code in (("pyfast", load), ("sentence-transformers", own)):
        run = [subprocess.run([sys.executable, "-c", code], env=ONE_THREAD, stdout=subprocess.PIPE, text=True)]
        run += [subprocess.run(run[0].args, env=ONE_THREAD, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        print(f"{who}: to the first vector {min(float(each.stdout) for each in run):.2f} s")
    mine, theirs = Embedder(str(folder), Hardware("cpu")), SentenceTransformer(str(folder), device="cpu")
    words = [f"{kind} of {place}" for kind in ("mayor", "capital", "author", "father") for place in range(400)]
    texts = iter(
        [f"Who was the {name}, and in which year was it founded{'?' * (i % 3)}" for i, name in enumerate(words)]
    )
    mine.encode(["warm up"])
    theirs.encode("warm up")
    for many, rounds in ((1, 40), (64, 6)):
        batches = [list(islice(texts, many)) for _ in range(rounds)]
        took = {"pyfast": [], "model.encode": []}
        for batch in batches:
            begun = process_time()
            vectors = mine.encode(batch)
            took["pyfast"].append(process_time() - begun)
            begun = process_time()
            peers = theirs.encode(batch, normalize_embeddings=True, show_progress_bar=False)
            took["model.encode"].append(process_time() - begun)
            assert np.allclose(vectors, peers, atol=1e-5)
        each = {who: 1000 * float(np.median(seconds)) / many for who, seconds in took.items()}
        ratio = each["pyfast"] / each["model.encode"]
        print(f"{many} at once: {', '.join(f'{who} {ms:.1f} ms' for who, ms in each.items())} a text, {ratio:.2f}")


if __name__ == "__main__":
    app()
