"""What Office files have beside their text and cells: equations, text boxes, diagrams and other objects."""

import re
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import docx
import openpyxl
import pptx
import pytest
from docx.opc.packuri import PackURI as WordURI
from docx.opc.part import Part as WordPart
from docx.oxml import parse_xml as word_xml
from openpyxl.chart import BarChart, Reference
from pptx.opc.package import PackURI, Part
from pptx.oxml import parse_xml as slide_xml

from pyfast.corpus import Table, TextDocument, Unread, read

OFFICE = "http://schemas.openxmlformats.org"
RELATIONS = f"{OFFICE}/officeDocument/2006/relationships"
NAMES = " ".join(
    f'xmlns:{name}="{uri}"'
    for name, uri in {
        "w": f"{OFFICE}/wordprocessingml/2006/main",
        "m": f"{OFFICE}/officeDocument/2006/math",
        "a": f"{OFFICE}/drawingml/2006/main",
        "p": f"{OFFICE}/presentationml/2006/main",
        "r": RELATIONS,
        "wp": f"{OFFICE}/drawingml/2006/wordprocessingDrawing",
        "xdr": f"{OFFICE}/drawingml/2006/spreadsheetDrawing",
        "dgm": f"{OFFICE}/drawingml/2006/diagram",
        "mc": f"{OFFICE}/markup-compatibility/2006",
        "o": "urn:schemas-microsoft-com:office:office",
        "a14": "http://schemas.microsoft.com/office/drawing/2010/main",
        "w16se": "http://schemas.microsoft.com/office/word/2015/wordml/symex",
    }.items()
)


def found(path: Path) -> tuple[list[TextDocument | Table], list[Unread]]:
    unread: list[Unread] = []
    return [one for one in read([path], unread) if isinstance(one, TextDocument | Table)], unread


def texts(path: Path) -> tuple[list[str], list[str]]:
    """The paragraphs of a file with a single text, and what was not read."""
    (text,), unread = found(path)
    assert isinstance(text, TextDocument) and all(one.missing for one in unread)
    return text.text.strip().split("\n\n"), [one.reason for one in unread]


def edit(path: Path, part: str, change: Callable[[str], str], more: dict[str, str] | None = None) -> None:
    """Change the parts of a file whose names match, and add more of them."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in parts.items():
            archive.writestr(name, change(data.decode()) if re.search(part, name) else data)
        for name, added in (more or {}).items():
            archive.writestr(name, added)


# --- Equations


def r(text: str) -> str:
    return f"<m:r><m:t>{text}</m:t></m:r>"


def el(name: str, *given: str, **properties: str) -> str:
    """An element of an equation. `given` are pairs: the name of a part, and what is in it."""
    kept = "".join(f'<m:{key} m:val="{value}"/>' for key, value in properties.items())
    parts = "".join(f"<m:{part}>{said}</m:{part}>" for part, said in zip(given[::2], given[1::2], strict=True))
    return f"<m:{name}><m:{name}Pr>{kept}<m:ctrlPr/></m:{name}Pr>{parts}</m:{name}>"


def sup(base: str, power: str) -> str:
    return el("sSup", "e", base, "sup", power)


HALF = el("f", "num", r("1"), "den", r("2"))
ROOT = el("rad", "deg", "", "e", sup(r("b"), r("2")) + r("-4ac"), degHide="1")
ROWS = "".join(f"<m:mr><m:e>{r(a)}</m:e><m:e>{r(b)}</m:e></m:mr>" for a, b in ("12", "34"))
CASES = "".join(f"<m:e>{r(said)}</m:e>" for said in ("x, x≥0", "-x, x&lt;0"))
SUM = el("nary", "sub", r("i=1"), "sup", r("n"), "e", el("sSub", "e", r("x"), "sub", r("i")), chr="∑")


@pytest.mark.parametrize(
    ("math", "said"),
    [
        (r("x=") + el("f", "num", r("-b±") + ROOT, "den", r("2a")), "x=(-b±√(b^2-4ac))/(2a)"),
        (r("A=P") + sup(el("d", "e", r("1+i")), r("n")), "A=P(1+i)^n"),
        (el("rad", "deg", r("3"), "e", r("x")), "√[3](x)"),
        (el("rad", "deg", "", "e", r("12")), "√12"),
        (sup(el("rad", "deg", "", "e", r("x")), r("2")), "(√x)^2"),
        (SUM + r("+1"), "∑_(i=1)^n (x_i)+1"),
        (el("nary", "sub", r("0"), "sup", r("∞"), "e", r("f(x)dx")), "∫_0^∞ (f(x)dx)"),
        (el("nary", "sub", r("S"), "sup", "", "e", "", chr="∮") + r("E"), "∮_S E"),
        (sup(el("d", "e", r("a"), begChr="|", endChr="|"), r("2")), "|a|^2"),
        (el("d", "e", r("a"), "e", r("b"), begChr="[", endChr=")", sepChr=";"), "[a;b)"),
        (r("f=") + el("d", "e", f"<m:eqArr>{CASES}</m:eqArr>", begChr="{", endChr=""), "f={x, x≥0; -x, x<0"),
        (el("func", "fName", sup(r("sin"), r("2")), "e", r("x")), "sin^2(x)"),
        (
            el("func", "fName", el("limLow", "e", r("lim"), "lim", r("n→∞")), "e", el("d", "e", r("a"))),
            "lim_(n→∞)(a)",
        ),
        (el("acc", "e", r("x")), "x\u0302"),
        (el("acc", "e", r("AB"), chr="\u20d7"), "(AB)\u20d7"),
        (el("bar", "e", r("x"), pos="top"), "x\u0305"),
        (f"<m:m>{ROWS}</m:m>", "[1, 2; 3, 4]"),
        (el("d", "e", el("f", "num", r("n"), "den", r("k"), type="noBar")), "(binom(n, k))"),
        (sup(HALF, r("n")), "(1/2)^n"),
        (r("2") + HALF, "2 1/2"),
        (r("x=2") + HALF + r("y"), "x=2 1/2 y"),
        (r("a") + HALF, "a(1/2)"),
        (el("f", "num", r("4"), "den", r("3")) + r("π") + sup(r("r"), r("3")), "(4/3)πr^3"),
        (el("f", "num", HALF, "den", r("12")), "(1/2)/12"),
        (sup(r("e"), r("-kt")), "e^(-kt)"),
        (el("sSubSup", "e", r("x"), "sub", r("1"), "sup", r("2")), "x_1^2"),
        (el("sPre", "sub", r("6"), "sup", r("14"), "e", r("C")), "_6^14 C"),
        (el("borderBox", "e", r("E=mc")), "E=mc"),
    ],
)
def test_equations_of_word(tmp_path: Path, math: str, said: str) -> None:
    file = docx.Document()
    paragraph = file.add_paragraph("It is ")
    paragraph._p.append(word_xml(f"<m:oMath {NAMES}>{math}</m:oMath>"))
    file.save(str(tmp_path / "a.docx"))
    assert texts(tmp_path / "a.docx") == ([f"It is {said}"], [])


# --- Slides


def slide_of(path: Path, *shapes: str, data: str = "") -> None:
    file = pptx.Presentation()
    slide = file.slides.add_slide(file.slide_layouts[6])
    for shape in shapes:
        slide.shapes._spTree.append(slide_xml(shape))
    if data:
        part = Part(PackURI("/ppt/diagrams/data1.xml"), "application/xml", slide.part.package, data.encode())
        assert slide.part.relate_to(part, f"{RELATIONS}/diagramData") == "rId2"
    file.save(str(path))


def box(inner: str) -> str:
    about = '<p:nvSpPr><p:cNvPr id="4" name="Box"/><p:cNvSpPr/><p:nvPr/></p:nvSpPr><p:spPr/>'
    return f"<p:sp {NAMES}>{about}<p:txBody><a:bodyPr/><a:p>{inner}</a:p></p:txBody></p:sp>"


def frame(address: str, inner: str = "") -> str:
    about = '<p:nvGraphicFramePr><p:cNvPr id="5" name="F"/><p:cNvGraphicFramePr/><p:nvPr/></p:nvGraphicFramePr>'
    place = '<p:xfrm><a:off x="0" y="0"/><a:ext cx="1" cy="1"/></p:xfrm>'
    data = f'<a:graphic><a:graphicData uri="{address}">{inner}</a:graphicData></a:graphic>'
    return f"<p:graphicFrame {NAMES}>{about}{place}{data}</p:graphicFrame>"


def several(choice: str, fallback: str) -> str:
    forms = f'<mc:Choice Requires="a14">{choice}</mc:Choice><mc:Fallback>{fallback}</mc:Fallback>'
    return f"<mc:AlternateContent {NAMES}>{forms}</mc:AlternateContent>"


def run(text: str) -> str:
    return f"<a:r><a:t>{text}</a:t></a:r>"


CHARTEX = "http://schemas.microsoft.com/office/drawing/2014/chartex"
OLE = f"{OFFICE}/presentationml/2006/ole"
DIAGRAM = f"{OFFICE}/drawingml/2006/diagram"


def test_equations_of_slides(tmp_path: Path) -> None:
    math = f"<a14:m><m:oMathPara><m:oMath>{r('η=') + HALF}</m:oMath></m:oMathPara></a14:m>"
    slide_of(tmp_path / "a.pptx", several(box(run("The efficiency is ") + math + run(".")), box(run(" "))))
    assert texts(tmp_path / "a.pptx") == (["Slide 1", "The efficiency is η=1/2."], [])


def test_objects_of_slides_are_reported(tmp_path: Path) -> None:
    about = '<p:nvPicPr><p:cNvPr id="5" name="F"/><p:cNvPicPr/><p:nvPr/></p:nvPicPr>'
    picture = f"<p:pic>{about}<p:blipFill/><p:spPr/></p:pic>"
    shapes = [several(frame(CHARTEX), picture), *[frame(OLE, "<p:oleObj/>")] * 2]
    slide_of(tmp_path / "a.pptx", *shapes, box(run("Said.")))
    said, unread = texts(tmp_path / "a.pptx")
    assert said == ["Slide 1", "Said."]
    assert unread == ["slide 1: 1 chart was not read", "slide 1: 2 embedded objects were not read"]


# --- Diagrams. The points are in another order than people see them.
POINTS = {"0": "", "3": "Then cut", "1": "First plan", "2": "Ask Kaja", "9": "Alone"}
ORDER = [("0", "1", 0), ("0", "3", 1), ("1", "2", 0)]
DATA = (
    f"<dgm:dataModel {NAMES}><dgm:ptLst>"
    + "".join(f'<dgm:pt modelId="{k}"><dgm:t><a:p>{run(t)}</a:p></dgm:t></dgm:pt>' for k, t in POINTS.items())
    + "</dgm:ptLst><dgm:cxnLst>"
    + "".join(f'<dgm:cxn srcId="{a}" destId="{b}" srcOrd="{k}"/>' for a, b, k in reversed(ORDER))
    + '<dgm:cxn type="presOf" srcId="9" destId="0" srcOrd="0"/></dgm:cxnLst></dgm:dataModel>'
)
READ = ["First plan", "Ask Kaja", "Then cut", "Alone"]


@pytest.mark.parametrize(
    ("key", "data", "said", "unread"),
    [
        ("rId2", DATA, ["Slide 1", *READ], []),
        ("rId2", "<damaged", [""], ["slide 1: 1 diagram (SmartArt) was not read"]),
        ("rId7", DATA, [""], ["slide 1: 1 diagram (SmartArt) was not read"]),
    ],
)
def test_diagrams_of_slides(tmp_path: Path, key: str, data: str, said: list[str], unread: list[str]) -> None:
    slide_of(tmp_path / "a.pptx", frame(DIAGRAM, f'<dgm:relIds r:dm="{key}"/>'), data=data)
    assert texts(tmp_path / "a.pptx") == (said, unread)


def word_of(path: Path, *blocks: str) -> None:
    file = docx.Document()
    part = WordPart(WordURI("/word/diagrams/data1.xml"), "application/xml", DATA.encode(), file.part.package)
    key = file.part.relate_to(part, f"{RELATIONS}/diagramData")
    for block in blocks:
        file.element.body.insert(len(file.element.body) - 1, word_xml(block.replace("KEY", key)))
    file.save(str(path))


def drawing(address: str, inner: str = "") -> str:
    data = f'<a:graphic><a:graphicData uri="{address}">{inner}</a:graphicData></a:graphic>'
    return f'<w:r><w:drawing><wp:inline><wp:docPr id="1" name="D"/>{data}</wp:inline></w:drawing></w:r>'


def paragraph(inner: str) -> str:
    return f"<w:p {NAMES}>{inner}</w:p>"


def said_in_word(text: str) -> str:
    return f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>'


def test_diagrams_of_word(tmp_path: Path) -> None:
    shown = drawing(DIAGRAM, '<dgm:relIds r:dm="KEY"/>')
    before = said_in_word("Before.") + shown + f"<w:del>{shown}</w:del>"
    word_of(tmp_path / "a.docx", paragraph(before), paragraph(said_in_word("After.")))
    assert texts(tmp_path / "a.docx") == (["Before.", *READ, "After."], [])


def test_objects_of_word_are_reported(tmp_path: Path) -> None:
    word_of(
        tmp_path / "a.docx",
        paragraph(said_in_word("Before.")),
        f'<w:altChunk {NAMES} r:id="rId77"/>',
        f'<w:subDoc {NAMES} r:id="rId78"/>',
        paragraph(drawing(f"{OFFICE}/drawingml/2006/chart") * 2),
        paragraph("<w:r><w:object><o:OLEObject/></w:object></w:r>"),
        paragraph(drawing(DIAGRAM, '<dgm:relIds r:dm="none"/>')),
        paragraph("<w:del>" + drawing(CHARTEX) + "</w:del>" + said_in_word("After.")),
    )
    said, unread = texts(tmp_path / "a.docx")
    assert said == ["Before.", "After."]
    assert sorted(unread) == [
        "1 diagram (SmartArt) was not read",
        "1 embedded object was not read",
        "1 inserted file (altChunk) was not read",
        "1 linked document was not read",
        "2 charts were not read",
    ]


def test_the_form_with_a_text_is_read(tmp_path: Path) -> None:
    sign = several('<w16se:symEx w16se:font="Segoe UI Emoji" w16se:char="1F60A"/>', "<w:t>\U0001f60a</w:t>")
    both = several(said_in_word("new"), said_in_word("old"))
    word_of(tmp_path / "a.docx", paragraph(f"<w:r>{sign}</w:r>" + both))
    assert texts(tmp_path / "a.docx") == (["\U0001f60anew"], [])


# --- Sheets


def sheet_box(*lines: str, hidden: bool = False) -> str:
    about = f'<xdr:nvSpPr><xdr:cNvPr id="3" name="Box" hidden="{int(hidden)}"/><xdr:cNvSpPr/></xdr:nvSpPr>'
    said = "".join(f"<a:p>{run(line)}</a:p>" for line in lines)
    shape = f"<xdr:sp>{about}<xdr:spPr/><xdr:txBody><a:bodyPr/>{said}</xdr:txBody></xdr:sp>"
    return f"<xdr:twoCellAnchor {NAMES}>{shape}<xdr:clientData/></xdr:twoCellAnchor>"


def book(path: Path, names: list[str], rows: list[list[str | int]]) -> None:
    """A workbook with these rows and a chart in each sheet."""
    file = openpyxl.Workbook()
    file.remove(file.active)
    for name in names:
        sheet = file.create_sheet(name)
        for row in rows:
            sheet.append(row)
        chart = BarChart()
        chart.add_data(Reference(sheet, min_col=2, min_row=1, max_row=3))
        sheet.add_chart(chart, "D2")
    file.save(path)


ROWS_OF_SHEET: list[list[str | int]] = [["Region", "Sold"], ["North", 10], ["South", 20]]


def test_text_boxes_and_charts_of_sheets(tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    book(path, ["2024", "2025"], ROWS_OF_SHEET)
    added = sheet_box("Figures are provisional.", "", "Ask Kaja.") + sheet_box("Hidden.", hidden=True)
    edit(path, "drawings/drawing1.xml$", lambda it: re.sub(r"</[^<]*>\s*$", rf"{added}\g<0>", it))
    first, second, boxes = found(path)[0]
    assert isinstance(first, Table) and isinstance(second, Table) and first.uri == "a.xlsx#2024"
    assert isinstance(boxes, TextDocument) and boxes.uri == "a.xlsx#text-boxes"
    assert boxes.text.split("\n\n")[:-1] == ["2024", "Figures are provisional.", "Ask Kaja."]
    assert [it.text for it in boxes.outline.headings or ()] == ["2024"]
    assert [(one.reason, one.missing) for one in found(path)[1]] == [
        ("sheet 2024: 1 hidden text box was not read", True),
        ("sheet 2024: 1 chart was not read", False),
        ("sheet 2025: 1 chart was not read", False),
    ]


def test_titles_of_charts_in_sheets(tmp_path: Path) -> None:
    book = pytest.importorskip("xlsxwriter").Workbook(tmp_path / "a.xlsx")
    sheet = book.add_worksheet("Sales")
    for number, row in enumerate([["Year", "North"], [2023, 14], [2024, 17]]):
        sheet.write_row(number, 0, row)
    chart, pie, big = (book.add_chart({"type": kind}) for kind in ("column", "pie", "line"))
    cells = {"categories": "=Sales!$A$2:$A$3", "values": "=Sales!$B$2:$B$3"}
    labels = {"value": True, "custom": [{"value": "Strike in May"}]}
    chart.add_series({"name": "=Sales!$B$1", **cells})
    chart.add_series({"name": "North without islands", "data_labels": labels, **cells})
    chart.set_title({"name": "Lamps sold"})
    chart.set_x_axis({"name": "Financial year"})
    chart.set_y_axis({"name": "Million NOK"})
    pie.add_series({"name": "=Sales!$B$1", **cells})
    big.add_series(cells)
    big.set_title({"name": "All years"})
    for place, it in (("D2", chart), ("D20", pie)):
        sheet.insert_chart(place, it)
    book.add_chartsheet("Big").set_chart(big)
    book.close()
    (table, text), unread = found(tmp_path / "a.xlsx")
    assert isinstance(table, Table) and isinstance(text, TextDocument)
    assert text.text.split("\n\n")[:-1] == [
        "Sales",
        "Lamps sold (Financial year, Million NOK)",
        "North without islands; Strike in May",
        "Big",
        "All years",
    ]
    assert not any(one.missing for one in unread)


def test_a_sheet_with_only_a_text_box_is_not_empty(tmp_path: Path) -> None:
    book(tmp_path / "a.xlsx", ["Manual"], [])
    drawn = f"<xdr:wsDr {NAMES}>{sheet_box('Otters.')}</xdr:wsDr>"
    edit(tmp_path / "a.xlsx", "drawings/drawing1.xml$", lambda _: drawn)
    assert texts(tmp_path / "a.xlsx") == (["Otters."], [])


def test_diagrams_of_sheets(tmp_path: Path) -> None:
    book(tmp_path / "a.xlsx", ["Plan"], [])
    shown = f'<a:graphicData uri="{DIAGRAM}"><dgm:relIds r:dm="rId9"/></a:graphicData>'
    drawn = f"<xdr:wsDr {NAMES}><xdr:twoCellAnchor>{shown}</xdr:twoCellAnchor></xdr:wsDr>"
    edit(tmp_path / "a.xlsx", "drawings/drawing1.xml$", lambda _: drawn, {"xl/diagrams/data1.xml": DATA})
    related = f'<Relationship Id="rId9" Type="{RELATIONS}/diagramData" Target="../diagrams/data1.xml"/>'
    edit(tmp_path / "a.xlsx", "drawing1.xml.rels$", lambda it: re.sub("</R.*$", rf"{related}\g<0>", it))
    assert texts(tmp_path / "a.xlsx") == (READ, [])


def test_a_damaged_drawing_falls_alone(tmp_path: Path) -> None:
    book(tmp_path / "a.xlsx", ["Sales"], ROWS_OF_SHEET)
    edit(tmp_path / "a.xlsx", "drawings/drawing1.xml$", lambda it: it[:90])
    (table,), unread = found(tmp_path / "a.xlsx")
    assert isinstance(table, Table) and len(table.rows) == 2
    assert [str(one.reason) for one in unread] == ["sheet Sales: 1 damaged drawing was not read"]


def test_a_sheet_that_is_a_chart_is_reported(tmp_path: Path) -> None:
    file = openpyxl.Workbook()
    for row in ROWS_OF_SHEET:
        file.active.append(row)
    file.create_chartsheet("Trend").add_chart(BarChart())
    file.save(tmp_path / "a.xlsx")
    (table,), (unread,) = found(tmp_path / "a.xlsx")
    assert table.uri == "a.xlsx" and unread.reason == "sheet Trend: 1 chart was not read" and not unread.missing


# --- All of them


@pytest.mark.parametrize("kind", ["docx", "pptx", "xlsx"])
def test_strict_files_are_refused_in_words(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"a.{kind}"
    if kind == "xlsx":
        book(path, ["Sales"], ROWS_OF_SHEET)
    else:
        (docx.Document() if kind == "docx" else pptx.Presentation()).save(str(path))
    strict = "http://purl.oclc.org/ooxml/officeDocument/relationships"
    edit(path, "rels$", lambda it: it.replace(RELATIONS, strict))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        documents, (unread,) = found(path)
    assert documents == [] and unread.whole
    assert unread.reason == f"the file is a Strict Open XML file; save it again as an ordinary .{kind}"


def test_openpyxl_does_not_warn(tmp_path: Path) -> None:
    book(tmp_path / "a.xlsx", ["Sales"], ROWS_OF_SHEET)
    added = '<extLst><ext uri="{CCE6A557-97BC-4b89-ADB6-D9C93CAAB3DF}"/></extLst></worksheet>'
    edit(tmp_path / "a.xlsx", "sheet1.xml$", lambda it: it.replace("</worksheet>", added))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (table,), _ = found(tmp_path / "a.xlsx")
    assert isinstance(table, Table) and len(table.rows) == 2
