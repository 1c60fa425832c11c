"""Ticks and crosses are letters of fonts such as Wingdings: documents and slides have what people see."""

from pathlib import Path

import docx
import openpyxl
import pptx
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls
from openpyxl.cell.rich_text import CellRichText, TextBlock
from openpyxl.cell.text import InlineFont
from openpyxl.styles import Font
from pptx.util import Inches

from pyfast.corpus import Unread
from pyfast.corpus.formats.office import read_docx, read_pptx
from pyfast.corpus.formats.xlsx import read_xlsx

SIGNS = [
    ("Wingdings", "\uf0fc"),
    ("Wingdings", "\u00fb"),
    ("Symbol", "\uf06d"),
    ("Symbol", "m"),
    ("Webdings", "\uf061"),
    ("Arial", "ü"),
]
SHOWN = "✓ ✗ μ μ \ufffd ü"


def test_runs_in_fonts_of_symbols(tmp_path: Path) -> None:
    document, slides = docx.Document(), pptx.Presentation()
    paragraph = document.add_paragraph()
    box = slides.slides.add_slide(slides.slide_layouts[6]).shapes.add_textbox(0, 0, Inches(4), Inches(1))
    for font, letter in SIGNS:
        for runs in (paragraph, box.text_frame.paragraphs[0]):
            run = runs.add_run()
            run.text, run.font.name = letter, font
            runs.add_run().text = " "
    run = paragraph.add_run()
    run.font.name = "Symbol"  # The inserted symbol is changed once.
    run._r.append(parse_xml(f'<w:sym {nsdecls("w")} w:font="Symbol" w:char="F0B1"/>'))
    document.save(str(tmp_path / "a.docx"))
    slides.save(str(tmp_path / "a.pptx"))
    for read, name in ((read_docx, "a.docx"), (read_pptx, "a.pptx")):
        found = list(read(name, tmp_path / name))
        assert (SHOWN + " ±" * (name == "a.docx")) in repr(found).replace("\\ufffd", "\ufffd"), found
        (said,) = [it.reason for it in found if isinstance(it, Unread)]
        assert said == "symbols from fonts were read as \ufffd: Webdings F061"


def test_cells_in_fonts_of_symbols(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append(["Boat", *(font for font, _ in SIGNS)])
    sheet.append(["Ardent", *(letter for _, letter in SIGNS)])
    for column, (font, _) in enumerate(SIGNS, 2):
        sheet.cell(2, column).font = Font(name=font)
    sheet.append(["Brisk", CellRichText(TextBlock(InlineFont(rFont="Wingdings"), "ü"), " Börse")])
    book.save(tmp_path / "a.xlsx")
    table, said = read_xlsx("a", tmp_path / "a.xlsx")
    assert [" ".join(row[1:]).strip() for row in table.rows] == [SHOWN, "✓ Börse"]
    assert said.reason == "symbols from fonts were read as \ufffd: Webdings F061"
