"""Pools and their merging."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pyfast.retrieval import Pool, fuse


def pool(*pairs: tuple[int, float]) -> Pool:
    """(passage, score) pairs, best first."""
    ranked = sorted(pairs, key=lambda pair: -pair[1])
    passages, scores = [passage for passage, _ in ranked], [score for _, score in ranked]
    return Pool(np.array(passages, np.int32), np.array(scores, np.float32))


pools = st.lists(
    st.dictionaries(st.integers(0, 12), st.integers(1, 40), max_size=8).map(lambda d: pool(*d.items())), max_size=4
)


def fused_by_hand(pools: list[Pool], k: int) -> list[tuple[int, float]]:
    """In plain Python: (passage, score) of each in turn, the best first, each passage once."""
    everything = []
    for each in pools:
        if len(each):
            low, high = min(each.scores.tolist()), max(each.scores.tolist())
            everything += [(u, (s - low) / (high - low) if high > low else 1.0) for u, s in each]
    best: dict[int, float] = {}
    for passage, score in sorted(everything, key=lambda pair: -pair[1]):
        best.setdefault(passage, score)
    return list(best.items())[:k]


def fuse_one(pools: list[Pool], k: int) -> Pool:
    return fuse([pools], k)[0]


@given(pools, st.integers(1, 20))
def test_fusion_is_what_it_says(pools: list[Pool], k: int) -> None:
    found, expected = fuse_one(pools, k), fused_by_hand(pools, k)
    assert found.passages.tolist() == [passage for passage, _ in expected]
    np.testing.assert_allclose(found.scores, [score for _, score in expected], rtol=1e-6)
    assert (found.passages.dtype, found.scores.dtype) == (np.int32, np.float32)


@given(pools, st.integers(1, 20))
def test_each_passage_once_best_first_within_0_and_1(pools: list[Pool], k: int) -> None:
    found = fuse_one(pools, k)
    passages = {passage for each in pools for passage, _ in each}
    assert len(set(found.passages.tolist())) == len(found) == min(k, len(passages))
    assert np.all(np.diff(found.scores) <= 0)
    assert np.all((found.scores >= 0) & (found.scores <= 1))


@given(pools, st.integers(1, 20), st.sampled_from([0.5, 2.0, 1024.0]))
def test_the_scale_of_a_querys_scores_does_not_matter(pools: list[Pool], k: int, factor: float) -> None:
    scaled = [Pool(p.passages, p.scores * np.float32(factor)) for p in pools]
    assert list(fuse_one(scaled, k)) == list(fuse_one(pools, k))


@given(st.lists(pools, max_size=4), st.integers(1, 20))
def test_groups_are_fused_each_for_itself(groups: list[list[Pool]], k: int) -> None:
    assert [list(found) for found in fuse(groups, k)] == [list(fuse_one(group, k)) for group in groups]


def test_ties_go_to_the_earlier_pool() -> None:
    assert fuse_one([pool((3, 5.0)), pool((1, 9.0), (2, 1.0)), pool((0, 2.0))], 3).passages.tolist() == [3, 1, 0]
    assert len(fuse_one([], 5)) == len(fuse_one([pool()], 5)) == 0


def test_head() -> None:
    mine = pool((4, 3.0), (5, 2.0), (6, 1.0))
    assert list(mine.head(2)) == [(4, 3.0), (5, 2.0)] and len(mine.head(9)) == 3
