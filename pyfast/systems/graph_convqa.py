"""graph_convqa: a conversation over an evidence graph, whose node embeddings the LLM reads in place of tokens."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, computed_field, model_validator

from pyfast.conversation import (
    History,
    Linear,
    Memory,
    Recall,
    embedder,
    linearise,
    messages,
    most_recent,
    query_of,
    remember,
)
from pyfast.engine import Answer, Context, Past, Question
from pyfast.llm import Request
from pyfast.retrieval import Evidence, find_pieces
from pyfast.retrieval.embeddings import DEFAULT
from pyfast.systems import system

MOST_TOKENS = 32  # of an answer: a name, a number, a date
_CHARACTERS_PER_TOKEN = 3.0  # as the engine reckons where there is no tokenizer
_TOKENS_FOR_INSTRUCTIONS = 100


class Settings(system.Settings):
    """The paper's model, and its variants as switches."""

    trained: str = ""
    """The folder of `pyfast train graph-convqa`; `--llm` is its `model` then, in `vllm:` or `transformers:`."""
    graph: bool = True
    """Off: the evidence as text, for any LLM, trained or not."""
    memory: Memory = "on"
    """`random` is the paper's "Rand Memory"."""
    embedder: str = DEFAULT
    """The model that looks through the memory"""
    history: Literal["predicted", "gold"] = "predicted"
    """What stands for the answers of earlier turns: the system's own, or those of the file."""
    units: int = Field(default=50, ge=1, le=10_000)
    """Passages, rows and subgraphs whose pieces are ranked"""
    k: int = Field(default=20, ge=0, le=10_000)
    """Pieces of evidence"""
    nodes: int = Field(default=4096, ge=0, le=1_000_000)
    """Of a graph, at most; the context window may hold fewer"""

    @model_validator(mode="after")
    def _has_an_encoder(self) -> Self:
        if self.graph and not (Path(self.trained) / "encoder.json").is_file():
            raise ValueError("graph=on wants trained=FOLDER, made by `pyfast train graph-convqa`")
        if self.memory == "on":
            embedder(self.embedder)  # a model that is missing is told of before anything is made
        return self

    @computed_field  # type: ignore[prop-decorator]
    @property
    def weights(self) -> str:
        """Which weights: a run goes on with no others."""
        path = Path(self.trained) / "encoder.safetensors"
        if not self.graph or not path.is_file():
            return ""
        return blake2b(path.read_bytes(), digest_size=8).hexdigest()

    @computed_field  # type: ignore[prop-decorator]
    @property
    def embedder_weights(self) -> str:
        """The same of the memory's model."""
        return embedder(self.embedder).fingerprint if self.memory == "on" else ""


async def answer(question: Question, ctx: Context, settings: Settings) -> Answer:
    """The paper's pipeline, section by section."""
    # Evidence retrieval (4.1) and memory (4.2)
    history = history_of(ctx.past, settings)
    query = query_of(history, question.text)
    evidence = await ctx.call(find_pieces, query, settings.units, settings.k)
    if settings.memory != "off" and ctx.past:
        past = tuple(
            said.evidence for _, said in ctx.past if said is not None and isinstance(said.evidence, Evidence)
        )
        evidence = await ctx.call(
            remember, Recall(query, evidence, past, question.id), settings.memory, settings.embedder
        )
    linear = await ctx.call(linearise, evidence)

    # Graph, encoder, integration with the LLM (4.3 to 4.5)
    trace: dict[str, object] = {"query": query, "entities": list(linear.entities)}
    if settings.graph:
        request = await with_graph(question.text, history, linear, ctx, settings, trace)
    else:
        request = as_text(question.text, history, linear, ctx, trace)
    completion = await ctx.complete(request, "answer")
    said = completion.text.strip().partition("\n")[0].strip()
    return Answer(said or None, evidence, trace)


def history_of(past: Past, settings: Settings) -> History:
    """The earlier turns; a turn that failed or abstained has no answer of its own."""
    if settings.history == "gold":
        return tuple((turn.text, turn.answers[0] if turn.answers else "") for turn, _ in past)
    return tuple((turn.text, (said.text if said is not None else None) or "") for turn, said in past)


async def with_graph(
    question: str, history: History, linear: Linear, ctx: Context, settings: Settings, trace: dict[str, object]
) -> Request:
    """The prompt with the graph's nodes in the place of the facts; notes in `trace` what had no room."""
    from pyfast.conversation.injection import Turn, build_graph, encode_graph

    room = ctx.context_window - MOST_TOKENS
    turn = Turn(linear, history, question)
    prompt = await ctx.call(build_graph, turn, settings.trained, room, settings.nodes)
    graph = prompt.graph
    trace |= {"nodes": len(graph.tokens), "edges": len(graph.indices)}
    trace |= {"pieces_dropped": len(linear.lines) - graph.pieces, "turns_dropped": len(history) - prompt.turns}
    return Request((), MOST_TOKENS, embeds=await ctx.call(encode_graph, prompt, settings.trained))


def as_text(question: str, history: History, linear: Linear, ctx: Context, trace: dict[str, object]) -> Request:
    """The same prompt as text, without a graph."""
    room = int((ctx.context_window - MOST_TOKENS - _TOKENS_FOR_INSTRUCTIONS) * _CHARACTERS_PER_TOKEN)
    kept = most_recent(history, question, room // 2, len)
    left = room - len(query_of(kept, question))
    facts = []
    for line in linear.lines:
        left -= len(line) + 1
        if left < 0:
            break
        facts.append(line)
    trace |= {"pieces_dropped": len(linear.lines) - len(facts), "turns_dropped": len(history) - len(kept)}
    return Request(messages(kept, question, facts), MOST_TOKENS)


SYSTEM = system.System("graph_convqa", answer, Settings, ())
