"""The forward index against scikit-learn's TfidfVectorizer, and the cells of table rows."""

from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, TfidfVectorizer
from slow_words import slow_terms

from pyfast.corpus import Table, TextDocument
from pyfast.retrieval import Index, build_index
from pyfast.retrieval.forward_index import weigh
from pyfast.retrieval.index.part_maker import indexed_text
from pyfast.retrieval.part_files import take_rows
from pyfast.retrieval.terms import count_terms


def assert_same_weights(x: csr_array, terms: list[str], texts: list[str]) -> None:
    peer = TfidfVectorizer(sublinear_tf=True, analyzer=lambda text: slow_terms(text, ENGLISH_STOP_WORDS))
    expected = csr_array(peer.fit_transform(texts)).tocsc()
    found = x.tocsc()
    columns = {term: column for column, term in enumerate(terms)}
    for term, column in peer.vocabulary_.items():
        ours = found[:, [columns[term]]].toarray()
        np.testing.assert_allclose(ours, expected[:, [column]].toarray(), rtol=0, atol=1e-6)
    assert found.nnz == expected.nnz  # and nothing besides


def test_weights_are_those_of_scikit_learn(small: Index) -> None:
    texts = [indexed_text(small.corpus, i, 0) for i in small.passages.tolist()]
    assert_same_weights(small.X, list(small.terms), texts)


@settings(max_examples=30)
@given(
    st.lists(
        st.lists(st.sampled_from(["cat", "dog", "the", "of", "bird", "Bird", "öl", "x"])).map(" ".join), min_size=1
    )
)
def test_weights_of_any_texts(texts: list[str]) -> None:
    counts, terms = count_terms(texts)
    if any(slow_terms(text, ENGLISH_STOP_WORDS) for text in texts):
        assert_same_weights(weigh(counts, terms), terms, texts)
    else:
        assert not len(terms) or not weigh(counts, terms).nnz


def test_rows_are_sorted_and_no_wider_than_the_ops_want(small: Index) -> None:
    X = small.X
    assert (X.data.dtype, X.indices.dtype, X.indptr.dtype) == (np.float32, np.int32, np.int64)
    for row in range(X.shape[0]):
        ids = X.indices[X.indptr[row] : X.indptr[row + 1]]
        assert np.all(np.diff(ids) > 0)


@given(st.data())
def test_rows_are_those_of_scipy(small: Index, data: st.DataObject) -> None:
    x = small.X
    rows = np.array(data.draw(st.lists(st.integers(0, x.shape[0] - 1))), np.int32)
    found, expected = take_rows(x, rows), x[rows]
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found.indptr, expected.indptr)
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_array_equal(found.data, expected.data)


def test_cells_are_the_words_of_each_table_row(tmp_path: Path) -> None:
    table = Table("t", "Moons", "", ("name", "planet"), (("Io", "of Jupiter"), ("", "Saturn Saturn")))
    index = build_index([TextDocument("d", "", "Io circles Jupiter"), table], tmp_path / "i")
    names = list(index.terms)
    cells = index.cells
    rows = []
    for passage in range(len(index.passages)):
        values = range(cells.value_offsets[passage], cells.value_offsets[passage + 1])
        spans = [slice(cells.term_offsets[v], cells.term_offsets[v + 1]) for v in values]
        rows.append([[names[t] for t in cells.term_ids[span]] for span in spans])
    assert rows == [[], [["io"], ["jupit"]], [["saturn", "saturn"]]]  # no stop words, no empty cells
    assert index.is_table.tolist() == [0, 1, 1]
