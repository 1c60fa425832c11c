"""Corpora that are joined, without what was deleted, are the corpus encoded from the documents that stay."""

import shutil

import numpy as np
import pytest
from corpus_strategies import documents
from hypothesis import given
from hypothesis import strategies as st

from pyfast.corpus import Corpus, Document, decode, encode, storage
from pyfast.corpus.storage import add_sums


@given(given=documents, data=st.data())
def test_joined_it_is_the_corpus_of_what_stays(
    tmp_path_factory: pytest.TempPathFactory, given: list[Document], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(given)))
    live = np.array(data.draw(st.lists(st.booleans(), min_size=len(given), max_size=len(given))), bool)
    parts = [encode(given[:cut]), encode(given[cut:])]
    folder = tmp_path_factory.mktemp("joined") / "corpus"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "_AT_ONCE", data.draw(st.sampled_from([1, 7, 1 << 20])))
        passages, described = Corpus.join(
            parts, [live[:cut], live[cut:]], folder, sum(part.text_size for part in parts)
        )
    joined = Corpus.open(folder)
    shutil.rmtree(folder)
    assert described.equals(joined.document_table)
    fresh = encode(document for document, stays in zip(given, live, strict=True) if stays)
    assert decode(joined) == decode(fresh)
    for name in ("level", "parent", "subtree_end", "source", "start", "end"):
        assert getattr(joined, name).tolist() == getattr(fresh, name).tolist(), name
    assert joined.ids[:].tolist() == fresh.ids[:].tolist()
    assert joined.passages().tolist() == passages.tolist() == fresh.passages().tolist()
    segments = range(len(fresh))
    assert [joined.content(i) for i in segments] == [fresh.content(i) for i in segments]
    assert [joined.render(i) for i in segments] == [fresh.render(i) for i in segments]
    assert joined.fingerprint() == fresh.fingerprint()
    assert (
        joined.document_table.column("passages").to_pylist()
        == np.bincount(fresh.source[fresh.passages()], minlength=fresh.documents).tolist()
    )


@given(a=st.integers(0, 2**128 - 1), b=st.integers(0, 2**128 - 1))
def test_what_was_added_can_be_taken_off(a: int, b: int) -> None:
    assert add_sums(add_sums(a, b), b, -1) == a
