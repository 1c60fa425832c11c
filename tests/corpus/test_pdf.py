"""PDF files: words divided at line ends, pages without text, and control characters of any reader."""

from pathlib import Path

import pytest
from fpdf import FPDF

from pyfast.corpus import Document, Table, TextDocument, Unread, encode, read
from pyfast.corpus.formats.pdf import _joined, _ranges


@pytest.mark.parametrize("mark", ["\x02", "\ufffe", "\u00ad\n", "-\n", "\u2010\n"])
@pytest.mark.parametrize(
    ("left", "right", "whole"),
    [
        ("light", "house", "lighthouse"),
        ("re", "tired", "retired"),
        ("twenty", "one", "twenty-one"),
        ("Anglo", "Saxon", "Anglo-Saxon"),
        ("well", "known", "well-known"),  # it stands elsewhere with its hyphen
        ("page", "5", "page-5"),
    ],
)
def test_divided_words(mark: str, left: str, right: str, whole: str) -> None:
    pages = [f"The {left}{mark}{right} of 1931.", "A well-known one."]
    assert list(_joined(pages)) == [f"The {whole} of 1931.", "A well-known one."]


def test_a_word_divided_in_a_file(tmp_path: Path) -> None:
    made = FPDF()
    made.set_font("helvetica", size=12)
    made.add_page()
    for line in ("The harbour board paid for a new light-", "house in spring."):
        made.cell(0, 8, line, new_x="LMARGIN", new_y="NEXT")
    made.output(str(tmp_path / "a.pdf"))
    (document,) = read([tmp_path / "a.pdf"])
    assert isinstance(document, TextDocument) and "lighthouse in spring" in " ".join(document.text.split())


def test_pages_without_text_are_named(tmp_path: Path) -> None:
    made = FPDF()
    made.set_font("helvetica", size=12)
    for text in ("Page one.", "", "", "Page four.", ""):
        made.add_page()
        if text:
            made.cell(0, 8, text)
    made.output(str(tmp_path / "a.pdf"))
    unread: list[Unread] = []
    (document,) = read([tmp_path / "a.pdf"], unread)
    assert isinstance(document, TextDocument) and document.text.split("\n\n")[0] == "Page one."
    assert [str(one) for one in unread] == [f"{tmp_path / 'a.pdf'}: pages 2-3, 5 have no text (scanned?)"]


def test_ranges() -> None:
    assert _ranges([1, 2, 3, 7, 9, 10]) == "1-3, 7, 9-10"


@pytest.mark.parametrize(
    "document",
    [
        TextDocument("a", "T\x07", "A\x00 b\x02c\x0cd\x85e\x9ff\ufffeg\u202eh."),
        Table("a", "T", "s\x1b", ("n\x01",), (("c\x08ell",),)),
    ],
)
def test_no_passage_has_a_control_character(document: Document) -> None:
    corpus = encode([document])
    assert corpus.document(0) == document
    for i in corpus.passages().tolist():
        line = corpus.render(i)
        assert line.isprintable() and ("A bc d efgh." in line or "cell" in line), line
