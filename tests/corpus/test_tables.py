# ruff: noqa: E501
"""Tables and pages as people make them."""

from __future__ import annotations

import datetime
import itertools
from pathlib import Path
from typing import Any

import docx
import openpyxl
import pptx
import pytest
from docx.opc.constants import CONTENT_TYPE, RELATIONSHIP_TYPE
from docx.opc.packuri import PackURI
from docx.opc.part import Part
from docx.oxml import parse_xml
from hypothesis import given
from hypothesis import strategies as st
from openpyxl.utils.datetime import CALENDAR_MAC_1904, WINDOWS_EPOCH
from pptx.util import Inches

import pyfast
from pyfast.corpus import Table, TextDocument, Unread, read
from pyfast.corpus.formats.xlsx import shown
from pyfast.corpus.grids import Grid, Span, grid_of, table_parts
from pyfast.errors import InputError


def documents(path: Path, data: str | bytes | None = None) -> list[Any]:
    if data is not None:
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return list(read([path], []))


def tables(path: Path, data: str | bytes | None = None) -> list[Table]:
    return [it for it in documents(path, data) if isinstance(it, Table)]


def text_of(path: Path, data: str | bytes | None = None) -> str:
    return "".join(it.text for it in documents(path, data) if isinstance(it, TextDocument))


# --- grids

cells = st.tuples(st.text("abc", max_size=2), st.integers(0, 4), st.integers(1, 4))


def occupied(rows: list[list[tuple[str, int, int]]]) -> dict[tuple[int, int], str]:
    """Slowly: which cell of HTML covers which place, if none overlap."""
    taken: dict[tuple[int, int], str] = {}
    for y, row in enumerate(rows):
        for text, down, across in row:
            x = next(x for x in itertools.count() if (y, x) not in taken)
            free = itertools.takewhile(lambda x, y=y: (y, x) not in taken, range(x, x + across))
            for at, k in itertools.product(list(free), range(down or len(rows))):
                if y + k < len(rows):
                    taken.setdefault((y + k, at), text)
    return taken


@given(st.lists(st.lists(cells, max_size=4), max_size=5))
def test_cells_lie_where_they_cover(rows: list[list[tuple[str, int, int]]]) -> None:
    named = [[(f"{y}.{x}", down, across) for x, (_, down, across) in enumerate(row)] for y, row in enumerate(rows)]
    laid, spans = grid_of(named, 1000)
    taken = occupied(named)
    columns: list[list[str]] = []
    for x in range(max((x for _, x in taken), default=-1) + 1):
        column = [taken.get((y, x), "") for y in range(len(rows))]
        # Without a cell that begins in it, a column only repeats the one before it.
        if any(
            text
            and text == taken[y, x]
            and taken.get((y, x - 1)) != text
            and (y == 0 or taken.get((y - 1, x)) != text)
            for y, text in enumerate(column)
        ):
            columns.append(column)
    assert laid == [list(row) for row in zip(*columns, strict=True)] or (not columns and not any(laid))
    for span in spans:
        assert laid[span.row][span.column] == laid[span.row + span.rows - 1][span.column]


def test_absurd_spans_are_refused_or_cut() -> None:
    laid, _ = grid_of([[("title", 1, 1_000_000)], [("a", 1, 1), ("b", 1, 1)]], 1000)
    assert laid == [["title", "title"], ["a", "b"]]
    with pytest.raises(InputError, match="cover more than"):
        grid_of([[("x", 0, 1000)] for _ in range(9000)], 1000)


@pytest.mark.parametrize(
    ("grid", "caption", "header", "rows"),
    [
        (Grid([["Suppliers 2025", "", ""], ["", "", ""], ["Name", "City", "Since"], ["Holm", "Odda", "3"]]),
         "Suppliers 2025", ("Name", "City", "Since"), [("Holm", "Odda", "3")]),
        (Grid([["Name", "", ""], ["Bob", "12", "3"]]), "", ("Name", "", ""), [("Bob", "12", "3")]),
        (Grid([["Name", "City"], ["Bob", ""], ["", "x"]]), "", ("Name", "City"), [("Bob", ""), ("", "x")]),
        (Grid([["Port", "Crew", ""], ["", "Officers", "Ratings"], ["Odda", "1", "2"]]),
         "", ("Port", "Crew Officers", "Crew Ratings"), [("Odda", "1", "2")]),
        (Grid([["Name", "Name", "Age"], ["Ada", "Lund", "7"], ["Bo", "Dahl", "8"]], (Span(0, 0, 1, 2),)),
         "", ("Name", "Name", "Age"), [("Ada", "Lund", "7"), ("Bo", "Dahl", "8")]),
        (Grid([["", "Crew", "Crew"], ["Port", "Officers", "Ratings"], ["Odda", "1", "2"]], (Span(0, 1, 1, 2),)),
         "", ("Port", "Crew Officers", "Crew Ratings"), [("Odda", "1", "2")]),
        (Grid([["Born", "1815"], ["Died", "1852"]], header_rows=0), "", (), [("Born", "1815"), ("Died", "1852")]),
        (Grid([]), "", (), []),
        (Grid([["a", "b"]]), "", ("a", "b"), []),
    ],
)  # fmt: skip
def test_caption_header_and_rows(grid: Grid, caption: str, header: Any, rows: Any) -> None:
    assert table_parts(grid)[:3] == (caption, header, rows)


@given(st.lists(st.lists(st.text("ab 1", max_size=3), min_size=3, max_size=3), max_size=30))
def test_no_text_of_a_grid_is_lost(rows: list[list[str]]) -> None:
    caption, header, below, *_ = table_parts(Grid(rows))
    said = " ".join([caption, *header, *itertools.chain.from_iterable(below)])
    assert all(text in said for row in rows for text in row)


def test_rows_have_the_numbers_of_their_files(tmp_path: Path) -> None:
    """Each row has a name of its own, which other libraries find where the number says."""
    book = openpyxl.Workbook()
    sheet = book.active
    title = {1: ["Crates 2025"], 3: ["crate", "mass", "port"]}
    below = {4: ["k4", 1, "Odda"], 5: ["k5", 2, "Bodo"], 9: ["k9", 3, "Oslo"], 10: ["k10", 4, ""]}
    again = {13: ["lock", "keys"], 14: ["k14", 7], 15: ["k15", 8]}
    for number, row in (title | below | again).items():
        for column, value in enumerate(row, 1):
            sheet.cell(number, column, value)
    sheet.merge_cells("C4:C5")
    book.save(tmp_path / "a.xlsx")
    sheet = openpyxl.load_workbook(tmp_path / "a.xlsx").active
    found = tables(tmp_path / "a.xlsx")
    placed = {table.number_of(k): row for table in found for k, row in enumerate(table.rows)}
    assert len(found) == 2 and sorted(placed) == [4, 5, 9, 10, 14, 15]
    assert all(sheet.cell(number, 1).value == row[0] for number, row in placed.items())

    lines = ["Crates of 2025", "", "crate,mass,note", 'k4,1,"two', 'lines"', "", "k7,2,x", ",,", "k9,3,y"]
    lines += [f"k{number},{number},z" for number in range(10, 60)] + ['k60,"4"x,', "k61,5,v"]
    (table,) = tables(tmp_path / "a.csv", "\n".join(lines) + "\n")
    named = {table.number_of(k): row[0] for k, row in enumerate(table.rows)}
    assert len(named) == 54 and all(lines[number - 1].startswith(f"{name},") for number, name in named.items())

    (tmp_path / "a.jsonl").write_text('{"crate": "k1", "mass": 3}\n\n{"crate": broken\n{"crate": "k4"}\n')
    (table,) = tables(tmp_path / "a.jsonl")
    assert [(table.number_of(k), row[0]) for k, row in enumerate(table.rows)] == [(1, "k1"), (4, "k4")]

    (table,) = tables(tmp_path / "a.md", "# Crates\n\n| crate | mass |\n|---|---|\n| k2 | 3 |\n| k3 | 4 |\n")
    assert [table.number_of(k) for k in range(2)] == [2, 3]
    assert Table("t", "T", "", ("a",), (("b",),)).number_of(0) == 1


@pytest.mark.parametrize("title", ["Staff", "Staff 2025"])
@pytest.mark.parametrize("rows", [[("Ann", "33"), ("Bo", "44")], [("Ann", "Odda"), ("Bo", "Bodo")]])
def test_a_title_of_one_word_is_a_caption(title: str, rows: list[tuple[str, str]], tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    for row in ((title,), ("Name", "Place"), *rows):
        book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    (table,) = tables(tmp_path / "a.xlsx")
    assert (table.section, table.header, list(table.rows)) == (title, ("Name", "Place"), rows)


def test_one_uneven_record_does_not_hide_the_delimiter(tmp_path: Path) -> None:
    lines = ["Name;City;Plan", *(f"N{k};C{k};P{k}" for k in range(200))]
    for row, changed in ((1, "N0;C0;P0; late"), (150, "N149;C149;P149; late"), (3, "N2;C2")):
        (table,) = tables(tmp_path / "a.csv", "\n".join([*lines[:row], changed, *lines[row + 1 :]]) + "\n")
        assert table.header == ("Name", "City", "Plan") and len(table.rows) == 200
        assert table.rows[row - 1] == tuple(changed.split(";"))
    text = "".join(f"{line}\n" for line in ("text", "Hello; you there", "One; two; three", "Nothing"))
    (table,) = tables(tmp_path / "b.csv", text)
    assert table.header == ("text",) and len(table.rows) == 3


def test_tables_of_slides_have_a_page(tmp_path: Path) -> None:
    slides = pptx.Presentation()
    for number in range(1, 5):
        slide = slides.slides.add_slide(slides.slide_layouts[5])
        if number % 2 == 0:
            table = slide.shapes.add_table(2, 2, Inches(1), Inches(1), Inches(4), Inches(1)).table
            for place, text in enumerate(("crate", "mass", f"k{number}", "3")):
                table.cell(place // 2, place % 2).text = text
    slides.save(tmp_path / "a.pptx")
    assert [(table.page, table.rows[0][0]) for table in tables(tmp_path / "a.pptx")] == [(2, "k2"), (4, "k4")]


# --- sheets


def fleet(path: Path) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Crews"
    day = datetime.datetime
    for row in [
        ["Fleet report 2025"], [], ["Port", "Vessel", "Crew", None, "Refit"], [None, None, "Officers", "Ratings", "Date", "Share"],
        ["Tromso", "Ardent", 5, 21, day(2025, 3, 14), 0.375], [None, "Bold", 4, 18, day(2025, 6, 2), 0.5],
        ["Total", None, "=SUM(C5:C6)", "=SUM(D5:D6)"],
    ]:  # fmt: skip
        sheet.append(row)
    for merged in ("A1:F1", "A3:A4", "B3:B4", "C3:D3", "E3:F3", "A5:A6"):
        sheet.merge_cells(merged)
    for row in (5, 6):
        sheet.cell(row, 5).number_format = "DD.MM.YYYY"
        sheet.cell(row, 6).number_format = "0.0%"
    hidden = book.create_sheet("Notes")
    hidden.append(["Secret", "Value"])
    hidden.append(["alpha", 1])
    hidden.sheet_state = "hidden"
    book.save(path)


def test_a_sheet_with_merged_heads_formats_and_formulas(tmp_path: Path) -> None:
    fleet(tmp_path / "fleet.xlsx")
    unread: list[Unread] = []
    crews, notes = read([tmp_path / "fleet.xlsx"], unread)
    assert isinstance(crews, Table) and isinstance(notes, Table)
    assert crews.section == "Crews > Fleet report 2025"
    assert crews.header == ("Port", "Vessel", "Crew Officers", "Crew Ratings", "Refit Date", "Refit Share")
    assert crews.rows[:2] == (
        ("Tromso", "Ardent", "5", "21", "2025-03-14", "37.5%"),
        ("Tromso", "Bold", "4", "18", "2025-06-02", "50.0%"),
    )
    assert crews.rows[2][0] == "Total" and not any(crews.rows[2][1:])
    assert notes.rows == (("alpha", "1"),)
    formulas, hidden = unread
    assert (
        formulas.missing and "sheet Crews: 2 cells are formulas without a stored value: C7, D7" in formulas.reason
    )
    assert not hidden.missing and "sheet Notes was read, although it is hidden" in hidden.reason


def test_a_sheet_with_a_title_and_several_tables(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    for row in [["Ships 2024"], ["Name", "Tons"], ["Ardent", 500], [], ["Bold", 700], [], ["Ports"], [], ["Port", "Depth"], ["Odda", 9]]:  # fmt: skip
        book.active.append([None, *row])
    book.save(tmp_path / "x.xlsx")
    ships, ports = tables(tmp_path / "x.xlsx")
    assert (ships.uri, ships.section, ships.header) == ("x.xlsx", "Ships 2024", ("Name", "Tons"))
    assert ships.rows == (("Ardent", "500"), ("Bold", "700"))
    assert (ports.uri, ports.section) == ("x.xlsx#table-2", "Ports")
    assert (ports.header, ports.rows) == (("Port", "Depth"), (("Odda", "9"),))


def test_groups_of_rows_stay_in_one_table(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    for row in [["a", "b"], ["x", 1], [], ["y", 2], [], ["w", "n/a"], ["v", 7], [], ["Source: us"]]:
        book.active.append(row)
    book.save(tmp_path / "x.xlsx")
    (table,) = tables(tmp_path / "x.xlsx")
    assert table.rows == (("x", "1"), ("y", "2"), ("w", "n/a"), ("v", "7"), ("Source: us",))


def test_a_sheet_as_far_as_it_goes(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append(["Name", "Flag", "Big", "Error"])
    sheet.append(["Ada", True, 12345678901234567890, "#DIV/0!"])
    sheet["A4"] = "all columns"
    sheet.merged_cells.add("A4:XFD1048576")  # merge_cells would make each cell
    book.save(tmp_path / "x.xlsx")
    (table,) = tables(tmp_path / "x.xlsx")
    assert table.rows[0] == ("Ada", "TRUE", "12345678901234570000", "#DIV/0!")  # openpyxl writes 16 digits
    assert table.rows[1] == ("all columns",)


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        (0.375, "0.0%", "37.5%"), (1234567.891, "#,##0.00", "1,234,567.89"), (42, "00000", "00042"),
        (-5.5, "#,##0.00;[Red](#,##0.00)", "(5.50)"), (1234.5, '"$"#,##0.00', "$1,234.50"),
        (1234.5, "[$€-407] #,##0.00", "€ 1,234.50"), (0.1 + 0.2, "General", "0.3"), (1e20, "General", "1" + "0" * 20),
        (12345.678, "0.00E+00", "1.23E+04"), (1234567, '0.0,,"M"', "1.2M"), (0.5, "# ?/?", "0.5"), (2.5, "0", "3"),
        (0, '#,##0;-#,##0;"-"', "-"), (7, ";;;", "7"), (5551234567, "(000) 000-0000", "(555) 123-4567"),
        (-1234.5, '_-* #,##0.00\\ "€"_-;\\-* #,##0.00\\ "€"_-', "-1,234.50 €"), (-3, "0.0", "-3.0"), (12, "[>10]0;0.0", "12"),
        (-5.25, "0.00;[Red]0.00", "-5.25"), (5.25, "0.00;[Red]0.00", "5.25"), (-0.001, "0.00;[Red]0.00", "0.00"),
        (-5, '+0.0 "kg";[color 3]0.0\\ "kg"', "-5.0 kg"), (-5, "0;[Red]-0", "-5"), (-5, "[Blue]0;[Red](0)", "(5)"),
        (-5, '0%;[Red]"▼ "0%', "▼ 500%"), (-5, "0;0", "5"), (-5, "0;[$-409]0", "5"),
        (12345678, "##0.0E+0", "12.3E+6"), (0.00012345, "##0.0E+0", "123.5E-6"), (999960, "##0.0E+0", "1.0E+6"),
        (9996, "0.00E+00", "1.00E+04"), (0, "##0.0E+0", "0.0E+0"), (0, "0;;", ""), (-5, "0;;", "-5"), (0, ";;;", "0"),
        (5551234, "(###) ###-####", "() 555-1234"), (5, "##-##", "-5"),
    ],
)  # fmt: skip
def test_numbers_as_the_sheet_shows_them(value: float, form: str, text: str) -> None:
    assert shown(value, form) == text


@given(st.floats() | st.integers(), st.text('0#?,.%;E+-"\\\\_*[]@/ $a', max_size=12))
def test_any_number_in_any_format_is_some_text(value: float, form: str) -> None:
    assert shown(value, form).strip() or value == 0  # `#` shows no zero.


@given(st.integers(-(10**12), 10**12), st.integers(0, 4))
def test_numbers_with_thousands_are_those_of_python(value: int, digits: int) -> None:
    form = "#,##0" + ("." + "0" * digits if digits else "")
    assert shown(value, form) == f"{value:,.{digits}f}"


# --- pages


def test_a_page_with_spans_and_hidden_parts(tmp_path: Path) -> None:
    page = """<html><head><title>Lakes</title></head><body><nav>Home</nav><div role="navigation">Menu</div>
      <p style="color:red; DISPLAY: none">gone1</p><p hidden>gone2</p><p aria-hidden="true">gone3</p>
      <template>gone4</template><p style="visibility:hidden">gone5</p><p>Seen <span hidden>gone6</span>here.</p>
      <h2>Sizes</h2><table><caption>By depth</caption><tr><th rowspan=2>Lake</th><th colspan=2>Depth</th></tr>
      <tr><th>mean</th><th>max</th></tr><tr><td rowspan=2>Varn</td><td>27</td><td>106</td></tr><tr><td>28</td><td>107</td>
      </tr><tr><td>Mjosa</td><td>150</td><td><table><tr><td>449</td></tr></table></td></tr></table>
      <footer>gone7</footer></body></html>"""
    text, table = documents(tmp_path / "p.html", page)
    assert text.text == "Seen here.\n\nSizes\n\n"
    (heading,) = text.outline.headings
    assert text.text[heading.start : heading.end] == "Sizes\n\n" and heading.text == "Sizes"
    assert table.section == "Sizes > By depth" and table.header == ("Lake", "Depth mean", "Depth max")
    assert table.rows == (("Varn", "27", "106"), ("Varn", "28", "107"), ("Mjosa", "150", "449"))


def test_bars_breaks_and_stars_in_the_cells_of_a_page(tmp_path: Path) -> None:
    page = """<table><tr><th>Product</th><th>Plug|Type</th><th>Price</th></tr><tr><td><b>Cord</b></td>
      <td>USB-A|USB-C</td><td>4.50<br>net</td></tr></table>"""
    (table,) = tables(tmp_path / "p.html", page)
    assert (table.header, table.rows) == (
        ("Product", "Plug|Type", "Price"),
        (("Cord", "USB-A|USB-C", "4.50\nnet"),),
    )


@pytest.mark.parametrize(
    ("inner", "header", "rows"),
    [
        ("<tr><th colspan=2>Ada</th></tr><tr><th>Born</th><td>1815</td></tr><tr><th>Died</th><td>1852</td></tr>",
         (), (("Born", "1815"), ("Died", "1852"))),
        ("<tr><td></td><th>2019</th></tr><tr><th>Odda</th><td>5</td></tr>", ("", "2019"), (("Odda", "5"),)),
        ("<thead><tr><td>a</td><td>b</td></tr></thead><tbody><tr><td rowspan=9>1</td><td>2</td></tr></tbody>"
         "<tbody><tr><td>3</td><td>4</td></tr></tbody>", ("a", "b"), (("1", "2"), ("3", "4"))),
        ("<tr><td>a<td>b<tr><td rowspan=0>1<td>2<tr><td>3", ("a", "b"), (("1", "2"), ("1", "3"))),
        ("<tr><th>a</th><th style='display:none'>x</th><th>b</th></tr><tr><td>1</td><td hidden>9</td><td>2</td></tr>",
         ("a", "b"), (("1", "2"),)),
        ("<tr><th>a</th><th>b</th></tr>", (), (("a", "b"),)),
        ("<tr><th>a</th><th>b</th></tr><tr><th colspan=2>North</th></tr><tr><td>x</td><td>5</td></tr>",
         ("a", "b"), (("x", "5"),)),
    ],
)  # fmt: skip
def test_tables_of_pages(tmp_path: Path, inner: str, header: Any, rows: Any) -> None:
    (table,) = tables(tmp_path / "p.html", f"<table>{inner}</table>")
    assert (table.header, table.rows) == (header, rows)


def test_a_table_of_absurd_spans_falls_alone(tmp_path: Path) -> None:
    bad = "<table>" + "<tr><td rowspan=0 colspan=900>x</td><td>y</td></tr>" * 9000 + "</table>"
    (tmp_path / "p.html").write_text(f"<p>Before.</p>{bad}<table><tr><td>a<td>b<tr><td>c<td>d</table>")
    unread: list[Unread] = []
    text, table = read([tmp_path / "p.html"], unread)
    assert isinstance(text, TextDocument) and text.text == "Before.\n\n"
    assert isinstance(table, Table) and table.rows == (("c", "d"),)
    assert [it.missing for it in unread] == [True] and "table 1: merged cells cover" in unread[0].reason


def test_the_text_of_a_page(tmp_path: Path) -> None:
    page = """<h1>Titan</h1>About&nbsp;it<div>One <b>bold</b> <i>x</i>.</div><ul><li>a<ul><li>b</ul><li><p>c</p></ul>
      <pre>x\n  y</pre><p># no heading</p><p>1<br>2, 10<sup>6</sup></p><table><tr><td><h2>Part</h2><p>In it.</p></td></tr></table>"""
    (text,) = documents(tmp_path / "p.html", page)
    said = "Titan\n\nAbout\xa0it\n\nOne bold x.\n\n- a\n  - b\n- c\n\nx\n  y\n\n# no heading\n\n1\n2, 10^6\n\nPart\n\nIn it.\n\n"
    assert text.text == said and text.title == "Titan"
    assert [(it.text, it.depth) for it in text.outline.headings] == [("Titan", 1), ("Part", 2)]


@pytest.mark.parametrize("named", ["iso-8859-1", "latin-1", "us-ascii", "windows-1252"])
def test_pages_that_name_latin_1_are_cp1252(tmp_path: Path, named: str) -> None:
    page = f'<html><head><meta charset="{named}"></head><body><p>Le caf\xe9 “déjà vu” coûte 5 €.</p></body></html>'
    assert text_of(tmp_path / "p.html", page.encode("cp1252")) == "Le café “déjà vu” coûte 5 €.\n\n"


def test_text_between_the_rows_of_a_table(tmp_path: Path) -> None:
    page = "<table>loose<!-- no --><tr><td>a<td>b</tr><div>inside</div><tr><td>1<td>2</tr></table>after"
    assert text_of(tmp_path / "p.html", page) == "loose\n\ninside\n\nafter\n\n"


def test_a_deep_page_is_read(tmp_path: Path) -> None:
    assert "Deep." in text_of(tmp_path / "p.html", "<div>" * 200 + "<p>Deep.</p>" + "</div>" * 200)


# --- Markdown


def test_cells_of_markdown_lose_their_marks(tmp_path: Path) -> None:
    text = (
        "# The **Big** list\n\n| Name **x** | [City](http://a) | `a\\|b` |\n|---|---|---|\n"
        "| **Ada** | _Odda_ a_b_c | `x|y` \\| 5 * 3 |\n| a<br>b | ![alt](x.png) | AT&amp;T <b>new</b> |\n| 1 | 2 | 3 | 4 |\n"
    )
    stored, table = documents(tmp_path / "m.md", text)
    assert stored.text == text and stored.title == "The Big list"
    assert table.header == ("Name x", "City", "a|b")
    assert table.rows == (
        ("Ada", "Odda a_b_c", "x|y | 5 * 3"), ("a\nb", "alt", "AT&T new"), ("1", "2", "3", "4"),
    )  # fmt: skip


# --- Word and slides

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
M = "http://schemas.openxmlformats.org/officeDocument/2006/math"


def word(path: Path, body: str) -> None:
    made = docx.Document()
    tree = parse_xml(f'<w:body xmlns:w="{W}" xmlns:m="{M}">{body}</w:body>')
    for block in list(tree):
        made.element.body.insert(len(made.element.body) - 1, block)
    made.save(str(path))


def p(inner: str) -> str:
    return f"<w:p>{inner}</w:p>"


def r(text: str) -> str:
    return f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>'


def sdt(inner: str) -> str:
    return f"<w:sdt><w:sdtPr/><w:sdtContent>{inner}</w:sdtContent></w:sdt>"


def tc(inner: str, properties: str = "") -> str:
    return f"<w:tc><w:tcPr>{properties}</w:tcPr>{inner}</w:tc>"


def tbl(*rows: str) -> str:
    return "<w:tbl><w:tblPr/><w:tblGrid/>" + "".join(f"<w:tr>{row}</w:tr>" for row in rows) + "</w:tbl>"


def test_content_controls_changes_and_equations(tmp_path: Path) -> None:
    power = "<w:r><w:rPr><w:vertAlign w:val='superscript'/></w:rPr><w:t>6</w:t></w:r>"
    word(
        tmp_path / "d.docx",
        sdt(p(r("Holm and Sons.")) + sdt(p(r("Nested."))))
        + p(r("Signed on ") + sdt(r("3 May")) + "<w:smartTag>" + r(" in Odda.") + "</w:smartTag>")
        + p(r("Was ") + f"<w:ins>{r('put in')}</w:ins><w:del><w:r><w:delText>taken out</w:delText></w:r></w:del>")
        + p(r("Energy is ") + "<m:oMath><m:r><m:t>E=mc</m:t></m:r></m:oMath>")
        + p(r("10") + power + r(" people"))
        + sdt(tbl(tc(p(r("Item"))) + tc(p(r("Price"))), sdt(tc(p(r("Lamp")))) + tc(sdt(p(r("42")))))),
    )
    text, table = documents(tmp_path / "d.docx")
    assert text.text.split("\n\n")[:-1] == [
        "Holm and Sons.", "Nested.", "Signed on 3 May in Odda.", "Was put in", "Energy is E=mc", "10^6 people",
    ]  # fmt: skip
    assert (table.header, table.rows) == (("Item", "Price"), (("Lamp", "42"),))


def test_merged_cells_and_tables_in_cells_of_word(tmp_path: Path) -> None:
    inner = tbl(tc(p(r("inner a"))) + tc(p(r("inner b"))))
    down, on = '<w:vMerge w:val="restart"/>', "<w:vMerge/>"
    word(
        tmp_path / "d.docx",
        tbl(
            tc(p(r("River")), down) + tc(p(r("Bridge")), '<w:gridSpan w:val="2"/>'),
            tc(p(""), on) + tc(p(r("name"))) + tc(p(r("length"))),
            tc(p(r("Orne")), down) + tc(p(r("Old"))) + tc(p(r("120"))),
            tc(p(""), on) + tc(p(r("New"))) + tc(p(r("95")) + inner + p("")),
        ),
    )
    (table,) = tables(tmp_path / "d.docx")
    assert table.header == ("River", "Bridge name", "Bridge length")
    assert table.rows == (("Orne", "Old", "120"), ("Orne", "New", "95\ninner a inner b"))


def test_notes_of_word(tmp_path: Path) -> None:
    made = docx.Document()
    said = made.add_paragraph("Said here.")
    said._p.append(parse_xml(f'<w:r xmlns:w="{W}"><w:footnoteReference w:id="2"/></w:r>'))
    made.add_paragraph("Next.")
    notes = f'<w:footnotes xmlns:w="{W}"><w:footnote w:id="2">{p(r("The note."))}</w:footnote></w:footnotes>'
    part = Part(PackURI("/word/footnotes.xml"), CONTENT_TYPE.WML_FOOTNOTES, notes.encode(), made.part.package)
    made.part.relate_to(part, RELATIONSHIP_TYPE.FOOTNOTES)
    made.save(str(tmp_path / "d.docx"))
    assert text_of(tmp_path / "d.docx") == "Said here.\n\nThe note.\n\nNext.\n\n"


def test_text_boxes_and_deleted_rows_of_word(tmp_path: Path) -> None:
    box = f"<w:r><w:pict><w:txbxContent>{p(r('In a box.'))}</w:txbxContent></w:pict></w:r>"
    gone = tc(p(r("gone"))) + tc(p(r("too")))
    body = tbl(tc(p(r("a"))) + tc(p(r("b"))), f"<w:trPr><w:del/></w:trPr>{gone}", tc(p(r("1"))) + tc(p(r("2"))))
    word(tmp_path / "d.docx", p(r("Before") + box + r(" and after.")) + body)
    text, table = documents(tmp_path / "d.docx")
    assert text.text == "Before and after.\n\nIn a box.\n\n" and table.rows == (("1", "2"),)


def test_merged_cells_of_slides(tmp_path: Path) -> None:
    made = pptx.Presentation()
    slide = made.slides.add_slide(made.slide_layouts[5])
    slide.shapes.title.text = "Bridges"
    box = [Inches(1)] * 4
    table = slide.shapes.add_table(4, 3, *box).table
    for y, row in enumerate(
        [["River", "Bridge", ""], ["", "name", "length"], ["Orne", "Old", "120"], ["", "New", "95"]]
    ):
        for x, said in enumerate(row):
            table.cell(y, x).text = said
    for first, last in [((0, 0), (1, 0)), ((0, 1), (0, 2)), ((2, 0), (3, 0))]:
        table.cell(*first).merge(table.cell(*last))
    made.save(str(tmp_path / "s.pptx"))
    (found,) = tables(tmp_path / "s.pptx")
    assert found.section == "Bridges" and found.header == ("River", "Bridge name", "Bridge length")
    assert found.rows == (("Orne", "Old", "120"), ("Orne", "New", "95"))


def test_what_is_read_is_found(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    fleet(tmp_path / "c" / "fleet.xlsx")
    index = pyfast.build_index(tmp_path / "c", tmp_path / "IDX", on_unread=lambda _: None)
    (pool,) = index.search(["Which share of the refit of Bold is done?"], 1)
    line = index.corpus.render(int(index.passages[pool.passages[0]]))
    assert "Port: Tromso | Vessel: Bold | Crew Officers: 4" in line and "Refit Share: 50.0%" in line


@pytest.mark.parametrize("tag", ["td", "th"])
def test_years_below_a_common_head_are_names(tmp_path: Path, tag: str) -> None:
    (tmp_path / "a.html").write_text(
        f"<table><tr><td></td><{tag} colspan=2>Population</{tag}></tr>"
        f"<tr><{tag}>City</{tag}><{tag}>2019</{tag}><{tag}>2020</{tag}></tr>"
        "<tr><td>Odda</td><td>5</td><td>6</td></tr><tr><td>Mell</td><td>7</td><td>8</td></tr></table>"
    )
    (table,) = (one for one in read([tmp_path / "a.html"]) if isinstance(one, Table))
    assert table.header == ("City", "Population 2019", "Population 2020")
    assert table.rows == (("Odda", "5", "6"), ("Mell", "7", "8"))


VALUES = "Odda,3,0.4,5,0.2\nBonn,6,0.7,8,0.1\n"


@pytest.mark.parametrize(
    ("head", "header"),
    [
        (",2024,,2025,\nSite,Units,Cost,Units,Cost\n", "Site|2024 Units|2024 Cost|2025 Units|2025 Cost"),
        (",2024,2024,2025,2025\nSite,Units,Cost,Units,Cost\n", "Site|2024 Units|2024 Cost|2025 Units|2025 Cost"),
        (",Load,,Costs,\nShip,Mean,Max,Fuel,Crew\n", "Ship|Load Mean|Load Max|Costs Fuel|Costs Crew"),
        ("Site,2024,,2025,\n,Units,Cost,Units,Cost\n", "Site|2024 Units|2024 Cost|2025 Units|2025 Cost"),
        ("Sales report,,,,\n,Q1,,Q2,\nSite,A,B,A,B\n", "Site|Q1 A|Q1 B|Q2 A|Q2 B"),
        ("Site,12,,13,\n,Units,Cost,Units,Cost\n", "Site|12||13"),  # values, not heads
        (",Units,Cost,Fuel,Crew\nOslo,none,none,none,none\n", "|Units|Cost|Fuel|Crew"),  # a row without numbers
    ],
)
@pytest.mark.parametrize("kind", ["csv", "xlsx"])
def test_heads_of_several_columns_without_spans(tmp_path: Path, head: str, header: str, kind: str) -> None:
    """As a sheet with merged cells becomes when it is saved as CSV."""
    path, text = tmp_path / f"a.{kind}", head + VALUES
    if kind == "csv":
        path.write_text(text)
    else:
        book = openpyxl.Workbook()
        for row in text.splitlines():
            book.active.append([it or None for it in row.split(",")])
        book.save(path)
    (table,) = tables(path)
    assert "|".join(table.header) == header and table.rows[-2:] == (
        ("Odda", "3", "0.4", "5", "0.2"),
        ("Bonn", "6", "0.7", "8", "0.1"),
    )
    assert table.section == ("Sales report" if head.startswith("Sales") else "")


@pytest.mark.parametrize("since_1904", [False, True])
def test_three_header_rows_with_formats(tmp_path: Path, since_1904: bool) -> None:
    book = openpyxl.Workbook()
    book.epoch = CALENDAR_MAC_1904 if since_1904 else WINDOWS_EPOCH
    sheet = book.active
    sheet.append(["Fleet 2025"])
    sheet.append([])
    sheet.append(["Ship", "Load", "", "Cost", "", "Launched"])
    sheet.append(["", "Mean", "Max", "Plan", "Actual", ""])
    day = datetime.date(1904, 1, 1) if since_1904 else datetime.date(1999, 12, 31)
    for row in (
        ["Heron", 0.375, 0.9, 1250.5, -300, day],
        ["Otter", 1, 0.05, 0, 12.345, datetime.date(2024, 2, 29)],
    ):
        sheet.append(row)
        for column, form in enumerate(["0.0%", "0%", "#,##0.00 [$€-407]", "$#,##0;[Red]$#,##0", "dd/mm/yyyy"], 2):
            sheet.cell(sheet.max_row, column).number_format = form
    for merged in ("A1:F1", "A3:A4", "B3:C3", "D3:E3", "F3:F4"):
        sheet.merge_cells(merged)
    book.save(tmp_path / "a.xlsx")
    (table,) = tables(tmp_path / "a.xlsx")
    assert table.header == ("Ship", "Load Mean", "Load Max", "Cost Plan", "Cost Actual", "Launched")
    assert table.section == "Fleet 2025" and list(table.rows) == [
        ("Heron", "37.5%", "90%", "1,250.50 €", "-$300", day.isoformat()),
        ("Otter", "100.0%", "5%", "0.00 €", "$12", "2024-02-29"),
    ]


@pytest.mark.parametrize(
    ("rows", "header"),
    [
        ("Rent,1200 €|Food,300 €|Total,1500 €", ""),
        ("2025-01-01,3.2,ok|2025-01-02,4.1,ok|2025-01-03,,low", ""),
        ("Heron,375,90|Otter,100,5|Seal,12,7", ""),
        ("Ship,Fee|Heron,40|Otter,12", "Ship,Fee"),
        ("Age,18-24,25-34,35+|Yes,12,30,4|No,1,2,3", "Age,18-24,25-34,35+"),
        ("Item,2024|Lamp,1|Rope,3", "Item,2024"),
        ("Ship,5 km|Heron,23|Otter,31", "Ship,5 km"),
        ("Rent,1200|Food,none|Total,1500", "Rent,1200"),  # not sure
        ("Ship,Length,Speed|,m,kn|Heron,31.5,12|Otter,12,9", "Ship,Length m,Speed kn"),
        ("Ship,Length,Speed|,m,kn|Heron,31.5,NaN|Otter,-,<9|Gull,n/a,9", "Ship,Length m,Speed kn"),
        ("Ship,Port,Speed|,Odda,kn|Heron,Bonn,12|Otter,Odda,9", "Ship,Port,Speed"),
        ("Ship,Wifi,Pool|,✓,✓|Heron,✓,-|Otter,-,✓", "Ship,Wifi,Pool"),
        ("Name:,Kaja,Date:,14.03.2025|Street:,Quay 4,City:,Odda", ""),
        ("Name:,Kaja,Date,Fee:|Ola:,Berg,1,2", "Name:,Kaja,Date,Fee:"),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "xlsx", "docx", "html"])
def test_which_row_is_the_header(rows: str, header: str, kind: str, tmp_path: Path) -> None:
    cells = [row.split(",") for row in rows.split("|")]
    path = tmp_path / f"a.{kind}"
    if kind == "csv":
        path.write_text(rows.replace("|", "\n"))
    elif kind == "html":
        path.write_text("<table>" + "".join(f"<tr><td>{'<td>'.join(row)}" for row in cells) + "</table>")
    elif kind == "xlsx":
        book = openpyxl.Workbook()
        for row in cells:
            book.active.append([it or None for it in row])
        book.save(path)
    else:
        file = docx.Document()
        table = file.add_table(len(cells), len(cells[0]))
        for y, x in itertools.product(range(len(cells)), range(len(cells[0]))):
            table.cell(y, x).text = cells[y][x]
        file.save(str(path))
    (found,) = tables(path)
    assert ",".join(found.header) == header
    below = len(cells) - (1 + (rows.count(",m,kn") > 0) if header else 0)
    assert [tuple(row) for row in found.rows] == [tuple(it) for it in without_last(cells[-below:])]


def without_last(rows: list[list[str]]) -> list[list[str]]:
    return [row if row[-1] else row[:-1] for row in rows]


@pytest.mark.parametrize("gap", [1, 2])
def test_blocks_below_each_other_in_a_sheet(gap: int, tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    contacts = [["Office"], ["Phone", "+47 555 01"], ["Mail", "a@b.no"], [], ["Pilot"], ["Phone", "+47 555 02"]]
    survey = [["Item", "Very", "Not"], ["Lamp", 12, 1], ["Stairs", 5, 7], *[[]] * gap]
    survey += [["How often?"], ["Daily", 3], ["Weekly", 9]]
    for name, rows in (("Contacts", contacts), ("Survey", survey)):
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    book.remove(book.worksheets[0])
    book.save(tmp_path / "a.xlsx")
    office, pilot, *asked = tables(tmp_path / "a.xlsx")
    assert (office.section, office.header) == ("Contacts > Office", ())
    assert office.rows == (("Phone", "+47 555 01"), ("Mail", "a@b.no"))
    assert (pilot.section, pilot.header, pilot.rows) == ("Contacts > Pilot", (), (("Phone", "+47 555 02"),))
    assert len(asked) == gap and asked[-1].rows[-2:] == (("Daily", "3"), ("Weekly", "9"))
    assert asked[-1].header == (("How often?",) if gap > 1 else ("Item", "Very", "Not"))
