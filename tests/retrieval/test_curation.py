"""From pools to better pools: the reference ops in turn, whatever the company."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from pyfast.engine import Question
from pyfast.ops.betweenness import betweenness_reference
from pyfast.ops.bridge_expand import bridge_expand_reference
from pyfast.ops.bridge_rank import bridge_rank_reference
from pyfast.ops.bridge_select import bridge_select_reference
from pyfast.ops.eigenvector import eigenvector_reference
from pyfast.ops.evidence_graph import evidence_graph_reference
from pyfast.ops.graph_rank import graph_rank_reference
from pyfast.ops.pagerank import pagerank_reference
from pyfast.ops.prune import prune_reference
from pyfast.ops.weighted_degree import weighted_degree_reference
from pyfast.retrieval import (
    Centrality,
    Curation,
    Index,
    Pool,
    Rank,
    bridge_select,
    curate,
    curation,
    merge,
    search_and_merge,
)


@pytest.fixture(scope="module")
def questions(hybridqa_questions: list[Question]) -> list[str]:
    return [question.text for question in hybridqa_questions[:40]]


@pytest.mark.parametrize("rank", ["graph_rank", "bridge_rank"])
@pytest.mark.parametrize("alpha", [0.85, 1.0])
def test_curate_is_the_reference_ops_in_turn(
    hybridqa: Index, questions: list[str], rank: Rank, alpha: float
) -> None:
    items = list(zip(hybridqa.search(questions[:8], 50), questions, strict=False))
    for (pool, query), kept in zip(items, curate(hybridqa, items, Curation(12, 25, alpha, rank)), strict=True):
        if rank == "bridge_rank":
            masked = hybridqa.question_terms(query)
            scores = bridge_rank_reference(hybridqa.X, pool.units, pool.scores, masked)
        else:
            degree = weighted_degree_reference(hybridqa.X, pool.units)
            scores = graph_rank_reference(pool.scores, degree, alpha)
        places = prune_reference(scores, hybridqa.is_table[pool.units], 12, 25)
        assert set(kept.units.tolist()) == set(pool.units[places].tolist())
        expected = dict(zip(pool.units.tolist(), np.asarray(scores).tolist(), strict=True))
        np.testing.assert_allclose(kept.scores, [expected[u] for u in kept.units.tolist()], rtol=1e-4, atol=1e-6)
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
    how = Curation(5, 10, centrality=centrality)
    by_degree = curate(hybridqa, items, Curation(5, 10))
    together = curate(hybridqa, items, how)
    for (pool, query), kept in zip(items, together, strict=True):
        structural = reference(evidence_graph_reference(hybridqa.X, pool.units))
        scores = graph_rank_reference(pool.scores, structural)
        places = prune_reference(scores, hybridqa.is_table[pool.units], 5, 10)
        assert set(kept.units.tolist()) == set(pool.units[places].tolist())
        expected = dict(zip(pool.units.tolist(), np.asarray(scores).tolist(), strict=True))
        np.testing.assert_allclose(kept.scores, [expected[u] for u in kept.units.tolist()], rtol=1e-4, atol=1e-5)
        assert same(curate(hybridqa, [(pool, query)], how)[0], kept)
    assert not all(same(a, b) for a, b in zip(by_degree, together, strict=True))


def same(a: Pool, b: Pool) -> bool:
    return a.units.tobytes() == b.units.tobytes() and a.scores.tobytes() == b.scores.tobytes()


def test_company_does_not_matter(hybridqa: Index, questions: list[str]) -> None:
    asked = ["", "unheardofword", *questions]  # empty pools among them
    pools = hybridqa.search(asked, 20)
    items = list(zip(pools, asked, strict=True))
    hows = [Curation(5, 10)]
    hows += [Curation(1, 3, rank="bridge_rank", per_kind=0, expand=expand) for expand in (False, True)]
    for how in hows:
        together = curate(hybridqa, items, how)
        assert all(
            same(curate(hybridqa, [item], how)[0], kept) for item, kept in zip(items, together, strict=True)
        )
    together = bridge_select(hybridqa, pools, 0.2)
    assert all(same(bridge_select(hybridqa, [p], 0.2)[0], b) for p, b in zip(pools, together, strict=True))


def test_expand_joins_what_the_best_lead_to(
    hybridqa: Index, questions: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curation, "MOST_ENTRIES", None)  # search to the end, as the reference does
    items = list(zip(hybridqa.search(questions[:5], 20), questions, strict=False))
    everything = Curation(1000, 1000, rank="bridge_rank", expand=True)
    for (pool, query), kept in zip(items, curate(hybridqa, items, everything), strict=True):
        masked = hybridqa.question_terms(query)
        units = pool.units.tolist()
        for seed in units[: curation.SEEDS]:
            found, _ = bridge_expand_reference(hybridqa.X, seed, masked, curation.NEAREST)
            units += [unit for unit in found.tolist() if unit not in units]
        assert len(units) > len(pool)
        semantic = np.full(len(units), pool.scores.min())
        semantic[: len(pool)] = pool.scores
        expected = dict(
            zip(units, bridge_rank_reference(hybridqa.X, units, semantic, masked).tolist(), strict=True)
        )
        assert sorted(units) == sorted(kept.units.tolist())
        np.testing.assert_allclose(kept.scores, [expected[u] for u in kept.units.tolist()], rtol=1e-4, atol=1e-6)


def test_bridge_select_is_the_reference(hybridqa: Index, questions: list[str]) -> None:
    pools = hybridqa.search(questions, 50)
    X, cells = hybridqa.X, hybridqa.cells
    linked = 0
    for pool, boosted in zip(pools, bridge_select(hybridqa, pools, 0.2), strict=True):
        terms = [set(X.indices[X.indptr[u] : X.indptr[u + 1]].tolist()) for u in pool.units]
        values = [
            [
                set(cells.term_ids[cells.term_offsets[v] : cells.term_offsets[v + 1]].tolist())
                for v in range(cells.value_offsets[u], cells.value_offsets[u + 1])
            ]
            for u in pool.units
        ]
        scores = bridge_select_reference(terms, pool.scores, hybridqa.is_table[pool.units], values, 0.2)
        assert same(boosted, pool.rescored(scores))
        linked += int(np.count_nonzero(scores != pool.scores) == 1)
    assert 0 < linked < 40  # both ways of the algorithm were gone


def test_search_and_merge_is_both_in_turn(hybridqa: Index, questions: list[str]) -> None:
    pools = hybridqa.search(questions, 20)
    items = [
        ((), ()),
        ((), pools[:2]),
        (("unheardofword", ""), ()),
        *(((a, b), ()) for a, b in pairwise(questions)),
        *(((query,), pools[i : i + 3]) for i, query in enumerate(questions)),
    ]
    together = search_and_merge(hybridqa, items, 20)
    for item, found in zip(items, together, strict=True):
        queries, before = item
        assert same(found, merge([*before, *hybridqa.search(queries, 20)], 20))
        assert same(found, search_and_merge(hybridqa, [item], 20)[0])
