"""PDF files in Arabic, Hebrew and Persian: the reading order is right, whichever program wrote them."""

import html
import re
import shutil
import subprocess
import zlib
from pathlib import Path

import pytest
from fpdf.bidi import BidiParagraph
from fpdf.enums import TextDirection

import pyfast
from pyfast.corpus import TextDocument
from pyfast.corpus.formats.pdf import read_pdf
from pyfast.corpus.formats.right_to_left import Glyph, in_reading_order, is_from_right

HEBREW = [
    "העיר חיפה שוכנת על הר הכרמל ונוסדה בשנת 1905 בידי 42 משפחות.",
    "מנהל הנמל הוא דוד לוי (טלפון 04-8123456) לפי Port Authority Ltd. משנת 2019.",
    "בשנת 2023 ירד מספר הילד(ים) ב-12.5% לעומת 1,250 בשנה הקודמת [ראו הערה 3].",
    'המחיר הוא 99 ₪ או $25; כתובת: www.haifa-port.co.il/he, דוא"ל info@port.co.il.',
    "התאריך 14/03/2025 בשעה 10:30, בין 1948–1967.",
    "1) סעיף ראשון; 2) סעיף שני.",
    "חברת Microsoft Windows 11 ו-Google (לשעבר Alphabet) הודיעו.",
    "הספר Port Authority (2019) נמכר.",
]
ARABIC = [
    "تقع مدينة حلب في شمال سوريا وعدد سكانها 1850 نسمة.",
    "تقرير الميناء: أسس البلدية المهندس أحمد الحلبي (سنة 1868) لأول مرة.",
    "لا إله إلا الله. الإسلام والآن لأجل السلام.",
    "بلغت النسبة ٪١٢٫٥ من ٣٤٥٦ عامل و«الأهرام» جريدة.",
    "هاتف: 04-8123456 وشركة Port Authority Ltd. منذ 2019.",
    "شرکت «ایران خودرو» در سال ۱۳۹۹ با 120 کارمند آغاز شد (برابر با ۲۰۲۰).",
]
MIXED = [
    "The harbour of Haifa (חיפה) has 17 cranes and was founded in 1905.",
    "The words שלום לכולם mean peace, and سلام too.",
]
MIRRORED = str.maketrans("()[]{}«»", ")(][}{»«")


def shown(text: str, from_right: bool) -> str:
    """The characters of a line as they stand on the page, from the left to the right."""
    direction = TextDirection.RTL if from_right else TextDirection.LTR
    paragraph = BidiParagraph(text, base_direction=direction)
    letters = paragraph.get_reordered_characters()
    return "".join(it.character.translate(MIRRORED) if it.embedding_level % 2 else it.character for it in letters)


@pytest.mark.parametrize("text", [*HEBREW, *ARABIC, *MIXED])
def test_a_line_as_it_is_shown_gets_its_reading_order(text: str) -> None:
    from_right = text not in MIXED
    glyphs = [Glyph(letter, place, place, place + 1) for place, letter in enumerate(shown(text, from_right))]
    for order in (glyphs, glyphs[::-1]):
        assert "".join(it.text for it in in_reading_order(order, 1, from_right)) == text


def test_the_direction_of_a_text_is_that_of_most_letters() -> None:
    assert is_from_right(HEBREW[1]) and is_from_right(ARABIC[1]) and not any(map(is_from_right, MIXED))


def test_marks_stay_on_their_letters_and_ligatures_are_written_out() -> None:
    shin, lamed, vav, mem = (Glyph(letter, 9, 4 - at, 5 - at) for at, letter in enumerate("שלום"))
    marked = [Glyph("\u05b8", 9, 4.4, 4.6), mem, vav, lamed, shin, Glyph("\u05b9", 9, 2.4, 2.6)]
    assert "".join(it.text for it in in_reading_order(marked, 1, True)) == "שָלוֹם"
    for pieces in ("لا", "ال"):  # of one glyph, and PDFium can give them in either order
        word = [*(Glyph(it, 9, 2, 3) for it in pieces), Glyph("س", 9, 3, 4), Glyph("م", 9, 1, 2)]
        assert "".join(it.text for it in in_reading_order(word, 1, True)) == "سلام"


def written(path: Path, lines: list[str], how: str, from_right: bool = True) -> Path:
    """Write a PDF file in a font whose characters are all as wide as half of its size."""
    codes = {letter: code for code, letter in enumerate(sorted(set("".join(lines))), 33)}
    content = ["0.25 0 0 -0.25 0 800 cm BT /F 40 Tf 1 0 0 -1 0 0 Tm"]
    for number, line in enumerate(lines, 1):
        placed = [(letter, 100 + 20 * place) for place, letter in enumerate(shown(line, from_right))]
        if how == "one after the other":
            content.append(
                f"1 0 0 -1 100 {120 * number} Tm <{''.join(f'{codes[it]:02x}' for it, _ in placed)}> Tj"
            )
            continue
        for letter, left in placed[::-1] if how == "from the right" else placed:
            move = f"1 0 0 -1 {left} {120 * number} Tm <{codes[letter]:02x}> Tj"
            said = f"/Span <</ActualText <feff{ord(letter):04x}>>> BDC {move} EMC"
            content.append(said if how == "said" and letter.isalpha() else move)
    names = "".join(f"<{code:02x}> <{ord(letter):04x}> " for letter, code in codes.items())
    unicode = (
        "/CIDInit /ProcSet findresource begin 12 dict begin begincmap 1 begincodespacerange <00> <ff> "
        f"endcodespacerange {len(codes)} beginbfchar {names} endbfchar endcmap end end"
    )
    streams = [zlib.compress(it.encode()) for it in ("\n".join([*content, "ET"]), unicode)]
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 900 800]/Contents 5 0 R/Resources<</Font<</F 4 0 R>>>>>>",
        b"<</Type/Font/Subtype/Type1/BaseFont/Courier/FirstChar 33/LastChar 160/ToUnicode 6 0 R/Widths["
        + b"500 " * 128
        + b"]>>",
        *(b"<</Filter/FlateDecode/Length %d>>stream\n%s\nendstream" % (len(it), it) for it in streams),
    ]
    body, places = b"%PDF-1.7\n", []
    for number, it in enumerate(objects, 1):
        places.append(len(body))
        body += b"%d 0 obj%s\nendobj\n" % (number, it)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    size = len(objects) + 1
    end = b"xref\n0 %d\n0000000000 65535 f \n%strailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF"
    path.write_bytes(body + end % (size, table, size, len(body)))
    return path


def text_of(path: Path) -> str:
    (found,) = [it for it in read_pdf("u", path) if isinstance(it, TextDocument)]
    return found.text


@pytest.mark.parametrize("how", ["one after the other", "from the left", "from the right", "said"])
@pytest.mark.parametrize("lines", [HEBREW, ARABIC, MIXED])
def test_a_pdf_has_its_reading_order_in_whatever_order_it_is_written(
    lines: list[str], how: str, tmp_path: Path
) -> None:
    text = text_of(written(tmp_path / "a.pdf", lines, how, lines is not MIXED))
    assert text.replace("\n\n", "\n").split("\n") == lines


def test_a_search_finds_the_words_of_a_right_to_left_pdf(tmp_path: Path) -> None:
    index = pyfast.build_index([written(tmp_path / "a.pdf", ARABIC, "said")], tmp_path / "I")
    (pool,) = index.search(["من أسس البلدية؟ أحمد الحلبي"], 1)
    assert "أسس البلدية المهندس أحمد الحلبي (سنة 1868)" in index.corpus.render(
        int(index.passages[pool.passages[0]])
    )


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium")
@pytest.mark.parametrize("lines", [HEBREW, ARABIC, MIXED])
def test_a_page_that_chromium_prints_has_the_words_of_its_html(lines: list[str], tmp_path: Path) -> None:
    direction = "ltr" if lines is MIXED else "rtl"
    body = "".join(f"<p dir={direction}>{html.escape(line, quote=False)}</p>" for line in lines)
    (tmp_path / "a.html").write_text(f"<!doctype html><meta charset=utf-8><body>{body}")
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer")
    printed = f"--print-to-pdf={tmp_path / 'a.pdf'}"
    subprocess.run(["chromium", *flags, printed, str(tmp_path / "a.html")], check=True, capture_output=True)
    assert re.split(r"\n+", text_of(tmp_path / "a.pdf")) == lines
