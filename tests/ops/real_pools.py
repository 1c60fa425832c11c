"""200 real pools: the 50 passages nearest to a question, over HotpotQA and HybridQA."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from pool_problems import Problem, lists
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import TfidfVectorizer

from pyfast import ops


def real_pools(data: Path) -> Problem:
    texts: list[str] = []
    questions: list[str] = []
    for name in ("hotpotqa", "hybridqa"):
        with (data / name / "corpus.jsonl").open(encoding="utf-8") as file:
            passages = [d for d in map(json.loads, file) if d["kind"] == "text"][:4000]
        texts += [f"{d['title']} {d['text']}" for d in passages]
        with (data / name / "questions.jsonl").open(encoding="utf-8") as file:
            questions += [json.loads(line)["question"] for line in file][:100]
    vectorizer = TfidfVectorizer(dtype=np.float32)
    X = csr_array(vectorizer.fit_transform(texts))
    X.sort_indices()  # scikit-learn leaves them as SciPy does, which differs from release to release
    asked = csr_array(vectorizer.transform(questions))
    similarity = (asked @ X.T).toarray()
    docs = np.argsort(-similarity, axis=1, kind="stable")[:, :50]
    question_terms = [row.indices.tolist() for row in asked]
    nothing = ops.Cells(np.zeros(X.shape[0] + 1, np.int64), np.zeros(1, np.int64), np.zeros(0, np.int32))
    return Problem(
        X,
        X.T.tocsr(),
        np.arange(len(docs) + 1) * 50,
        docs.ravel(),
        np.take_along_axis(similarity, docs, axis=1).ravel(),
        np.zeros(docs.size, np.uint8),
        lists(question_terms),
        nothing,
    )
