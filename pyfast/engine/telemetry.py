"""Create OpenTelemetry spans: one per question, and one for each of its LLM calls and retrievals.

The attributes follow two conventions: OpenTelemetry's for generative AI (`gen_ai.*`), and OpenInference, so that
tools such as Phoenix and Langfuse can show the prompts and passages of a question. Spans are created only if the
process has a tracer provider.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import orjson

from pyfast.engine.questions import Question
from pyfast.engine.record import Record
from pyfast.errors import CallError
from pyfast.llm import Completion, Request
from pyfast.retrieval import Index, Pool

RETRIEVAL = {"search", "search_and_fuse", "find_evidence_items", "open_window", "move_on"}
RETRIEVAL |= {"retrieve_facts", "encode_statements", "knowledge_units"}
"""The batched functions that count as retrieval"""
DOCUMENTS = 20
"""The maximum number of passages in the span of a retrieval"""
_SHOW_TEXTS = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
Attributes = dict[str, Any]


def tracing() -> Tracing | None:
    """Return the `Tracing` object that creates spans, or None if this process has no OpenTelemetry tracer
    provider."""
    # A process that has not imported OpenTelemetry has set no provider.
    api = sys.modules.get("opentelemetry.trace")
    if api is None or isinstance(api.get_tracer_provider(), api.ProxyTracerProvider):
        return None
    return Tracing(api)


class Tracing:
    """Creates the OpenTelemetry spans of a run or a service."""

    def __init__(self, api: Any) -> None:
        """Read from environment variables which texts to leave out of spans."""
        from pyfast.utils.version import __version__

        self._api = api
        self._tracer = api.get_tracer("pyfast", __version__)
        texts = os.environ.get(_SHOW_TEXTS, "").lower() not in ("false", "no_content")
        self._inputs = texts and os.environ.get("OPENINFERENCE_HIDE_INPUTS", "").lower() != "true"
        self._outputs = texts and os.environ.get("OPENINFERENCE_HIDE_OUTPUTS", "").lower() != "true"

    @contextmanager
    def question(self, question: Question, system: str) -> Iterator[Callable[[Record], None]]:
        """Create a question's span, which lasts as long as the `with` block.

        Yields a function to call with the question's record inside the `with` block.
        """
        attributes: Attributes = {
            "openinference.span.kind": "CHAIN",
            "gen_ai.operation.name": "invoke_workflow",
            "gen_ai.workflow.name": system,
        }
        if question.conversation is not None:
            attributes |= dict.fromkeys(("session.id", "gen_ai.conversation.id"), question.conversation)
        if self._inputs:
            attributes["input.value"] = question.text
        with self._tracer.start_as_current_span(f"invoke_workflow {system}", attributes=attributes) as span:

            def ended(record: Record) -> None:
                known = {"id": record.id, "state": record.state, "llm_calls": record.usage.llm_calls}
                span.set_attribute("metadata", orjson.dumps(known).decode())
                if self._outputs and record.answer is not None:
                    span.set_attribute("output.value", record.answer)
                if record.state == "failed":
                    self._fail(span, record.reason or "")

            yield ended

    @contextmanager
    def llm_call(
        self, spec: str, request: Request, prompt: str
    ) -> Iterator[Callable[[Completion | CallError], None]]:
        """Create the span of an LLM call, which lasts as long as the `with` block.

        Yields a function that the `with` block must call with the call's completion or error.

        Args:
            spec: The LLM, such as `openai:MODEL@URL`.
            request: The call.
            prompt: The name of the prompt.
        """
        provider, _, rest = spec.partition(":")
        model = rest.partition("@")[0] or provider
        sampling = {"max_tokens": request.max_tokens, "temperature": request.temperature, "seed": request.seed}
        attributes: Attributes = {
            "openinference.span.kind": "LLM",
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": model,
            "gen_ai.prompt.name": prompt,
            "llm.model_name": model,
            "llm.provider": provider,
            "llm.invocation_parameters": orjson.dumps(sampling).decode(),
            **{f"gen_ai.request.{name}": value for name, value in sampling.items()},
        }
        if self._inputs and request.embeds is None:
            said = [(message.role, message.content) for message in request.messages]
            attributes |= _messages("input", said)
        kind = self._api.SpanKind.CLIENT
        with self._tracer.start_as_current_span(f"chat {model}", kind=kind, attributes=attributes) as span:

            def ended(outcome: Completion | CallError) -> None:
                if isinstance(outcome, CallError):
                    span.set_attribute("error.type", type(outcome).__name__)
                    self._fail(span, str(outcome))
                    return
                span.set_attributes(_usage(outcome))
                if self._outputs:
                    span.set_attributes(_messages("output", [("assistant", outcome.text)], outcome.finish_reason))

            yield ended

    def retrieval(self, name: str, query: str, index: Index | None, result: asyncio.Future[Any]) -> None:
        """Create the span of a retrieval, which lasts until its result is known."""
        source = "" if index is None else index.folder.name
        attributes: Attributes = {
            "openinference.span.kind": "RETRIEVER",
            "gen_ai.operation.name": "retrieval",
            "gen_ai.data_source.id": source,
            "metadata": orjson.dumps({"function": name}).decode(),
        }
        if self._inputs and query:
            attributes |= dict.fromkeys(("input.value", "gen_ai.retrieval.query.text"), query)
        span = self._tracer.start_span(f"retrieval {source}".strip(), attributes=attributes)

        def ended(done: asyncio.Future[Any]) -> None:
            if done.cancelled():
                self._fail(span, "cancelled")
            elif (error := done.exception()) is not None:
                span.record_exception(error)
                self._fail(span, str(error))
            elif isinstance(pool := done.result(), Pool) and index is not None:
                span.set_attributes(_documents(index, pool.head(DOCUMENTS), self._outputs))
            span.end()

        result.add_done_callback(ended)

    def _fail(self, span: Any, reason: str) -> None:
        span.set_status(self._api.Status(self._api.StatusCode.ERROR, reason if self._outputs else None))


def _messages(side: str, said: Sequence[tuple[str, str]], finish_reason: str | None = None) -> Attributes:
    """Return messages as span attributes, under both OpenTelemetry's and OpenInference's names. `side` is `input`
    or `output`."""
    parts = [{"role": role, "parts": [{"type": "text", "content": text}]} for role, text in said]
    whole = [{**one, "finish_reason": finish_reason} for one in parts] if finish_reason else parts
    attributes: Attributes = {f"gen_ai.{side}.messages": orjson.dumps(whole).decode()}
    for place, (role, text) in enumerate(said):
        attributes[f"llm.{side}_messages.{place}.message.role"] = role
        attributes[f"llm.{side}_messages.{place}.message.content"] = text
    return attributes


def _usage(done: Completion) -> Attributes:
    return {
        "gen_ai.response.finish_reasons": [done.finish_reason],
        "gen_ai.usage.input_tokens": done.prompt_tokens,
        "gen_ai.usage.output_tokens": done.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": done.cached_tokens,
        "gen_ai.usage.reasoning.output_tokens": done.reasoning_tokens,
        "llm.token_count.prompt": done.prompt_tokens,
        "llm.token_count.completion": done.completion_tokens,
        "llm.token_count.total": done.prompt_tokens + done.completion_tokens,
        "llm.token_count.prompt_details.cache_read": done.cached_tokens,
        "llm.token_count.completion_details.reasoning": done.reasoning_tokens,
    }


def _documents(index: Index, pool: Pool, with_texts: bool) -> Attributes:
    """Return the passages of a retrieval as span attributes, best first."""
    attributes, short = Attributes(), []
    for place, (passage, score) in enumerate(zip(pool.passages.tolist(), pool.scores.tolist(), strict=True)):
        found = {"id": index.uri(passage), "score": score}
        short.append(found)
        texts = {"content": index.text(passage)} if with_texts else {}
        for name, value in (found | texts).items():
            attributes[f"retrieval.documents.{place}.document.{name}"] = value
    return {"gen_ai.retrieval.documents": orjson.dumps(short).decode(), **attributes}
