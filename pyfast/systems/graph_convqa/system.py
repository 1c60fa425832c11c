"""graph_convqa answers the questions of conversations. In place of the evidence's text, the LLM reads
embeddings of an evidence graph's nodes."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field, computed_field, model_validator

from pyfast.engine import Answer, Context, Past, Question
from pyfast.llm import Request
from pyfast.retrieval import ScoredSegments, segment_ids
from pyfast.retrieval.vectors.embeddings import DEFAULT
from pyfast.systems import system
from pyfast.systems.combinations import Inert
from pyfast.systems.graph_convqa.entities import Linear, linearise
from pyfast.systems.graph_convqa.evidence_items import find_evidence_items
from pyfast.systems.graph_convqa.evidence_memory import SHARE, Memory, MemoryQuery, apply_memory, embedder
from pyfast.systems.graph_convqa.graph import History, query_of, text_prompt

MOST_TOKENS = 32  # the maximum number of tokens of an answer: a name, a number, a date


class Settings(system.Settings):
    """The parameters from graph_convqa's paper. Some settings select variants of the method."""

    inert: ClassVar[tuple[Inert, ...]] = (
        Inert(("trained", "nodes"), "graph", (False,)),
        Inert(("embedder",), "memory", ("off", "random")),
        Inert(("memory_share",), "memory", ("off",)),
        Inert(("passages",), "k", (0,)),
    )

    trained: str = Field(
        default="",
        description="The folder written by `pyfast train graph-convqa`, required with `graph=on`. Use"
        " its subfolder `model` as `--llm`, with `vllm:` or `transformers:`.",
    )
    graph: bool = Field(
        default=True,
        description="Give the LLM the embeddings of the evidence graph's nodes. Off: give it the evidence as text,"
        " which any LLM can read, trained or not.",
        json_schema_extra={"paper": "sections 4.3 to 4.5; table 2"},
    )
    memory: Memory = Field(
        default="on",
        description="Which evidence from earlier turns replaces the worst-ranked evidence of a turn. `on`: the"
        ' items most similar to the conversation so far. `random`: random items ("Rand Memory"). `off`: none.',
        json_schema_extra={"paper": "section 4.2, equation 2; table 2"},
    )
    memory_share: float = Field(
        default=SHARE,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="The share of a turn's evidence that `memory` may replace, rounded down to whole items.",
        json_schema_extra={"paper": "section 4.2"},
    )
    embedder: str = Field(
        default=DEFAULT,
        description="The sentence-transformers model (name or folder) that finds similar items for `memory=on`.",
        json_schema_extra={"paper": "section 4.2"},
    )
    history: Literal["predicted", "gold"] = Field(
        default="predicted",
        description="Which answers to earlier turns the system reads. `predicted`: its own answers. `gold`: the"
        " answers in the question file.",
    )
    passages: system.PassageCount = Field(
        default=50,
        ge=1,
        description="Number of passages to retrieve. pyfast then ranks the evidence items in them.",
    )
    k: int = Field(
        default=20,
        ge=0,
        le=10_000,
        description="Number of evidence items (sentences, table rows, infobox pairs or triples) per turn.",
        json_schema_extra={"paper": "section 4.1"},
    )
    nodes: int = Field(
        default=4096,
        ge=0,
        le=1_000_000,
        description="Maximum number of nodes in an evidence graph. The LLM's context window may limit it further.",
    )

    @model_validator(mode="after")
    def _has_an_encoder(self) -> Self:
        if self.graph and not (Path(self.trained) / "encoder.json").is_file():
            raise ValueError("graph=on needs trained=FOLDER, made by `pyfast train graph-convqa`")
        if self.memory == "on":
            embedder(self.embedder)  # A missing model is reported before anything is created.
        return self

    @computed_field  # type: ignore[prop-decorator]
    @property
    def weights(self) -> str:
        """A checksum of the graph encoder's weights. Empty without a graph. A run resumes only with the same
        weights."""
        path = Path(self.trained) / "encoder.safetensors"
        if not self.graph or not path.is_file():
            return ""
        return blake2b(path.read_bytes(), digest_size=8).hexdigest()

    @computed_field  # type: ignore[prop-decorator]
    @property
    def embedder_weights(self) -> str:
        """A checksum of the weights of the embedding model that finds evidence for `memory=on`. Empty for
        other values of `memory`."""
        return embedder(self.embedder).fingerprint if self.memory == "on" else ""


async def answer(question: Question, ctx: Context, settings: Settings) -> Answer:
    """Answer a turn: find evidence, add evidence from earlier turns, build the evidence graph, and ask the LLM."""
    # Evidence retrieval (4.1) and memory (4.2)
    history = history_of(ctx.past, settings)
    query = query_of(history, question.text)
    evidence = await ctx.call(find_evidence_items, query, settings.passages, settings.k)
    retrieved = segment_ids(ctx.index, evidence.segments)
    if settings.memory != "off" and ctx.past:
        past = tuple(
            earlier.evidence
            for _, earlier in ctx.past
            if earlier is not None and isinstance(earlier.evidence, ScoredSegments)
        )
        evidence = await ctx.call(
            apply_memory,
            MemoryQuery(query, evidence, past, question.id),
            settings.memory,
            settings.embedder,
            settings.memory_share,
        )
    linear = await ctx.call(linearise, evidence)

    # Graph, encoder, integration with the LLM (4.3 to 4.5)
    trace: dict[str, object] = {"query": query, "retrieved": retrieved, "entities": list(linear.entities)}
    ctx.so_far(lambda: Answer(None, evidence, trace))
    if settings.graph:
        request = await with_graph(question.text, history, linear, ctx, settings, trace)
    else:
        request = as_text(question.text, history, linear, ctx, trace)
    completion = await ctx.complete(request, "answer", "answer")
    text = completion.text.strip().partition("\n")[0].strip()
    return Answer(text or None, evidence, trace)


def history_of(past: Past, settings: Settings) -> History:
    """Return (question, answer) for each earlier turn, with an empty answer if there is none. The setting
    `history` selects the system's answers or the gold answers."""
    if settings.history == "gold":
        return tuple((turn.text, turn.answers[0] if turn.answers else "") for turn, _ in past)
    return tuple((turn.text, (answer.text if answer is not None else None) or "") for turn, answer in past)


async def with_graph(
    question: str, history: History, linear: Linear, ctx: Context, settings: Settings, trace: dict[str, object]
) -> Request:
    """Build the prompt with embeddings of the graph's nodes in place of the evidence's text. `linear`
    contains the evidence items as lines of text. The numbers of nodes and edges, and of evidence items and
    turns that did not fit into the prompt, are added to `trace`.
    """
    from pyfast.systems.graph_convqa.injection import Turn, build_graph, check_llm, encode_graph

    budget, device = ctx.context_window_of("answer") - MOST_TOKENS, ctx.device_of("answer")
    check_llm(settings.trained, device, ctx.weights_of("answer"))
    turn = Turn(linear, history, question)
    prompt = await ctx.call(build_graph, turn, settings.trained, budget, settings.nodes)
    graph = prompt.graph
    trace |= {"nodes": len(graph.tokens), "edges": len(graph.indices)}
    trace |= {"items_dropped": len(linear.lines) - graph.items, "turns_dropped": len(history) - prompt.turns}
    return Request((), MOST_TOKENS, embeds=await ctx.call(encode_graph, prompt, settings.trained, device))


def as_text(question: str, history: History, linear: Linear, ctx: Context, trace: dict[str, object]) -> Request:
    """Build the prompt with the evidence as text, without a graph. `linear` contains the evidence items as
    lines of text. The numbers of evidence items and turns that did not fit into the prompt are added to
    `trace`."""
    prompt = text_prompt(history, question, linear.lines, ctx.context_window_of("answer") - MOST_TOKENS)
    trace |= {"items_dropped": len(linear.lines) - prompt.items, "turns_dropped": len(history) - prompt.turns}
    return Request(prompt.messages, MOST_TOKENS)


SYSTEM = system.System(
    "graph_convqa",
    answer,
    Settings,
    (),
    requests={"answer": "answer"},
    summary="for conversations: the LLM reads node embeddings of an evidence graph instead of text",
    paper="Integrating Large Language Models with Graph-based Reasoning for Conversational Question Answering",
)
