"""Words are scikit-learn's words, in the index and in questions."""

from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer

from pyfast.retrieval.tokenization import term_ids, tokenize

analyse = CountVectorizer().build_analyzer()


@given(st.one_of(st.text(), st.text("aB1_ -.'é\u0130\u00df\u0301\u200b\u0660漢\n\t")))
def test_tokens_are_those_of_scikit_learn(text: str) -> None:
    assert tokenize(text) == analyse(text)


def test_known_words_in_order_with_repetitions() -> None:
    assert term_ids("The CAT, the dog; cat!", {"cat": 7, "the": 1}) == [1, 7, 1, 7]
