"""Forms of keys and values, remarks beside a header, and tables of names below a title, as offices have them."""

from __future__ import annotations

import datetime
from itertools import chain
from pathlib import Path

import docx
import openpyxl
import pytest

import pyfast
from pyfast.corpus import Table, read

Pairs = list[tuple[str, str]]
COVER: Pairs = [
    ("Project name", "Osprey"), ("Project manager", "Kaja Berg"), ("Start date", "2025-04-01"),
    ("Budget (EUR)", "12000"), ("Status", "green"), ("Sponsor", "Greta Voss"), ("Risk", "low"),
]  # fmt: skip
STAFF: Pairs = [("Name", "Aiko Mori"), ("Position", "Buyer"), ("Entry", "2018-05-01"), ("Salary group", "E 11")]
INVOICE: Pairs = [("Invoice", "R-17"), ("Date", "2025-03-01"), ("Customer", "Alder AG"), ("Contact", "Ann Holm")]
MEETING: Pairs = [("Date", "12 May 2025"), ("Place", "Room 4.07"), ("Present", "Ann Holm (remote)")]
COLONS: Pairs = [("Client:", "Alder AG"), ("Contact:", ""), ("City:", "Odda")]
KINDS = ["xlsx", "docx", "csv", "html"]


def write(rows: list[list[str]], path: Path) -> None:
    if path.suffix == ".xlsx":
        book = openpyxl.Workbook()
        for row in rows:
            values = [
                datetime.date.fromisoformat(it) if it[:2] == "20" and "-" in it else it or None for it in row
            ]
            book.active.append(values)
        book.save(path)
    elif path.suffix == ".docx":
        file = docx.Document()
        table = file.add_table(len(rows), max(map(len, rows)))
        for y, row in enumerate(rows):
            for x, text in enumerate(row):
                table.cell(y, x).text = text
        file.save(str(path))
    elif path.suffix == ".html":
        lines = ("".join(f"<td>{cell}</td>" for cell in row) for row in rows)
        path.write_text(f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>")
    else:
        path.write_text("".join(",".join(row) + "\n" for row in rows))


def tables(rows: list[list[str]], path: Path) -> list[Table]:
    write(rows, path)
    return [one for one in read([path], []) if isinstance(one, Table)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pairs", [COVER, STAFF, INVOICE, COLONS, MEETING])
def test_each_pair_of_a_form_is_a_row(kind: str, pairs: Pairs, tmp_path: Path) -> None:
    (table,) = tables([list(pair) for pair in pairs], tmp_path / f"a.{kind}")
    assert table.header == ()
    assert [(*row, "")[:2] for row in table.rows] == pairs
    assert [table.number_of(k) for k in range(len(pairs))] == list(range(1, len(pairs) + 1))


@pytest.mark.parametrize("gap", [[], [["", ""]]])
def test_a_form_has_a_title(gap: list[list[str]], tmp_path: Path) -> None:
    (table,) = tables([["Project sheet", ""], *gap, *map(list, COVER)], tmp_path / "a.xlsx")
    assert (table.section, table.header, list(table.rows)) == ("Project sheet", (), COVER)


@pytest.mark.parametrize("kind", ["xlsx", "docx"])
def test_a_form_has_sections(kind: str, tmp_path: Path) -> None:
    general = [
        ["1. General"],
        ["Client", "Alder AG"],
        ["Contract", "K-25-17"],
        ["Start", "2025-01-02"],
        ["Fee", "1200"],
    ]
    contact = [["2. Contact"], ["Lead", "Ann Holm"], ["Mail", "ann@alder.example"], ["Phone", "+47 22 33 44"]]
    path = tmp_path / f"a.{kind}"
    write([*general, *contact], path)
    if kind == "xlsx":
        book = openpyxl.load_workbook(path)
        book.active.merge_cells("A1:B1")
        book.active.merge_cells("A6:B6")
        book.save(path)
    else:
        file = docx.Document(str(path))
        for row in (0, 5):
            file.tables[0].cell(row, 0).merge(file.tables[0].cell(row, 1))
        file.save(str(path))
    first, second = (one for one in read([path], []) if isinstance(one, Table))
    assert [first.header, second.header] == [(), ()]
    assert (first.section, [list(row) for row in first.rows]) == ("1. General", general[1:])
    assert (second.section, [list(row) for row in second.rows]) == ("2. Contact", contact[1:])


def test_a_question_finds_the_first_pair_of_a_form(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    write([list(pair) for pair in COVER], tmp_path / "files" / "cover.xlsx")
    index = pyfast.build_index(tmp_path / "files", tmp_path / "IDX")
    (pool,) = index.search(["project name"], 1)
    assert index.corpus.render(int(index.passages[pool.passages[0]])) == "cover | Project name | Osprey"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "rows",
    [
        [("Parameter", "Value"), ("Voltage", "230 V"), ("Colour", "red"), ("Mass", "3.5"), ("Case", "steel")],
        [("Setting", "Now"), ("host", "localhost"), ("port", "8080"), ("mode", "debug"), ("zone", "Oslo")],
        [("Name", "City"), ("Ann", "Odda"), ("Bo", "Bodo"), ("Cy", "Voss"), ("Di", "Moss")],
        [("Player", "Fee"), ("Ann", "5"), ("Bo", "free"), ("Cy", "7"), ("Di", "8"), ("Eve", "2")],
        [("Site", "Opened"), ("Ayr", "1510"), ("Bute", "Iron Age"), ("Carn", "Iron Age"), ("Deer", "Neolithic")],
        [("Month", "Units"), ("Jan", "1"), ("Feb", "n/a"), ("Mar", "3"), ("Apr", "unknown"), ("May", "none")],
        [("Song", "Year"), ("Ann", "1999"), ("Ann", "2000"), ("Bo", "late"), ("Cy", "early"), ("Di", "never")],
        [("Item", "Stock"), ("Pen", "3"), ("Cap", "gone"), ("Hat", "some"), ("Total", "3")],
        [
            ("Room", "Rate"),
            ("Single", "50"),
            ("Double", "80"),
            ("Suite", "on request"),
            ("Attic", "closed"),
            ("Loft", "7"),
        ],
        [("Asset", "Owner"), ("Van", "Ann"), ("Bus", "Bo"), ("Bike", "pool"), ("Boat", "7")],
        [
            ("Role", "Phone"),
            ("Desk", "100"),
            ("Ann", "ann@a.example"),
            ("Bo", "201"),
            ("Fire", "112"),
            ("Guard", "ask Bo"),
        ],
        [("Field", "Entry"), ("Name:", "Ann"), ("City:", "Odda")],
        [("Date", "12 May 2025"), ("1 June", "3"), ("2 June", "4")],
        [("Date", "Event 2025"), ("Easter", "walk"), ("May Day", "fair")],
        [("Staff", "12 May 2025"), ("Ann", "early"), ("Bo", "late")],
    ],
)
def test_a_header_of_two_words_stays_a_header(kind: str, rows: Pairs, tmp_path: Path) -> None:
    (table,) = tables([list(row) for row in rows], tmp_path / f"a.{kind}")
    assert (table.header, list(table.rows)) == (rows[0], rows[1:])


NOTE = "Note: figures exclude Norway"


@pytest.mark.parametrize("kind", KINDS)
def test_a_remark_beside_the_header_is_a_row(kind: str, tmp_path: Path) -> None:
    rows = [["Region", "Sales", "", NOTE], ["North", "5", "", ""], ["South", "7", "", ""]]
    (table,) = tables(rows, tmp_path / f"a.{kind}")
    assert table.header == ("Region", "Sales")
    assert [[cell for cell in row if cell] for row in table.rows] == [["North", "5"], ["South", "7"], [NOTE]]
    assert [table.number_of(k) for k in range(3)] == [2, 3, 1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "beside",
    [["", "Unit", "1000 EUR"], ["Unit", "1000 EUR"], ["", "Last update", "2025-03-04"], ["", "in", "EUR", "net"]],
)
def test_a_pair_beside_the_header_is_a_row(kind: str, beside: list[str], tmp_path: Path) -> None:
    rows = [["Region", "Sales", *beside], ["North", "5", *[""] * len(beside)], ["South", "7", *[""] * len(beside)]]
    (table,) = tables(rows, tmp_path / f"a.{kind}")
    assert table.header == ("Region", "Sales")
    assert [[cell for cell in row if cell] for row in table.rows] == [
        ["North", "5"], ["South", "7"], [*filter(None, beside)]
    ]  # fmt: skip


@pytest.mark.parametrize("names", [["Comment", "2025"], ["100 m", "200 m"], ["", "Note", "Depth"]])
def test_columns_with_values_stay_beside_empty_ones(names: list[str], tmp_path: Path) -> None:
    rows = [["Region", "Sales", *names], ["North", "5", *[""] * (len(names) - 1), "9"]]
    (table,) = tables(rows, tmp_path / "a.html")
    assert (table.header[-1], table.rows[0][-1]) == (names[-1], "9")


def test_a_word_far_beside_the_header_is_a_row(tmp_path: Path) -> None:
    rows = [["Sales 2025"], [], ["Region", "Sales", "", "", "draft"], ["North", "5"], ["South", "7"]]
    (table,) = tables(rows, tmp_path / "a.xlsx")
    assert (table.header, table.rows[-1], table.number_of(2)) == (("Region", "Sales"), ("", "", "draft"), 3)


def test_a_remark_is_beside_groups_that_are_merged(tmp_path: Path) -> None:
    rows = [["Cost", "Plan", "", "draft"], ["North"], ["Staff", "1"], ["South"], ["Staff", "3"]]
    write(rows, tmp_path / "a.xlsx")
    book = openpyxl.load_workbook(tmp_path / "a.xlsx")
    book.active.merge_cells("A2:D2")
    book.active.merge_cells("A4:D4")
    book.save(tmp_path / "a.xlsx")
    found = [one for one in read([tmp_path / "a.xlsx"], []) if isinstance(one, Table)]
    assert [(one.section, [*filter(None, one.rows[0])], one.number_of(0)) for one in found] == [
        ("", ["draft"], 1), ("North", ["Staff", "1"], 3), ("South", ["Staff", "3"], 5)
    ]  # fmt: skip


def test_the_name_of_a_group_in_a_header_cell_is_no_header(tmp_path: Path) -> None:
    lines = ["<th>Firm<th>Stand<th>Size", "<th>Hall A<td><td>", "<td>Alder<td>1<td>9"]
    lines += ["<th>Hall B<td><td>", "<td>Alder<td>2<td>8"]
    (tmp_path / "a.html").write_text(f"<table>{''.join(f'<tr>{line}' for line in lines)}</table>")
    found = [one for one in read([tmp_path / "a.html"], []) if isinstance(one, Table)]
    assert {one.header for one in found} == {("Firm", "Stand", "Size")}
    assert {one.section: list(one.rows) for one in found} == {
        "Hall A": [("Alder", "1", "9")], "Hall B": [("Alder", "2", "8")]
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["xlsx", "csv"])
def test_a_remark_before_the_header_is_a_row(kind: str, tmp_path: Path) -> None:
    rows = [["draft", "", "Region", "Sales"], ["", "", "North", "5"], ["", "", "South", "7"]]
    (table,) = tables(rows, tmp_path / f"a.{kind}")
    assert "draft" in [cell for row in (table.header, *table.rows) for cell in row]


@pytest.mark.parametrize("name", ["Comment", "Number of days", "R1: reason"])
def test_the_name_of_an_empty_column_is_no_remark(name: str, tmp_path: Path) -> None:
    (table,) = tables([["Region", "Sales", name], ["North", "5", ""], ["South", "7", ""]], tmp_path / "a.xlsx")
    assert (table.header, [row[0] for row in table.rows]) == (("Region", "Sales", name), ["North", "South"])


TRUCKS = [["Truck", "Load"], ["T1", "10"], ["T2", "12"], *([f"T{k}", "9"] for k in range(3, 13)), []]


@pytest.mark.parametrize("kind", ["xlsx", "csv"])
@pytest.mark.parametrize(
    ("title", "below"),
    [
        ("Drivers", [["Truck", "Driver"], ["North", "Ann"], ["South", "Bo"]]),
        ("Table 2", [["Driver", "City"], ["Ann", "Odda"], ["Bo", "Bodo"]]),
        ("Drivers", [["Name", "City", "Car"], ["Ann", "Odda", "Fiat"], ["Bo", "Bodo", "Seat"]]),
        ("Drivers", [["Name", "Car"], ["Ann", "C1"], ["Bo", "C2"]]),
    ],
)
@pytest.mark.parametrize("gap", [[], [[]]])
def test_names_below_a_title_begin_a_table(
    kind: str, title: str, below: list[list[str]], gap: list[list[str]], tmp_path: Path
) -> None:
    first, second = tables([*TRUCKS, [], [title], *gap, *below], tmp_path / f"a.{kind}")
    assert first.header == ("Truck", "Load") and sum(any(row) for row in first.rows) == 12
    assert (second.section, second.header) == (title, tuple(below[0]))
    assert [list(row) for row in second.rows] == below[1:]


DEVICE = [["Device", "Orion 9"], ["Day", "2025-03-04"], ["Filter", "450 nm"]]
REGIONS = [["Region", "Women", "Men", "Total"], ["North", "1", "2", "3"], ["South", "4", "5", "9"]]


@pytest.mark.parametrize("kind", ["xlsx", "csv"])
@pytest.mark.parametrize(
    ("above", "below"),
    [
        (REGIONS, [["Sector", "Women", "Men", "Total"], ["Steel", "1", "1", "2"], ["Care", "4", "6", "10"]]),
        (DEVICE, [["#", "Item", "Price", "Total"], ["1", "Flyer", "5", "10"], ["2", "Card", "7", "7"]]),
        (REGIONS, [["Sector", "%", "€", "Staff"], ["Steel", "12", "70", "2"], ["Care", "40", "60", "10"]]),
        (DEVICE, [["<>", "1", "2", "3"], ["A", "0.1", "0.2", "0.3"], ["B", "0.4", "0.5", "0.6"]]),
        (DEVICE, [["", "1", "2", "3", "4"], ["A", "1", "2", "3", "7"], ["B", "4", "5", "6", "7"]]),
    ],
)
def test_totals_signs_and_counted_columns_are_names(
    kind: str, above: list[list[str]], below: list[list[str]], tmp_path: Path
) -> None:
    blank = [""] * len(below[0]) if kind == "csv" else []
    *first, second = tables([*above, blank, *below], tmp_path / f"a.{kind}")
    assert [[*second.header], *map(list, second.rows)] == below
    for table in first:
        assert [[*table.header], *map(list, table.rows)] == above
    # Above a wider table, pairs in a file of text are its caption.
    assert first or second.section == "; ".join(map(" ".join, above))


@pytest.mark.parametrize("kind", ["xlsx", "csv"])
@pytest.mark.parametrize(
    "row",
    [["Total", "x", "y", "z"], ["Bob", "1", "2", "3"], ["Mix", "-", "-", "-"], ["Mix", "gold", "n/a", "x"],
     ["%", "%", "%", "€"]],
)  # fmt: skip
def test_a_row_below_a_gap_begins_no_table(kind: str, row: list[str], tmp_path: Path) -> None:
    (table,) = tables(
        [*REGIONS, [""] * 4 if kind == "csv" else [], row, ["Cid", "7", "8", "9"]], tmp_path / f"a.{kind}"
    )
    assert [[*it] for it in (table.header, *table.rows) if any(it)] == [*REGIONS, row, ["Cid", "7", "8", "9"]]


PAIRS = [["Name:", "Kaja Berg", "", "Period:", "May"], ["Centre:", "00420"], ["Unit:", "IT", "", "Lead:", "Jo"]]
ITEMS = [["Date", "Item", "Amount"], ["2025-03-04", "Train", "899"], ["2025-03-05", "Bus", "40"]]


@pytest.mark.parametrize("above", [[], [["Expenses"], []]])
@pytest.mark.parametrize("below", [[], [[], *ITEMS]])
def test_pairs_beside_each_other_are_no_header(
    above: list[list[str]], below: list[list[str]], tmp_path: Path
) -> None:
    form, *items = tables([*above, *PAIRS, *below], tmp_path / "a.xlsx")
    assert (form.section, form.header) == ("".join(chain(*above)), ())
    assert [[*filter(None, row)] for row in form.rows] == [[*filter(None, row)] for row in PAIRS]
    assert [[list(one.header), *map(list, one.rows)] for one in items] == ([ITEMS] if below else [])


@pytest.mark.parametrize(
    "rows",
    [
        [["Name:", "Age:", "City:"], ["Ann:", "7", "Odda:"]],
        [["Field:", "first", "second"], ["Name:", "Ann", "Bo"], ["City:", "Odda", "Moss"]],
        [["Name:", "Ann", "Age:", "7"], ["Bo", "x", "Cy:", "8"]],
    ],
)
def test_colons_in_a_header_of_columns(rows: list[list[str]], tmp_path: Path) -> None:
    (table,) = tables(rows, tmp_path / "a.xlsx")
    assert (table.header, [list(row) for row in table.rows]) == (tuple(rows[0]), rows[1:])


def test_groups_below_a_lone_header_begin_no_table(tmp_path: Path) -> None:
    rows = [
        ["Name", "Phone"],
        [],
        ["Sales"],
        ["Ann", "12"],
        ["Bo", "13"],
        [],
        ["Support"],
        ["Cy", "14"],
        ["Di", "15"],
    ]
    (table,) = tables([["Team list"], [], *rows], tmp_path / "a.xlsx")
    assert {cell for row in table.rows for cell in row} >= {"Ann", "Sales", "Support", "Di"}


@pytest.mark.parametrize("kind", ["xlsx", "csv"])
def test_a_group_below_an_empty_row_begins_no_table(kind: str, tmp_path: Path) -> None:
    rows = [["Region", "Manager"], ["Oslo", "Ann"], [], ["Former"], ["Bergen", "Bo"], ["Bodo", "Cy"]]
    (table,) = tables(rows, tmp_path / f"a.{kind}")
    assert table.header == ("Region", "Manager")
    assert [row[0] for row in table.rows if any(row)] == ["Oslo", "Former", "Bergen", "Bodo"]


COSTS = ["Cost type", "Plan", "Actual"]


def groups(*rows: list[str]) -> list[list[str]]:
    """Two groups with rows of the same names, and these rows below them."""
    production = [["Production"], ["Staff", "24", "25"], ["Material", "36", "33"]]
    return [COSTS, *production, ["Sales"], ["Staff", "18", "19"], ["Material", "60", "61"], *rows]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (groups(), {"Production": ["Staff", "Material"], "Sales": ["Staff", "Material"]}),
        (groups(["Source: the ledger"]),
         {"": ["Source: the ledger"], "Production": ["Staff", "Material"], "Sales": ["Staff", "Material"]}),
        (groups(["Total", "138", "138"]),
         {"": ["Total"], "Production": ["Staff", "Material"], "Sales": ["Staff", "Material"]}),
        ([COSTS, ["2024"], ["Rent", "1", "2"], ["Sum", "1", "2"], ["2025"], ["Rent", "3", "4"], ["Sum", "3", "4"]],
         {"2024": ["Rent", "Sum"], "2025": ["Rent", "Sum"]}),
    ],
)  # fmt: skip
def test_rows_of_a_single_cell_name_groups(
    kind: str, rows: list[list[str]], expected: dict[str, list[str]], tmp_path: Path
) -> None:
    wide = [[*row, *[""] * (3 - len(row))] for row in rows]
    found = tables(wide, tmp_path / f"a.{kind}")
    assert {table.section: [row[0] for row in table.rows] for table in found} == expected
    assert {table.header for table in found} == {tuple(COSTS)}
    for table in found:
        assert all(wide[table.number_of(k) - 1][0] == row[0] for k, row in enumerate(table.rows))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "rows",
    [
        # A row without values is no group: no other group has rows of the same name.
        [COSTS, ["Staff"], ["Rent", "1", "2"], ["Energy"], ["Food", "3", "4"]],
        # The result of both groups is in neither.
        [COSTS, ["In"], ["Rent", "9", "9"], ["Sum in", "9", "9"], ["Out"], ["Rent", "1", "2"],
         ["Sum out", "1", "2"], ["Result", "8", "7"]],
        # The last row can be about both.
        [COSTS, ["In"], ["Rent", "3", "4"], ["Food", "3", "4"], ["Out"], ["Rent", "3", "4"], ["Food", "3", "4"],
         ["Net", "0", "0"]],
        # Not each row is in a group.
        [COSTS, ["Rent", "1", "2"], ["In"], ["Rent", "3", "4"], ["Out"], ["Rent", "3", "4"]],
        [COSTS, ["In"], ["Rent", "3", "4"], ["Food", "", "4"], ["Wait"], ["Half"], ["Rent", "3", "4"]],
        [COSTS, ["In"], ["Rent", "3", "4"], ["", "5", ""], ["Out"], ["Rent", "3", "4"]],
        [COSTS, ["In"], ["Out"]],
        # Totals, and sentences, name none.
        [COSTS, ["In"], ["Rent", "3", "4"], ["Total"], ["Rent", "3", "4"]],
        [COSTS, ["In"], ["Rent", "3", "4"], ["The rent was lowered in May."], ["Rent", "3", "4"]],
        # In two columns, what lacks a value looks the same.
        [["Cost", "Plan"], ["In"], ["Rent", "3"], ["Out"], ["Rent", "4"]],
    ],
)  # fmt: skip
def test_what_does_not_surely_name_groups_is_a_row(kind: str, rows: list[list[str]], tmp_path: Path) -> None:
    wide = [[*row, *[""] * (len(rows[0]) - len(row))] for row in rows]
    (table,) = tables(wide, tmp_path / f"a.{kind}")
    assert (table.section, table.header) == ("", tuple(rows[0]))
    assert [row[0] for row in table.rows] == [row[0] for row in rows[1:]]
