"""Windows of many questions at once: the same as of one alone, on the stream and beside it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pyfast.corpus import Level, Table, TextDocument
from pyfast.ops.hseq_stream import Neighbors
from pyfast.retrieval import Index, build_index
from pyfast.systems.hseq.views import PRIORITY
from pyfast.systems.hseq.windows import Move, View, candidates, links_of, move_on, open_window, select_lexically

QUESTIONS = [
    "Who discovered Titan?",
    "Which missions reached Mars?",
    "Huygens",
    "zzzz",
    "launch site of Apollo 11",
]


def opened(index: Index, questions: list[str], width: int = 8, prior: int = 20) -> list[View]:
    return open_window(index, questions, width, prior, PRIORITY)


def places(view: View) -> list[int]:
    return [it.position for it in view.window]


def test_what_a_search_finds_comes_first(small: Index) -> None:
    for view, pool in zip(opened(small, QUESTIONS), small.search(QUESTIONS, 20), strict=True):
        found = small.passages[pool.passages].tolist()[:8]
        assert places(view)[: len(found)] == found and len(view.window) == 8
        assert [it.text for it in view.window] == [small.corpus.render(i) for i in places(view)]
        assert [it.level for it in view.window] == [Level(int(small.corpus.level[i])) for i in places(view)]


@pytest.mark.parametrize("kind", [None, "children", "parent", "row", "column", "relation"])
def test_batches_do_not_matter(small: Index, kind: Neighbors | None) -> None:
    together = opened(small, QUESTIONS)
    assert [places(v) for v in together] == [places(opened(small, [q])[0]) for q in QUESTIONS]
    for _ in range(3):
        moves = [Move(view, tuple(places(view)[:2]), kind, tuple(places(view)[:2])) for view in together]
        alone = [move_on(small, [move], 8, PRIORITY)[0] for move in moves]
        together = move_on(small, moves, 8, PRIORITY)
        assert [(places(v), v.front) for v in together] == [(places(v), v.front) for v in alone]


@pytest.mark.parametrize("kind", ["children", "parent"])
def test_neighbours_are_those_of_the_stream(small: Index, kind: Neighbors) -> None:
    stream = small.stream(PRIORITY)
    for view in opened(small, QUESTIONS, 16):
        of = tuple(places(view)[:3])
        (after,) = move_on(small, [Move(view, of, kind, of)], 16, PRIORITY)
        near = [i for i in stream.neighbors(([0, 3], of), kind)[1].tolist() if i not in of][:8]
        assert places(after)[: len(near)] == near
        assert not set(places(after)) & set(of) and len(after.window) == 16


def expanded(index: Index, kind: Neighbors, i: int) -> list[int]:
    """What an expansion of one segment brings to the front."""
    (view,) = opened(index, ["zzzz"], 40, 0)
    (after,) = move_on(index, [Move(view, (), kind, (i,))], 40, PRIORITY)
    return list(after.front)


def test_row_and_column_of_rows_cells_and_paragraphs(tmp_path: Path) -> None:
    rows = (("Ada", "1"), ("Bo", "2"), ("Cy", "1"), ("Di", "3"), ("Ed", "1"))
    text = TextDocument("text", "", "One is here. It stays.\n\nTwo is here.\n\nThree is here.\n\nFour is here.")
    index = build_index([Table("t", "Team", "", ("name", "points"), rows, ()), text], tmp_path / "index")
    corpus = index.corpus
    levels = {level: np.flatnonzero(corpus.level == level).tolist() for level in Level}
    ada, bo, cy, di, ed = levels[Level.TABLE_ROW]
    assert expanded(index, "row", cy) == [bo, di, ada, ed]
    assert expanded(index, "column", cy) == [ada, ed]  # of one point, too
    assert expanded(index, "column", bo) == []
    assert [corpus.content(i) for i in expanded(index, "row", cy + 1)] == ["1"]
    assert [corpus.content(i) for i in expanded(index, "column", cy + 1)] == ["Ada", "Bo", "Di", "Ed"]
    one, two, three, four = levels[Level.PARAGRAPH]
    for kind in ("row", "column"):
        assert expanded(index, kind, two) == [one, three, four]
        assert expanded(index, kind, one + 2) == [two, three, four]  # its second sentence
        assert expanded(index, kind, levels[Level.DOCUMENT][0]) == []
    (table,) = levels[Level.TABLE]
    assert corpus.render(table) == "Team | name; points | Ada; 1 | Bo; 2 | Cy; 1 | Di; 3 | Ed; 1"
    assert expanded(index, "parent", cy) == [table]


@pytest.mark.parametrize("first", [Level.PARAGRAPH, Level.SENTENCE])
def test_behind_the_search_come_its_documents_in_the_order(small: Index, first: Level) -> None:
    """Best level first, and nothing of a document that was not found before all of these."""
    priority = (first, Level.TABLE_CELL)
    corpus = small.corpus
    for question, pool in zip(QUESTIONS, small.search(QUESTIONS, 3), strict=True):
        found = small.passages[pool.passages].tolist()
        (view,) = open_window(small, [question], 1000, 3, priority)
        sources = set(corpus.source[found].tolist())
        beside = [i for i in np.flatnonzero(np.isin(corpus.source, list(sources))).tolist() if i not in found]
        wanted = [i for level in priority for i in beside if corpus.level[i] == level]
        assert places(view)[: len(found)] == found
        behind = places(view)[len(found) : len(found) + len(wanted)]
        assert sorted(behind) == sorted(wanted)
        assert [corpus.level[i] for i in behind] == [corpus.level[i] for i in wanted]


def test_what_is_done_does_not_come_again(small: Index) -> None:
    (view,) = opened(small, QUESTIONS[:1], 10)
    seen: list[int] = []
    while view.window:
        seen += places(view)
        (view,) = move_on(
            small, [Move(view, tuple(places(view)), "relation", tuple(places(view)[:1]))], 10, PRIORITY
        )
    assert len(seen) == len(set(seen))
    assert {i for i in range(len(small.corpus)) if small.corpus.level[i] in PRIORITY} <= set(seen)


def test_no_whole_books(tmp_path: Path) -> None:
    """A parent that is too large to be evidence is not brought in; a small one is."""
    texts = [
        TextDocument("small", "", "A lighthouse.\n\nIt is old."),
        TextDocument("large", "", "A harbour.\n\n" * 9999),
    ]
    index = build_index(texts, tmp_path / "index")
    for word, brought in (("lighthouse", True), ("harbour", False)):
        (view,) = opened(index, [word], 4)
        (after,) = move_on(index, [Move(view, (), "parent", (places(view)[0],))], 4, PRIORITY)
        assert (after.window[0].level == Level.DOCUMENT) == brought


def test_of_many_relations_those_about_the_question(small: Index) -> None:
    hub = next(i for i in small.passages.tolist() if len(set(links_of(small).of(i))) > 2)
    near = [it.text for it in candidates(small, dict.fromkeys(links_of(small).of(hub)))]
    for text in near:
        (view,) = opened(small, [text], 4)
        (after,) = move_on(small, [Move(replace(view, question=text), (), "relation", (hub,))], 4, PRIORITY)
        assert text in [it.text for it in after.window[:2]]


def test_cover_picks_what_is_new(small: Index) -> None:
    question = "Huygens landed on Titan"
    window = ["Titan is a moon.", "Titan is cold.", "Huygens landed in 2005.", "Nothing."]
    (cover,) = select_lexically(small, [(question, (), window)], 3)
    assert set(cover.picked[:2]) == {0, 2} and cover.picked[2] == 1 and cover.share == 1.0
    (rest,) = select_lexically(small, [(question, ("Titan",), window)], 1)
    assert rest.picked == (2,) and rest.share == 1.0
    assert select_lexically(small, [("qqqq", (), window), (question, (), [])], 3)[0].picked == ()
    assert select_lexically(small, [(question, (), [])], 3)[0].share == 0.0
