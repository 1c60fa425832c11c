"""RAPTOR: the passages of an index are the leaves of a tree of summaries. A search covers passages and
summaries of all layers together, or descends the tree, and the LLM answers from what it finds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar, Literal, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from pydantic import Field

from pyfast.engine import Answer, Context, Question
from pyfast.retrieval import Index, Pool, traced
from pyfast.systems import system
from pyfast.systems.combinations import Inert
from pyfast.systems.prompts import ANSWER
from pyfast.systems.rivals.common import answer_from
from pyfast.systems.rivals.summary_tree import URI
from pyfast.utils.log import LOG
from pyfast.utils.token_budget import CHARACTERS_PER_TOKEN

_RANKED = 10_000
"""How many passages and summaries are ranked for the descent. All others rank below these"""


class Settings(system.Abstaining):
    """The parameters from the paper."""

    inert: ClassVar[tuple[Inert, ...]] = (
        Inert(("k", "tokens"), "retrieval", ("traversal",)),
        Inert(("width", "start", "depth"), "retrieval", ("collapsed",)),
    )

    retrieval: Literal["collapsed", "traversal"] = Field(
        default="collapsed",
        description="How to find nodes of the tree (passages and summaries). `collapsed`: search all layers"
        " together. `traversal`: search from the top layer down, among the children of the nodes found in the"
        " layer above.",
        json_schema_extra={"paper": "collapsed tree retrieval, and tree traversal retrieval"},
    )
    k: system.PassageCount = Field(
        default=20,
        ge=1,
        description="Maximum number of passages and summaries that the LLM reads.",
        json_schema_extra={"paper": "about the top 20 nodes"},
    )
    tokens: int = Field(
        default=2000,
        ge=100,
        le=1_000_000,
        description="Maximum number of tokens that the LLM reads. The best passage or summary is always read.",
        json_schema_extra={"paper": "2,000 tokens"},
    )
    width: int = Field(
        default=5,
        ge=1,
        le=1000,
        description="Number of nodes to keep in each layer during the descent.",
        json_schema_extra={"paper": "the top k of each layer"},
    )
    start: int = Field(
        default=100,
        ge=0,
        le=100,
        description="The layer at which the descent begins: 0 for the passages, 1 for the summaries of passages,"
        " and so on. If there are fewer layers, it begins at the top layer.",
        json_schema_extra={"paper": "the start layer in the ablation"},
    )
    depth: int = Field(
        default=100,
        ge=1,
        le=100,
        description="Maximum number of layers that the descent visits.",
        json_schema_extra={"paper": "the depth d, and the number of layers in the ablation"},
    )


class Tree(NamedTuple):
    """The tree of an index. Nodes are passages of the index, because the index stores summaries as documents."""

    nodes: list[list[int]]
    """The nodes of each layer: first the passages of documents, then the summaries of passages, and so on"""
    children: dict[int, list[int]]
    layers: dict[int, int]
    """The layer of each summary, from 1"""


_TREES: WeakKeyDictionary[Index, Tree] = WeakKeyDictionary()


@lru_cache(64)  # Each question with its own documents has its own index.
def _say_without(folder: str, is_restricted: bool) -> None:
    if is_restricted:
        LOG.warning("raptor reads no summaries if a question or a filter limits the documents of %s", folder)
    else:
        LOG.warning("%s has no summaries; `pyfast corpus summarize` builds an index with summaries", folder)


def tree_of(index: Index) -> Tree:
    """Return an index's tree, which is read only once."""
    made = _TREES.get(index)
    if made is not None:
        return made
    corpus, passages = index.corpus, index.passages
    of_uri: dict[str, list[int]] = {}
    sources = np.asarray(corpus.source)[passages]
    summaries = [source for source in np.unique(sources).tolist() if corpus.uri(source).startswith(URI)]
    for passage in np.flatnonzero(np.isin(sources, summaries)).tolist():
        of_uri.setdefault(corpus.uri(int(sources[passage])), []).append(passage)
    ids = {f"{segment:016x}": passage for passage, segment in enumerate(corpus.ids[passages].tolist())}
    children, layers = dict[int, list[int]](), dict[int, int]()
    for nodes in of_uri.values():
        about = corpus.metadata(int(passages[nodes[0]]))
        below = [
            node for child in about["children"] for node in of_uri.get(child, [ids.get(child, -1)]) if node >= 0
        ]
        children |= dict.fromkeys(nodes, below)
        layers |= dict.fromkeys(nodes, int(about["layer"]))
    if not layers:
        _say_without(str(index.folder), index.is_restricted)
    of_layer: list[list[int]] = [[] for _ in range(1 + max(layers.values(), default=0))]
    of_layer[0] = [node for node in range(len(passages)) if node not in layers]
    for node, layer in layers.items():
        of_layer[layer].append(node)
    _TREES[index] = Tree(of_layer, children, layers)
    return _TREES[index]


def within_tokens(index: Index, pools: Sequence[Pool], tokens: int) -> list[Pool]:
    """Keep the best passages of each pool, up to `tokens` tokens in total, but always at least the first."""
    most = tokens * CHARACTERS_PER_TOKEN
    kept = []
    for pool in pools:
        sizes = np.cumsum([len(index.text(passage)) for passage in pool.passages.tolist()])
        kept.append(pool.head(max(int(np.searchsorted(sizes, most, side="right")), 1)))
    return kept


def way_down(index: Index, pools: Sequence[Pool], width: int, start: int, depth: int) -> list[Pool]:
    """Choose tree nodes from the layer `start` down, in at most `depth` layers: in each layer, the best
    `width` nodes of a pool.

    A pool is the ranking for one question. The result contains the nodes of all layers, those of the first
    layer first.
    """
    tree, chosen = tree_of(index), []
    begun = tree.nodes[min(start, len(tree.nodes) - 1)]
    for pool in pools:
        rank = {passage: place for place, passage in enumerate(pool.passages.tolist())}
        found, layer = dict[int, float](), begun
        for _ in range(depth):
            best = sorted(layer, key=lambda node: rank.get(node, len(rank)))[:width]
            found |= {node: float(pool.scores[rank[node]]) if node in rank else 0.0 for node in best}
            layer = list(dict.fromkeys(child for node in best for child in tree.children.get(node, ())))
        chosen.append(Pool(np.array(list(found), np.int32), np.array(list(found.values()), np.float32)))
    return chosen


def layers_of(index: Index, pools: Sequence[Pool]) -> list[list[int]]:
    """Return the layer of each passage of a pool: 0 for a passage of a document, from 1 for a summary."""
    layers = tree_of(index).layers
    return [[layers.get(passage, 0) for passage in pool.passages.tolist()] for pool in pools]


async def answer(question: Question, ctx: Context, settings: Settings) -> Answer:
    """Answer a question from passages and summaries."""
    if settings.retrieval == "collapsed":
        found = await ctx.retrieve(question.text, settings.k)
        read = await ctx.call(within_tokens, found, settings.tokens)
    else:
        ranked = await ctx.retrieve(question.text, _RANKED)
        read = await ctx.call(way_down, ranked, settings.width, settings.start, settings.depth)
    layers = await ctx.call(layers_of, read)
    trace = {"steps": [{"query": question.text, **traced(read)}], "layers": layers}
    ctx.so_far(lambda: Answer(None, ctx.evidence(read), trace))
    text = await answer_from(read, question, ctx, settings.abstain)
    return Answer(text, ctx.evidence(read), trace)


SYSTEM = system.System(
    "raptor",
    answer,
    Settings,
    (ANSWER,),
    reads_summaries=True,
    summary="a tree of summaries over the passages; passages and summaries are searched together",
    paper="RAPTOR: Recursive Abstractive Processing for Tree-Organized Retrieval",
)
