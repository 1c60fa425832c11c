"""`rerank_texts` against scikit-learn and the slow reference of `bridge_rank`."""

import numpy as np
import pytest
from references import bridge_rank_reference
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, TfidfVectorizer
from slow_words import slow_terms

from pyfast.api.search import rerank_texts
from pyfast.errors import InputError

TEXTS = [
    "Cassini flew by Titan, the largest moon of Saturn.",
    "Rome is a city on the Tiber.",
    "Titan was discovered by Christiaan Huygens in The Hague.",
    "The Hague is a city in the Netherlands.",
    "",
]
QUERY = "In which city was the moon discovered that Cassini flew by?"


@pytest.mark.parametrize("scores", [None, [5.0, 1.0, 2.0, 1.0, 0.0]])
def test_the_scores_are_those_of_the_reference(scores: list[float] | None) -> None:
    vectorizer = TfidfVectorizer(sublinear_tf=True, analyzer=lambda text: slow_terms(text, ENGLISH_STOP_WORDS))
    x = csr_array(vectorizer.fit_transform(TEXTS).astype(np.float32))
    asked = sorted(
        vectorizer.vocabulary_[term]
        for term in set(vectorizer.build_analyzer()(QUERY)) & set(vectorizer.vocabulary_)
    )
    semantic = x.toarray()[:, asked].sum(axis=1) if scores is None else np.array(scores)
    expected = bridge_rank_reference(x, np.arange(len(TEXTS)), semantic.astype(np.float32), asked)
    assert rerank_texts(QUERY, TEXTS, scores) == pytest.approx(expected, abs=1e-5)


def test_what_has_nothing_to_rank() -> None:
    assert rerank_texts("who?", []) == []
    assert rerank_texts("who?", ["", "!"]) == [0.0, 0.0]
    assert len(rerank_texts("?", TEXTS)) == len(TEXTS)


@pytest.mark.parametrize("scores", [[1.0], [1.0, 2.0, float("nan"), 0.0, 0.0]])
def test_scores_that_do_not_fit(scores: list[float]) -> None:
    with pytest.raises(InputError, match="scores: expected 5 finite numbers"):
        rerank_texts(QUERY, TEXTS, scores)
