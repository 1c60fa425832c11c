"""Read DOCX and PPTX files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from pyfast.corpus.documents import Document, Unread, noted
from pyfast.corpus.formats.drawings import A, M, choose, diagram, equation, not_read, objects, titles
from pyfast.corpus.formats.files import check_archive
from pyfast.corpus.formats.symbol_fonts import NO_LETTER, shown_in, sign_of
from pyfast.corpus.formats.xlsx import in_form
from pyfast.corpus.grids import Text, alternative, title_of, written
from pyfast.corpus.rendering import SHIFTS, struck, with_marks
from pyfast.errors import InputError
from pyfast.utils.text_forms import counted

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_WP = "{http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing}"
_EQUATION = "{http://schemas.microsoft.com/office/drawing/2010/main}m"
# Elements around content, which python-docx does not look into.
_AROUND = [_W + name for name in ("sdt", "smartTag", "customXml", "ins", "moveTo", "fldSimple", "bdo", "dir")]
_NO_LIST_NUMBERS = "list numbers were left out, because their format is"
_MOST_COLUMNS = 1 << 14
_MOST_STYLES = 20
# Files contain the names of Word's own heading styles in lower case.
_HEADING = re.compile(r"(?:Heading|heading(?= [1-9]$))\s*(?:(\d+)\s*$)?")


def read_docx(uri: str, path: Path) -> Iterator[Document | Unread]:
    """Read the paragraphs, headings and tables of a document. Headings become sections. What is inserted is read,
    what is deleted or hidden is not. The numbers that Word counts stand before their paragraphs. Text boxes and
    notes come after the paragraph in which they are.
    """
    check_archive(path)
    import docx
    from docx.table import Table as DocxTable

    file = docx.Document(str(path))
    signs: dict[str, None] = {}
    looks = _Looks(file.styles.element)
    for frame in file.element.body.iter(f"{A}graphicData"):
        if lines := diagram(frame, partial(_data_of, file.part)):
            frame.set("uri", "")  # Its text was read.
            frame.append(box := _made("w:txbxContent"))
            for line in lines:
                box.append(_made("w:p"))
                box[-1].append(_made("w:r", line))
    _unwrap(file.element.body, _notes(file.part, signs, looks), signs, looks)
    unknown = write_numbers(file, looks.styles)
    text = Text()
    title = caption = ""
    for block in file.iter_inner_content():
        if isinstance(block, DocxTable):
            rows = block._tbl.tr_lst
            heads = next((k for k, row in enumerate(rows) if row.find(f"{_W}trPr/{_W}tblHeader") is None), 0)
            text.table(_docx_cells(rows), _MOST_COLUMNS, heads or None, caption)
            caption = ""
            continue
        style = (block.style.name if block.style is not None else "") or ""
        said = with_marks(block.text).strip()
        if said and (depth := _depth(block, looks.styles)):
            text.heading(said, depth)
        elif style == "Title" and said:
            title = title or said
            text.heading(said, 1)
        else:
            text.add(said)
        caption = (said if style == "Caption" else "") or ("" if said else caption)
    yield from text.documents(uri, title_of(path, file.core_properties.title or title))
    yield from (Unread(path, what) for what in not_read(objects(file.element.body)))
    if looks.hidden:
        many = counted(looks.hidden, "paragraph", "paragraphs")
        yield Unread(path, f"hidden text was left out: {many}, in whole or in part", missing=False)
    yield from noted(path, f"symbols from fonts were read as {NO_LETTER}:", signs)
    yield from noted(path, _NO_LIST_NUMBERS, unknown)


def _depth(paragraph: Any, styles: Mapping[str, Any]) -> int:
    """The depth of a heading, by the paragraph itself, its style, or the styles on which this one is based. 0 for
    other paragraphs."""
    style = "" if paragraph.style is None else paragraph.style.style_id
    for it in (paragraph._p, *_based_on(styles, style)):
        if named := _HEADING.match(_value(it, "name")):
            return int(named[1] or 1)
        if level := _value(it, "pPr", "outlineLvl"):
            return int(level) + 1 if level in set("012345678") else 0
    return 0


def _docx_cells(rows: Iterable[Any]) -> list[list[tuple[str, int, int]]]:
    """The cells that begin in each row of a table. A cell that continues one above it makes that one longer."""
    cells: list[list[tuple[str, int, int]]] = []
    open_at: dict[int, tuple[int, int]] = {}
    for row in rows:
        begun: list[tuple[str, int, int]] = []
        cells.append(begun)
        still: dict[int, tuple[int, int]] = {}
        before = row.find(f"{_W}trPr/{_W}gridBefore")
        column = 0 if before is None else int(before.get(f"{_W}val", 0))
        if column:
            begun.append(("", 1, column))
        for cell in row.iterchildren(f"{_W}tc"):
            across = max(cell.grid_span, 1)
            if cell.vMerge == "continue" and column in open_at:
                number, at = still[column] = open_at[column]
                text, down, width = cells[number][at]
                cells[number][at] = (text, down + 1, width)
            else:
                begun.append((_docx_text(cell), 1, across))
                if cell.vMerge == "restart":
                    still[column] = (len(cells) - 1, len(begun) - 1)
            column += across
        open_at = still
    return cells


def _docx_text(cell: Any) -> str:
    """The text of a cell, with the tables in it."""
    lines = []
    for block in cell:
        if block.tag == f"{_W}p":
            lines.append(with_marks(block.text))
        elif block.tag == f"{_W}tbl":
            rows = (row.iterchildren(f"{_W}tc") for row in block.iterchildren(f"{_W}tr"))
            lines += [" ".join(map(_docx_text, row)) for row in rows]
    return "\n".join(line for line in map(str.strip, lines) if line)


class _Looks:
    """What is hidden or struck through in a document, by itself or by its styles."""

    def __init__(self, styles: Any) -> None:
        """Take the tree of `styles.xml`."""
        self.hidden = 0
        """How many paragraphs had hidden text"""
        self.styles = {it.get(f"{_W}styleId"): it for it in styles.iterchildren(f"{_W}style")}
        usual = {it.get(f"{_W}type"): key for key, it in self.styles.items() if _is_on(it, "default")}
        self._usual = usual.get("paragraph", "")

    def apply(self, body: Any) -> None:
        """Remove what is hidden, and mark what is struck through."""
        names = {f"{_W}{name}" for name in ("vanish", "strike", "dstrike")}
        used = {it.tag for tree in (body, *self.styles.values()) for it in tree.iter(*names)}
        removed = [it for it in body.iter(f"{_W}hidden") if it.getparent().tag == f"{_W}trPr" and _is_on(it)]
        gone = [it.getparent().getparent() for it in removed]
        gone += [it.getparent().getparent() for it in body.iter(f"{_WP}docPr") if it.get("hidden") in _TRUE]
        marks = []
        if f"{_W}vanish" in used:
            gone += [run for run in body.iter(f"{_W}r") if self._has(run, "vanish")]
            marks = [it for it in body.iter(f"{_W}p") if self._hides_its_end(it)]
        self.hidden += len({
            next(said.iterancestors(f"{_W}p"))
            for it in gone for said in it.iter(f"{_W}t") if (said.text or "").strip()
        })  # fmt: skip
        for it in gone:
            if it.getparent() is not None:
                _remove(it)
        for paragraph in marks:
            _join_to_next(paragraph)
        for run in body.iter(f"{_W}r") if len(used - {f"{_W}vanish"}) else ():
            if self._has(run, "strike") or self._has(run, "dstrike"):
                for said in run.iterchildren(f"{_W}t"):
                    said.text = struck(said.text or "")

    def _hides_its_end(self, paragraph: Any) -> bool:
        """Whether the end of a paragraph is hidden, so that the next one continues it. The end of a heading that
        stands before a text on its line (`specVanish`) stays."""
        properties = paragraph.find(f"{_W}pPr/{_W}rPr")
        if properties is None:
            return False
        own = properties.find(f"{_W}vanish")
        return own is not None and _is_on(own) and properties.find(f"{_W}specVanish") is None

    def _has(self, run: Any, name: str) -> bool:
        """Whether a run has a property. Of the styles of a run and of its paragraph, one takes back the other."""
        properties = run.find(f"{_W}rPr")
        if properties is not None and (own := properties.find(f"{_W}{name}")) is not None:
            return _is_on(own)
        paragraph = next(run.iterancestors(f"{_W}p"), None)
        style = "" if paragraph is None else _value(paragraph, "pPr", "pStyle")
        style = style if paragraph is None or style in self.styles else self._usual
        return self._by_style(style, name) != self._by_style(_value(properties, "rStyle"), name)

    def shift_of(self, run: Any) -> str:
        """How a run or its style shifts its text: `sup`, `sub`, or not at all."""
        given = (run, *_based_on(self.styles, _value(run, "rPr", "rStyle")))
        return next(filter(None, (_value(it, "rPr", "vertAlign")[:3] for it in given)), "")

    def _by_style(self, style: str, name: str) -> bool:
        found = (it.find(f"{_W}rPr/{_W}{name}") for it in _based_on(self.styles, style))
        return next((_is_on(own) for own in found if own is not None), False)


_TRUE = ("1", "true", "on")


def _is_on(element: Any, name: str = "val") -> bool:
    return element.get(f"{_W}{name}", "1" if name == "val" else "0") in _TRUE


def _unwrap(body: Any, notes: dict[str, list[Any]], signs: dict[str, None], looks: _Looks) -> None:
    """Change the tree of a document so that python-docx finds all of the text that people see. Symbols
    without a known character, such as `Wingdings F06A`, are added to `signs`."""
    choose(body)
    for gone in list(body.iter(f"{_W}del", f"{_W}moveFrom")):
        if gone.getparent().tag == f"{_W}rPr" and gone.getparent().getparent().tag == f"{_W}pPr":
            _join_to_next(gone.getparent().getparent().getparent())
        row = gone.getparent().getparent() if gone.getparent().tag == f"{_W}trPr" else gone
        if row.getparent() is not None:
            _remove(row)
    for around in list(body.iter(*_AROUND)):
        content = around.find(f"{_W}sdtContent") if around.tag == f"{_W}sdt" else around
        parent, place = around.getparent(), around.getparent().index(around)
        parent[place : place + 1] = [] if content is None else list(content)
    _show_results(body)
    for image in list(body.iter(f"{_W}drawing")):
        about = next(image.iter(f"{_WP}docPr"), None)
        if about is not None and (alt := alternative(about.get("descr", ""))) and not any(image.iter(f"{_W}p")):
            image.addprevious(_made("w:t", f" {alt} "))
    for ruby in list(body.iter(f"{_W}ruby")):  # The reading above a word comes after it, as in HTML.
        run = ruby.getparent()
        base, reading = ([*chain(*ruby.iterchildren(f"{_W}{name}"))] for name in ("rubyBase", "rt"))
        if any("".join(it.itertext()).strip() for it in reading):
            reading = [_made("w:r", "\uff08"), *reading, _made("w:r", "\uff09")]
        for part in [*base, *reading] if run.tag == f"{_W}r" else ():
            run.addprevious(part)
        _remove(ruby)
    for said in body.iter(f"{_W}t"):
        fonts = said.find(f"../{_W}rPr/{_W}rFonts")
        said.text = shown_in("" if fonts is None else fonts.get(f"{_W}ascii", ""), said.text or "", signs)
    for symbol in list(body.iter(f"{_W}sym")):
        font, code = symbol.get(f"{_W}font", ""), symbol.get(f"{_W}char", "")
        said = _made("w:t", sign_of(font, code))
        if said.text == NO_LETTER:
            signs[f"{font} {code}"] = None
        symbol.getparent().replace(symbol, said)
    _mark_shifted(body.iter(f"{_W}r"), _W, looks.shift_of)
    looks.apply(body)
    for it in list(body.iter(f"{M}oMath")):
        place_of = it.getparent() if it.getparent().tag == f"{M}oMathPara" else it
        place_of.addprevious(_made("w:r", equation(it)))
    # The last one first, because each comes directly behind its paragraph.
    for box in reversed(list(body.iter(f"{_W}txbxContent"))):
        _put_after_paragraph(box, list(box))
    for reference in reversed(list(body.iter(f"{_W}footnoteReference", f"{_W}endnoteReference"))):
        _put_after_paragraph(reference, notes.get(reference.tag + reference.get(f"{_W}id", ""), []))


def _show_results(body: Any) -> None:
    """Remove the instruction of each field, and the fields in it. What is chosen in a form becomes a result."""
    shown: list[Any] = []
    begun: list[tuple[int | None, str]] = []  # of each open field: where its instruction begins, and its choice
    for it in [it for run in body.iter(f"{_W}r") for it in run if it.tag != f"{_W}rPr"]:
        kind = it.get(f"{_W}fldCharType")
        if kind == "begin":
            begun.append((len(shown), _choice(it)))
        elif begun and (kind == "end" or (kind == "separate" and not begun[-1][1])):
            start, choice = begun.pop()
            if start is not None:
                for gone in shown[start:]:
                    _remove(gone)
                del shown[start:]
            if choice:
                shown.append(_made("w:t", choice))
                it.addprevious(shown[-1])
            if kind == "separate":
                begun.append((None, ""))
        elif kind is None:
            shown.append(it)


def _choice(field: Any) -> str:
    """What is chosen in a form field: a box with or without a cross, or one of a list."""
    if (box := field.find(f"{_W}ffData/{_W}checkBox")) is not None:
        states = (box.find(f"{_W}{name}") for name in ("checked", "default"))
        return "☒" if next((_is_on(it) for it in states if it is not None), False) else "☐"
    names = [it.get(f"{_W}val", "") for it in field.iterfind(f"{_W}ffData/{_W}ddList/{_W}listEntry")]
    at = _value(field, "ffData", "ddList", "result") or _value(field, "ffData", "ddList", "default")
    return names[_whole(at)] if _whole(at) < len(names) else ""


def _mark_shifted(runs: Iterable[Any], space: str, how: Callable[[Any], str]) -> None:
    """Mark raised and lowered texts. `how` returns `sup` for a raised run, and `sub` for a lowered one."""
    for run in runs:
        if (mark := how(run)) in SHIFTS:
            for said in run.iterchildren(f"{space}t"):
                said.text = (said.text or "").join(SHIFTS[mark])


def _join_to_next(paragraph: Any) -> None:
    """Put the content of a paragraph whose end is deleted at the beginning of the next one."""
    after = paragraph.getnext()
    if after is None or after.tag != f"{_W}p":
        return
    place = 1 if len(after) and after[0].tag == f"{_W}pPr" else 0
    after[place:place] = [it for it in paragraph if it.tag != f"{_W}pPr"]
    _remove(paragraph)


def _made(tag: str, text: str | None = None) -> Any:
    from docx.oxml import OxmlElement

    element = OxmlElement(tag)
    if text is not None:
        element.text = text
    return element


def _remove(element: Any) -> None:
    element.getparent().remove(element)


def _put_after_paragraph(element: Any, blocks: list[Any]) -> None:
    paragraph = next(element.iterancestors(f"{_W}p"), None)
    for block in reversed(blocks):
        if paragraph is not None and block.tag in (f"{_W}p", f"{_W}tbl"):
            paragraph.addnext(block)


def _notes(part: Any, signs: dict[str, None], looks: _Looks) -> dict[str, list[Any]]:
    """The paragraphs of footnotes and endnotes, by the tag and the id of the references to them."""
    from docx.oxml import parse_xml

    notes = {}
    for relation in part.rels.values():
        kind = relation.reltype.rpartition("/")[2].removesuffix("s")
        if kind in ("footnote", "endnote") and not relation.is_external:
            tree = parse_xml(relation.target_part.blob)
            _unwrap(tree, {}, signs, looks)
            for note in tree.iterchildren(f"{_W}{kind}"):
                notes[f"{_W}{kind}Reference{note.get(f'{_W}id')}"] = list(note)
    return notes


def _data_of(part: Any, key: str) -> bytes:
    return bytes(part.rels[key].target_part.blob)


def read_pptx(uri: str, path: Path) -> Iterator[Document | Unread]:
    """Read the text of slides, with notes and tables. Each slide is a page, and its title is a heading. A slide
    without a title has its number as heading."""
    check_archive(path)
    import pptx
    from pptx.oxml.xmlchemy import OxmlElement

    file = pptx.Presentation(str(path))
    text = Text()
    hidden, out, signs, unnumbered = list[str](), list[str](), dict[str, None](), set[str]()
    unread: list[Unread] = []
    for number, slide in enumerate(file.slides, start=1):
        text.page()
        choose(slide._element)
        for it in list(slide._element.iter(_EQUATION)):
            (run := OxmlElement("a:r")).append(OxmlElement("a:t"))
            run.text = equation(it)
            it.getparent().replace(it, run)
        if slide._element.get("show") in ("0", "false"):
            hidden.append(str(number))
        for said in slide._element.iter(f"{A}t"):
            fonts = [said.find(f"../{A}rPr/{A}{kind}") for kind in ("sym", "latin")]
            font = next((it.get("typeface", "") for it in fonts if it is not None), "")
            said.text = shown_in(font, said.text or "", signs)
        _mark_shifted(slide._element.iter(f"{A}r"), A, _shift_on_slide)
        for said in slide._element.xpath(".//a:r[a:rPr[@strike][@strike!='noStrike']]/a:t"):
            said.text = struck(said.text or "")
        unnumbered |= _number_slide(slide)
        heading = slide.shapes.title
        title = with_marks(heading.text_frame.text) if heading is not None else ""
        # A title may be hidden from people, but there for screen readers.
        hides = slide._element.xpath(".//p:cNvPr[@hidden='1' or @hidden='true']/../..")
        hides = [it for it in hides if heading is None or it is not heading._element]
        if any(_said_in(it) for it in hides):
            out.append(str(number))
        for it in hides:
            _remove(it)
        shapes = [(it, diagram(it._element, partial(_data_of, slide.part))) for it in _shapes(slide.shapes)]
        notes = slide.notes_slide.notes_text_frame if slide.has_notes_slide else None
        said = "" if notes is None else notes.text
        # Without a heading of its own, an untitled slide would seem to belong to the slide before it.
        if title.strip() or said.strip() or any(lines or _says(it) for it, lines in shapes):
            text.heading(title if title.strip() else f"Slide {number}", 2)
        left = Counter[str]()
        for shape, lines in shapes:
            if shape.has_text_frame and (heading is None or shape.shape_id != heading.shape_id):
                text.add(with_marks(shape.text_frame.text))
            elif shape._element.tag.endswith("}pic"):
                text.add(alternative(shape._element._nvXxPr.cNvPr.get("descr", "")))
            if getattr(shape, "has_table", False):
                text.table(map(_pptx_cells, shape.table.rows), _MOST_COLUMNS)
            elif getattr(shape, "has_chart", False):
                try:
                    _add_chart(shape.chart, text)
                except (InputError, ValueError, KeyError, AttributeError) as error:
                    why = " ".join(str(error).split())
                    unread.append(Unread(path, f"slide {number}: a chart cannot be read: {why}"))
            elif lines:
                text.add("\n\n".join(lines))
            else:
                left += objects(shape._element)
        unread += [Unread(path, f"slide {number}: {what}") for what in not_read(left)]
        text.add(said)
    yield from text.documents(uri, title_of(path, file.core_properties.title))
    yield from unread
    yield from noted(path, f"symbols from fonts were read as {NO_LETTER}:", signs)
    yield from noted(path, _NO_LIST_NUMBERS, sorted(unnumbered))
    yield from noted(path, "hidden shapes were left out, on slides", out)
    yield from noted(path, "hidden slides were read:", hidden)


def _shift_on_slide(run: Any) -> str:
    baseline = run.xpath("number(a:rPr/@baseline)")
    return "sup" if baseline > 0 else "sub" if baseline < 0 else ""


_AUTOMATIC = re.compile(r"(arabic|alpha|roman)(Lc|Uc|)(Period|ParenR|ParenBoth|Plain)")
_BULLETS = frozenset(f"{A}{name}" for name in ("buNone", "buAutoNum", "buChar", "buBlip"))
_AUTOMATIC_FORMS = {"arabic": "decimal", "alpha": "Letter", "roman": "Roman", "Lc": "lower", "Uc": "upper", "": ""}
_AUTOMATIC_SHAPES = {"Period": "{}.", "ParenR": "{})", "ParenBoth": "({})", "Plain": "{}"}


def _number_slide(slide: Any) -> set[str]:
    """Write the automatic number of each paragraph of a slide before its text. A list in a placeholder can inherit
    its numbers from the layout or the master. Returns the formats of the numbers that are left out."""
    unknown: set[str] = set()
    inherited = {it._element: list(_bases(it)) for it in slide.placeholders}
    for body in slide._element.xpath(".//*[local-name()='txBody']"):
        styles = [it.find(f"{{*}}txBody/{A}lstStyle") for it in inherited.get(body.getparent(), ())]
        styles = [it for it in (body.find(f"{A}lstStyle"), *styles) if it is not None]
        counts: dict[int, tuple[int, dict[str, str]]] = {}  # by level: the last number, and how it is made
        for paragraph in body.findall(f"{A}p"):
            said = next((it for it in paragraph.iter(f"{A}t") if (it.text or "").strip()), None)
            if said is None:
                continue
            properties = paragraph.find(f"{A}pPr")
            level = 0 if properties is None else _whole(properties.get("lvl", ""))
            counts = {at: count for at, count in counts.items() if at <= level}
            given = [properties, *(it.find(f"{A}lvl{level + 1}pPr") for it in styles)]
            marks = (mark for it in given if it is not None for mark in it if mark.tag in _BULLETS)
            mark = next(marks, None)
            how = {} if mark is None or mark.tag != f"{A}buAutoNum" else dict(mark.attrib)
            last, before = counts.pop(level, (0, {}))
            if kind := _AUTOMATIC.fullmatch(how.get("type", "")):
                number = last + 1 if how == before else max(_whole(how.get("startAt")), 1)
                counts[level] = number, how
                form = _AUTOMATIC_FORMS[kind[2]] + _AUTOMATIC_FORMS[kind[1]]
                label = _AUTOMATIC_SHAPES[kind[3]].format(written(number, form))
                said.text = f"{label} {said.text}"
            elif how:
                unknown.add(how.get("type", ""))
    return unknown


def _bases(placeholder: Any) -> Iterator[Any]:
    """The elements of the placeholders of the layout and of the master on which one is based."""
    while (placeholder := getattr(placeholder, "_base_placeholder", None)) is not None:
        yield placeholder._element


def _said_in(shape: Any) -> bool:
    return bool(shape.xpath("boolean(.//a:t[normalize-space()] | .//a:graphicData)"))


def _add_chart(chart: Any, text: Text) -> None:
    """Add a chart as a table: a row for each category, a column for each series."""
    title = titles(chart._chartSpace)
    since_1904 = chart._chartSpace.date_1904
    for plot in chart.plots:
        names = [" ".join(filter(None, map(str, label))) for label in plot.categories.flattened_labels]
        if not names:
            raise InputError("the chart has no categories")
        for numbers in plot._element.xpath("./c:ser[1]/c:cat[c:numRef or c:numLit]"):
            names = _points(numbers, len(names), since_1904)
        columns = [["", *names]]
        for one in plot.series:
            values = one._element.xpath("./c:val")
            columns.append([one.name or "", *(_points(values[0], len(names), since_1904) if values else ())])
        rows = zip_longest(*columns, fillvalue="")
        text.table(([(cell, 1, 1) for cell in row] for row in rows), _MOST_COLUMNS, 1, title)


def _points(source: Any, count: int, since_1904: bool) -> list[str]:
    """The first numbers of a chart's data, each in its format. The empty text stands for a missing one."""
    form = source.xpath("string(.//c:formatCode)") or "General"
    texts = [""] * count
    for point in source.xpath(".//c:pt"):
        said = point.xpath("string(c:v)").strip()
        if point.idx < count:
            try:
                texts[point.idx] = in_form(float(said), point.get("formatCode", form), since_1904)
            except ValueError:  # an error of the sheet, such as #N/A
                texts[point.idx] = said
    return texts


def _pptx_cells(row: Any) -> list[tuple[str, int, int]]:
    return [
        (with_marks(cell.text).replace("\v", "\n").strip(), cell.span_height, cell.span_width)
        for cell in row.cells
        if not cell.is_spanned
    ]


def _says(shape: Any) -> bool:
    """Whether a shape has text, a table or a chart."""
    written = shape.has_text_frame and shape.text_frame.text.strip()
    return bool(written or getattr(shape, "has_table", False) or getattr(shape, "has_chart", False))


def _shapes(shapes: Iterable[Any]) -> Iterator[Any]:
    """All shapes, including those in groups."""
    for shape in shapes:
        yield from _shapes(shape.shapes) if hasattr(shape, "shapes") else [shape]


_LEVELS = 9
_PLACE = re.compile(r"%([1-9])")


class _Numbers:
    """Counts the numbered paragraphs of a document, in their order."""

    def __init__(self, numbering: Any, styles: Mapping[str, Any]) -> None:
        """Take the tree of `numbering.xml`, and the styles by their ids."""
        self.unknown: set[str] = set()
        """The formats of numbers that are not written"""
        self._styles = styles
        lists = {it.get(f"{_W}abstractNumId"): it for it in numbering.iterchildren(f"{_W}abstractNum")}
        by_style = {_value(it, "styleLink"): key for key, it in lists.items() if _value(it, "styleLink")}
        self._lists: dict[str, str] = {}
        self._levels: dict[str, dict[int, Any]] = {}
        self._starts: dict[str, dict[int, int]] = {}
        for num in numbering.iterchildren(f"{_W}num"):
            key, name = _value(num, "abstractNumId"), num.get(f"{_W}numId")
            key = by_style.get(_value(lists.get(key), "numStyleLink"), key)
            changes = {_whole(it.get(f"{_W}ilvl")): it for it in num.iterchildren(f"{_W}lvlOverride")}
            own = [level for it in changes.values() for level in it.iterchildren(f"{_W}lvl")]
            levels = [*(lists[key].iterchildren(f"{_W}lvl") if key in lists else ()), *own]
            self._lists[name] = key
            self._levels[name] = {_whole(it.get(f"{_W}ilvl")): it for it in levels}
            given = {at: _value(it, "startOverride") for at, it in changes.items()}
            self._starts[name] = {at: _whole(start) for at, start in given.items() if start}
        self._counts: dict[str, dict[int, int]] = {}
        self._begun: set[str] = set()

    def label(self, paragraph: Any) -> str:
        """Count a paragraph, and return its number, such as `2.`. Empty if it has none."""
        num, at = self._place(paragraph)
        levels = self._levels.get(num, {})
        if at not in levels:
            return ""
        # Lists that are made alike go on counting, unless one names its first number.
        counts = self._counts.setdefault(self._lists[num], {})
        if num not in self._begun:
            self._begun.add(num)
            for level in self._starts[num]:
                counts.pop(level, None)
        counts[at] = counts[at] + 1 if at in counts else self._start(num, at)
        for deeper in range(at + 1, _LEVELS):
            after = _value(levels.get(deeper), "lvlRestart")
            if not after or at < _whole(after):
                counts.pop(deeper, None)
        plain = levels[at].find(f"{_W}isLgl") is not None

        def number(match: re.Match[str]) -> str:
            level = int(match[1]) - 1
            form = _form(levels.get(level))
            return written(counts.get(level, self._start(num, level)), "decimal" if plain else form)

        shape = _value(levels[at], "lvlText")
        forms = {_form(levels.get(int(it) - 1)) for it in _PLACE.findall(shape)} | {_form(levels[at])}
        if "bullet" in forms:
            return ""
        if unknown := {form for form in forms if form != "none" and not plain and not written(1, form)}:
            self.unknown |= unknown
            return ""
        return _PLACE.sub(number, shape).strip()

    def _place(self, paragraph: Any) -> tuple[str, int]:
        """The list of a paragraph and its level, by itself or by its styles."""
        properties = paragraph.find(f"{_W}pPr")
        num, level = _value(properties, "numPr", "numId"), _value(properties, "numPr", "ilvl")
        for style in _based_on(self._styles, _value(properties, "pStyle")):
            if num and level:
                break
            if not num and (num := _value(style, "pPr", "numPr", "numId")) and not level:
                own = style.get(f"{_W}styleId")
                named = (at for at, it in self._levels.get(num, {}).items() if _value(it, "pStyle") == own)
                level = str(next(named, ""))
            level = level or _value(style, "pPr", "numPr", "ilvl")
        return num, _whole(level)

    def _start(self, num: str, level: int) -> int:
        start = _value(self._levels[num].get(level), "start")
        return self._starts[num].get(level, _whole(start))


def write_numbers(file: Any, styles: Mapping[str, Any]) -> list[str]:
    """Write the number of each paragraph of a document before its text. A paragraph without text gets its number
    only in a table. Returns the formats of the numbers that are left out."""
    parts = [it for it in file.part.rels.values() if it.reltype.endswith("/numbering") and not it.is_external]
    if not parts:
        return []
    numbers = _Numbers(parts[0].target_part.element, styles)
    for paragraph in list(file.element.body.iter(f"{_W}p")):
        label = numbers.label(paragraph)
        if label and (paragraph.text.strip() or next(paragraph.iterancestors(f"{_W}tc"), None) is not None):
            properties = paragraph.find(f"{_W}pPr")
            place = 0 if properties is None else paragraph.index(properties) + 1
            paragraph.insert(place, _made("w:r", f"{label} "))
    return sorted(numbers.unknown)


def _based_on(styles: Mapping[str, Any], key: str) -> Iterator[Any]:
    """The style with this id, and those on which it is based, one after another."""
    for _ in range(_MOST_STYLES):
        if (style := styles.get(key)) is None:
            return
        yield style
        key = _value(style, "basedOn")


def _form(level: Any) -> str:
    # A format that only newer files have stands beside the nearest older format.
    forms = [] if level is None else [it.get(f"{_W}val", "") for it in level.iter(f"{_W}numFmt")]
    return forms[0] if forms else "decimal"


def _value(element: Any, *path: str) -> str:
    for name in path:
        element = None if element is None else element.find(f"{_W}{name}")
    return "" if element is None else str(element.get(f"{_W}val", ""))


def _whole(text: str | None) -> int:
    return int(text) if text and re.fullmatch(r"\d{1,9}", text) else 0
