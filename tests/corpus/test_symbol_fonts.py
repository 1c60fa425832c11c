"""Ticks and crosses are letters of fonts such as Wingdings: documents and slides have what people see."""

from pathlib import Path

import docx
import pptx
from pptx.util import Inches

from pyfast.corpus import Unread
from pyfast.corpus.formats.office import read_docx, read_pptx

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
    document.save(str(tmp_path / "a.docx"))
    slides.save(str(tmp_path / "a.pptx"))
    for read, name in ((read_docx, "a.docx"), (read_pptx, "a.pptx")):
        found = list(read(name, tmp_path / name))
        assert SHOWN in repr(found).replace("\\ufffd", "\ufffd"), found
        (said,) = [it.reason for it in found if isinstance(it, Unread)]
        assert said == "symbols from fonts were read as \ufffd: Webdings F061"
