"""The proxy of selection: against scikit-learn's micro averages, and the bootstrap against what is known of it."""

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import precision_recall_fscore_support

from pyfast.evaluation.evidence import counts

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
if not BENCHMARKS.is_dir():
    pytest.skip("the benchmarks are not here", allow_module_level=True)
sys.path.append(str(BENCHMARKS))
from selection import f1_interval, micro_averages  # noqa: E402

SETS = st.sets(st.integers(0, 6))


@given(st.lists(st.tuples(SETS, SETS), min_size=1, max_size=8))
def test_micro_averages_are_those_of_scikit_learn(questions: list[tuple[set[int], set[int]]]) -> None:
    found = micro_averages([counts(sorted(picked) * 2, wanted) for picked, wanted in questions])
    truth = [[i in wanted for i in range(7)] for _, wanted in questions]
    said = [[i in picked for i in range(7)] for picked, _ in questions]
    expected = precision_recall_fscore_support(
        np.ravel(truth), np.ravel(said), average="binary", zero_division=0.0, pos_label=True
    )
    assert (found.precision, found.recall, found.f1) == pytest.approx(expected[:3])


def test_the_interval_holds_the_score_and_narrows_with_more_questions() -> None:
    generator = np.random.default_rng(5)
    few = [(int(b), 2, 2) for b in generator.integers(0, 3, 30)]
    many = few * 20
    low, high = f1_interval(few)
    assert low < micro_averages(few).f1 < high
    narrow = f1_interval(many)
    assert high - low > 3 * (narrow[1] - narrow[0])
    # of a mean of independent values: 1.96 standard errors on each side
    error = 1.96 * np.std([b / 2 for b, _, _ in few]) / np.sqrt(len(few))
    assert (high - low) / 2 == pytest.approx(error, rel=0.15)


def test_a_difference_is_drawn_in_pairs() -> None:
    generator = np.random.default_rng(6)
    before = [(int(b), 4, 4) for b in generator.integers(0, 3, 50)]
    after = [(both + 1, picked, wanted) for both, picked, wanted in before]
    assert f1_interval(after, before) == pytest.approx((0.25, 0.25))
    assert f1_interval(before, before) == (0.0, 0.0)
    with pytest.raises(ValueError, match="the same ones for both"):
        f1_interval(after, before[1:])
    with pytest.raises(ValueError, match="questions"):
        f1_interval([])
