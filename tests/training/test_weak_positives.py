"""Weak positives: what an answer or a named document marks, and nothing else."""

from pathlib import Path

import orjson
import pytest

from pyfast.errors import InputError
from pyfast.retrieval import Index
from pyfast.systems.hseq.weak_positives import (
    Candidate,
    Gold,
    candidate_passages,
    holds,
    jaccard,
    read_gold,
    weak_positives,
    words,
)

PASSAGES = [
    Candidate(3, "Huygens was born in The Hague, in 1629.", "huygens", True),
    Candidate(7, "Titan | moon of Saturn | found 1655", "moons", False),
    Candidate(8, "Phobos | moon of Mars | found 1877", "moons", False),
    Candidate(9, "In 1655 nothing else happened.", "years", True),
]
ASKED = "When was the moon Titan found?"


def positives(lexical_weight: float = 0.3, max_positives: int = 4, **gold: object) -> dict[int, float]:
    return dict(weak_positives(Gold(id="q", question=ASKED, **gold), PASSAGES, max_positives, lexical_weight))


def test_where_documents_are_named_their_only_unit_or_the_units_that_hold_an_answer() -> None:
    assert positives(answers=["1655"], supporting=["huygens", "moons"]) == {3: 1.0, 7: 1.0}


def test_where_none_is_named_what_holds_an_answer() -> None:
    assert positives(answers=["1655"]) == {7: 1.0, 9: 1.0}
    assert list(positives(answers=["1655"], max_positives=1)) == [7]  # it shares more of the question


def test_many_named_documents_are_a_trace_that_only_the_answer_makes_sure() -> None:
    named = ["huygens", "moons", "years", "a", "b", "c"]
    assert positives(answers=["1655"], supporting=named) == {7: 1.0, 9: 1.0}


def test_else_the_most_words_in_common_with_less_weight() -> None:
    assert positives(answers=["yes"]) == {7: 0.3}
    assert positives(answers=["yes"], supporting=["years"]) == {9: 1.0}
    assert positives(answers=["1877 days"], supporting=["moons"], lexical_weight=0.5) == {7: 0.5}
    assert positives(answers=["yes"], lexical_weight=0.0) == {}
    assert weak_positives(Gold(id="q", question=ASKED, answers=("1655",)), [], 4, 0.3) == {}


def test_answers_are_whole_words_whatever_their_case() -> None:
    assert holds("He paid $58.2 million.", [words("$58.2 Million")], named=False)
    assert not holds("In 16550 B.C.", [words("1655")], named=True)
    assert holds("It has 7 moons.", [words("7")], named=True)
    assert not holds("It has 7 moons.", [words("7")], named=False)
    assert not holds("Yes, or no: anything", [words("yes"), words("NO"), words("..."), words("")], named=True)


def test_jaccard() -> None:
    assert jaccard(words("a b c"), words("B c. d e")) == 2 / 5
    assert jaccard(words(""), words("!")) == 0.0


def test_on_the_example_corpus_the_gold_documents_are_found(small: Index, examples: Path) -> None:
    """Each positive is of a named document; and no named document that was found whole is left out."""
    golds = [gold for gold in read_gold(examples / "questions.jsonl") if 0 < len(gold.supporting) <= 4]
    assert len(golds) > 10
    corpus, met = small.corpus, 0
    for gold, passages in zip(
        golds, candidate_passages(small, [gold.question for gold in golds], 40), strict=True
    ):
        assert [it.position for it in passages] == small.passages[
            small.search([gold.question], 40)[0].passages
        ].tolist()
        found = weak_positives(gold, passages, 40, 0.0)
        assert set(found) <= {it.position for it in passages} and set(found.values()) <= {1.0}
        assert {corpus.uri(int(corpus.source[it])) for it in found} <= set(gold.supporting)
        whole = {it.position for it in passages if it.alone and it.uri in gold.supporting}
        assert whole <= set(found)
        met += bool(found)
    assert met > 10


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ({"id": "a"}, "`question`"),
        ({"id": "a", "question": "b", "answers": {"a": 1}}, r"`answers"),
        ({"id": "a", "question": "b", "supporting": [1]}, r"`supporting"),
    ],
)
def test_lines_that_are_no_gold_are_named(tmp_path: Path, line: dict[str, object], fault: str) -> None:
    path = tmp_path / "gold.jsonl"
    path.write_bytes(orjson.dumps({"id": "0", "question": "x"}) + b"\n" + orjson.dumps(line))
    with pytest.raises(InputError, match=f"line 2: {fault}"):
        read_gold(path)


def test_an_id_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "gold.jsonl"
    path.write_text('{"id": "a", "question": "x"}\n{"id": "a", "question": "x"}\n')
    with pytest.raises(InputError, match="'a' occurs twice"):
        read_gold(path)
