"""The peer of graph_rag.py: LightRAG's mix mode over the same passages, graph and model of vectors.

    python -m venv ENV
    ENV/bin/pip install lightrag-hku==1.5.7 openai tiktoken sentence-transformers torch==2.13.0
    python benchmarks/graph_rag.py questions FOLDER --peer ENV/bin/python

graph_rag.py starts this script. It reads `graph.json`, builds the peer's stores, asks some questions to begin
with, then all others, and prints what these took in processor time. LightRAG's tokens are counted by the model's
own tokenizer, for tiktoken's would have to be downloaded.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import tempfile
from functools import partial
from pathlib import Path
from time import process_time, thread_time
from typing import Any

import numpy as np
import torch
from lightrag import LightRAG, QueryParam
from lightrag.kg.shared_storage import initialize_pipeline_status
from lightrag.llm.openai import openai_complete_if_cache
from lightrag.utils import EmbeddingFunc, Tokenizer
from sentence_transformers import SentenceTransformer

WARM_UP = 4


class _Tokens:
    """The model's tokenizer, as LightRAG asks for one."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def __deepcopy__(self, memo: object) -> _Tokens:
        return self

    def encode(self, content: str) -> list[int]:
        return list(self._tokenizer.encode(content, add_special_tokens=False))

    def decode(self, tokens: list[int]) -> str:
        return str(self._tokenizer.decode(tokens))


async def measured(given: dict[str, Any], folder: str) -> dict[str, float]:
    """Milliseconds of processor time a question, in all and in the embedder."""
    model = SentenceTransformer(given["model"], device="cpu", local_files_only=True)
    spent = 0.0

    async def embed(texts: list[str]) -> np.ndarray[Any, Any]:
        nonlocal spent
        begun = thread_time()
        found = model.encode(texts, normalize_embeddings=True, show_progress_bar=False)
        spent += thread_time() - begun
        return np.asarray(found)

    rag = LightRAG(
        working_dir=folder,
        embedding_func=EmbeddingFunc(
            embedding_dim=model.get_embedding_dimension(), max_token_size=512, func=embed
        ),
        llm_model_func=partial(openai_complete_if_cache, "m", base_url=given["url"], api_key="none"),
        tokenizer=Tokenizer("own", _Tokens(model.tokenizer)),
        enable_llm_cache=False,
    )
    await rag.initialize_storages()
    await initialize_pipeline_status()
    await rag.ainsert_custom_kg(given["graph"])
    parameters = QueryParam(mode="mix", enable_rerank=False)

    async def ask(questions: list[str]) -> None:
        told = await asyncio.gather(*(rag.aquery(question, parameters) for question in questions))
        assert all(told) and not any("no-context" in str(text) for text in told)

    await ask(given["questions"][:WARM_UP])
    spent, begun = 0.0, process_time()
    rest = given["questions"][WARM_UP:]
    await ask(rest)
    took = process_time() - begun
    await rag.finalize_storages()
    return {"all": 1000 * took / len(rest), "embedder": 1000 * spent / len(rest)}


if __name__ == "__main__":
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as scratch:
        found = asyncio.run(measured(json.loads(Path(sys.argv[1]).read_bytes()), scratch))
    print(json.dumps(found))
