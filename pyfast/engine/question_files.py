"""Read question files: JSON lines, CSV, TSV, XLSX and Parquet. Each record is a question or a conversation."""

from __future__ import annotations

import ast
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from datetime import date, datetime, time
from decimal import Decimal
from functools import lru_cache
from hashlib import blake2b
from itertools import chain, islice, zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from pyfast.corpus.documents import Unread
from pyfast.corpus.formats.delimited import dialect_of, rows
from pyfast.corpus.formats.files import read_text
from pyfast.corpus.grids import MOST_ABOVE
from pyfast.corpus.jsonl_documents import records
from pyfast.errors import InputError, PyfastError, did_you_mean
from pyfast.utils.extras import explained
from pyfast.utils.jsonl import parse_json, read_each_line
from pyfast.utils.log import LOG
from pyfast.utils.text_forms import counted, some

if TYPE_CHECKING:
    from pyfast.corpus.formats.xlsx import Sheet

NO_COLUMNS: Mapping[str, str] = MappingProxyType({})
_TABLES = (".csv", ".tsv", ".parquet", ".arrow", ".feather", ".xlsx")
SUFFIXES = (".jsonl", ".ndjson", *_TABLES)
T = TypeVar("T")


def read_question_records(
    path: Path, columns: Mapping[str, str] = NO_COLUMNS
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place, object) for each non-empty line or row, with the object in the usual form (see `tidy`). The
    place identifies the line or row in error messages. A question without an id gets an id derived from its text,
    which does not change when lines or rows are added or sorted; a warning says so.

    In CSV, TSV and XLSX, a cell that begins with `[` or `{`, such as a list of answers, is parsed as JSON or as a
    Python literal. If it is neither, it remains text. Titles may precede the row with the column names (see
    `_header`). In XLSX, the first sheet with such a row is read. Raises InputError if a line or row cannot be
    read, or a cell looks like a list of strings but cannot be parsed.

    The gold answers of all records come from one field (see `gold_field`).

    `columns` maps pyfast's field names to the file's column names where they differ, such as `{"question":
    "Frage"}`. Such a column replaces a column with pyfast's name, even where it is blank. Raises InputError if
    pyfast has no such field, or no record has such a column."""
    for name in columns:
        if name not in _FIELDS:
            raise InputError(f"columns: there is no field {name!r}{did_you_mean(name, _FIELDS)}")
    seen, missing, known = Counter[str](), dict(columns), dict[str, None]()
    table = path.suffix.lower() in _TABLES
    are_floats = None if path.suffix.lower() in (".csv", ".tsv") else False

    def named() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
        for place, record in _records(path, columns):
            theirs = {name: column if column in record else _key(column) for name, column in columns.items()}
            renamed = {name: record[column] for name, column in theirs.items() if column in record}
            others = record.keys() - {*columns, *theirs.values()} if columns else record
            yield place, record, {name: record[name] for name in record if name in others} | renamed

    gold: str | None = None
    count = several = 0
    all_read = False
    try:
        for place, record, fields in named():
            if columns:
                known |= dict.fromkeys(record)
                missing = {name: column for name, column in missing.items() if name not in fields}
            if "question" in missing:
                break  # Otherwise, a misspelled column name would look like a missing question.
            if gold is None and (gold := gold_field([fields])) not in (None, "answers"):
                # The first row of a table has all columns. A later JSON line may have fields that this one lacks.
                whole = table and "turns" not in fields
                gold = gold if whole else gold_field(_until_bad(fields for _, _, fields in named()))
            if are_floats is None and (one := fields.get("id")) is not None:
                are_floats = _is_float(one) and _with_gap(one for _, _, one in _until_bad(named()))
            if are_floats and fields.get("id"):
                fields["id"] = fields["id"].removesuffix(".0")
            count += 1
            cell = fields.get(gold) if table and gold else None
            several += isinstance(cell, str) and _is_several(cell)
            yield place, tidy(_given(fields) if table else fields, id_of(fields, seen), str(path), gold)
        all_read = True
    finally:  # A caller may stop early: with a limit, or after the first record, to look at its fields.
        if (made := seen.total()) and (all_read or count > 1):
            say_made(str(path), made, count)
        if several:
            what = 'each is read as one answer; write several answers as a JSON list, such as ["twelve", "12"]'
            _say(str(path), f"gold answers that contain `;`, `|` or a line break: {several}; {what}")
    for column in missing.values():
        raise InputError(f"{path}: there is no column {column!r}{did_you_mean(column, known)}")


def _with_gap(rows: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether ids such as 7.0 are whole numbers that pandas wrote as floats: some are blank, and all others
    end in `.0`. Otherwise, they may be numbers of versions or sections."""
    ids = [row.get("id") for row in rows]
    return None in ids and all(one is None or _is_float(one) for one in ids)


def _is_float(id: Any) -> bool:
    return re.fullmatch(r"-?\d+\.0", str(id)) is not None


def _is_several(cell: str) -> bool:
    """Return whether a cell looks like several short answers, such as `zwölf; 12`."""
    parts = [part.strip() for part in re.split(r"[;|\n]", cell)]
    return sum(map(bool, parts)) > 1 and max(map(len, parts)) <= _LONGEST_PART


_LONGEST_PART = 40


def gold_field(records: Iterable[Mapping[str, Any]]) -> str | None:
    """Return the name of the field with the gold answers of all records (in conversations, of their turns): the
    first of `answers`, `expected`, `gold`, `golden_answers` and `answer` that any of them has, even without a
    value. A record without gold therefore never uses another field instead. An object without `text` is not gold.
    Returns None if no record has such a field."""
    found = set[str]()
    for record in records:
        turns = record.get("turns")
        for one in turns if isinstance(turns, list) else [record]:
            if isinstance(one, Mapping):
                found |= {name for name in _ANSWERS if name in one and _is_gold(one[name])}
        if "answers" in found:
            break
    return next((name for name in _ANSWERS if name in found), None)


def _until_bad(records: Iterator[T]) -> Iterator[T]:
    """Yield the records before the first unreadable one. The main reader raises the error when it reaches it."""
    with suppress(InputError):
        yield from records


def records_of_gold(
    path: Path, of_questions: Mapping[str, str], columns: Mapping[str, str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the same as `read_question_records` with `columns` and those of the question file. The gold file may
    use pyfast's names instead of some of the question file's, or lack them."""
    known = {name for _, record in _records(path, {**of_questions, **columns}) for name in record}
    theirs = {name: column for name, column in of_questions.items() if known & {column, _key(column)}}
    for place, record in read_question_records(path, {**theirs, **columns}):
        if _is_nothing(record.get("id")):
            raise InputError(f"{place}: no `id`, and no `question` to make one from")
        yield place, record


def id_of(record: Mapping[str, Any], seen: Counter[str]) -> str | None:
    """Derive an id from a question's text, or return None if it has an id. `seen` counts the ids, because texts
    may repeat."""
    asked = record.get("question") or record.get("turns")
    if not asked or not _is_nothing(record.get("id")):
        return None
    text = " ".join(asked.split()) if isinstance(asked, str) else repr(asked)
    made = blake2b(text.encode(errors="replace"), digest_size=6).hexdigest()
    seen[made] += 1
    return made if seen[made] == 1 else f"{made}-{seen[made]}"


def say_made(source: str, made: int, count: int) -> None:
    """Warn that `made` of `count` questions have no id of their own, if any lack it."""
    if made:
        _say(source, f"{made} of {count} questions have no `id`; pyfast makes one from the question's text")


def _records(path: Path, columns: Mapping[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    suffix = path.suffix.lower()
    asked = {_key(columns.get(name, name)) for name in _ASKED}
    if suffix in (".csv", ".tsv"):
        text = read_text(path)
        return _of_table(path, "line", rows(path, text, dialect_of(path, text)), asked, columns)
    if suffix == ".xlsx":
        return _of_sheet(path, asked, columns)
    if suffix in (".parquet", ".arrow", ".feather"):
        listed = {*_LISTED_FIELDS, *columns.values()} - asked
        numbered = ((f"{path}, row {number}", row) for number, row in enumerate(records(path), start=1))
        return ((place, _with_lists(row, listed, place)) for place, row in numbered)
    return _lines_of(path)


def _with_lists(row: Mapping[str, Any], listed: Set[str], place: str) -> dict[str, Any]:
    """Read the texts in some fields of a row as the lists that they are, as in a CSV file."""
    return {name: _value(it, name, place) if name in listed else it for name, it in row.items()}


def rows_of_table(given: Any) -> Any:
    """Return the rows of a DataFrame or an Arrow table as mappings. Other values are returned unchanged."""
    if not hasattr(given, "columns"):
        return given
    with explained():
        import pyarrow as pa
    try:
        try:
            rows = pa.table(given).to_pylist()
        except pa.ArrowException:  # A column of pandas may contain several types, such as texts and dates.
            rows = given.to_dict("records")
    except (AttributeError, TypeError, pa.ArrowException) as error:
        raise InputError(f"{type(given).__name__}: its rows cannot be read: {error}") from None
    places = (f"{type(given).__name__}, row {number}" for number in range(1, len(rows) + 1))
    return [_with_lists(_given(row), _LISTED_FIELDS, place) for row, place in zip(rows, places, strict=True)]


def _lines_of(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the same as `read_lines`, but with the numbers in gold answers as written in the file."""
    for place, record, line in read_each_line(path):
        if isinstance(record, InputError):
            raise record
        parts = _parts(record)
        golds = (one[name] for one in parts if isinstance(one, dict) for name in _ANSWERS if name in one)
        if not all(isinstance(it, str) for gold in golds for it in (gold if isinstance(gold, list) else [gold])):
            written = json.loads(line, parse_float=_fraction, parse_int=Decimal, parse_constant=lambda _: None)
            for one, same in zip(parts, _parts(written), strict=True):
                if isinstance(one, dict):
                    one |= {name: same[name] for name in _ANSWERS if name in one}
        yield place, record


def _parts(record: dict[str, Any]) -> list[Any]:
    """Return a record and, if it is a conversation, its turns."""
    turns = record.get("turns")
    return [record, *turns] if isinstance(turns, list) else [record]


def _fraction(digits: str) -> float | Decimal:
    """Parse a JSON number without losing digits, as in 3.50. Numbers that end in `.0` become floats, because
    pandas writes whole numbers in this way if a column has nulls."""
    return float(digits) if digits.endswith(".0") else Decimal(digits)


def _given(row: Mapping[str, Any]) -> dict[str, Any]:
    """Drop the blank fields of a row, and the unnamed index of a DataFrame. The asker's own columns stay, so that
    `export` has all of them, and so does a blank `question`, which shows that the column exists."""
    return {
        name: None if _is_nothing(value) else value
        for name, value in row.items()
        if not str(name).startswith("__index_level_")
        and (name not in _KNOWN - {"question"} or not _is_nothing(value))
    }


def _header(rows: Sequence[tuple[str, ...]], asked: Set[str]) -> int | None:
    """Return the position of the row with the column names: one of them is in `asked`, or (in gold without
    questions) two are fields that pyfast knows. Unlike the corpus reader, which must guess its captions, this
    function knows the names. Returns None if there is no such row."""
    names = ({_key(cell) for cell in row} for row in rows)
    return next((k for k, some in enumerate(names) if some & asked or len(some & _FIELDS) > 1), None)


def _of_sheet(path: Path, asked: Set[str], columns: Mapping[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of the sheet with the questions."""
    from pyfast.corpus.formats.xlsx import read_sheets

    try:
        with explained():
            sheets = [one for one in read_sheets(path, typed=True)[1] if one[1].rows]
    except (PyfastError, OSError):
        raise
    except Exception as error:  # The library may raise any exception.
        raise InputError(f"{path} cannot be read: {error}") from error
    if not sheets:
        return
    named = [one for one in sheets if _header(one[1].rows[:MOST_ABOVE], asked) is not None]
    widest = max(sheets, key=lambda one: max(map(_filled, one[1].rows[:MOST_ABOVE])))
    sheet, found = named[0] if named else widest
    if others := len(sheets) - 1:
        why = "the first with the columns of questions" if named else "no sheet has a column `question`"
        more = f"{counted(others, 'more sheet is', 'more sheets are')} not read"
        _say(str(path), f"only the sheet {sheet.title!r} is read ({why}); {more}")
    notes = _notes(found.rows, asked)
    if notes:
        left_out = some([str(found.numbers[row]) for row in sorted(notes)])
        _say(str(path), f"rows with text only in their first column are left out: {left_out}")
    numbered = ((found.numbers[row], cells) for row, cells in enumerate(found.rows) if row not in notes)
    yield from _of_table(path, "row", numbered, asked, columns, found)


def _notes(rows: Sequence[tuple[str, ...]], asked: Set[str]) -> set[int]:
    """Return the positions of rows with text only in their first column, which is not the question column: notes
    at the end, and names of groups above questions. A text above a question that may be an id is not a name."""
    start = _header(rows[:MOST_ABOVE], asked)
    names = [] if start is None else [_key(name) for name in rows[start]]
    first = next((k for k, name in enumerate(names) if name), 0)
    if start is None or not asked & {*names} or names[first] in asked:
        return set()
    below = range(start + 1, len(rows))
    alone = [k for k in below if any(rows[k]) and rows[k][first : first + 1] == ("".join(rows[k]),)]
    last = max((k for k in below if any(rows[k]) and k not in alone), default=start)
    return {k for k in alone if k > last or _GROUP.search(rows[k][first].strip())}


_GROUP = re.compile(r"\s|^\D+$")  # two words, or no digit


def _of_table(
    path: Path,
    unit: str,
    records: Iterable[tuple[int, tuple[str, ...] | Unread]],
    asked: Set[str],
    columns: Mapping[str, str],
    sheet: Sheet | None = None,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of a table. In a sheet, fields that pyfast knows are strings as the sheet shows them, and
    other cells keep their types (number, date or boolean)."""
    texts = {*_FIELDS, *map(_key, columns.values())}
    records = iter(records)
    above = list(islice(records, MOST_ABOVE))
    rows = [() if isinstance(row, Unread) else row for _, row in above]
    if (start := _header(rows, asked)) is None:
        # An error will name the columns: the row with the most cells, because titles have fewer.
        start = max(range(len(rows)), key=lambda k: _filled(rows[k]), default=0)
    elif start:
        _say(str(path), f"{unit} {above[start][0]} contains the column names; the {unit}s above it are left out")
    header: tuple[str, ...] | None = None
    gold_at = 0
    for number, row in chain(above[start:], records):
        place = f"{path}, {unit} {number}"
        if isinstance(row, Unread):  # Nobody would notice a missing question.
            raise InputError(f"{path}, {row.reason.removesuffix('; this line is left out')}")
        if header is None:
            header = tuple(_key(name) for name in row)
            gold = _key(columns["answers"]) if "answers" in columns else gold_field([dict.fromkeys(header)])
            gold_at = header.index(gold) + 1 if gold in header else 0
            if repeated := {name for name in header if name and header.count(name) > 1}:
                raise InputError(f"{place}: two columns are called {sorted(repeated)[0]!r}")
            empty = list[str]()
            for (row_number, column), cell in (
                {} if sheet is None else sheet.lacking
            ).items():  # also in rows that contain nothing else
                name = header[column - 1] if column <= len(header) else ""
                if row_number == number or (row_number > number and name in texts | _KNOWN):
                    raise InputError(
                        f"{path}, {cell}: a formula has no stored value; save the file in a spreadsheet program"
                    )
                empty += [cell] if row_number > number and name else []
            if empty:
                what = "formulas have no stored value and count as empty cells"
                _say(str(path), f"{what}: {some(empty)}; save the file in a spreadsheet program")
        elif _filled(row[len(header) :]):
            raise InputError(
                f"{place}: expected {len(header)} cells, got {len(row)}; quote cells that contain the delimiter"
            )
        elif _filled(row):
            record = dict[str, Any]()
            for column, (name, cell) in enumerate(zip_longest(header, row[: len(header)], fillvalue=""), start=1):
                typed = None if sheet is None or name in texts else sheet.values.get((number, column))
                value = _value(cell, name, place) if typed is None else typed
                record[name] = value if cell.strip() else None
            # A prompt shows a date as the corpus does, so both forms are right. With `all`, they would be two
            # answers.
            is_set = record.get(_key(columns.get("answer_mode", "answer_mode"))) == "all"
            if sheet is not None and not is_set and (date := sheet.dates.get((number, gold_at))):
                record[header[gold_at - 1]] = [record[header[gold_at - 1]], date]
            yield place, record


def _filled(row: Sequence[str]) -> int:
    """Count the cells that are not blank."""
    return sum(not cell.isspace() for cell in row if cell)


def _key(name: str) -> str:
    """Return the name of a column, in lower case if it is a field that pyfast knows."""
    name = name.strip()
    return name.lower() if name.lower() in _FIELDS else name


_MOST_LITERAL = 1 << 20
# Lists and objects that contain strings, as Python and NumPy print them: ['a' 'b'], {'text': array(['a'])}.
_LISTED = re.compile(
    r"""[\[{][\[{(\s]*(?:(?:None|nan)[\s,]+)*(?:['"“”„‘’«]|(?:array|list|Decimal|Timestamp)\(|(?:datetime|np)\.).*[\]}]""",
    re.DOTALL,
)
# Numbers as NumPy prints them, or a list that is cut off
_LISTED_ANSWERS = re.compile(r"""\[[-+.\de\s]+\]|\[\s*['"“”„‘’«][^\]]*""")


def _value(cell: Any, name: str, place: str) -> Any:
    text = cell.strip() if isinstance(cell, str) else ""
    if not text.startswith(("[", "{", "('", '("')):
        return cell
    try:
        return parse_json(text)
    except orjson.JSONDecodeError:
        pass
    # Python parses NumPy's ['a' 'b'] as ['ab'], so a value is accepted only if Python prints it in the same way.
    value = _literal(text)
    if isinstance(value, list | tuple | dict) and repr(value) == text:
        return value
    if _LISTED.fullmatch(text) or (name in _ANSWERS and _LISTED_ANSWERS.fullmatch(text)):
        shown = " ".join(text.split())
        shown = shown if len(shown) <= 40 else f"{shown[:40]}..."
        raise InputError(f"{place}, column {name!r}: {shown} is not a list that pyfast can read; write it as JSON")
    return cell


def _literal(text: str) -> Any:
    """Return the value of a Python literal, or None. Only constants and containers of constants are parsed."""
    try:
        return ast.literal_eval(text) if len(text) <= _MOST_LITERAL else None
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def tidy(
    record: Mapping[str, Any], id: str | None = None, source: str = "", gold: str | None = None
) -> dict[str, Any]:
    """Convert the fields of a question into the usual form.

    A whole number as `id` becomes a string without decimals, and `answers` a list of strings (see `texts_of`).
    They come from the field `gold` or, if it is None, from the `gold_field` of this record alone. A single uri as
    `supporting` or `documents` becomes a list. `id` is used if the record has none. A warning about `source` names
    the gold field, unless it is `answers`."""
    fields = dict(record)
    gold = gold_field([record]) if gold is None else gold
    given = fields.get("id")
    # Whole numbers in a column with a gap are floats. Larger floats have already lost digits.
    if type(given) is int or (
        isinstance(given, float | Decimal) and given % 1 == 0 and -(1 << 53) < given < 1 << 53
    ):
        fields["id"] = str(int(given))
    if id is not None and _is_nothing(fields.get("id")):
        fields["id"] = id
    if gold not in (None, "answers") and source:
        _say(source, f"there is no field `answers`; the gold answers are taken from `{gold}`")
    turns = fields.get("turns")
    if gold is not None and not isinstance(turns, list):
        fields["answers"] = texts_of(fields.pop(gold, None))
    for name in ("supporting", "documents"):
        if isinstance(uri := fields.get(name), str) and uri.strip():
            fields[name] = [uri]
    if isinstance(turns, list):
        named = ((f"{fields.get('id')}-{place}", turn) for place, turn in enumerate(turns, start=1))
        fields["turns"] = [
            tidy({"id": id, **_given(turn)}, gold=gold) if isinstance(turn, Mapping) else turn
            for id, turn in named
        ]
    return fields


_ASKED = ("question", "turns")
_ANSWERS = ("answers", "expected", "gold", "golden_answers", "answer")
_LISTED_FIELDS = frozenset((*_ANSWERS, "documents", "supporting", "turns"))
_FIELDS = frozenset(("id", *_ASKED, "documents", "answerable", "answer_mode", "supporting", *_ANSWERS))
_FIELDS |= {"type", "scale", "metrics", "domain", "answer_src", "pair"}


# The fields that pyfast reads. `type` and `domain` are also the asker's own.
_KNOWN = {*_FIELDS, "supporting_facts", "supporting_cells", "sentence_starts", "published_as", ""}
# `tidy` has moved the gold to `answers`, so that any other such field, such as `answer`, is the asker's.
_NOT_OWN = _KNOWN - {"type", "domain", *_ANSWERS[1:]}


def own_columns(records: Iterable[tuple[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Return the fields of each question that pyfast does not use, by question id. A turn also has those of its
    conversation. `records` is the result of `read_question_records`."""
    found = {}
    for _, record in records:
        turns = record.get("turns")
        for one in turns if isinstance(turns, list) else [record]:
            if isinstance(one, Mapping):
                fields = {**record, **one}
                own = ((name, value) for name, value in fields.items() if name not in _NOT_OWN)
                found[str(one.get("id"))] = {name: None if _is_nothing(value) else value for name, value in own}
    return found


def texts_of(value: Any) -> Any:
    """Return gold answers as a list of strings. Numbers become their digits, and booleans `yes` or `no`. Nulls,
    NaN and blank strings are left out. Of an object with `text`, as in SQuAD, only this text is used. Other values
    stay unchanged, so that the check of the record rejects them.

    Example:
        >>> from pyfast.engine.question_files import texts_of
        >>> texts_of([1971, True, None, "Huygens"])
        ['1971', 'yes', 'Huygens']
    """
    if isinstance(value, Mapping) and "text" in value:
        value = value["text"]
    value = value.tolist() if hasattr(value, "tolist") else value  # a NumPy array, as in a pandas DataFrame
    items = value if isinstance(value, list | tuple) else [value]
    return [
        _text(item) for item in items if not (_is_nothing(item) or (isinstance(item, str) and not item.strip()))
    ]


def _text(item: Any) -> Any:
    if isinstance(item, bool):
        return "yes" if item else "no"
    if isinstance(item, Decimal):
        return f"{item:f}"
    if isinstance(item, datetime) and item.time() == time():
        item = item.date()  # pandas and openpyxl represent dates as datetimes
    if isinstance(item, int | date | time):
        return str(item)
    if isinstance(item, float) and abs(item) < 1 << 53:  # Larger floats have already lost digits.
        return str(int(item)) if item.is_integer() else repr(item)
    return item


def _is_nothing(value: Any) -> bool:
    """Return whether a value is None, NaN, or a null of pandas, which need not be installed."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return value is None or is_nan or type(value).__name__ in ("NAType", "NaTType")


def _is_gold(value: Any) -> bool:
    return not isinstance(value, Mapping) or "text" in value


_TOLD = set[str]()


def quietly(path: Path) -> Path:
    """Suppress further warnings about a file's columns, because `answer` has given them. Return the file."""
    _TOLD.add(str(path))
    return path


@lru_cache(256)  # A file is read more than once, but each warning appears only once.
def _say(source: str, what: str) -> None:
    if source not in _TOLD:
        LOG.warning("%s: %s", source, what)


def as_path(given: str) -> Path | None:
    """Return a string as a path if it names an existing file or has the suffix of a question file, otherwise
    None."""
    if "\n" in given or len(given) > 4096:
        return None
    path = Path(given)
    if path.suffix.lower() in SUFFIXES and " " not in path.suffix:
        return path
    try:
        return path if path.is_file() else None
    except OSError:
        return None
