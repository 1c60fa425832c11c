"""PDF files: broken words, pages without text, headings by their fonts; and control characters in passages."""

from pathlib import Path

import pytest
from fpdf import FPDF

import pyfast
from pyfast.corpus import TextDocument, Unread
from pyfast.corpus.formats.pdf import _joined, read_pdf
from pyfast.corpus.rendering import fold

BODY = "The keeper of the tower wrote down the weather, and the harbour board kept the book for many years. " * 5


def document(path: Path) -> TextDocument:
    (found,) = [it for it in read_pdf("u", path) if isinstance(it, TextDocument)]
    return found


def lines(made: FPDF, texts: list[str], size: int = 11, style: str = "") -> None:
    made.set_font("helvetica", style, size)
    for text in texts:
        made.cell(0, 6, text, new_x="LMARGIN", new_y="NEXT")


def headings(path: Path) -> list[tuple[int, str]]:
    found = document(path)
    for heading in found.outline.headings or ():
        assert " ".join(found.text[heading.start : heading.end].split()) == heading.text
    return [(heading.depth, heading.text) for heading in found.outline.headings or ()]


def test_words_broken_at_the_end_of_a_line_are_joined(tmp_path: Path) -> None:
    made = FPDF()
    made.add_page()
    lines(
        made,
        ["They paid for a new light-", "house in the year twenty-", "one, and the keeper re-", "tired in 1964."],
    )
    made.output(str(tmp_path / "a.pdf"))
    text = " ".join(document(tmp_path / "a.pdf").text.split())
    assert text == "They paid for a new lighthouse in the year twenty-one, and the keeper retired in 1964."


@pytest.mark.parametrize(
    ("text", "known", "right"),
    [
        ("light\x02house", "", "lighthouse"),
        ("light\ufffehouse", "", "lighthouse"),
        ("light\u00adhouse and light\u00ad\nhouse", "", "lighthouse and lighthouse"),
        ("light-\nhouse, light\u2010\nhouse", "", "lighthouse, lighthouse"),
        ("a well\x02known man", "well-known", "a well-known man"),
        ("in\x02ter\x02est", "", "interest"),
        ("Jean\x02Luc in 1914\x0218", "", "Jean-Luc in 1914-18"),
        ("pre\x02and post-war", "", "pre- and post-war"),
        ("since 2024-05-\n01 and 1990-\n2000", "", "since 2024-05-01 and 1990-2000"),
        ("self\x02taught", "", "self-taught"),
        ("a list:\n- one\n- two", "", "a list:\n- one\n- two"),
        ("Oslo-\nBergen", "", "Oslo-\nBergen"),
        ("one\x0ctwo\x0bthree", "", "one two three"),
    ],
)
def test_the_hyphen_stays_where_the_word_has_it(text: str, known: str, right: str) -> None:
    assert _joined(text, frozenset(known.split())) == right


def test_pages_without_text_are_told_and_the_others_are_read(tmp_path: Path) -> None:
    made = FPDF()
    for text in ("Contract of Holm.", "", "", "Signed in Odda.", ""):
        made.add_page()
        lines(made, [text] if text else [])
    made.output(str(tmp_path / "a.pdf"))
    told: list[Unread] = []
    index = pyfast.build_index([tmp_path / "a.pdf"], tmp_path / "I", on_unread=told.append)
    assert [(it.reason, it.missing) for it in told] == [("pages 2-3, 5 have no text (scanned?)", True)]
    (pool,) = index.search(["signed in Odda"], 5)
    assert "Signed in Odda." in index.corpus.render(int(index.passages[pool.passages[0]]))


def test_large_and_bold_lines_are_headings_if_there_are_no_bookmarks(tmp_path: Path) -> None:
    made = FPDF()
    for name in ("One", "Two", "Three"):
        made.add_page()
        lines(made, ["Harbour yearbook"], 20)
        lines(made, [f"Chapter {name}"], 20, "B")
        made.set_font("helvetica", "", 11)
        made.multi_cell(0, 5, BODY, new_x="LMARGIN", new_y="NEXT")
        lines(made, [f"Notes on {name}"], 11, "B")
        made.set_font("helvetica", "", 11)
        made.multi_cell(0, 5, BODY, new_x="LMARGIN", new_y="NEXT")
        lines(made, [f"Read this: {name} ends here."], 11, "B")
        made.set_font("helvetica", "B", 11)
        for cell in ("Name", f"Year {name}", "City"):
            made.cell(50, 6, cell)
        made.ln()
        lines(made, [f"Page {made.page_no()} of 3"], 14)
    made.output(str(tmp_path / "a.pdf"))
    assert headings(tmp_path / "a.pdf") == [
        (depth, text.format(name))
        for name in ("One", "Two", "Three")
        for depth, text in ((1, "Chapter {}"), (2, "Notes on {}"))
    ]


@pytest.mark.parametrize(
    ("below", "size", "found"),
    [
        (["The port made a profit of 214 million crowns in the year, and has 612 people."], 18, True),
        (["The port made a profit of 214 million crowns in the year,", "and it has 612 people."], 18, True),
        (["The port made a profit of 214 million crowns in the year, and has 612 people."], 13, False),
        (["214 crowns"], 18, False),  # labels above values, as on an invoice or a poster
    ],
)
def test_clearly_larger_lines_are_headings_of_a_short_file(
    below: list[str], size: int, found: bool, tmp_path: Path
) -> None:
    made = FPDF()
    made.add_page()
    names = ["Annual report", "People", "Outlook for 2027"]
    for name in names:
        lines(made, [name], size, "B")
        lines(made, [f"{line} {name}." for line in below], 11)
    made.output(str(tmp_path / "a.pdf"))
    assert headings(tmp_path / "a.pdf") == ([(1, name) for name in names] if found else [])


def test_a_text_in_one_font_has_no_headings(tmp_path: Path) -> None:
    made = FPDF()
    made.add_page()
    made.set_font("helvetica", "B", 12)
    with made.text_columns(ncols=2, gutter=10) as columns:
        columns.write("Short line\n" + BODY * 8)
    made.output(str(tmp_path / "a.pdf"))
    assert headings(tmp_path / "a.pdf") == []
    assert " ".join(document(tmp_path / "a.pdf").text.split()) == f"Short line {' '.join((BODY * 8).split())}"


@pytest.mark.parametrize("code", [*range(0x20), *range(0x7F, 0xA0), 0xFFFE, 0xFFFF, 0x1FFFE, 0xFDD0])
def test_no_line_has_a_control_character(code: int) -> None:
    folded = fold(f"left{chr(code)}right")
    assert folded in ("left right", "leftright") or (code == 9 and folded == "left\tright")


def test_no_passage_has_a_control_character_and_the_text_stays(tmp_path: Path) -> None:
    text = "A bell\x07 rang\x02 in\x0cOdda\x85 at\x9f noon."
    (tmp_path / "a.txt").write_text(text)
    (tmp_path / "b.csv").write_text("name,note\nOdda,the\x01 town\x1f hall\n")
    index = pyfast.build_index([tmp_path], tmp_path / "I")
    for segment in range(len(index.corpus)):
        assert index.corpus.render(segment).isprintable()
    assert [it.text for it in pyfast.corpus.decode(index.corpus) if isinstance(it, TextDocument)] == [text]


def test_powers(tmp_path: Path) -> None:
    """Numbers with raised digits are no other numbers, and lowered ones stay."""
    fpdf = pytest.importorskip("fpdf")
    file = fpdf.FPDF()
    file.add_page()
    for size, heading in ((20, True), (12, False)):
        for said, place in (
            ("A lake of 10", "LINE"),
            ("6", "SUP"),
            (" litres, 3 x 10" if heading else " litres, or 10", "LINE"),
            ("-12", "SUP"),
            (" m, CO", "LINE"),
            ("2", "SUB"),
            (" and 45 of 1,234", "LINE"),
        ):
            file.set_font("helvetica", size=size)
            file.char_vpos = place
            file.write(10, said)
        file.char_vpos = "LINE"
        file.ln()
        file.ln()
    file.set_font("helvetica", size=12)
    for number in range(12):
        file.cell(0, 10, f"This is sentence {number} of the text, which has no powers.")
        file.ln()
    file.output(str(tmp_path / "p.pdf"))
    (document,) = read_pdf("p", tmp_path / "p.pdf")
    assert isinstance(document, TextDocument)
    text = " ".join(document.text.split())
    assert (
        "A lake of 10^6 litres, 3 x 10^-12 m, CO2 and 45 of 1,234 A lake of 10^6 litres, or 10^-12 m, CO2" in text
    )
    assert text.count("10^6") == 2


@pytest.mark.parametrize(("lift", "how"), [(-3, "lowered"), (4, "raised")])
def test_a_line_that_goes_on_higher_or_lower_is_one_line(lift: int, how: str, tmp_path: Path) -> None:
    """Each piece of text has a place of its own, as ReportLab writes it."""
    made = FPDF(unit="pt")
    made.add_page()
    for down in (60, 76):
        x = 50.0
        for text, size, up in (
            ("Water is H", 12, 0),
            ("2", 9, lift),
            ("O and 10", 12, 0),
            ("6", 9, 4),
            (" l.", 12, 0),
        ):
            made.set_font("helvetica", size=size)
            made.text(x, down - up, text)
            x += made.get_string_width(text)
    made.text(50, 92, "A")  # a short line above one that begins further right
    made.text(60, 108, "Last line")
    made.output(str(tmp_path / "a.pdf"))
    water = "Water is H2O" if how == "lowered" else "Water is H^2O"
    expected = [f"{water} and 10^6 l."] * 2 + ["A", "Last line"]
    assert document(tmp_path / "a.pdf").text.splitlines() == expected


@pytest.mark.parametrize(
    ("shade", "opacity", "place", "is_heading"),
    [
        (200, 1, 90, False),
        (0, 0.3, 90, False),
        (0, 1, 90, True),  # a stamp in full colour cannot be told from a heading
        (200, 1, 250, True),  # below the text
    ],
)
def test_a_light_text_across_other_lines_is_no_heading(
    shade: int, opacity: float, place: int, is_heading: bool, tmp_path: Path
) -> None:
    made = FPDF()
    for name in ("One", "Two"):
        made.add_page()
        lines(made, [f"Chapter {name}"], 20)
        lines(made, ["The port made a profit of 214 million crowns in the year."] * 20)
        made.set_text_color(255)
        lines(made, [f"White {name}"], 16)
        with made.local_context(fill_opacity=opacity):
            made.set_font("helvetica", "B", 70)
            made.set_text_color(shade)
            made.text(30, place, "DRAFT" if name == "Two" else "")
        made.set_text_color(0)
    made.output(str(tmp_path / "a.pdf"))
    found = [text for _, text in headings(tmp_path / "a.pdf")]
    assert sorted(found) == ["Chapter One", "Chapter Two", *["DRAFT"] * is_heading, "White One", "White Two"]


@pytest.mark.parametrize("angle", [45, 315, 30])
def test_a_watermark_is_no_heading(angle: int, tmp_path: Path) -> None:
    made = FPDF()
    for name in ("One", "Two"):
        made.add_page()
        if name == "Two":
            made.set_font("helvetica", "", 60)
            with made.rotation(angle, 100, 150):
                made.text(60, 150, "DRAFT COPY")
        lines(made, [f"Chapter {name}"], 20)
        lines(made, ["The port made a profit of 214 million crowns in the year."] * 20)
    made.output(str(tmp_path / "a.pdf"))
    assert headings(tmp_path / "a.pdf") == [(1, "Chapter One"), (1, "Chapter Two")]


PORT = (
    "The keeper of the tower wrote down the weather every day, and the harbour board kept his book for years. "
    "In the winter of 1911 the lamp went out twice, because the oil had frozen in its pipes and nobody could "
    "climb the icy stairs before noon. A new lamp came from Bergen in the spring."
)
SHIPS = (
    "Ships from the north pass the skerries at night, so that a light without interruption is essential for them. "
    "The pilots asked for a second tower on the western island, which parliament refused to pay for until two "
    "steam- ers had run aground there in one month of autumn. It was built in 1923, and painted red."
)
NETS = PORT.replace("tower", "net loft").replace("lamp", "boat")


def wrapped(made: FPDF, text: str, width: float) -> list[str]:
    found = [""]
    for word in text.split():
        if found[-1].endswith("-") or made.get_string_width(f"{found[-1]} {word}") > width:
            found.append(word)
        else:
            found[-1] = f"{found[-1]} {word}".strip()
    return found


def across(path: Path, texts: list[str], gap: float = 14, shift: float = 0, by_column: bool = False) -> None:
    """A page with texts side by side, which are drawn line by line across all of them."""
    made = FPDF(unit="pt")
    made.add_page()
    made.set_font("helvetica", "B", 18)
    made.text(50, 60, "The lighthouse of Varn")
    made.set_font("helvetica", "", 10)
    width = (495 - gap * (len(texts) - 1)) / len(texts)
    placed = [
        (90 + 12 * row + shift * column, column, line)
        for column, text in enumerate(texts)
        for row, line in enumerate(wrapped(made, text, width))
    ]
    for y, column, line in sorted(placed, key=lambda it: it[1] if by_column else it[0]):
        made.text(50 + column * (width + gap), y, line)
    below = max(y for y, *_ in placed) + 12
    made.text(
        50, below, "Below them, a line runs over the whole width of the page, as a conclusion of the article."
    )
    made.set_font("helvetica", "", 6)
    last = max(y for y, column, _ in placed if column == 1), placed[-1][2]
    made.output(str(path))
    assert last


@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("shift", [0, 5])
@pytest.mark.parametrize("texts", [[PORT, SHIPS], [PORT, SHIPS, NETS]])
def test_columns_are_read_one_after_another(
    texts: list[str], shift: float, by_column: bool, tmp_path: Path
) -> None:
    across(tmp_path / "a.pdf", texts, shift=shift, by_column=by_column)
    found = " ".join(document(tmp_path / "a.pdf").text.split())
    assert found.startswith("The lighthouse of Varn " + " ".join(texts).replace("steam- ers", "steamers"))
    assert found.endswith("article.") and headings(tmp_path / "a.pdf") == [(1, "The lighthouse of Varn")]


TERMS = ["a lamp", "the old tower", "a book of the weather", "two steamers", "oil", "an icy stair"]
CELLS = [
    [*zip(TERMS, (f"{number * 37} crowns for each year" for number in range(6)), strict=True)],
    [(f"the {name} of the harbour board, since", f"it is {name} of the year, and more of") for name in TERMS],
    [(f"{name.capitalize()} of the port is old.", PORT[:80].lower()) for name in TERMS],
    [*zip((PORT.split(". ")[0] + "." for _ in range(4)), (SHIPS.split(" The")[0] for _ in range(4)), strict=True)],
]


@pytest.mark.parametrize("pad", [0, 5])
@pytest.mark.parametrize("rows", CELLS)
def test_rows_of_a_table_are_not_torn(rows: list[tuple[str, str]], pad: float, tmp_path: Path) -> None:
    made = FPDF(unit="pt")
    made.add_page()
    made.set_font("helvetica", "", 10)
    y, drawn = 60.0, []
    for row in rows:
        cells = [wrapped(made, cell, 230) for cell in row]
        for number in range(max(map(len, cells))):
            for column, cell in enumerate(cells):
                if number < len(cell):
                    made.text(50 + 250 * column, y, cell[number])
                    drawn += cell[number].split()
            y += 12
        y += pad
    made.output(str(tmp_path / "a.pdf"))
    assert document(tmp_path / "a.pdf").text.split() == drawn


@pytest.mark.parametrize(
    ("drawn", "read"),
    [
        ("W A R R A N T Y", "WARRANTY"),
        ("W A R R A N T Y   P E R I O D  1 2", "WARRANTY PERIOD 12"),
        ("Ü b e r s i c h t", "Übersicht"),
        ("A B C D E F", "A B C D E F"),
        ("A C B D A B", "A C B D A B"),
        ("M T W T F S S", "M T W T F S S"),
        ("1 9 8 4 5", "1 9 8 4 5"),
        ("W      A      R      R      A      N      T      Y", "W A R R A N T Y"),
    ],
)
def test_words_that_are_spaced_out(drawn: str, read: str, tmp_path: Path) -> None:
    made = FPDF()
    made.add_page()
    lines(made, [drawn], 20)
    lines(made, [BODY[:90]] * 5)
    made.output(str(tmp_path / "a.pdf"))
    assert document(tmp_path / "a.pdf").text.split("\n")[0] == read
    if " " not in read:
        assert headings(tmp_path / "a.pdf") == [(1, read)]
        index = pyfast.build_index(tmp_path / "a.pdf", tmp_path / "I")
        assert len(index.search([read.lower()], 1)[0].passages) == 1


def with_form(path: Path, drawn: list[tuple[int, int, str]], fields: list[str]) -> None:
    """Write a page with these texts at places, and these annotations."""
    text = "".join(f"BT /F1 12 Tf {x} {y} Td ({said}) Tj ET " for x, y, said in drawn)
    parts = [
        f"<< /Type /Catalog /Pages 2 0 R /AcroForm << /DA (/F1 12 Tf 0 g) /Fields [{refs(fields)}] >> >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 5 0 R "
        f"/Resources << /Font << /F1 4 0 R >> >> /Annots [{refs(fields)}] >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        f"<< /Length {len(text)} >>\nstream\n{text}\nendstream",
        *(f"<< /Type /Annot /P 3 0 R {it} >>" for it in fields),
    ]
    data, places = b"%PDF-1.7\n", []
    for number, part in enumerate(parts, 1):
        places.append(len(data))
        data += f"{number} 0 obj\n{part}\nendobj\n".encode()
    table = "".join(f"{it:010d} 00000 n \n" for it in places)
    end = f"trailer << /Size {len(parts) + 1} /Root 1 0 R >>\nstartxref\n{len(data)}\n%%EOF\n"
    path.write_bytes(data + f"xref\n0 {len(parts) + 1}\n0000000000 65535 f \n{table}{end}".encode())


def refs(fields: list[str]) -> str:
    return " ".join(f"{number} 0 R" for number in range(6, 6 + len(fields)))


def field(kind: str, name: str, value: str, *box: int, more: str = "/F 4") -> str:
    place = " ".join(map(str, box))
    return f"/Subtype /Widget /FT /{kind} /T ({name}) /V {value} /Rect [{place}] /DA (/F1 12 Tf 0 g) {more}"


def test_what_is_filled_into_a_form_is_read(tmp_path: Path) -> None:
    drawn = [
        *((50, 750, "Application"), (50, 720, "Name:"), (300, 720, "City:"), (75, 690, "Member")),
        *((75, 670, "Guest"), (50, 640, "First name"), (300, 640, "Last name"), (50, 580, "Remarks:")),
    ]
    ticked, empty = "/F 4 /AS /Yes", "/F 4 /AS /Off"
    fields = [
        field("Tx", "b", "(Odda)", 340, 715, 500, 735),
        field("Tx", "a", "(Kaja Berg)", 90, 715, 290, 735),
        field("Btn", "c", "/Yes", 50, 688, 65, 703, more=f"{ticked} /AP << /N << /Yes 5 0 R /Off 5 0 R >> >>"),
        field("Btn", "d", "/Off", 50, 668, 65, 683, more=f"{empty} /AP << /N << /Yes 5 0 R /Off 5 0 R >> >>"),
        field("Tx", "e", "(Kaja)", 50, 615, 290, 635),
        field("Tx", "f", "<FEFF00C500730065>", 300, 615, 500, 635),
        field("Tx", "g", "(gone)", 400, 575, 500, 595, more="/F 2"),
        field("Tx", "h", "()", 400, 550, 500, 570),
        field("Ch", "i", "(Norway)", 120, 400, 320, 420, more="/F 4 /Ff 131072 /Opt [(Norway) (Sweden)]"),
        "/Subtype /FreeText /Contents (Back door.) /Rect [120 575 380 595] /F 4 /DA (/F1 12 Tf 0 g)",
        "/Subtype /Text /Contents (A comment) /Rect [500 575 520 595] /F 4",
    ]
    with_form(tmp_path / "a.pdf", drawn, fields)
    assert document(tmp_path / "a.pdf").text.splitlines() == [
        "Application",
        "Name: Kaja Berg City: Odda",
        "☒ Member",
        "☐ Guest",
        "First name Kaja Last name Åse",
        "Remarks: Back door.",
        "Norway",
    ]
    with_form(tmp_path / "b.pdf", [], fields[:1])
    assert document(tmp_path / "b.pdf").text == "Odda"
    xfa = (tmp_path / "a.pdf").read_bytes().replace(b"/AcroForm <<", b"/NeedsRendering true /AcroForm << /XFA (x)")
    (tmp_path / "c.pdf").write_bytes(xfa)
    reasons = [it.reason for it in read_pdf("u", tmp_path / "c.pdf") if isinstance(it, Unread)]
    assert reasons == ["the form in this file (XFA) was not read; print it as a PDF"]


def test_fonts_that_do_not_name_their_letters_are_told(tmp_path: Path) -> None:
    said = "The buyer pays 40 crowns."
    with_form(tmp_path / "a.pdf", [(50, 700, said * 2)], [])
    data = (tmp_path / "a.pdf").read_bytes()
    descendant = (
        b"<< /Type /Font /Subtype /CIDFontType2 /BaseFont /X /CIDSystemInfo << /Registry (Adobe) /Ordering "
    )
    descendant += (
        b"(Identity) /Supplement 0 >> /FontDescriptor << /Type /FontDescriptor /FontName /X /Flags 4 >> >>"
    )
    font = b"/Type0 /BaseFont /X /Encoding /Identity-H /DescendantFonts [" + descendant + b"] >>"
    (tmp_path / "b.pdf").write_bytes(data.replace(b"/Type1 /BaseFont /Helvetica >>", font))
    with_letters, without = ([*read_pdf("u", tmp_path / name)] for name in ("a.pdf", "b.pdf"))
    assert len(with_letters) == 1
    reasons = [it.reason for it in without if isinstance(it, Unread)]
    assert reasons == ["page 1 has text in fonts that do not name their letters; run OCR"]
