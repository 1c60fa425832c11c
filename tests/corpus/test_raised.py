"""Raised numbers and letters: powers, and the marks of footnotes behind words."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import docx
import fpdf
import openpyxl
import pptx
import pytest
from docx.enum.style import WD_STYLE_TYPE
from openpyxl.cell.rich_text import CellRichText, TextBlock
from openpyxl.cell.text import InlineFont

import pyfast
from pyfast.corpus import Table, TextDocument, read
from pyfast.utils.text_forms import compared, words

RUNS = [
    ("Rome", ""), ("2", "sup"), (" and Oslo", ""), ("1", "sup"), (",", "sup"), ("3", "sup"), (" have 10", ""),
    ("6", "sup"), (" m of H", ""), ("2", "sub"), ("O since 1999.", ""), ("4", "sup"), (" Done.", ""),
]  # fmt: skip
"""Texts, each with what raises or lowers it"""
SAID = "Rome^2 and Oslo^1,3 have 10^6 m of H2O since 1999.^4 Done."


def write_html(path: Path) -> None:
    page = "".join(f"<{how}>{said}</{how}>" if how else said for said, how in RUNS)
    path.write_text("<p>" + page.replace("</sup><sup>", "").replace("</sub><sub>", ""))


def write_styled_html(path: Path) -> None:
    write_html(path)
    page = path.read_text().replace("<sup>", "<span style='color: red; vertical-align: super'>")
    path.write_text(page.replace("</sup>", "</span>"))


def write_docx(path: Path) -> None:
    file = docx.Document()
    paragraph = file.add_paragraph()
    for said, how in RUNS:
        run = paragraph.add_run(said)
        run.font.superscript, run.font.subscript = how == "sup", how == "sub"
    file.save(str(path))


def write_pptx(path: Path) -> None:
    file = pptx.Presentation()
    slide = file.slides.add_slide(file.slide_layouts[1])
    paragraph = slide.placeholders[1].text_frame.paragraphs[0]
    for said, how in RUNS:
        run = paragraph.add_run()
        run.text = said
        run.font._element.set("baseline", {"sup": "30000", "sub": "-25000"}.get(how, "0"))
    file.save(str(path))


def write_xlsx(path: Path) -> None:
    fonts = {"sup": InlineFont(vertAlign="superscript"), "sub": InlineFont(vertAlign="subscript")}
    book = openpyxl.Workbook()
    book.active.append(["Text", "Number"])
    book.active.append([CellRichText(*[TextBlock(fonts[how], said) if how else said for said, how in RUNS]), 1])
    book.save(path)


def write_pdf(path: Path) -> None:
    file = fpdf.FPDF()
    file.add_page()
    file.set_font("helvetica", size=12)
    for said, how in RUNS:
        file.char_vpos = {"sup": "SUP", "sub": "SUB"}.get(how, "LINE")
        file.write(10, said)
    file.output(str(path))


WRITERS = {
    "html": write_html, "xhtml": write_styled_html, "docx": write_docx, "pptx": write_pptx, "xlsx": write_xlsx,
    "pdf": write_pdf,
}  # fmt: skip


def said_in(path: Path) -> str:
    """The texts of a file, and the cells of its tables."""
    found: list[Any] = list(read([path], []))
    texts = [one.text for one in found if isinstance(one, TextDocument)]
    cells = [cell for one in found if isinstance(one, Table) for row in one.rows for cell in row]
    return " ".join(" ".join([*texts, *cells]).split())


@pytest.mark.parametrize("kind", WRITERS)
def test_a_raised_number_is_no_part_of_a_word(kind: str, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    WRITERS[kind](tmp_path / "files" / f"a.{kind}")
    assert SAID in said_in(tmp_path / "files" / f"a.{kind}")
    index = pyfast.build_index(tmp_path / "files", tmp_path / "I", on_unread=lambda _: None)
    for question in ("Rome", "Oslo", "1999", "H2O"):
        (pool,) = index.search([question], 1)
        assert len(pool.passages), question


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("\u20ac12<sup><a href='#f'>4</a></sup> or more", "\u20ac12[4] or more"),
        ("Rome<a href='p.html#f'><sup>4</sup></a>, Oslo<sup><a href='#g'>*</a></sup>", "Rome[4], Oslo[*]"),
        ("Rome<sup><a href='#f'>[4]</a></sup> and 1<sup>st</sup>", "Rome[4] and 1st"),
        ("Mail<sup><a href='b.html'>new</a></sup>, (<sup>14</sup>C)", "Mailnew, (14C)"),
    ],
)
def test_links_to_footnotes(page: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(f"<p>{page}<table><tr><th>a<th>b<tr><td>{page}<td>1</table>")
    assert said_in(tmp_path / "a.html") == f"{said} {said} 1"


@pytest.mark.parametrize("kind", ["html", "md", "docx"])
def test_searches_find_a_word_with_a_raised_letter(kind: str, tmp_path: Path) -> None:
    runs = [("The yield", ""), ("a", "sup"), (" of Varn", ""), ("b", "sup"), (",c", "sup"), (" is high.", "")]
    if kind == "docx":
        file = docx.Document()
        paragraph, cells = file.add_paragraph(), file.add_table(2, 2).rows[0].cells
        for said, how in runs:
            for place in (paragraph, cells[0].paragraphs[0]):
                place.add_run(said).font.superscript = how == "sup"
        cells[1].text = "Cost"
        file.save(str(tmp_path / "a.docx"))
    else:
        said = "".join(f"<{how}>{it}</{how}>" if how else it for it, how in runs).replace("</sup><sup>", "")
        table = f"<table><caption>{said}</caption><tr><th>{said}<th>Cost<tr><td>1<td>2</table>"
        (tmp_path / f"a.{kind}").write_text(
            f"<p>{said}</p>{table}" if kind == "html" else f"{said}\n\n|{said}|b|\n|-|-|\n|1|2|\n"
        )
    index = pyfast.build_index(tmp_path / f"a.{kind}", tmp_path / "I")
    for question in ("yield", "Varn"):
        (pool,) = index.search([question], 5)
        shown = [index.corpus.render(int(index.passages[it])) for it in pool.passages]
        assert len(shown) == 2 and all("The yield^a of Varn^b,c is high" in it for it in shown), question


def test_a_number_in_several_runs(tmp_path: Path) -> None:
    file = docx.Document()
    paragraph = file.add_paragraph("It has 10")
    for digit in "12":
        paragraph.add_run(digit).font.superscript = True
    file.save(str(tmp_path / "a.docx"))
    assert said_in(tmp_path / "a.docx") == "It has 10^12"


def test_raised_characters_of_unicode(tmp_path: Path) -> None:
    assert words(compared("Nord\xb9 10\u2076 10\xb9\xb2 H\u2082O")) == words("nord^1 10^6 10^12 h2o")
    (tmp_path / "a.txt").write_text("Nord\xb9 has 10\u2076 litres.")
    (tmp_path / "b.txt").write_text("Bus 106 stops.")
    index = pyfast.build_index([tmp_path / "a.txt", tmp_path / "b.txt"], tmp_path / "I")
    found = [
        [index.corpus.render(int(index.passages[it]))[:1] for it in pool.passages]
        for pool in index.search(["Nord", "106", "10^6"], 1)
    ]
    assert found == [["a"], ["b"], ["a"]]


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("10<sup>n</sup>, (1+r)<sup>t</sup> and 2<sup>n-1</sup>", "10^n, (1+r)^t and 2^(n-1)"),
        ("1<sup>st</sup> 2<sup>nd</sup> 1<sup>er</sup> 2<sup>e</sup> M<sup>c</sup>", "1st 2nd 1er 2e Mc"),
        ("3<sup>1</sup>/<sub>2</sub> in, 3<sup>1</sup>&frasl;<sub>2</sub> in", "3 1/2 in, 3 1\u20442 in"),
        ("a <sup>1</sup>/<sub>2</sub> cup, (<sup>1</sup>/<sub>2</sub>)", "a 1/2 cup, (1/2)"),
        ("x<sup>n+1</sup>, x<sup>n</sup>, e<sup>-x</sup>, R<sup>n</sup>", "x^(n+1), x^n, e^-x, R^n"),
        ("x<sup>2n</sup>, 10<sup>-3/2</sup>, x<sup>n<sup>2</sup></sup>", "x^(2n), 10^(-3/2), x^(n^2)"),
        ("2<sup>(n-1)</sup>, f<sup>(n)</sup>, e<sup>\u2212\u03bbt</sup>", "2^(n-1), f^(n), e^(\u2212\u03bbt)"),
        ("a<sub>n+1</sub>, a<sub>i,j</sub>, a<sub>n</sub>+1, CH<sub>4</sub>", "a_(n+1), a_(i,j), an+1, CH4"),
        ("101<sub>2</sub> = 5<sub>10</sub>, log<sub>2</sub>8, t<sub>1/2</sub>", "101_2 = 5_10, log_(2)8, t_(1/2)"),
        ("<sup>14</sup><sub>6</sub>C, x<sub>1</sub><sup>2</sup>, Ca<sup>2+</sup>", "14_6C, x1^2, Ca^2+"),
        ("e-Mail<sup>read-only</sup> n<sup>o</sup> 5, V<sub>max</sub>", "e-Mailread-only no 5, Vmax"),
        (
            "Yield<sup>a</sup>, CO2<sup>a</sup>, H2O<sup>b</sup> or Rye<sup>e</sup>",
            "Yield^a, CO2^a, H2O^b or Rye^e",
        ),
        ("Oat<sup>a,b</sup>, Lime<sup>*c</sup>, Oak<sup>a\u2013c</sup>", "Oat^a,b, Lime^*c, Oak^a\u2013c"),
        ("Wine<sup>a)</sup>, Fox<sup>ab</sup> Elm<sup>*</sup>", "Wine^a), Fox^ab Elm*"),
        (
            "M<sup>lle</sup>, D<sup>r</sup>, Ma<sup>c</sup>Coy, H<sup>+</sup>, xy<sub>i,j</sub>",
            "Mlle, Dr, MacCoy, H+, xy_(i,j)",
        ),
        ("XX<sup>e</sup>, xix<sup>e</sup>, 20<sup>th</sup>, Type II<sup>a</sup>", "XXe, xixe, 20th, Type II^a"),
        (
            "Acme<sup>TM</sup>, X<sup>SM</sup>, 95<sup>TM</sup>, Acme<sup>&reg;</sup>",
            "Acme^TM, X^SM, 95^TM, Acme\xae",
        ),
    ],
)
def test_raised_letters_and_fractions(page: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(f"<p>{page}")
    assert said_in(tmp_path / "a.html") == said
    (tmp_path / "a.md").write_text(f"{page}\n\n|a|b|\n|-|-|\n|1|{page}|\n")
    assert said_in(tmp_path / "a.md").endswith(f"1 {said}")
    index = pyfast.build_index(tmp_path / "a.md", tmp_path / "I")
    assert index.corpus.render(int(index.passages[0])).endswith(said)


RUNS_OF_FORMULA = [
    ("x", ""), ("n", "sup"), ("+1", "sup"), (" = a", ""), ("i", "sub"), (",j", "sub"), (" and 3", ""),
    ("1", "sup"), ("/", ""), ("2", "sub"), (" of 101", ""), ("2", "sub"), (".", ""),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["html", "docx", "pptx", "xlsx"])
def test_formulas_in_several_runs(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "RUNS", RUNS_OF_FORMULA)
    WRITERS[kind](tmp_path / f"a.{kind}")
    assert "x^(n+1) = a_(i,j) and 3 1/2 of 101_2." in said_in(tmp_path / f"a.{kind}")


def test_raised_by_a_style_of_word(tmp_path: Path) -> None:
    file = docx.Document()
    file.styles.add_style("Up", WD_STYLE_TYPE.CHARACTER).font.superscript = True
    paragraph = file.add_paragraph("It has 10")
    paragraph.add_run("12", "Up")
    file.save(str(tmp_path / "a.docx"))
    assert said_in(tmp_path / "a.docx") == "It has 10^12"


@pytest.mark.parametrize("core", ["1,1" * 5000, "a_b" * 5000, "n+" * 5000, "<sup>n" * 1000, "a,*" * 5000])
def test_long_raised_texts_take_little_time(core: str, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(f"<p>x<sup>{core}!</sup> Yield<sup>{core}!</sup>")
    started = time.process_time()
    assert said_in(tmp_path / "a.html")
    assert time.process_time() - started < 10
