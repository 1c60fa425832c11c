"""Dates, times and durations of sheets: an answer counts if it is as the sheet shows it, or as a prompt has it."""

from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from pyfast.corpus import Table, read
from pyfast.engine import Record
from pyfast.evaluation import evaluate
from pyfast.evaluation.gold import read_gold

DAY = datetime(2025, 3, 14)
# A value, its format, how a sheet shows it, and how a corpus has it.
CELLS: list[tuple[Any, str, str, str]] = [
    (DAY, "d mmmm yyyy", "14 March 2025", "2025-03-14"),
    (DAY, "mmm yyyy", "Mar 2025", "2025-03-14"),
    (DAY, "mm-dd-yy", "3/14/2025", "2025-03-14"),
    (DAY, "dd/mm/yy", "14/03/25", "2025-03-14"),
    (DAY, 'd"." m"." yyyy', "14. 3. 2025", "2025-03-14"),
    (DAY, "[$-409]dddd, mmmm dd, yyyy;@", "Friday, March 14, 2025", "2025-03-14"),
    (DAY, "[$-407]d. mmmm yyyy", "2025-03-14", "2025-03-14"),
    (DAY, "yyyy-mm-dd", "2025-03-14", "2025-03-14"),
    (DAY.replace(hour=7, minute=45), "d mmm yyyy h:mm AM/PM", "14 Mar 2025 7:45 AM", "2025-03-14T07:45:00"),
    (timedelta(hours=26, minutes=30), "[h]:mm", "26:30", "26:30"),
    (timedelta(hours=26, minutes=30), "[h]:mm:ss", "26:30:00", "26:30:00"),
    (timedelta(minutes=90), '[mm]" min"', "90 min", "90 min"),
    (-0.0625, "[h]:mm", "-1:30", "-1:30"),
    (time(8, 5), "h:mm", "8:05", "8:05"),
    (time(20, 5), "h:mm AM/PM", "8:05 PM", "8:05 PM"),
    (time(0, 3, 25), "mm:ss", "03:25", "03:25"),
    (0.0023712, "mm:ss.00", "03:24.87", "03:24.87"),
    (1, "h:mm", "0:00", "0:00"),
    (1.25, "h:mm", "6:00", "6:00"),
    (0, "yyyy-mm-dd", "1900-01-00", "1900-01-00"),
    (0.125, "0.0%", "12.5%", "12.5%"),
    (71, "00000", "00071", "00071"),
]


def book_of(path: Path, header: list[str], rows: list[list[Any]], forms: list[str]) -> Path:
    book = openpyxl.Workbook()
    for row in [header, *rows]:
        book.active.append(row)
    for number, form in enumerate(forms, start=2):
        book.active.cell(number, 2).number_format = form
    book.save(path)
    return path


@pytest.mark.parametrize("which", [2, 3], ids=["sheet", "corpus"])
def test_both_forms_of_a_date_count(tmp_path: Path, which: int) -> None:
    rows = [[f"q{k}", cell[0]] for k, cell in enumerate(CELLS)]
    gold = book_of(tmp_path / "gold.xlsx", ["id", "answers"], rows, [cell[1] for cell in CELLS])
    given = [Record(f"q{k}", "answered", cell[which]) for k, cell in enumerate(CELLS)]
    assert [one.figures["em"] for one in evaluate(given, gold).questions] == [1.0] * len(CELLS)


def test_the_corpus_has_times_as_the_sheet_and_iso_dates(tmp_path: Path) -> None:
    rows = [[f"q{k}", cell[0]] for k, cell in enumerate(CELLS)]
    (table,) = read([book_of(tmp_path / "a.xlsx", ["Name", "Value"], rows, [cell[1] for cell in CELLS])])
    assert isinstance(table, Table)
    assert [row[1] for row in table.rows] == [cell[3] for cell in CELLS]


def test_sets_of_answers_and_own_columns(tmp_path: Path) -> None:
    header = ["id", "answers", "answer_mode", "asked on"]
    rows = [["a", DAY, "all", date(2024, 5, 1)], ["b", DAY, None, date(2024, 5, 2)]]
    gold = book_of(tmp_path / "gold.xlsx", header, rows, ["d mmm yyyy"] * 2)
    a, b = read_gold(gold)
    assert (a.answers, b.answers) == (("14 Mar 2025",), ("14 Mar 2025", "2025-03-14"))
    assert (b.model_extra or {})["asked on"] == date(2024, 5, 2)


def test_a_book_that_counts_from_1904(tmp_path: Path) -> None:
    from openpyxl.utils.datetime import CALENDAR_MAC_1904

    book = openpyxl.Workbook()
    book.epoch = CALENDAR_MAC_1904
    book.active.append(["id", "answers"])
    book.active.append(["q", DAY])
    book.active.cell(2, 2).number_format = "d mmm yyyy"
    book.save(tmp_path / "gold.xlsx")
    (gold,) = read_gold(tmp_path / "gold.xlsx")
    assert gold.answers == ("14 Mar 2025", "2025-03-14")
