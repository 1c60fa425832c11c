"""The peer of rivals.py: FlashRAG's loops, as they are, with its OpenAI generator.

    python -m venv ENV
    ENV/bin/pip install torch==2.13.0
    ENV/bin/pip install --no-deps --pre flashrag-dev==0.3.0.dev20260919
    ENV/bin/pip install transformers==4.46.3 datasets faiss-cpu bm25s PyStemmer numba tiktoken openai langid \\
        rouge rouge-chinese jieba termcolor chonkie nltk

rivals.py starts this script for one method and one run. Questions are one batch to FlashRAG, and `concurrency` is
the batch of its generator. Its Self-Ask takes one question at a time. Three things are not FlashRAG's: the
retriever, which looks up what pyfast's BM25 found; a list around a lone prompt, because the OpenAI generator takes
the letters of a lone prompt for prompts; and the prompt of Search-R1, with FlashRAG's text, because its template
for OpenAI's models makes a chat, to which its loop cannot append a text.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import tiktoken
from peer_flashrag import NoTokens, Settings, quiet, runner

Found = list[dict[str, str]]


class Retriever:
    """What pyfast's BM25 found for a query."""

    def __init__(self, given: dict[str, Any], method: str) -> None:
        self.given, self.method = given, method
        self.documents = {
            uri: {"id": uri, "contents": f"{given['titles'][uri]}\n{text}"}
            for uri, text in given["passages"].items()
        }

    def search(self, query: str) -> Found:
        return [self.documents[uri] for uri in self.given["found"][query][self.method]]

    def batch_search(self, query: list[str], return_score: bool = False) -> Any:
        found = [self.search(one) for one in query]
        scores = [[1.0 / (1 + place) for place in range(len(each))] for each in found]
        return (found, scores) if return_score else found


class SearchPrompt:
    """FlashRAG's prompt of Search-R1, as a text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def get_string(self, question: str) -> str:
        return self.text.format(question=question)


def pipeline_of(method: str, settings: Settings, given: dict[str, Any]) -> Any:
    """A loop of FlashRAG with the paper's number of steps."""
    from flashrag.generator import OpenaiGenerator
    from flashrag.pipeline import IRCOTPipeline, IterativePipeline, SearchR1Pipeline, SelfAskPipeline

    class Generator(OpenaiGenerator):
        def generate(self, input_list: Any, **params: Any) -> Any:
            return super().generate([input_list] if isinstance(input_list, str) else input_list, **params)

    parts = {"retriever": Retriever(given, method), "generator": Generator(settings)}
    if method == "iter_retgen":
        return IterativePipeline(settings, iter_num=2, **parts)
    if method == "ircot":
        # Three sentences: its loop fails if all questions have an answer before the last step.
        return IRCOTPipeline(settings, max_iter=3, **parts)
    if method == "self_ask":
        return SelfAskPipeline(settings, max_iter=11, single_hop=False, **parts)
    prompt = SearchPrompt(SearchR1Pipeline.user_prompt)
    return SearchR1Pipeline(settings, prompt_template=prompt, max_retrieval_num=7, **parts)


def main() -> None:
    """Answer the first questions, and print the seconds."""
    file, url, method, run, count, concurrency = sys.argv[1:]
    tiktoken.encoding_for_model = lambda _: NoTokens()
    logging.disable(logging.WARNING)
    given = json.loads(Path(file).read_bytes())
    settings = Settings(
        framework="openai",
        generator_model="gpt-4o",
        generator_batch_size=int(concurrency),
        generator_max_input_len=1 << 20,
        generation_params={"max_tokens": 160},
        openai_setting={"api_key": "none", "base_url": url},
        dataset_name="questions",
        save_dir=".",
        metrics=[],
    )
    pipeline = pipeline_of(method, settings, given)
    questions = [
        {"id": str(number), "question": script["question"], "golden_answers": [script["answer"]]}
        for number, script in enumerate(given["scripts"])
    ]
    for side, some in (("warm", questions[-8:]), ("flashrag", questions[: int(count)])):
        pipeline.generator.model_name = f"{side}/{method}/{run}"
        answer = runner(pipeline, settings, some)
        begun, before = process_time(), perf_counter()
        with quiet():
            answered = answer(len(some))
        took = {"seconds": perf_counter() - before, "processor": process_time() - begun}
    assert all(script["answer"] in item.pred for script, item in zip(given["scripts"], answered, strict=False))
    print(json.dumps(took))


if __name__ == "__main__":
    main()
