"""Read CSV and TSV files. pyfast finds the delimiter and the quotes."""

from __future__ import annotations

import contextlib
import csv
import io
import re
import sys
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, islice, pairwise, takewhile
from pathlib import Path
from typing import Any

import pyfast.corpus.grids as grids
from pyfast.corpus.documents import Document, KnowledgeGraph, Triple, Unread
from pyfast.corpus.formats.files import read_text

_DELIMITERS = [",", ";", "\t", "|"]
_SAMPLE = 1 << 13
_AT_ONCE = 1 << 20
_MOST_CAPTIONS = 5
_MOST_PAIRS = 10
_MOST_COMPARED = 50
_MOST_SHARE = 0.8
_NAMED = re.compile(r'"?sep=([,;\t|])"?[ \t]*\r?\n', re.IGNORECASE)
_QUOTED = re.compile(r"""("[^"\n]*"[,;\t]?)+\r?\n"[^"\n]*"[,;\t].*(?<=[,;\t])[^",;\t\r\n]""")
_ESCAPED_QUOTE = '\\"'
_PARTS = {"head": "head subject", "relation": "relation predicate property", "tail": "tail object"}
"""The names of the parts of a triple, each with those that its column can have"""
_DECIMAL_COMMA = re.compile(r"\s*-?\d{1,3}(?:\.?\d{3})*,\d+\s*")
_Record = tuple[int, tuple[str, ...] | Unread]
"""The number of a record's first line, and its fields or why it cannot be read"""


def read_table(uri: str, path: Path) -> Iterator[Document | Unread]:
    """Read the tables in a file. The first line of the file is the header, unless a caption or pairs stand above
    it. Below an empty line, another table can begin."""
    text = read_text(path)
    dialect = dialect_of(path, text)
    if named := _NAMED.match(text):  # An empty line replaces it, so that line numbers stay.
        text = "\n" + text[named.end() :]
    faults: list[Unread] = []
    captions, records = _captions(rows(path, text, dialect))
    ahead = list(islice(records, grids.MOST_CUT + 1))
    parts: list[grids.TableParts] = []
    for first, end in pairwise([0, *_cuts(ahead), len(ahead)]):
        some: Iterator[_Record] = chain(ahead[first:end], records)
        if first:
            alone = takewhile(
                lambda it: not isinstance(it[1], Unread) and sum(map(bool, it[1])) == 1, ahead[first:end]
            )
            if captions := [next(filter(None, row)) for _, row in alone if not isinstance(row, Unread)]:
                some = chain(ahead[first + len(captions) : end], records)
            else:
                captions, some = _captions(some)
        start = list(islice(some, grids.MOST_CUT))
        if names := _with_name_of_rows(start, dialect is WrittenByR or bool(_QUOTED.match(text))):
            line = start[0][0]
            start[0] = line, names
            said = f"line {line}: the first column has no name, as in files written by R"
            faults.append(Unread(path, said, missing=False))
        some = chain(start, some)
        lines = array("q")
        below = _rows(path, some, faults, lines)
        above = list(islice(below, grids.MOST_ABOVE))
        caption, header, top, places, *_ = grids.table_parts(grids.Grid(above))
        if len(top) > 1 and all(cell.startswith('{"ImportId":') for cell in top[1]):  # the questions of Qualtrics
            header = tuple(map(" ".join, zip(header, top[0], strict=False)))
            top, places = top[2:], places[2:]
        kept = grids.pack(chain(top, below))
        header, beside = grids.remarks_beside(above, header, kept)
        numbers = array("q", chain((lines[place - 1] for place in places), islice(lines, grids.MOST_ABOVE, None)))
        section = " ".join(filter(None, [*captions, caption]))
        beside = tuple((lines[place - 1], row) for place, row in beside)
        parts.extend(grids.by_group(grids.TableParts(section, header, kept, numbers, beside=beside)))
    for number, part in enumerate(parts, start=1):
        ending = f"#table-{number}" if number > 1 else ""
        yield part.document(uri + ending, grids.title_of(path), part.caption)
    yield from faults


def _with_name_of_rows(records: Sequence[_Record], is_quoted: bool) -> tuple[str, ...]:
    """The whole header if that of the file lacks the first cell, as R and pandas have it above names of rows: it
    has one cell fewer than every row, and no name repeats. In a file written by hand, the last column can lack its
    name. So the names are 1, 2, 3, or all other cells are numbers, or a program has put names in quotes, and
    numbers not. A delimiter at the end of each row is no cell. Otherwise, an empty header."""
    header, *below = [() if isinstance(row, Unread) else row for _, row in records] or [()]
    names = [row[0] for row in below if len(row) == len(header) + 1 and row[0]]
    if not header or len(below) < 2 or len({*names}) < len(below) or not any(row[-1] for row in below):
        return ()
    counted = names == [str(number) for number in range(1, len(names) + 1)]
    numbers = counted or all(map(grids.is_number, chain(*(row[1:] for row in below))))
    return ("", *header) if numbers or is_quoted else ()


def _cuts(records: Sequence[_Record]) -> list[int]:
    """Return where another table begins: below an empty line, as in a sheet. A title can be above its header."""
    if len(records) > grids.MOST_CUT:
        return []
    cuts: list[int] = []
    title: int | None = None
    rows = [() if isinstance(row, Unread) else row for _, row in records]
    before = next((row for row in rows if grids.width_of(row) > 1), ())  # the header of the table before it
    gaps = [k for k in range(1, len(records)) if _is_gap(records[k - 1], records[k][0])]
    for first, end in pairwise([*gaps, len(records)]):
        block = list(filter(any, rows[first:end]))
        head = next((k for k, row in enumerate(block) if grids.width_of(row) > 1), len(block))
        begin = first if title is None else title
        names, below = (grids.without_gaps(block[head]), block[head + 1 :]) if head < len(block) else ((), [])
        titled = next((row[0] for row in rows[begin:end] if any(row)), "")
        is_titled = head == 1 or (head == 0 and title is not None)
        is_wider = 1 < len(before) < len(names) == min(map(grids.width_of, below), default=0) and all(names)
        if head < 2 and (
            (is_wider and not any(map(grids.is_number, names)))
            or grids.is_only_header(names, below)
            or (is_titled and grids.begins_table(titled, names, below, before))
        ):
            cuts.append(begin)
            before = names
        is_below = title is None and all(grids.is_remark(next(filter(None, row))) for row in block)
        title = begin if head == len(block) and not is_below else None
    return cuts


def _is_gap(above: _Record, line: int) -> bool:
    """Whether an empty line is above this line."""
    before, row = above
    if isinstance(row, Unread):
        return False
    return not any(row) or line > before + 1 + sum(cell.count("\n") for cell in row)


def _captions(records: Iterator[_Record], with_tables: bool = False) -> tuple[list[str], Iterator[_Record]]:
    """Take the lines above the header: pairs, see `_pairs`, or lines that are not divided. Returns (their texts,
    the records below them).

    A line is not divided if it has no delimiter, or, as a sentence, fewer than the header and a space after each.
    Such a line is a caption if an empty line follows, if it is a comment (`#`), or if it has several words and
    what follows can be a header. `text` above `Hello, you` is the name of a column whose cells have commas.
    With `with_tables`, a narrower table above another one counts as pairs.
    """
    above = list(islice(records, _MOST_PAIRS + _MOST_COMPARED))
    texts, start = _captions_in(above, with_tables)
    return texts, chain(above[start:], records)


def _captions_in(above: Sequence[_Record], with_tables: bool) -> tuple[list[str], int]:
    if (start := _pairs(above)) and (with_tables or not _is_table(above[:start], above[start])):
        lines = [row for _, row in above[:start] if not isinstance(row, Unread) and any(row)]
        texts = [",".join(row) if _is_sentence(row) else " ".join(filter(None, row)) for row in lines]
        return ["; ".join(text.strip("# ") for text in texts)], start
    first = next((k for k, (_, row) in enumerate(above) if isinstance(row, Unread) or not _is_sentence(row)), 0)
    plain = [row for _, row in above[:first] if not isinstance(row, Unread)]
    line, header = above[first] if above else (0, ())
    if not first or first > _MOST_CAPTIONS or first + 1 == len(above) or isinstance(header, Unread):
        return [], 0
    if max(map(len, plain)) >= len(header):
        return [], 0
    texts = [",".join(row).strip() for row in plain]
    is_header = all(cell and not cell[0].isspace() and not grids.is_number(cell) for cell in header)
    if line - above[first - 1][0] > 1 or texts[-1].startswith("#") or (" " in texts[-1] and is_header):
        return [text.lstrip("# ") for text in texts], first
    return [], 0


def _pairs(above: Sequence[_Record]) -> int:
    """Return how many of the first records are above the header, such as the account and the dates of a bank
    statement. Returns 0 if it is not certain.

    The header is wider than each of them, and as wide as most rows below it. An empty line is above it, or each of
    them begins with a name and a colon: else the first of them can be a header that lacks names.
    """
    filled = [0 if isinstance(row, Unread) else grids.width_of(row) for _, row in above]
    for start in range(1, min(len(above) - 1, _MOST_PAIRS + 1)):
        (_, last), (line, row) = above[start - 1], above[start]
        if isinstance(last, Unread):
            return 0
        if isinstance(row, Unread) or filled[start] <= max(filled[:start]):
            continue
        gap = _is_gap(above[start - 1], line)
        named = all(not isinstance(it, Unread) and it[0].rstrip().endswith(":") for _, it in above[:start])
        end = next((k for k in range(start + 2, len(above)) if _is_gap(above[k - 1], above[k][0])), 0)
        block = above[start + 1 : end if end > start + 3 else len(above)]
        below = [not isinstance(it, Unread) and len(it) == len(row) for _, it in block]
        # A column of row names needs no name, as on a lab plate.
        is_header = all(row[1 : filled[start]]) and not grids.is_number(row[0])
        if (gap or named) and is_header and sum(below) >= _MOST_SHARE * len(below):
            return start
    return 0


def _is_table(records: Sequence[_Record], wider: _Record) -> bool:
    """Whether the lines above a wider header are a table of their own, and no pairs of a key and its value. Two
    columns are one if all their values are numbers, or if the wider table has one of their names too."""
    rows = [() if isinstance(row, Unread) else grids.without_gaps(row) for _, row in [*records, wider]]
    *block, header = [row for row in rows if len(row) > 1]
    names, *below = block or [()]
    if not below or len(set(map(len, block))) > 1 or not all(names) or any(map(grids.is_number, names)):
        return False
    keys, values = [row[0] for row in block], [row[1] for row in below]
    if len(names) > 2 or any(key.rstrip().endswith(":") for key in keys):
        return len(names) > 2
    are_numbers = len(values) > 1 and all(grids.is_number(it) and not grids.time_of(it) for it in values)
    return (
        names[1] in header
        or all(map(grids.is_number, keys[1:]))
        or (are_numbers and not re.search(r"\d", names[1]))
    )


def _is_sentence(row: Sequence[str]) -> bool:
    return all(cell[:1] == " " for cell in row[1:])


def _rows(
    path: Path, records: Iterator[_Record], faults: list[Unread], lines: array[int]
) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a table. Their lines are added to `lines`, and what cannot be read to `faults`."""
    width = longer = first = 0
    for line, row in records:
        if isinstance(row, Unread):
            faults.append(row)
            continue
        width = width or len(row)
        if len(row) > width:
            longer, first = longer + 1, first or line
        lines.append(line)
        yield row
    if longer:
        more = f"line {first}: more cells than the header" + (f" (in {longer} rows)" if longer > 1 else "")
        faults.append(Unread(path, f"{more}; these cells are stored without a column name", missing=False))


_PARTS_OF_LINE = re.compile(r"""\\.|["']|[^\\"']+|\\""", re.DOTALL)


class PlainTabs(csv.excel_tab):
    """The CSV dialect of knowledge graphs: tabs are delimiters, and a quote is an ordinary character of a name."""

    quoting = csv.QUOTE_NONE


class WrittenByR(csv.excel):
    """The CSV dialect in which R writes a table: blanks are delimiters, and a quote has a backslash before it."""

    delimiter, escapechar, doublequote = " ", "\\", False


_TEXT_OF_R = r'"(?:[^"\\\r\n]|\\.)*"'
_VALUE_OF_R = rf"(?:{_TEXT_OF_R}|NA|NaN|-?Inf|TRUE|FALSE|\d{{4}}-\d\d-\d\d|-?\d+(?:[.,]\d+)?(?:e[-+]\d+)?)"
_HEADER_OF_R = re.compile(rf"{_TEXT_OF_R}(?: {_TEXT_OF_R})*")
_ROW_OF_R = re.compile(rf"{_VALUE_OF_R}(?: {_VALUE_OF_R})+")


def is_written_by_r(text: str) -> bool:
    """Whether a text is surely a table that R wrote with blanks between its cells: the names of the columns and
    all other texts are in quotes, and all rows have names before them, or are as wide as the header and not of
    texts alone."""
    header, *below = text.rstrip().splitlines() if text[:1] == '"' else [""]
    if len(below) < 2 or not _HEADER_OF_R.fullmatch(header) or not all(map(_ROW_OF_R.fullmatch, below)):
        return False
    width, *others = (len(re.findall(_VALUE_OF_R, line)) for line in (header, *below))
    lines = [re.sub(_TEXT_OF_R, "", line) for line in below]
    return set(others) == {width + 1} or (set(others) == {width} and any(map(str.strip, lines)))


def rows(path: Path, text: str, dialect: type[csv.Dialect]) -> Iterator[_Record]:
    """Yield the number of the first line and the fields of every record that is not empty.

    A record that cannot be parsed comes as an `Unread`, unless backslashes before its quotes are the reason.
    Reading continues with the line after the record's first line: a quote that is never closed would otherwise
    take all lines up to the next quote.
    """
    csv.field_size_limit(sys.maxsize)
    source, again = _lines(text), list[str]()
    taken: list[str] = []  # the lines of the record that is being read

    def feed() -> Iterator[str]:
        while (line := again.pop() if again else next(source, None)) is not None:
            taken.append(line)
            yield line

    done = width = 0
    while True:
        try:
            for row in csv.reader(_escapes(feed(), dialect), dialect, strict=True):
                if row:
                    width = width or len(row)
                    yield done + 1, tuple(row)
                done += len(taken)
                taken.clear()
            return
        except csv.Error as error:
            if any(_ESCAPED_QUOTE in line for line in taken) and dialect.quotechar and not dialect.escapechar:
                again.extend(reversed(taken))
                taken.clear()
                with contextlib.suppress(csv.Error):
                    escaped = _escaped(dialect)
                    row = next(csv.reader(_escapes(feed(), escaped), escaped, strict=True))
                    if len(row) == (width or len(row)):
                        yield done + 1, tuple(row)
                        done += len(taken)
                        taken.clear()
                        continue
            plain = taken[0].rstrip("\r\n").split("\t")
            if dialect.delimiter == "\t" and "expected after" in str(error) and len(taken) == 1 < len(plain):
                yield done + 1, tuple(plain)  # A quote belongs to a word: `"Gorilla" glue`.
            else:
                yield done + 1, Unread(path, f"line {done + 1}: {_why(error)}; this line is left out")
            again.extend(reversed(taken[1:]))
            done += 1
            taken.clear()


def _why(error: csv.Error) -> str:
    if "end of data" in str(error):
        return "an unclosed quote"
    return "text after the closing quote of a cell" if "expected after" in str(error) else str(error)


def _lines(text: str) -> Iterator[str]:
    """Yield the lines of a text. `io.StringIO` takes four bytes for each character, so it gets only a part of
    the text at a time.
    """
    start = 0
    while start < len(text):
        end = text.find("\n", start + _AT_ONCE) + 1 or len(text)
        yield from io.StringIO(text[start:end], newline="")
        start = end


def dialect_of(path: Path, text: str) -> type[csv.Dialect]:
    """Find the dialect (delimiter and quotes) of a CSV or TSV file, from its name and its first records.

    The suffix of the name suggests a delimiter: a tab or a comma. A delimiter fits if it divides each of the first
    records into the same number of cells, at least two. A suggested tab that fits is used. So is a suggested
    comma, unless another fitting delimiter gives more cells. If the suggested delimiter does not fit, another that
    fits is used. If none fits, the same is tried without the lines at the beginning that may be a caption (see
    `_captions`). If none fits then, and the suggested delimiter does not divide the first record, a delimiter is
    used that divides more than half of the records into as many cells as the first. Otherwise, the delimiter that
    clevercsv guesses is used, but only if it divides the records more evenly than the suggested one.

    If two fit and give equally many cells, the one whose cells have no decimal commas and no leading space is
    used. A first line such as `sep=;`, as spreadsheets write it, names the delimiter.
    """
    if said := _NAMED.match(text):
        return type("Given", (csv.excel,), {"delimiter": said[1]})
    if is_written_by_r(text):
        return WrittenByR
    named = csv.excel_tab if path.name.lower().endswith((".tsv", ".tab")) else csv.excel
    if named is csv.excel_tab and '"' in text and _has_lone_quotes(text):
        return PlainTabs
    widths = _widths(text, named)
    escaped = _escaped(named)
    if len(widths) > 1:  # The reason can be quotes after a space or a backslash.
        spaced = type("Spaced", (named,), {"skipinitialspace": True})
        for sign, dialect in ((f'{named.delimiter} "', spaced), (_ESCAPED_QUOTE, escaped)):
            if sign in text[:_SAMPLE] and len(_widths(text, dialect)) == 1:
                return dialect
    elif (
        _ESCAPED_QUOTE in text[:_SAMPLE]
        and not _widths(text, named, True)
        and len(_widths(text, escaped, True)) == 1
    ):
        return escaped
    others = [mark for mark in _DELIMITERS if mark != named.delimiter and mark in text[:_SAMPLE]]
    is_even = len(widths) == 1 and max(widths) > 1
    if not others or (is_even and named is csv.excel_tab):
        return named
    given = [type("Given", (csv.excel,), {"delimiter": mark}) for mark in others]
    if is_even and '"' in text[:_SAMPLE] and _widths(text, named, True):  # Other marks within quotes do not count.
        given = [dialect for dialect in given if _widths(text, dialect, True)]
    # Decimal commas, one in each line, look like a delimiter. The real delimiter makes more cells.
    counts = {dialect: _widths(text, dialect) for dialect in given}
    same = [(max(found), dialect) for dialect, found in counts.items() if len(found) == 1]
    most, dialect = max(same, key=lambda it: it[0], default=(0, named))
    if most > (max(widths) if len(widths) == 1 else 1):
        return dialect
    if is_even:
        return dialect if most == max(widths) and _is_punctuation(text, named, dialect) else named
    below = {dialect: _widths_below_caption(path, text, dialect) for dialect in (named, *given)}
    fitting = [dialect for dialect, found in below.items() if len(found) == 1 and max(found) > 1]
    if fitting:  # The real delimiter divides the header too.
        return max(fitting, key=lambda dialect: (below[dialect].total(), max(below[dialect])))
    if next(iter(widths), 1) == 1:  # Another delimiter may divide the header, and most records like it.
        heads = {dialect: next(iter(found), 1) for dialect, found in counts.items()}
        mostly = [one for one in given if heads[one] > 1 and 2 * counts[one][heads[one]] > counts[one].total()]
        if mostly:
            return max(mostly, key=lambda dialect: heads[dialect])
    if len(widths) == 1:
        return named
    guessed = _sniffed(text[: text.rfind("\n", 0, _SAMPLE) + 1] or text[:_SAMPLE])
    return guessed if guessed and _evenness(_widths(text, guessed)) > _evenness(widths) else named


def _has_lone_quotes(text: str) -> bool:
    """Whether quotes are ordinary characters: a line has an odd number of them, and each line has as many tabs."""
    tabs, is_odd = set[int](), False
    for line in filter(str.strip, _lines(text)):
        tabs.add(line.count("\t"))
        if len(tabs) > 1:
            return False
        is_odd |= bool(line.count('"') % 2)
    return is_odd


def _escaped(dialect: type[csv.Dialect]) -> type[csv.Dialect]:
    """The dialect in which a backslash can stand before a quote within a cell."""
    return type("Escaped", (dialect,), {"escapechar": "\\"})


def _escapes(lines: Iterator[str], dialect: type[csv.Dialect]) -> Iterator[str]:
    """Double the backslashes outside of quotes that escape nothing. Python's parser would drop them: a NULL `\\N`
    of a database would be `N`, and `C:\\new` would be `C:new`."""
    if dialect.escapechar != "\\" or dialect.quoting == csv.QUOTE_NONE:
        yield from lines
        return
    is_quoted, escaping = False, {dialect.delimiter, dialect.quotechar, "\r", "\n"}
    for line in lines:
        parts = list[str]()
        for part in _PARTS_OF_LINE.findall(line) if is_quoted or "\\" in line or '"' in line else [line]:
            is_quoted ^= part == dialect.quotechar
            is_literal = part[0] == "\\" and not is_quoted and part[1:] not in escaping
            parts.append(part.replace("\\", "\\\\") if is_literal else part)
        yield "".join(parts)


def _widths(text: str, dialect: type[csv.Dialect], strict: bool = False) -> Counter[int]:
    """Count the numbers of cells of the first records, in about `_SAMPLE` characters: whole records only, for a
    quoted cell may have line ends. With `strict`, there are none if a record cannot be parsed."""
    widths: Counter[int] = Counter()
    read = 0

    def lines() -> Iterator[str]:
        nonlocal read
        for line in _lines(text):
            read += len(line)
            yield line

    csv.field_size_limit(sys.maxsize)
    try:
        for row in csv.reader(_escapes(lines(), dialect), dialect, strict=strict):
            widths[len(row)] += bool(row)
            if read >= _SAMPLE:
                break
    except csv.Error:  # What comes before the fault is the sample.
        if strict:
            return Counter()
    return +widths


def _widths_below_caption(path: Path, text: str, dialect: type[csv.Dialect]) -> Counter[int]:
    """Count the numbers of cells of the first records below a caption. There are none if there is no caption."""
    captions, records = _captions(rows(path, text, dialect), with_tables=True)
    widths: Counter[int] = Counter()
    read = 0
    for _, row in records if captions else ():
        if isinstance(row, Unread):
            return Counter()
        widths[len(row)] += 1
        read += sum(map(len, row))
        if read >= _SAMPLE:
            break
    return widths


def _is_punctuation(text: str, mark: type[csv.Dialect], other: type[csv.Dialect]) -> bool:
    """Whether a delimiter rather stands within cells: it is always followed by a space and the other one never
    is, or it is the decimal comma of a column of numbers."""
    found, given = (
        [row for row in islice(csv.reader(_lines(text), one), _MOST_COMPARED) if row] for one in (mark, other)
    )
    if all(row[-1].startswith(" ") for row in found) and not any(row[-1].startswith(" ") for row in given):
        return True
    columns = zip(*given[1:], strict=True)
    return mark.delimiter == "," and any(all(map(_DECIMAL_COMMA.fullmatch, column)) for column in columns)


def _evenness(widths: Counter[int]) -> float:
    """The share of records that have the most frequent number of cells, if this is at least two."""
    return max((times for width, times in widths.items() if width > 1), default=0) / max(widths.total(), 1)


def _sniffed(sample: str) -> type[csv.Dialect] | None:
    """Return the dialect that clevercsv finds. None if it finds none."""
    from clevercsv.detect import Detector

    try:
        dialect: Any = Detector().detect(sample, delimiters=_DELIMITERS)
    except Exception:  # The dialect is only a guess from the first lines, so an error does not matter.
        return None
    if dialect is None or not dialect.delimiter:
        return None
    signs = {name: getattr(dialect, name) or None for name in ("delimiter", "quotechar", "escapechar")}
    quoting = csv.QUOTE_MINIMAL if dialect.quotechar else csv.QUOTE_NONE
    return type("Found", (csv.excel,), {**signs, "quoting": quoting})


def read_triples(uri: str, path: Path) -> Iterator[Document | Unread]:
    """Read the knowledge graph of a file. Each line has a head, a relation and a tail, and it can have a time."""
    triples: list[Triple] = []
    faults: list[Unread] = []
    for number, (line, row) in enumerate(rows(path, read_text(path), PlainTabs)):
        if isinstance(row, Unread):
            faults.append(row)
        elif not number and _names_parts(row):
            faults.append(Unread(path, f"line {line} is read as the header", missing=False))
        elif len(row) not in (3, 4):
            faults.append(Unread(path, f"line {line}: expected 3 columns, or 4 with a time, got {len(row)}"))
        elif "" in (texts := [*map(str.strip, row[:3])]):
            faults.append(Unread(path, f"line {line}: this triple has no {[*_PARTS][texts.index('')]}"))
        else:
            triples.append(Triple(row[0], row[1], row[2], (row[3] or None) if len(row) == 4 else None))
    if triples or not faults:
        yield KnowledgeGraph(uri, grids.title_of(path), tuple(triples))
    yield from faults


def _names_parts(row: Sequence[str]) -> bool:
    """Whether a line has the names of the columns, such as head, relation, tail."""
    names = (name.strip().lower() for name in row)
    return len(row) > 2 and all(name in usual.split() for name, usual in zip(names, _PARTS.values(), strict=False))
