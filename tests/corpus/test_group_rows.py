"""Rows that name the group of the rows below them, such as `Hall A`, in files that other libraries write."""

from __future__ import annotations

from html import escape
from pathlib import Path

import docx
import openpyxl
import pptx
import pytest
from pptx.util import Inches
from typer.testing import CliRunner

import pyfast
from pyfast.commands.cli import app
from pyfast.corpus import Table, read

Rows = list[list[str] | str]
"""The rows of a table. A text is a cell that fills its row"""

EXPO: Rows = [
    "Exhibitors of the spring fair",
    ["Company", "Booth", "Product"],
    "Hall A",
    ["Acme", "12", "bolts"],
    ["Brill", "14", "lamps"],
    "Hall B",
    ["Corvo", "12", "ropes"],
    ["Dunn", "15", "saws"],
]


Spans = list[tuple[int, int, int, int]]
"""Other cells that cover several places: the row, the column, and how many rows and columns they cover"""


def write_xlsx(rows: Rows, path: Path, spans: Spans) -> None:
    book = openpyxl.Workbook()
    for number, row in enumerate(rows, start=1):
        for column, text in enumerate([row] if isinstance(row, str) else row, start=1):
            book.active.cell(number, column, text or None)
    for y, x, down, across in spans:
        book.active.merge_cells(None, y + 1, x + 1, y + down, x + across)
    book.save(path)


def write_html(rows: Rows, path: Path, spans: Spans) -> None:
    covered = {(y + k, x + j): (k, j) for y, x, down, across in spans for k in range(down) for j in range(across)}
    size = {(y, x): f" rowspan={down} colspan={across}" for y, x, down, across in spans}
    lines = [
        "".join(
            f"<td{size.get((y, x), '')}>{escape(cell)}</td>"
            for x, cell in enumerate([row] if isinstance(row, str) else row)
            if covered.get((y, x), (0, 0)) == (0, 0)
        )
        for y, row in enumerate(rows)
    ]
    path.write_text(f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>")


def write_docx(rows: Rows, path: Path, spans: Spans) -> None:
    file = docx.Document()
    fill(file.add_table(len(rows), width(rows)), rows, spans)
    file.save(str(path))


def write_pptx(rows: Rows, path: Path, spans: Spans) -> None:
    file = pptx.Presentation()
    file.slides.add_slide(file.slide_layouts[5])
    slide = file.slides.add_slide(file.slide_layouts[5])
    fill(slide.shapes.add_table(len(rows), width(rows), *[Inches(1)] * 4).table, rows, spans)
    file.save(str(path))


def fill(table: docx.table.Table, rows: Rows, spans: Spans) -> None:
    for y, x, down, across in spans:
        table.cell(y, x).merge(table.cell(y + down - 1, x + across - 1))
    for y, row in enumerate(rows):
        for x, text in enumerate([row] if isinstance(row, str) else row):
            if text:
                table.cell(y, x).text = text


def width(rows: Rows) -> int:
    return max(len(row) for row in rows if isinstance(row, list))


def write(rows: Rows, path: Path, spans: Spans | None = None) -> None:
    """Write a file with a table. Its suffix says the format."""
    filling = [(y, 0, 1, width(rows)) for y, row in enumerate(rows) if isinstance(row, str)]
    WRITERS[path.suffix[1:]](rows, path, [*filling, *(spans or [])])


WRITERS = {"xlsx": write_xlsx, "html": write_html, "docx": write_docx, "pptx": write_pptx}


def tables(rows: Rows, path: Path, spans: Spans | None = None) -> list[Table]:
    """The tables that are read from a file with these rows."""
    write(rows, path, spans)
    return [one for one in read([path], []) if isinstance(one, Table)]


def by_section(rows: Rows, path: Path) -> dict[str, list[str]]:
    """The first cells of the rows, by section."""
    return {table.section: [row[0] for row in table.rows] for table in tables(rows, path)}


@pytest.mark.parametrize("kind", WRITERS)
def test_a_row_is_found_by_the_name_of_its_group(kind: str, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    write(EXPO, tmp_path / "files" / f"expo.{kind}")
    index = pyfast.build_index(tmp_path / "files", tmp_path / "IDX", on_unread=lambda _: None)
    pools = index.search(["Who is at booth 12 in Hall A?", "Who is at booth 12 in Hall B?"], 1)
    first, second = (index.corpus.render(int(index.passages[pool.passages[0]])) for pool in pools)
    assert "spring fair > Hall A | Company: Acme | Booth: 12 | Product: bolts" in first
    assert "spring fair > Hall B | Company: Corvo | Booth: 12 | Product: ropes" in second


def test_evidence_is_shown_with_the_name_of_its_group(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    write(EXPO, tmp_path / "files" / "expo.xlsx")
    pyfast.build_index(tmp_path / "files", tmp_path / "IDX")
    question, named = "Who is at booth 12 in Hall B?", "expo > Exhibitors of the spring fair > Hall B"
    run = pyfast.answer([question], index=tmp_path / "IDX", llm="instant", system="rag", run=tmp_path / "run")
    first = run.records[0].evidence[0]
    assert (first.heading, first.line) == (named, "Company: Corvo | Booth: 12 | Product: ropes")
    assert run.to_arrow(sources=True)["title"][0].as_py() == named
    for arguments in (["ask", str(tmp_path / "IDX"), question, "--llm", "instant", "--system", "rag"],
                      ["show", str(tmp_path / "run"), run.records[0].id]):  # fmt: skip
        shown = CliRunner().invoke(app, arguments)
        assert shown.exit_code == 0 and f"{named} ({first.uri})" in shown.stdout, shown.output


@pytest.mark.parametrize("kind", WRITERS)
def test_rows_keep_their_numbers_and_pages(kind: str, tmp_path: Path) -> None:
    found = tables(EXPO, tmp_path / f"expo.{kind}")
    assert [table.section.rpartition(" > ")[2] for table in found] == ["Hall A", "Hall B"]
    placed = {table.number_of(k): row[0] for table in found for k, row in enumerate(table.rows)}
    assert placed == {4: "Acme", 5: "Brill", 7: "Corvo", 8: "Dunn"}
    assert {table.page for table in found} == {2 if kind == "pptx" else 0}
    assert {table.header for table in found} == {("Company", "Booth", "Product")}


def test_a_sheet_of_thousands_of_rows_has_groups_to_its_end(tmp_path: Path) -> None:
    rows: Rows = [["Name", "Booth"]]
    for hall in range(60):
        rows += [f"Hall {hall}", *([f"n{hall}-{k}", str(k)] for k in range(40))]
    found = tables(rows, tmp_path / "a.xlsx")
    assert len(found) == 60 and all(len(table.rows) == 40 for table in found)
    assert all(table.rows[7][0] == f"n{table.section.removeprefix('Hall ')}-7" for table in found)
    assert [found[-1].number_of(0), found[-1].uri] == [len(rows) - 39, "a.xlsx#table-60"]


HEAD = ["Name", "Booth"]
HALLS: Rows = [HEAD, "Hall A", ["Acme", "1"], "Hall B", ["Corvo", "2"]]


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # A note at the end, and a total over all groups, are about the whole table.
        ([HEAD, "Hall A", ["Acme", "1"], "Hall B", ["Corvo", "2"], ["Grand total", "3"], "Source: the fair"],
         {"": ["Grand total", "Source: the fair"], "Hall A": ["Acme"], "Hall B": ["Corvo"]}),
        # Each group has its total.
        ([HEAD, "Hall A", ["Acme", "1"], ["Total", "1"], "Hall B", ["Corvo", "2"], ["Total", "2"]],
         {"Hall A": ["Acme", "Total"], "Hall B": ["Corvo", "Total"]}),
        ([HEAD, "Hall A", ["Acme", "1"], ["Total", "1"], "Hall B", ["Corvo", "2"], ["Total", "2"], ["Sum", "3"]],
         {"": ["Sum"], "Hall A": ["Acme", "Total"], "Hall B": ["Corvo", "Total"]}),
        # Notes in a single cell, below a total, below an empty row, and below another note.
        ([*HALLS, ["Total", "3"], ["Source: the fair", ""]],
         {"": ["Total", "Source: the fair"], "Hall A": ["Acme"], "Hall B": ["Corvo"]}),
        ([*HALLS, ["", ""], ["Total", "3"], ["", ""], ["As of May", ""],
          "Source: the fair"],
         {"": ["Total", "As of May", "Source: the fair"], "Hall A": ["Acme"], "Hall B": ["Corvo"]}),
        ([*HALLS, ["Total", "3"], "Source: the fair", ["As of May", ""]],
         {"": ["Total", "Source: the fair", "As of May"], "Hall A": ["Acme"], "Hall B": ["Corvo"]}),
        ([HEAD, "Hall A", ["Acme", "1"], ["Total", "1"], ["", "As of May"]],
         {"": ["Total", ""], "Hall A": ["Acme"]}),
        ([*HALLS, ["", ""], ["As of May", ""], ["Draft", ""]],
         {"": ["As of May", "Draft"], "Hall A": ["Acme"], "Hall B": ["Corvo"]}),
        # A name without values is no note, and a group can have nothing but a total.
        ([*HALLS, ["Dunn", ""]],
         {"Hall A": ["Acme"], "Hall B": ["Corvo", "Dunn"]}),
        ([HEAD, "Hall A", ["Acme", ""], ["Total", "1"], "Hall B", ["Corvo", ""]],
         {"Hall A": ["Acme", "Total"], "Hall B": ["Corvo"]}),
        ([HEAD, "Hall A", ["Acme", "1"], "Hall B", ["Total", "2"], ["Total", "3"], ["As of May", ""]],
         {"": ["Total", "As of May"], "Hall A": ["Acme"], "Hall B": ["Total"]}),
        # Each group has two totals, and the whole table too.
        ([HEAD, "Hall A", ["Acme", "1"], ["Total net", "1"], ["Total", "2"], "Hall B", ["Corvo", "2"],
          ["Total net", "2"], ["Total", "3"], ["Sum net", "3"], ["Sum", "5"], ["As of May", ""]],
         {"": ["Sum net", "Sum", "As of May"], "Hall A": ["Acme", "Total net", "Total"],
          "Hall B": ["Corvo", "Total net", "Total"]}),
        ([HEAD, "Hall A", ["Acme", "1"], ["Sum", "1"], "Hall B", ["Corvo", "2"], ["Sum", "2"], ["As of May", ""]],
         {"": ["As of May"], "Hall A": ["Acme", "Sum"], "Hall B": ["Corvo", "Sum"]}),
        # A group without a row, and a name above another one.
        ([HEAD, "Hall A", "Hall B", ["Corvo", "2"], "Hall C"], {"": ["Hall A", "Hall C"], "Hall B": ["Corvo"]}),
        # Sentences, and what says nothing, name no group.
        ([HEAD, "Hall A", ["Acme", "1"], "The booth has moved north.", ["Brill", "2"], "n/a", ["Corvo", "3"]],
         {"": ["The booth has moved north.", "n/a"], "Hall A": ["Acme", "Brill", "Corvo"]}),
        # What stands below a row can be a note on it.
        ([HEAD, ["Acme", "1"], "closed on Monday", ["Brill", "2"], "open all week", ["Corvo", "3"]],
         {"": ["Acme", "closed on Monday", "Brill", "open all week", "Corvo"]}),
        ([HEAD, ["Acme", "1"], ["Brill", ""], ["Total", "1"]], {"": ["Acme", "Brill", "Total"]}),
        # The header stands below each name.
        (["Hall A", HEAD, ["Acme", "1"], "Hall B", HEAD, ["Corvo", "2"]],
         {"Hall A": ["Acme"], "Hall B": ["Name", "Corvo"]}),
        # Years are names of columns.
        (["Sales", ["Port", "2019"], ["Odda", "4"], "North", ["Bodo", "5"]], {"Sales": ["Odda", "North", "Bodo"]}),
        (["Sales", ["Port", "2019"], "North", ["Bodo", "5"], "South", ["Arendal", "6"]],
         {"Sales > North": ["Bodo"], "Sales > South": ["Arendal"]}),
    ],
)  # fmt: skip
def test_what_names_a_group(kind: str, rows: Rows, expected: dict[str, list[str]], tmp_path: Path) -> None:
    found = by_section(rows, tmp_path / f"a.{kind}")
    if kind == "pptx":
        found = {section.removeprefix("Slide 2").removeprefix(" > "): names for section, names in found.items()}
    assert found == expected


INCOME = [["Income"], ["Source", "2023", "2024"], ["Rent", "100", "110"], ["Fees", "2000", "7"]]


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize(
    ("rows", "header"),
    [
        (INCOME, 1),
        ([["Income"], ["Source", "2024-01-31", "2024-02-29"], ["Rent", "100", "110"]], 1),
        ([["Runs"], ["Runner", "100 m", "200 m"], ["Ann", "12.1", "24.3"], ["Bo", "12.9", "25.0"]], 1),
        ([["Marks"], ["Name", "1", "2", "3"], ["Ann", "4", "4", "5"]], 1),
        ([["Staff"], ["Name", "City", "2024"], ["Ann", "Odda", "5"]], 1),
        ([["Income"], ["", "2023", "2024"], ["Rent", "100", "110"]], 1),
        # These are values.
        ([["Name"], ["Bob", "12", "3"], ["Ann", "5", "7"]], 0),
        ([["Name"], ["Bob", "1950", "2001"], ["Ann", "1961", "2012"]], 0),
        ([["Acme"], ["Founded", "1999"], ["Staff", "250"]], 0),
    ],
)
def test_numbers_in_a_header_below_a_title(kind: str, rows: list[list[str]], header: int, tmp_path: Path) -> None:
    wide = [[*row, *[""] * (width(rows) - len(row))] for row in rows]
    (table,) = tables(wide, tmp_path / f"a.{kind}")
    assert table.section.endswith(rows[0][0] if header else "Slide 2" if kind == "pptx" else "")
    assert table.header == tuple(rows[header])
    assert [list(row) for row in table.rows] == rows[header + 1 :]


@pytest.mark.parametrize("kind", ["xlsx", "csv"])
def test_tables_with_years_are_cut_below_each_other(kind: str, tmp_path: Path) -> None:
    rows = [*INCOME, [""], ["Costs"], ["Kind", "2024", "2025"], ["Food", "7", "8"], [""], ["Tax", "1", "2"]]
    if kind == "csv":
        (tmp_path / "a.csv").write_text("".join(",".join([*row, *[""] * (3 - len(row))]) + "\n" for row in rows))
        found = [one for one in read([tmp_path / "a.csv"], []) if isinstance(one, Table)]
    else:
        found = tables(rows, tmp_path / "a.xlsx")
    assert [(one.section, one.header) for one in found] == [
        ("Income", ("Source", "2023", "2024")), ("Costs", ("Kind", "2024", "2025"))
    ]  # fmt: skip
    assert [row[0] for one in found for row in one.rows if any(row)] == ["Rent", "Fees", "Food", "Tax"]


def test_a_title_above_a_sheet_of_pandas(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({2023: [1, 2], 2024: [3, 4]}, index=["Rent", "Fees"])
    with pandas.ExcelWriter(tmp_path / "a.xlsx", engine="openpyxl") as writer:
        frame.to_excel(writer, startrow=1)
        writer.sheets["Sheet1"].cell(1, 1, "Income")
    (table,) = read([tmp_path / "a.xlsx"], [])
    assert isinstance(table, Table) and (table.section, table.header) == ("Income", ("", "2023", "2024"))
    assert list(table.rows) == [("Rent", "1", "3"), ("Fees", "2", "4")]


@pytest.mark.parametrize("name", ["Average", "World", "Total"])
@pytest.mark.parametrize("place", ["first", "last"])
def test_the_foot_of_a_page_is_in_no_group(name: str, place: str, tmp_path: Path) -> None:
    foot = f"<tfoot><tr><td>{name}<td>3<tr><td colspan=2>Figures of 2025<tr><td>Median<td>2</tfoot>"
    body = "<tr><td colspan=2>North<tr><td>Odda<td>4<tr><td>Sum<td>4<tr><td colspan=2>South<tr><td>Bodo<td>5"
    head = "<thead><tr><th>Land<th>Pop</thead>"
    parts = [head, foot, f"<tbody>{body}</tbody>"] if place == "first" else [head, f"<tbody>{body}</tbody>", foot]
    (tmp_path / "a.html").write_text(f"<table>{''.join(parts)}</table>")
    found = [one for one in read([tmp_path / "a.html"], []) if isinstance(one, Table)]
    assert {one.section: [row[0] for row in one.rows] for one in found} == {
        "": [name, "Figures of 2025", "Median"], "North": ["Odda", "Sum"], "South": ["Bodo"]
    }  # fmt: skip


OUTPUT = ["Turbine", "Output", ""], ["", "May", "June"]


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize(
    ("head", "spans"),
    [
        (OUTPUT, [(0, 0, 2, 1), (0, 1, 1, 2)]),
        (OUTPUT, [(0, 1, 1, 2)]),
        (OUTPUT, []),
        ((["", "Output", ""], ["Turbine", "May", "June"]), [(0, 1, 1, 2)]),
    ],
)
@pytest.mark.parametrize("title", [[], ["Wind"]])
@pytest.mark.parametrize("sites", [["Site Esbjerg"], ["Site Esbjerg", "Site Odda"]])
def test_a_header_of_two_rows_above_groups(
    kind: str, head: tuple[list[str], ...], spans: Spans, title: list[str], sites: list[str], tmp_path: Path
) -> None:
    rows: Rows = [*title, *head]
    for site in sites:
        rows += [site, ["T-04", "1", "2"], ["T-05", "3", "4"]]
    found = tables(rows, tmp_path / f"a.{kind}", [(y + len(title), *rest) for y, *rest in spans])
    slide = ["Slide 2"] if kind == "pptx" else []
    assert [one.section for one in found] == [" > ".join([*slide, *title, site]) for site in sites]
    assert {one.header for one in found} == {("Turbine", "Output May", "Output June")}
    assert {tuple(row[0] for row in one.rows) for one in found} == {("T-04", "T-05")}


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("spans", [[(0, 0, 2, 1), (0, 1, 1, 2)], [(0, 1, 1, 2)]])
def test_a_single_cell_below_a_header_of_two_rows_is_a_row(kind: str, spans: Spans, tmp_path: Path) -> None:
    rows: Rows = [*OUTPUT, ["Site Esbjerg", "", ""], ["T-04", "1", "2"]]
    (table,) = tables(rows, tmp_path / f"a.{kind}", spans)
    assert table.header == ("Turbine", "Output May", "Output June")
    assert [row[0] for row in table.rows] == ["Site Esbjerg", "T-04"]
