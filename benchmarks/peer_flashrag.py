"""The peer of overhead.py: FlashRAG's vanilla RAG and IRCoT over the same passages, with an LLM that answers at
once.

    python benchmarks/overhead.py --export FOLDER           # passages and questions, as FlashRAG reads them
    ENV/bin/python benchmarks/peer_flashrag.py FOLDER       # questions per second

FlashRAG needs an environment of its own. Not all that it names can be installed from a package index alone, and
these code paths need little of it:

    python -m venv ENV
    ENV/bin/pip install --no-deps flashrag-dev==0.1.2
    ENV/bin/pip install torch transformers==4.46.3 datasets faiss-cpu bm25s PyStemmer numba orjson tiktoken openai

Two ways to an LLM that answers at once: `instant` is a generator in the process, as FlashRAG's own vLLM generator
is; `openai` is FlashRAG's OpenAI generator, with a server beside it that has its answer ready. All questions are
one batch to FlashRAG. Tokens are counted for nothing, because its tokenizer would have to be downloaded; nothing
is evaluated or stored. Its progress bars cannot be switched off; they go nowhere.

0.1.2 takes IRCoT's questions one after the other. Its later pre-releases batch them, and run here too, with some
more packages.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import cProfile
import io
import json
import logging
import multiprocessing
import os
import pstats
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing here is to be fetched

import bm25s
import Stemmer
import tiktoken

THOUGHT = "Jenson Button drove for British American Racing in the 2004 season"
"""What the LLM says. IRCoT searches for it: it has about as many words as a question, and some are rare. It is no
"So the answer is:", so that every question takes all its steps."""

STEPS = 2
"""IRCoT's LLM calls per question: FlashRAG's default. It searches before the first and after each."""


class Settings(dict[str, Any]):
    """FlashRAG's settings. What is not set is None; its own Config needs a file that its package lacks."""

    def __missing__(self, name: str) -> None:
        return None


class NoTokens:
    """A tokenizer that finds no text too long. The real one has to be downloaded, and takes time."""

    def encode(self, text: str, **_: Any) -> list[int]:
        return []


class Instant:
    """A generator that answers at once."""

    calls = 0

    def generate(self, input_list: list[Any], **_: Any) -> list[str]:
        self.calls += len(input_list)
        return [THOUGHT] * len(input_list)


def build(folder: Path, corpus: list[dict[str, str]]) -> None:
    """The index that its retriever opens.

    Its index builder gives bm25s the texts without splitting them into words, and would find nothing; so this is
    done here, with the stemmer and the stop words of its retriever.
    """
    tokenizer = bm25s.tokenization.Tokenizer(stopwords="en", stemmer=Stemmer.Stemmer("english"))
    tokens = tokenizer.tokenize(
        [passage["contents"] for passage in corpus], return_as="tuple", show_progress=False
    )
    engine = bm25s.BM25(backend="numba")
    engine.index(tokens, show_progress=False)
    engine.save(folder, corpus=corpus, show_progress=False)
    tokenizer.save_vocab(folder)  # later versions of FlashRAG ask for these
    tokenizer.save_stopwords(folder)


def answer_at_once(listening: socket.socket) -> None:
    """An OpenAI-compatible server that reads no request further than to its end."""
    message = {"role": "assistant", "content": THOUGHT}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    reply = {
        "id": "0",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [choice],
        "usage": usage,
    }
    body = json.dumps(reply).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()

    class Connection(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport, self.read, self.wanted = transport, bytearray(), 0

        def data_received(self, data: bytes) -> None:
            self.read += data
            while True:
                if not self.wanted:
                    end = self.read.find(b"\r\n\r\n")
                    if end < 0:
                        return
                    length = bytes(self.read[:end]).lower().partition(b"content-length:")[2].split(b"\r\n")[0]
                    self.wanted = end + 4 + int(length or 0)
                if len(self.read) < self.wanted:
                    return
                del self.read[: self.wanted]
                self.wanted = 0
                self.transport.write(head + body)

    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(Connection, sock=listening)
        await server.serve_forever()

    asyncio.run(serve())


@contextlib.contextmanager
def server() -> Iterator[str]:
    """The URL of a server in a process of its own."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening:
        process = multiprocessing.get_context("fork").Process(
            target=answer_at_once, args=(listening,), daemon=True
        )
        process.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        finally:
            process.terminate()
            process.join()


def pipelines(settings: Settings, generator: Any) -> dict[str, Any]:
    """Vanilla RAG and IRCoT over one retriever."""
    from flashrag.pipeline import IRCOTPipeline, SequentialPipeline
    from flashrag.prompt import PromptTemplate
    from flashrag.retriever import BM25Retriever

    # Its own template is no chat, which 0.1.2 refuses for an OpenAI model; and its OpenAI generator would take
    # each message of a lone chat for a request. So the chat is one message. The texts are FlashRAG's.
    template = PromptTemplate(
        settings,
        user_prompt=f"{IRCOTPipeline.IRCOT_INSTRUCTION}\n\n{IRCOTPipeline.IRCOT_EXAMPLE}"
        "{reference}Question: {question}\nThought:",
        reference_template="Wikipedia Title: {title}\n{text}\n\n",
    )
    retriever = BM25Retriever(settings)
    return {
        "vanilla RAG": SequentialPipeline(settings, retriever=retriever, generator=generator),
        "IRCoT": IRCOTPipeline(
            settings, prompt_template=template, retriever=retriever, generator=generator, max_iter=STEPS
        ),
    }


def runner(pipeline: Any, settings: Settings, questions: list[dict[str, Any]]) -> Callable[[int], Any]:
    """A function that answers the first `count` questions again."""
    from flashrag.dataset import Dataset
    from flashrag.dataset.dataset import Item

    def run(count: int) -> Any:
        data = Dataset(settings, data=[Item(dict(question)) for question in questions[:count]])
        return pipeline.run(data, do_eval=False)

    return run


def quiet() -> contextlib.ExitStack:
    """Nowhere to write progress bars to: they cost more on a terminal."""
    stack = contextlib.ExitStack()
    stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
    stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
    return stack


def measure(name: str, run: Callable[[int], Any], k: int, count: int, repeats: int) -> None:
    with quiet():
        warm = run(50)  # numba compiles
    for item in warm:
        assert item.pred.count(THOUGHT) == (STEPS if name.startswith("IRCoT") else 1)
        assert len(item.retrieval_result) >= k and all(passage["contents"] for passage in item.retrieval_result)
    seconds = []
    for _ in range(repeats):
        begun = time.perf_counter()
        with quiet():
            run(count)
        seconds.append(time.perf_counter() - begun)
    print(f"{name:24}{count / statistics.median(seconds):8,.0f}{count / min(seconds):8,.0f}", flush=True)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="what overhead.py --export wrote")
    parser.add_argument("--k", type=int, default=10, help="passages per search")
    parser.add_argument("--count", type=int, help="questions; all that were exported")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--concurrency", type=int, default=4, help="of the OpenAI generator; 4 is its default")
    parser.add_argument(
        "--profile", metavar="RUN", help="one run, such as 'IRCoT, instant', and where its time goes"
    )
    options = parser.parse_args()

    tiktoken.encoding_for_model = lambda _: NoTokens()
    logging.disable(logging.WARNING)
    read = {name: (options.folder / f"{name}.jsonl").read_text().splitlines() for name in ("corpus", "questions")}
    corpus, questions = ([json.loads(line) for line in lines] for lines in read.values())
    count = options.count or len(questions)
    with tempfile.TemporaryDirectory() as index, server() as url:
        build(Path(index), corpus)
        settings = Settings(
            framework="openai",
            generator_model="gpt-4o",
            generator_batch_size=options.concurrency,
            generator_max_input_len=1 << 20,
            generation_params={"max_tokens": 32},
            openai_setting={"api_key": "none", "base_url": url},
            retrieval_method="bm25",
            bm25_backend="bm25s",
            retrieval_topk=options.k,
            index_path=index,
            corpus_path=str(options.folder / "corpus.jsonl"),
            dataset_name="questions",
            save_dir=index,
            metrics=[],
        )
        from flashrag.generator import OpenaiGenerator

        print(
            f"flashrag-dev {version('flashrag-dev')}: {len(corpus):,} passages, {count:,} questions, k={options.k}"
        )
        print(f"{'questions/s':24}{'median':>8}{'best':>8}")
        for generator_name, generator in (("instant", Instant()), ("openai", OpenaiGenerator(settings))):
            for pipeline_name, pipeline in pipelines(settings, generator).items():
                name = f"{pipeline_name}, {generator_name}"
                run = runner(pipeline, settings, questions)
                if options.profile is None:
                    measure(name, run, options.k, count, options.repeats)
                elif options.profile == name:
                    profiler = cProfile.Profile()
                    with quiet():
                        run(50)
                        profiler.runcall(run, count)
                    pstats.Stats(profiler).sort_stats("tottime").print_stats(30)


if __name__ == "__main__":
    main()
