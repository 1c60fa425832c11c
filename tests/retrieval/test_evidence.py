"""What is read of pools: text that fits, and evidence in JSON."""

from typing import Any

import numpy as np
import orjson
import pytest

from pyfast.corpus import Table
from pyfast.engine import Question
from pyfast.errors import ArrayError
from pyfast.retrieval import Index, Pool, ScoredSegments, cite, narrate


@pytest.fixture(scope="module")
def pool(hybridqa: Index, hybridqa_questions: list[Question]) -> Pool:
    return hybridqa.search([hybridqa_questions[0].text], 50)[0]


def test_the_whole_pool_as_numbered_lines(hybridqa: Index, pool: Pool) -> None:
    expected = [f"[{n}] {hybridqa.text(u)}" for n, u in enumerate(pool.passages.tolist(), start=1)]
    assert narrate(hybridqa, [pool], 10**6)[0].split("\n") == expected


def test_as_many_lines_as_the_room_holds(hybridqa: Index, pool: Pool) -> None:
    (whole,) = narrate(hybridqa, [pool], 10**6)
    for budget in range(1, len(whole) + 20, 97):
        (text,) = narrate(hybridqa, [pool], budget)
        assert 0 < len(text) <= budget and whole.startswith(text)
        if "\n" in text:  # whole lines, and the next would not have fitted
            following = whole[len(text) :].split("\n")
            assert following[0] == ""
            assert len(following) == 1 or len(text) + 1 + len(following[1]) > budget


def test_nothing_is_no_text(small: Index) -> None:
    assert narrate(small, small.search(["", "unheardofword"], 5), 100) == ["", ""]
    assert narrate(small, [], 100) == []


def evidence(pairs: list[tuple[int, float]]) -> ScoredSegments:
    return ScoredSegments(np.array([i for i, _ in pairs], np.int64), np.array([s for _, s in pairs], np.float32))


def test_evidence_of_every_level(small: Index, hybridqa: Index) -> None:
    for index, step in ((small, 1), (hybridqa, 97)):
        segments = range(0, len(index.corpus), step)
        items = [[(i, i / 8), (i // 2, 0.5)] for i in segments]
        for item, written in zip(items, cite(index, [evidence(item) for item in items]), strict=True):
            shown = [(index.corpus.segment(i), score) for i, score in item]
            assert orjson.loads(written) == [
                {
                    "segment": segment["id"],
                    "uri": segment["uri"],
                    "offsets": segment["offsets"],
                    "snippet": segment["snippet"],
                    "score": round(score, 6),
                    **table_at(index, i),
                }
                for (segment, score), (i, _) in zip(shown, item, strict=True)
            ]


def table_at(index: Index, i: int) -> dict[str, Any]:
    """What is shown of the table in which a segment stands, by the table as it was read."""
    document = index.corpus.document(int(index.corpus.source[i]))
    if not isinstance(document, Table):
        return {}
    section = {"section": document.section} if document.section else {}
    return {"title": document.title, **section, "header": [name.strip() for name in document.header]}


def test_no_evidence_and_no_such_segment(small: Index) -> None:
    assert cite(small, []) == []
    assert cite(small, [evidence([]), evidence([])]) == [b"[]", b"[]"]
    for segment in (-1, len(small.corpus)):
        with pytest.raises(ArrayError, match=f"no segment {segment};"):
            cite(small, [evidence([(0, 1.0)]), evidence([(segment, 1.0)])])
