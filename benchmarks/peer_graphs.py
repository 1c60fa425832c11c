"""The peers of graph_rivals.py: nano-graphrag, LightRAG, HippoRAG and LlamaIndex's RAPTOR over the same passages,
triples and vectors. Each needs an environment of its own:

    python -m venv NANO
    NANO/bin/pip install nano-graphrag==0.0.8.2 safetensors tokenizers
    python -m venv LIGHT                                                # HippoRAG runs in it too
    LIGHT/bin/pip install torch==2.13.0
    LIGHT/bin/pip install lightrag-hku==1.5.7 openai tiktoken safetensors tokenizers
    LIGHT/bin/pip install --no-deps hipporag==2.0.0a4
    LIGHT/bin/pip install transformers==4.57.1 python-igraph pandas pyarrow filelock tenacity einops
    python -m venv RAPTOR
    RAPTOR/bin/pip install llama-index-packs-raptor==0.4.2 'llama-index-core<0.14' safetensors tokenizers

graph_rivals.py starts this script for one method and one run. It builds the package's own stores (and keeps them),
answers the first questions with the package's own loop, and prints the seconds that the questions took. These are
not the package's own: the triples, which are given, so that no LLM extracts them; the vectors, which are the sums
of the given model's vectors of tokens; tokens of three characters in place of tiktoken's, which would have to be
downloaded; and for HippoRAG, empty modules in place of NOT_NEEDED, which it imports for other models. No package
keeps replies in a cache, except HippoRAG, which always does. It begins with an empty one.
"""

from __future__ import annotations

import asyncio
import contextlib
import html
import io
import json
import logging
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter, process_time
from types import ModuleType
from typing import Any

import numpy as np

COMPLETE = "complete"
NOT_NEEDED = {
    "vllm": ("SamplingParams", "LLM"),
    "gritlm": ("GritLM",),
    "litellm": (),
    "boto3": (),
    "botocore": (),
    "botocore.exceptions": ("ClientError",),
}
"""Modules, and the names that HippoRAG imports from them"""
Answers = Callable[[str, list[str]], list[str]]
"""Answers questions. The first argument is the name of the LLM"""


class Vectors:
    """The vectors of a static model: those of its tokens, added up."""

    def __init__(self, folder: Path) -> None:
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        self.tokenizer = Tokenizer.from_file(str(next(folder.rglob("tokenizer.json"))))
        self.tokenizer.no_padding()
        (self.rows,) = load_file(next(folder.rglob("model.safetensors"))).values()

    def encode(self, texts: Sequence[str]) -> np.ndarray[Any, Any]:
        read = self.tokenizer.encode_batch([*texts], add_special_tokens=False)
        made = np.array([self.rows[each.ids].sum(axis=0) for each in read], np.float32).reshape(len(texts), -1)
        return made / np.maximum(np.linalg.norm(made, axis=1, keepdims=True), 1e-12)


class Tokens:
    """Tokens of three characters, as many as pyfast assumes."""

    def encode(self, text: str, **_: Any) -> list[Any]:
        return [text[at : at + 3] for at in range(0, len(text), 3)]

    def encode_batch(self, texts: list[str], **_: Any) -> list[list[Any]]:
        return [self.encode(text) for text in texts]

    def decode(self, tokens: list[Any]) -> str:
        return "".join(tokens)

    def decode_batch(self, many: list[list[Any]]) -> list[str]:
        return ["".join(tokens) for tokens in many]


def is_new(folder: str) -> bool:
    """Whether a store is still to be built in a folder."""
    return not (Path(folder) / COMPLETE).exists()


def in_parallel(rag: Any, parameters: Any, llm: list[str], concurrency: int) -> Answers:
    """Ask nano-graphrag or LightRAG so many questions at once. The name of the LLM is put into `llm`."""
    loop = asyncio.get_event_loop()

    async def ask(questions: list[str]) -> list[str]:
        most = asyncio.Semaphore(concurrency)

        async def one(question: str) -> str:
            async with most:
                return str(await rag.aquery(question, parameters))

        return await asyncio.gather(*map(one, questions))

    def answers(model: str, questions: list[str]) -> list[str]:
        llm[0] = model
        return loop.run_until_complete(ask(questions))

    return answers


def nano(given: dict[str, Any], vectors: Vectors, folder: str, mode: str) -> Answers:
    """GraphRAG as nano-graphrag does it."""
    import tiktoken

    tiktoken.encoding_for_model = lambda _: Tokens()  # type: ignore[assignment, return-value]
    from nano_graphrag import GraphRAG, QueryParam
    from nano_graphrag._llm import openai_complete_if_cache
    from nano_graphrag._utils import compute_mdhash_id, wrap_embedding_func_with_attrs

    os.environ |= {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": given["url"]}
    llm = ["build/build/build"]

    async def complete(prompt: str, system_prompt: Any = None, history_messages: Any = (), **rest: Any) -> str:
        told = await openai_complete_if_cache(llm[0], prompt, system_prompt, list(history_messages), **rest)
        return str(told)

    @wrap_embedding_func_with_attrs(embedding_dim=vectors.rows.shape[1], max_token_size=1 << 20)
    async def embed(texts: list[str]) -> Any:
        return vectors.encode(texts)

    async def extracted(chunks: Any, knwoledge_graph_inst: Any, entity_vdb: Any, global_config: Any) -> Any:
        """Put the given triples into the graph."""
        ids = {chunk["content"]: key for key, chunk in chunks.items()}
        key_of = {number: ids[text.strip()] for number, text in given["passages"].items()}
        nodes: dict[str, dict[str, None]] = {}
        edges: dict[tuple[str, str], list[tuple[str, str]]] = {}
        for one, relation, other, stated in given["triples"]:
            # Its clustering renames entities in this way, and fails if they have other names.
            head, tail = (html.unescape(name.upper().strip()) for name in (one, other))
            for name in (head, tail):
                nodes.setdefault(name, {}).update(dict.fromkeys(map(key_of.__getitem__, stated)))
            if head != tail:
                at = min(head, tail), max(head, tail)
                edges.setdefault(at, []).extend((relation, key_of[number]) for number in stated)
        for name, keys in nodes.items():
            about = {"entity_type": "thing", "description": "", "source_id": "<SEP>".join(keys)}
            await knwoledge_graph_inst.upsert_node(name, about)
        for (one, other), told in edges.items():
            said = ", ".join(dict.fromkeys(relation for relation, _ in told))
            about = {"weight": len(told), "description": said, "order": 1}
            about["source_id"] = "<SEP>".join(dict.fromkeys(key for _, key in told))
            await knwoledge_graph_inst.upsert_edge(one, other, about)
        named = {compute_mdhash_id(name, prefix="ent-"): {"content": name, "entity_name": name} for name in nodes}
        await entity_vdb.upsert(named)
        return knwoledge_graph_inst

    rag = GraphRAG(
        working_dir=folder,
        embedding_func=embed,
        best_model_func=complete,
        cheap_model_func=complete,
        best_model_max_async=given["concurrency"],
        cheap_model_max_async=given["concurrency"],
        entity_extraction_func=extracted,
        enable_llm_cache=False,
    )
    # All reports, as in the paper.
    parameters = QueryParam(mode=mode, global_max_consider_community=1 << 20)  # type: ignore[arg-type]
    if is_new(folder):
        asyncio.get_event_loop().run_until_complete(rag.ainsert(list(given["passages"].values())))

    return in_parallel(rag, parameters, llm, given["concurrency"])


def light(given: dict[str, Any], vectors: Vectors, folder: str, mode: str) -> Answers:
    """LightRAG."""
    from lightrag import LightRAG, QueryParam
    from lightrag.kg.shared_storage import initialize_pipeline_status
    from lightrag.llm.openai import openai_complete_if_cache
    from lightrag.utils import EmbeddingFunc, Tokenizer

    async def embed(texts: list[str], **_: Any) -> Any:
        return vectors.encode(texts)

    llm = ["build/build/build"]

    async def complete(prompt: str, system_prompt: Any = None, history_messages: Any = None, **rest: Any) -> str:
        rest |= {"base_url": given["url"], "api_key": "none"}
        for unused in ("hashing_kv", "_priority"):
            rest.pop(unused, None)
        return await openai_complete_if_cache(llm[0], prompt, system_prompt, history_messages, **rest)

    rag = LightRAG(
        working_dir=folder,
        embedding_func=EmbeddingFunc(vectors.rows.shape[1], func=embed, max_token_size=1 << 20),
        embedding_func_max_async=given["concurrency"],
        llm_model_func=complete,
        llm_model_max_async=given["concurrency"],
        tokenizer=Tokenizer("own", Tokens()),  # type: ignore[arg-type]
        enable_llm_cache=False,
    )

    async def build() -> None:
        await rag.initialize_storages()
        await initialize_pipeline_status()
        if is_new(folder):
            await rag.ainsert_custom_kg(given["graph"])

    asyncio.get_event_loop().run_until_complete(build())
    parameters = QueryParam(mode=mode, enable_rerank=False)  # type: ignore[arg-type]

    return in_parallel(rag, parameters, llm, given["concurrency"])


def hippo(given: dict[str, Any], vectors: Vectors, folder: str, mode: str) -> Answers:
    """HippoRAG 2."""
    for name, has in NOT_NEEDED.items():
        empty = ModuleType(name)
        empty.__dict__.update(dict.fromkeys(has, Exception))
        sys.modules.setdefault(name, empty)
    os.environ["OPENAI_API_KEY"] = "none"
    from hipporag import HippoRAG
    from hipporag.embedding_model.OpenAI import OpenAIEmbeddingModel
    from hipporag.utils.misc_utils import compute_mdhash_id

    OpenAIEmbeddingModel.batch_encode = (  # type: ignore[method-assign]
        lambda self, texts, **_: vectors.encode([texts] if isinstance(texts, str) else texts)
    )
    is_first = is_new(folder)
    shutil.rmtree(Path(folder) / "llm_cache", ignore_errors=True)  # replies of earlier runs
    stated: dict[str, list[list[str]]] = {number: [] for number in given["passages"]}
    for head, relation, tail, numbers in given["triples"]:
        for number in numbers:
            stated[number].append([head, relation, tail])
    documents = [
        {
            "idx": compute_mdhash_id(text, "chunk-"),
            "passage": text,
            "extracted_entities": list(dict.fromkeys(name for h, _, t in stated[number] for name in (h, t))),
            "extracted_triples": stated[number],
        }
        for number, text in given["passages"].items()
    ]
    (Path(folder) / "openie_results_ner_build.json").write_text(json.dumps({"docs": documents}))
    rag = HippoRAG(
        save_dir=folder,
        llm_model_name="build",
        llm_base_url=given["url"],
        embedding_model_name="text-embedding-static",
        embedding_base_url=given["url"],
    )
    if is_first:
        rag.index(list(given["passages"].values()))

    def answers(model: str, questions: list[str]) -> list[str]:
        rag.llm_model.llm_config.generate_params["model"] = rag.rerank_filter.model_name = model
        return [solution.answer for solution in rag.rag_qa(questions)[0]]

    return answers


def raptor(given: dict[str, Any], vectors: Vectors, folder: str, mode: str) -> Answers:
    """RAPTOR as LlamaIndex's pack does it, over the given tree."""
    from llama_index.core import VectorStoreIndex
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.callbacks import CallbackManager
    from llama_index.core.query_engine import RetrieverQueryEngine
    from llama_index.core.schema import TextNode
    from llama_index.llms.openai import OpenAI
    from llama_index.packs.raptor import RaptorRetriever

    class Embedding(BaseEmbedding):
        def _get_text_embedding(self, text: str) -> list[float]:
            return vectors.encode([text])[0].tolist()

        def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
            return vectors.encode(texts).tolist()

        def _get_query_embedding(self, query: str) -> list[float]:
            return self._get_text_embedding(query)

        async def _aget_query_embedding(self, query: str) -> list[float]:
            return self._get_text_embedding(query)

    embedding = Embedding(callback_manager=CallbackManager([]))
    nodes = [TextNode(id_=number, text=text) for number, text in given["tree"].items()]
    index = VectorStoreIndex(nodes, embed_model=embedding)
    llm = OpenAI(model="gpt-4o-mini", api_base=given["url"], api_key="none", reuse_client=True)
    retriever = RaptorRetriever([], existing_index=index, llm=llm, similarity_top_k=given["k"], mode="collapsed")
    loop = asyncio.get_event_loop()

    async def ask(model: str, questions: list[str]) -> list[str]:
        most = asyncio.Semaphore(given["concurrency"])
        named = OpenAI(
            model="gpt-4o-mini",
            api_base=given["url"],
            api_key="none",
            additional_kwargs={"extra_body": {"model": model}},
        )
        engine = RetrieverQueryEngine.from_args(retriever, llm=named)

        async def one(question: str) -> str:
            async with most:
                return str(await engine.aquery(question))

        return await asyncio.gather(*map(one, questions))

    return lambda model, questions: loop.run_until_complete(ask(model, questions))


PEERS: dict[str, tuple[Any, str]] = {
    "graphrag": (nano, "local"),
    "graphrag_global": (nano, "global"),
    "lightrag": (light, "hybrid"),
    "lightrag_mix": (light, "mix"),
    "hipporag": (hippo, ""),
    "raptor": (raptor, ""),
}


def main() -> None:
    """Answer the first questions, and print the seconds."""
    file, url, method, run, count = sys.argv[1:]
    given = {**json.loads(Path(file).read_bytes()), "url": url}
    logging.disable(logging.WARNING)
    asyncio.set_event_loop(asyncio.new_event_loop())
    vectors = Vectors(Path(given["model"]))
    checked = [*given["questions"][:8], *list(given["passages"].values())[:8]]
    assert np.allclose(vectors.encode(checked), np.array(given["vectors"]), atol=1e-4)
    made, mode = PEERS[method]
    folder = Path(given["folder"]) / "peers" / method.removesuffix("_global").removesuffix("_mix")
    if is_new(str(folder)):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        answers = made(given, vectors, str(folder), mode)
        (folder / COMPLETE).touch()
        answers(f"warm/{method}/{run}", given["questions"][-8:])
        begun, before = process_time(), perf_counter()
        answered = answers(f"peer/{method}/{run}", given["questions"][: int(count)])
        took = {"seconds": perf_counter() - before, "processor": process_time() - begun}
    wrong = [one for one, answer in zip(answered, given["answers"], strict=False) if answer not in one]
    assert not wrong, wrong[:3]
    print(json.dumps(took))


if __name__ == "__main__":
    main()
