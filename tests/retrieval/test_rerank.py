"""From pools to better pools: the reference ops in turn, in any company."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from references import (
    betweenness_reference,
    bridge_expand_reference,
    bridge_rank_reference,
    bridge_select_reference,
    eigenvector_reference,
    evidence_graph_reference,
    graph_rank_reference,
    pagerank_reference,
    prune_reference,
    weighted_degree_reference,
)

from pyfast.engine import Question
from pyfast.retrieval import (
    Centrality,
    Index,
    Pool,
    Rank,
    RerankConfig,
    bridge_select,
    fuse,
    rerank,
    rerank_pools,
    search_and_fuse,
)


@pytest.fixture(scope="module")
def questions(hybridqa_questions: list[Question]) -> list[str]:
    return [question.text for question in hybridqa_questions[:40]]


@pytest.mark.parametrize(("rank", "alpha"), [("graph_rank", 0.85), ("graph_rank", 1.0), ("bridge_rank", 0.85)])
def test_curate_is_the_reference_ops_in_turn(
    hybridqa: Index, questions: list[str], rank: Rank, alpha: float
) -> None:
    items = list(zip(hybridqa.search(questions[:5], 50), questions, strict=False))
    for (pool, query), kept in zip(
        items, rerank_pools(hybridqa, items, RerankConfig(12, 25, alpha, rank)), strict=True
    ):
        if rank == "bridge_rank":
            masked = hybridqa.question_terms(query)
            scores = bridge_rank_reference(hybridqa.X, pool.passages, pool.scores, masked)
        else:
            degree = weighted_degree_reference(hybridqa.X, pool.passages)
            scores = graph_rank_reference(pool.scores, degree, alpha)
        places = prune_reference(scores, hybridqa.is_table[pool.passages], 12, 25)
        assert set(kept.passages.tolist()) == set(pool.passages[places].tolist())
        expected = dict(zip(pool.passages.tolist(), np.asarray(scores).tolist(), strict=True))
        np.testing.assert_allclose(
            kept.scores, [expected[u] for u in kept.passages.tolist()], rtol=1e-4, atol=1e-6
        )
        assert np.all(np.diff(kept.scores) <= 0)


@pytest.mark.parametrize(
    ("centrality", "reference"),
    [
        ("pagerank", pagerank_reference),
        ("betweenness", betweenness_reference),
        ("eigenvector", eigenvector_reference),
    ],
)
def test_curate_by_another_centrality(
    hybridqa: Index, questions: list[str], centrality: Centrality, reference: Callable[..., Any]
) -> None:
    items = list(zip(hybridqa.search(questions[:4], 30), questions, strict=False))
    how = RerankConfig(5, 10, centrality=centrality)
    by_degree = rerank_pools(hybridqa, items, RerankConfig(5, 10))
    together = rerank_pools(hybridqa, items, how)
    for (pool, query), kept in zip(items, together, strict=True):
        structural = reference(evidence_graph_reference(hybridqa.X, pool.passages))
        scores = graph_rank_reference(pool.scores, structural)
        places = prune_reference(scores, hybridqa.is_table[pool.passages], 5, 10)
        assert set(kept.passages.tolist()) == set(pool.passages[places].tolist())
        expected = dict(zip(pool.passages.tolist(), np.asarray(scores).tolist(), strict=True))
        np.testing.assert_allclose(
            kept.scores, [expected[u] for u in kept.passages.tolist()], rtol=1e-4, atol=1e-5
        )
        assert same(rerank_pools(hybridqa, [(pool, query)], how)[0], kept)
    assert not all(same(a, b) for a, b in zip(by_degree, together, strict=True))


def same(a: Pool, b: Pool) -> bool:
    return a.passages.tobytes() == b.passages.tobytes() and a.scores.tobytes() == b.scores.tobytes()


def test_company_does_not_matter(hybridqa: Index, questions: list[str]) -> None:
    asked = ["", "unheardofword", *questions]  # empty pools among them
    pools = hybridqa.search(asked, 20)
    items = list(zip(pools, asked, strict=True))
    hows = [RerankConfig(5, 10)]
    hows += [RerankConfig(1, 3, rank="bridge_rank", per_kind=0, expand=expand) for expand in (False, True)]
    for how in hows:
        together = rerank_pools(hybridqa, items, how)
        assert all(
            same(rerank_pools(hybridqa, [item], how)[0], kept) for item, kept in zip(items, together, strict=True)
        )
    together = bridge_select(hybridqa, pools, 0.2)
    assert all(same(bridge_select(hybridqa, [p], 0.2)[0], b) for p, b in zip(pools, together, strict=True))


def test_expand_joins_what_the_best_lead_to(
    hybridqa: Index, questions: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rerank, "max_entries", lambda passages: None)  # search to the end, as the reference does
    items = list(zip(hybridqa.search(questions[:5], 20), questions, strict=False))
    everything = RerankConfig(1000, 1000, rank="bridge_rank", expand=True)
    for (pool, query), kept in zip(items, rerank_pools(hybridqa, items, everything), strict=True):
        masked = hybridqa.question_terms(query)
        passages = pool.passages.tolist()
        for seed in passages[: rerank.SEEDS]:
            found, _ = bridge_expand_reference(hybridqa.X, seed, masked, rerank.NEAREST)
            passages += [passage for passage in found.tolist() if passage not in passages]
        assert len(passages) > len(pool)
        semantic = np.full(len(passages), pool.scores.min())
        semantic[: len(pool)] = pool.scores
        expected = dict(
            zip(passages, bridge_rank_reference(hybridqa.X, passages, semantic, masked).tolist(), strict=True)
        )
        assert sorted(passages) == sorted(kept.passages.tolist())
        np.testing.assert_allclose(
            kept.scores, [expected[u] for u in kept.passages.tolist()], rtol=1e-4, atol=1e-6
        )


def test_bridge_select_is_the_reference(hybridqa: Index, questions: list[str]) -> None:
    pools = hybridqa.search(questions, 50)
    X, cells = hybridqa.X, hybridqa.cells
    linked = 0
    for pool, boosted in zip(pools, bridge_select(hybridqa, pools, 0.2), strict=True):
        terms = [set(X.indices[X.indptr[u] : X.indptr[u + 1]].tolist()) for u in pool.passages]
        values = [
            [
                set(cells.term_ids[cells.term_offsets[v] : cells.term_offsets[v + 1]].tolist())
                for v in range(cells.value_offsets[u], cells.value_offsets[u + 1])
            ]
            for u in pool.passages
        ]
        scores = bridge_select_reference(terms, pool.scores, hybridqa.is_table[pool.passages], values, 0.2)
        order = np.argsort(-scores, kind="stable")
        assert same(boosted, Pool(pool.passages[order], scores[order]))
        linked += int(np.count_nonzero(scores != pool.scores) == 1)
    assert 0 < linked < 40  # both ways of the algorithm were gone


def test_search_and_fuse_is_both_in_turn(hybridqa: Index, questions: list[str]) -> None:
    pools = hybridqa.search(questions, 20)
    items = [
        ((), ()),
        ((), pools[:2]),
        (("unheardofword", ""), ()),
        *(((a, b), ()) for a, b in pairwise(questions)),
        *(((query,), pools[i : i + 3]) for i, query in enumerate(questions)),
    ]
    together = search_and_fuse(hybridqa, items, 20)
    for item, found in zip(items, together, strict=True):
        queries, before = item
        assert same(found, fuse([[*before, *hybridqa.search(queries, 20)]], 20)[0])
        assert same(found, search_and_fuse(hybridqa, [item], 20)[0])
