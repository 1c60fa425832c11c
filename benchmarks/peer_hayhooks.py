"""The peer of serving.py: a Haystack pipeline, served by Hayhooks.

    python -m venv ENV
    ENV/bin/pip install hayhooks==2.1.0
    python benchmarks/serving.py beside --peer ENV/bin/hayhooks

serving.py copies this file into the folder of a pipeline, where Hayhooks looks for the class. The pipeline has
Haystack's own parts: BM25 over the same passages, a template, and a chat model. Its prompt has the instructions,
the passages and the question, as that of `rag` has.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from hayhooks import BasePipelineWrapper, get_last_user_message
from haystack import Document, Pipeline
from haystack.components.builders import ChatPromptBuilder
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.dataclasses import ChatMessage
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.utils import Secret

EVIDENCE = """Evidence:
{% for document in documents %}[{{ loop.index }}] {{ document.content }}
{% endfor %}
Question: {{ question }}"""


class PipelineWrapper(BasePipelineWrapper):  # type: ignore[misc]
    """What Hayhooks serves."""

    def setup(self) -> None:
        """Make the pipeline."""
        given: dict[str, Any] = json.loads(Path(os.environ["PEER_SETTINGS"]).read_text())
        store = InMemoryDocumentStore()
        with Path(given["passages"]).open() as lines:
            # With numbers as ids, for some passages have the same text.
            store.write_documents(
                [Document(id=str(at), content=json.loads(line)) for at, line in enumerate(lines)]
            )
        chat = OpenAIChatGenerator(
            Secret.from_token("none"), "m", api_base_url=given["url"], generation_kwargs={"max_tokens": 500}
        )
        template = [ChatMessage.from_system(given["instructions"]), ChatMessage.from_user(EVIDENCE)]
        self.pipeline = Pipeline()
        self.pipeline.add_component("retriever", InMemoryBM25Retriever(store, top_k=given["k"]))
        self.pipeline.add_component("prompt", ChatPromptBuilder(template))
        self.pipeline.add_component("llm", chat)
        self.pipeline.connect("retriever.documents", "prompt.documents")
        self.pipeline.connect("prompt.prompt", "llm.messages")

    async def run_chat_completion_async(
        self, model: str, messages: list[dict[str, Any]], body: dict[str, Any]
    ) -> str:
        """Answer the last message."""
        question = get_last_user_message(messages)
        done = await self.pipeline.run_async({"retriever": {"query": question}, "prompt": {"question": question}})
        return str(done["llm"]["replies"][0].text)
