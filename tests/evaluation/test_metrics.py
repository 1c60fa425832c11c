"""Scores against values worked out by hand from the rules of SQuAD's, HotpotQA's and HybridQA's scripts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyfast.engine import Record
from pyfast.evaluation import evaluate, exact_match, f1, normalise
from pyfast.evaluation.metrics import set_overlap

NORMAL = {
    "The  Cat": "cat",
    "a an the": "",
    "A.N. Other": "other",  # punctuation goes first, so "A.N." is an article by then
    "U.S.A.": "usa",
    "the-end": "theend",  # a hyphen joins
    "anthem": "anthem",  # articles are whole words
    "Theatre of the Absurd": "theatre of absurd",
    "$1,234.50!": "123450",
    "“the cat’s”": "“ cat’s”",  # only ASCII punctuation goes; but a word ends at any
    "à la carte": "à la carte",
    "one\u00a0two\u3000\tthree\n": "one two three",
    "ÉCLAIR": "éclair",
    "İstanbul": "i̇stanbul",
    "": "",
    "...": "",
}


@pytest.mark.parametrize(("text", "expected"), NORMAL.items())
def test_normalise(text: str, expected: str) -> None:
    assert normalise(text) == expected


F1 = [
    ("Denver Broncos", "The Denver Broncos", 1, 1.0),
    ("the Denver Broncos!", "denver broncos", 1, 1.0),
    ("Broncos", "Denver Broncos", 0, 2 / 3),
    ("Santa Clara, California", "Levi's Stadium in Santa Clara, California", 0, 2 * 1 * 0.5 / 1.5),
    ("cat cat dog", "cat dog dog", 0, 2 / 3),  # a bag: two of three tokens are shared
    ("Clara Santa", "Santa Clara", 0, 1.0),
    ("1963", "July 1963", 0, 2 / 3),
    ("London", "Paris", 0, 0.0),
    # yes, no and noanswer earn nothing in part: HotpotQA's rule
    ("yes", "Yes.", 1, 1.0),
    ("yes", "yes it is", 0, 0.0),
    ("no one", "no", 0, 0.0),
    ("yes", "no", 0, 0.0),
    ("noanswer", "noanswer given", 0, 0.0),
    # of both nothing is left, or of one: SQuAD 2's rule
    ("The", "a", 1, 1.0),
    ("", "the", 1, 1.0),
    ("", "cat", 0, 0.0),
    ("cat", "!", 0, 0.0),
]


@pytest.mark.parametrize(("prediction", "gold", "em", "expected"), F1)
def test_exact_match_and_f1(prediction: str, gold: str, em: int, expected: float) -> None:
    assert exact_match(prediction, gold) == em
    assert f1(prediction, gold) == pytest.approx(expected)


words = st.lists(st.sampled_from(["the", "A", "cat", "Dog", "yes", "no", "U.S.", "–", "x,y"])).map(" ".join)


@given(words, words)
def test_f1_is_symmetric_in_bounds_and_no_less_than_exact_match(a: str, b: str) -> None:
    assert f1(a, b) == f1(b, a)
    assert 0 <= exact_match(a, b) <= f1(a, b) <= 1


@given(st.text())
def test_normalising_twice_changes_nothing_more_than_once(text: str) -> None:
    assert exact_match(text, text) == f1(text, text) == 1
    assert normalise(text) == " ".join(normalise(text).split())


def test_the_best_alias_counts_for_each_measure_by_itself() -> None:
    gold = [{"id": "a", "answers": ["Big Apple city", "New York City", "NYC"]}]
    for answer, em, best in (("NYC", 1, 1), ("New York", 0, 0.8), (None, 0, 0)):
        (row,) = evaluate([Record("a", "answered" if answer else "abstained", answer)], gold, ["em_f1"]).rows
        assert (row["em"].value, row["f1"].value) == (em, pytest.approx(best))


SETS = [
    ("Io, Europa", ["Europa", "Io"], 1, 1),
    ("io; EUROPA.", ["Europa", "Io"], 1, 1),
    ("Io", ["Europa", "Io"], 0, 2 / 3),
    ("Io, Europa, Titan", ["Europa", "Io"], 0, 0.8),
    ("Io, io, The Io", ["Io"], 1, 1),
    ("Titan", ["Europa", "Io"], 0, 0),
    ("Paris, Texas", ["Paris, Texas"], 1, 1),  # an item may hold a comma itself
    ("Paris, Texas; Alien", ["Alien", "Paris, Texas"], 1, 1),
    ("Alien", ["Alien", "Paris, Texas"], 0, 2 / 3),
    ("", ["Io"], 0, 0),
    (", ;", ["Io"], 0, 0),
    (None, ["Io"], 0, 0),
    ("Io", [], 0, 0),
]


@pytest.mark.parametrize(("prediction", "gold", "em", "expected"), SETS)
def test_sets(prediction: str | None, gold: list[str], em: float, expected: float) -> None:
    exact, overlap = set_overlap(prediction, gold)
    assert (exact, overlap.f1) == (em, pytest.approx(expected))
