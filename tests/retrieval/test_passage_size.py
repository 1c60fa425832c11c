"""Long paragraphs are cut by a setting. Text that two passages share is searched and read with both."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import pyfast
from pyfast.commands.cli import app
from pyfast.corpus import TextDocument, decode, encode
from pyfast.errors import InputError
from pyfast.retrieval.index.part_maker import repeated

SENTENCES = [f"Moon number {i} is called Name{i} and it orbits Planet{i % 7}." for i in range(60)]
LONG = " ".join(SENTENCES)


def lines(index: pyfast.Index) -> list[str]:
    return [index.text(i) for i in range(len(index.passages))]


def overlapping(text: str, length: int, overlap: int) -> list[str]:
    """Whole sentences, as many as fit `length`; before each passage as many of the last ones as fit `overlap`."""
    sentences = [f"{sentence}." for sentence in text.rstrip(".").split(". ")]
    passages: list[list[str]] = []
    while sentences:
        taken = [sentences.pop(0)]
        while sentences and len(" ".join([*taken, sentences[0]])) <= length:
            taken.append(sentences.pop(0))
        passages.append(taken)
    out = []
    for k, taken in enumerate(passages):
        before = passages[k - 1] if k else []
        while before and len(" ".join(before)) > overlap:
            before = before[1:]
        out.append(" ".join([*before, *taken]))
    return out


@pytest.mark.parametrize(("length", "overlap"), [(400, 0), (400, 120), (250, 60), (1000, 500)])
def test_passages_are_those_of_the_plain_rule(tmp_path: Path, length: int, overlap: int) -> None:
    given = TextDocument("moons", "", LONG)
    index = pyfast.build_index(
        [given], tmp_path / "IDX", options=pyfast.IndexOptions(passage_length=length, passage_overlap=overlap)
    )
    assert lines(index) == overlapping(LONG, length, overlap)
    assert decode(index.corpus) == [given]
    assert index.manifest["parameters"]["passages"] == {"length": length, "overlap": overlap}


def test_a_fact_at_a_cut_is_found_in_one_passage(tmp_path: Path) -> None:
    """The words of two sentences on both sides of a cut are together in a passage, with an overlap alone."""
    cut = len(overlapping(LONG, 400, 0)[0].split(". "))  # sentences of the first passage
    query = f"Name{cut - 1} Name{cut}"

    def both(overlap: int) -> bool:
        folder = tmp_path / str(overlap)
        index = pyfast.build_index(
            [TextDocument("m", "", LONG)],
            folder,
            options=pyfast.IndexOptions(passage_length=400, passage_overlap=overlap),
        )
        best = index.text(int(index.search(query, 1)[0].passages[0]))
        return all(f"{name} " in best for name in query.split())

    assert both(120) and not both(0)


def test_paragraphs_that_were_not_cut_share_nothing(tmp_path: Path) -> None:
    text = f"{LONG}\n\nAnother paragraph. It is short.\n\n# Not a heading here\n\n{LONG}"
    index = pyfast.build_index(
        [TextDocument("m", "", text)],
        tmp_path / "I",
        options=pyfast.IndexOptions(passage_length=400, passage_overlap=120),
    )
    starts = [line for line in lines(index) if line.startswith(("Another", "# Not", "Moon number 0 "))]
    assert len(starts) == 4


def test_a_sentence_longer_than_the_overlap_gives_its_last_words() -> None:
    corpus = encode([TextDocument("m", "", "word " * 300)], 200)
    second = int(corpus.passages()[1])
    assert repeated(corpus, second, 23) == "word word word word "
    assert repeated(corpus, second, 3) == "" == repeated(corpus, int(corpus.passages()[0]), 23)


@settings(max_examples=60, deadline=None)
@given(st.text("ab. \n。A", max_size=700), st.integers(1, 60))
def test_what_is_repeated_is_the_end_of_the_passage_before(text: str, overlap: int) -> None:
    corpus = encode([TextDocument("m", "", text)], 120)
    passages = corpus.passages().tolist()
    for before, i in zip([None, *passages], passages, strict=False):
        start = repeated(corpus, i, overlap)
        if start:
            assert before is not None and len(start.rstrip()) <= overlap
            assert (corpus.content(before) + corpus.text_between(before, i)).endswith(start)
            assert corpus.text_between(before, i).strip() == ""


def test_documents_that_join_get_the_size_of_the_index(tmp_path: Path) -> None:
    first, second = TextDocument("a", "", LONG), TextDocument("b", "", LONG.replace("Moon", "Ring"))
    fresh = pyfast.build_index(
        [first, second], tmp_path / "F", options=pyfast.IndexOptions(passage_length=300, passage_overlap=100)
    )
    pyfast.build_index(
        [first], tmp_path / "I", options=pyfast.IndexOptions(passage_length=300, passage_overlap=100)
    )
    pyfast.add_documents(tmp_path / "I", [second])
    assert lines(pyfast.open_index(tmp_path / "I")) == lines(fresh)
    pyfast.update_documents(tmp_path / "I", [TextDocument("a", "", LONG + " The end.")])
    pyfast.compact_index(tmp_path / "I")
    changed = pyfast.open_index(tmp_path / "I")
    assert changed.manifest["parameters"]["passages"] == {"length": 300, "overlap": 100}
    assert max(map(len, lines(changed))) <= 400


@pytest.mark.parametrize(("length", "overlap"), [(99, 0), (400, 201), (400, -1)])
def test_sizes_that_cannot_be_are_refused(tmp_path: Path, length: int, overlap: int) -> None:
    with pytest.raises(InputError, match=r"passage_(length|overlap): expected"):
        pyfast.build_index(
            [TextDocument("a", "", "x")],
            tmp_path / "I",
            options=pyfast.IndexOptions(passage_length=length, passage_overlap=overlap),
        )
    assert not (tmp_path / "I").exists()


def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "moons.txt").write_text(LONG, encoding="utf-8")
    sizes = ["--passage-length", "400", "--passage-overlap", "120"]
    done = CliRunner().invoke(app, ["index", str(tmp_path / "moons.txt"), "--out", str(tmp_path / "I"), *sizes])
    assert done.exit_code == 0, done.output
    assert len(pyfast.open_index(tmp_path / "I").passages) == len(overlapping(LONG, 400, 120))
