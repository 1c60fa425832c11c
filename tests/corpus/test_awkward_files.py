"""Files as people and programs make them, with what stands in them."""

import json
from datetime import date, datetime
from pathlib import Path
from typing import Any

import processes
import pyarrow as pa
import pytest
from pyarrow import parquet

import pyfast
from pyfast.corpus import KnowledgeGraph, Table, TextDocument, Unread, encode, read
from pyfast.corpus.grids import written
from pyfast.errors import InputError


def found(path: Path) -> tuple[list[object], list[Unread]]:
    unread: list[Unread] = []
    return list(read([path], unread)), unread


def text_of(path: Path) -> str:
    (document,), unread = found(path)
    assert isinstance(document, TextDocument) and not unread
    return document.text.strip()


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        ("City;Temp, C\nBergen;7,6\nOslo;6,3\n", [("City", "Temp, C"), ("Bergen", "7,6"), ("Oslo", "6,3")]),
        ("Name, Vorname;Ort\nHolm, Hans;Bonn\n", [("Name, Vorname", "Ort"), ("Holm, Hans", "Bonn")]),
        ("sep=;\nItem;Price\nBolt;1,50\n", [("Item", "Price"), ("Bolt", "1,50")]),
        ('"sep=|"\r\nItem|Price\r\nBolt, M8|1\r\n', [("Item", "Price"), ("Bolt, M8", "1")]),
        ('name, note, qty\nbolt, "M8, steel", 12\n', [("name", "note", "qty"), ("bolt", "M8, steel", "12")]),
        ("a,b\nx;1,y\nx;2,z\n", [("a", "b"), ("x;1", "y"), ("x;2", "z")]),
        ("a, b\nx, y;1\nz, w;2\n", [("a", " b"), ("x", " y;1"), ("z", " w;2")]),
        (
            'id,said\n1,"He said \\"yes, now\\" twice, and left"\n2,no\n',
            [("id", "said"), ("1", 'He said "yes, now" twice, and left'), ("2", "no")],
        ),
    ],
)
def test_delimiters_that_stand_in_cells(tmp_path: Path, content: str, rows: list[tuple[str, ...]]) -> None:
    (tmp_path / "a.csv").write_bytes(content.encode())
    (table,), unread = found(tmp_path / "a.csv")
    assert isinstance(table, Table) and [table.header, *table.rows] == rows and not unread


@pytest.mark.parametrize("caption", ["Sales, by region", "Sales of 2024"])
def test_a_caption_that_is_a_sentence(tmp_path: Path, caption: str) -> None:
    (tmp_path / "a.csv").write_text(f"{caption}\nregion,q1,q2\nNorth,1,2\nSouth,3,4\n")
    (table,), unread = found(tmp_path / "a.csv")
    assert isinstance(table, Table) and (table.section, table.header) == (caption, ("region", "q1", "q2"))
    assert list(table.rows) == [("North", "1", "2"), ("South", "3", "4")] and not unread


def test_a_page_without_a_named_encoding(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_bytes("<p>Z\u00fcrich caf\u00e9 na\u00efve</p>".encode("cp1252"))
    assert text_of(tmp_path / "a.html") == "Z\u00fcrich caf\u00e9 na\u00efve"


PHOTO = "<tr><td colspan=2><img src=x.jpg><div>A photo</div></td></tr>"


@pytest.mark.parametrize(
    ("above", "caption"),
    [
        ("<tr><th colspan=2>Apollo 8</th></tr>", "Apollo 8"),
        (f"<tr><th colspan=2>Apollo 8</th></tr>{PHOTO}", "Apollo 8 A photo"),
        (PHOTO, "A photo"),
        (f"<tr><th colspan=2>Apollo 8</th></tr>{PHOTO}<tr><th colspan=2>Crew</th></tr>", "Apollo 8 A photo Crew"),
    ],
)
def test_an_infobox_has_pairs(tmp_path: Path, above: str, caption: str) -> None:
    pairs = "<tr><th>Men</th><td>3</td></tr><tr><th colspan=2>Start</th></tr><tr><th>Year</th><td>1968</td></tr>"
    edit = '<span class="mw-editsection">[<a href="e">edit</a>]</span>'
    (tmp_path / "a.html").write_text(f"<h2>Flights{edit}</h2><table>{above}{pairs}</table>")
    (_, table), _ = found(tmp_path / "a.html")
    assert isinstance(table, Table) and (table.section, table.header) == (f"Flights > {caption}", ())
    assert list(table.rows) == [("Men", "3"), ("Start",), ("Year", "1968")]


def test_a_link_of_a_heading_to_itself_is_no_text(tmp_path: Path) -> None:
    link = "<a class='headerlink' href='#f'>\u00b6</a>"
    page = (
        f"<h1>Fares{link}</h1><dl><dt>zone{link}<dd>A</dl><h2>C<a href='#c'>#</a></h2><p>See <a href='#c'>#</a>."
    )
    (tmp_path / "a.html").write_text(page, encoding="utf-8")
    assert lines_of(tmp_path / "a.html") == ["Fares. zone: A", "Fares > C. See #."]


def test_a_name_of_a_group_of_rows_in_a_sheet(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    rows = [
        ("Port", "Depth"),
        ("North", None),
        ("Odda", 5),
        ("Both", "Both"),
        *[("Moss", 7)] * 20,
        ("South", None),
    ]
    for row in rows:
        book.active.append(row)
    for merged in ("A2:B2", f"A{len(rows)}:B{len(rows)}"):
        book.active.merge_cells(merged)
    book.save(tmp_path / "a.xlsx")
    (whole, north), _ = found(tmp_path / "a.xlsx")
    assert isinstance(whole, Table) and isinstance(north, Table)
    assert list(whole.rows) == [("South",)] and whole.section == "" and north.section == "North"
    assert list(north.rows) == [("Odda", "5"), ("Both", "Both"), *[("Moss", "7")] * 20]


@pytest.mark.parametrize(
    ("math", "said"),
    [
        ("<mfrac><mn>1</mn><mn>2</mn></mfrac>", "1/2"),
        ("<mfrac><mrow><mi>a</mi><mo>+</mo><mn>1</mn></mrow><mn>2</mn></mfrac>", "(a+1)/2"),
        ("<mrow><msup><mn>10</mn><mn>6</mn></msup><mi>m</mi></mrow>", "10^6m"),
        ("<msubsup><mi>x</mi><mn>1</mn><mn>2</mn></msubsup>", "x_1^2"),
        ("<msqrt><mn>2</mn></msqrt>", "\u221a2"),
        (
            "<semantics><msup><mn>2</mn><mn>8</mn></msup><annotation>2^{8}</annotation></semantics>",
            "2^8",
        ),
        ("<mrow>" * 2000 + "<mn>7</mn>", "7"),
        ("<mfrac><mfenced><mrow><mi>a</mi><mo>+</mo><mi>b</mi></mrow></mfenced><mi>c</mi></mfrac>", "(a+b)/c"),
        (
            "<mfrac><mrow><mo>(</mo><mi>a</mi><mo>)</mo><mo>(</mo><mi>b</mi><mo>)</mo></mrow>"
            "<mrow><mi>x</mi><mi>y</mi></mrow></mfrac>",
            "((a)(b))/(xy)",
        ),
        ("<mi>f</mi><mfenced open='[' close=']' separators=';'><mi>x</mi><mi>y</mi></mfenced>", "f[x;y]"),
        ("<mn>2</mn><mfrac><mn>1</mn><mn>2</mn></mfrac>", "2 1/2"),
        ("<mn>2</mn><mo>\u2064</mo><mstyle><mrow><mfrac><mn>1</mn><mn>2</mn></mfrac></mrow></mstyle>", "2 1/2"),
        ("<mfrac><mn>1</mn><mn>2</mn></mfrac><mi>m</mi><msup><mi>v</mi><mn>2</mn></msup>", "(1/2)mv^2"),
        (
            "<munderover><mo>\u2211</mo><mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi></munderover><mi>i</mi>",
            "\u2211_(i=1)^n i",
        ),
        (
            "<msup><mi>x</mi><mrow><mi>n</mi><mo>+</mo><mn>1</mn></mrow></msup>"
            "<mo>=</mo><mi>sin</mi><mo>\u2061</mo><mi>y</mi><mtext>if</mtext><mi>y</mi><mo>&gt;</mo><mn>0</mn>",
            "x^(n+1)=sin y if y>0",
        ),
        ("<mroot><mrow><mi>x</mi><mo>+</mo><mn>1</mn></mrow><mn>3</mn></mroot>", "\u221a[3](x+1)"),
        (
            "<mmultiscripts><mi>C</mi><mprescripts></mprescripts><mn>6</mn><mn>14</mn></mmultiscripts>",
            "_6^14 C",
        ),
        (
            "<mtable><mtr><mtd><mn>1</mn></mtd><mtd><mn>0</mn></mtd></mtr>"
            "<mtr><mtd><mn>5</mn></mtd><mtd><mn>1</mn></mtd></mtr></mtable>",
            "[1, 0; 5, 1]",
        ),
        ("<mphantom><mn>3</mn></mphantom><mn>7</mn>", "7"),
    ],
)
def test_equations_of_pages(tmp_path: Path, math: str, said: str) -> None:
    (tmp_path / "a.html").write_text(f"<p>It is <math>{math}</math></p>")
    assert text_of(tmp_path / "a.html") == f"It is {said}"


def test_numbers_of_lists(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<ol start="5"><li>e</li><li value="9">i</li><li>j</li></ol><p>x</p><ol reversed><li>b<li>a</ol>'
    )
    assert text_of(tmp_path / "a.html").split() == ["5.", "e", "9.", "i", "10.", "j", "x", "2.", "b", "1.", "a"]


@pytest.mark.parametrize(
    ("opened", "marks"),
    [
        ('ol type="a"', "a. b."),
        ('ol type="A" start="27"', "AA. AB."),
        ('ol type="I" start="3"', "III. IV."),
        ('ol type="i" reversed', "ii. i."),
        ('ol type="a" start="0"', "0. a."),
        ('ol style="color: red; LIST-STYLE-TYPE: lower-latin"', "a. b."),
        ('ol type="a" style="list-style: inside upper-roman !important"', "I. II."),
        ('ol style="list-style-type: decimal-leading-zero"', "01. 02."),
        ('ol style="list-style-type: cjk-decimal"', "1. 2."),
        ('ol style="list-style:none"', "- -"),
        ('ol type="1" style="list-style-type: disc"', "- -"),
        ('ul style="list-style-type: lower-alpha"', "a. b."),
        ('ul type="square"', "- -"),
    ],
)
def test_letters_and_roman_numbers_of_lists(tmp_path: Path, opened: str, marks: str) -> None:
    (tmp_path / "a.html").write_text(f"<{opened}><li>One</li><li>Two</li></{opened.split()[0]}>")
    first, second = marks.split()
    assert text_of(tmp_path / "a.html") == f"{first} One\n{second} Two"


def test_an_item_has_its_own_form_and_inner_lists_have_theirs(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<ol type="A"><li>x<ol><li>y</ol><li value="30" type="i">z<li style="list-style: none">w</ol>'
    )
    assert text_of(tmp_path / "a.html").split() == ["A.", "x", "1.", "y", "xxx.", "z", "-", "w"]


def test_labels_of_a_graph(tmp_path: Path) -> None:
    label, other = (
        "<http://www.w3.org/2000/01/rdf-schema#label>",
        "<http://www.w3.org/2004/02/skos/core#prefLabel>",
    )
    (tmp_path / "a.nt").write_text(
        f'<http://x/t> {label} "Titan"@en .\n<http://x/t> {other} "Saturn VI"@en .\n'
        f'<http://x/t> <http://x/mass> "1.10" .\n<http://x/t> {label} "Titan (Mond)"@de .\n'
        f'<http://x/e> {label} "Alone" .\n'
    )
    (graph,), (unread,) = found(tmp_path / "a.nt")
    assert isinstance(graph, KnowledgeGraph) and not unread.missing and unread.reason.endswith(": 1")
    assert [(it.head, it.relation, it.tail) for it in graph.triples] == [
        ("Saturn VI", "label", "Titan"),
        ("Saturn VI", "mass", "1.10"),
        ("Alone", "label", "Alone"),
    ]


def test_numbers_and_bytes_of_columns(tmp_path: Path) -> None:
    columns = {
        "f": [1.5, float("nan"), float("inf")],
        "x": pa.array([0.1, 2.7, None], pa.float32()),
        "b": [b"abc", b"\xff", None],
    }
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    (table,), (unread,) = found(tmp_path / "a.parquet")
    assert isinstance(table, Table) and unread.missing
    assert unread.reason.startswith("column b: ") and unread.reason.endswith("not UTF-8: 1")
    assert list(table.rows) == [("1.5", "0.1", "abc"), ("", "2.7", ""), ("", "", "")]


def test_a_deleted_end_of_a_paragraph(tmp_path: Path) -> None:
    docx = pytest.importorskip("docx")
    from docx.oxml import parse_xml
    from docx.oxml.ns import nsdecls

    file = docx.Document()
    for said, deleted in [("Joined wo", True), ("rd he", True), ("re", False), ("Next.", False)]:
        paragraph = file.add_paragraph(said)
        if deleted:
            mark = f'<w:rPr {nsdecls("w")}><w:del w:id="5" w:author="a"/></w:rPr>'
            paragraph._p.get_or_add_pPr().append(parse_xml(mark))
    file.save(tmp_path / "a.docx")
    assert text_of(tmp_path / "a.docx").split("\n\n") == ["Joined word here", "Next."]


BOX = "<w:checkBox><w:sizeAuto/>{}</w:checkBox>"
LIST = '<w:ddList>{}<w:listEntry w:val="Norway"/><w:listEntry w:val="Iceland"/></w:ddList>'


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (["See page {", "|", "42", "}", "."], "See page 42."),
        (["Dear {", "{", "|", "F", "}", "|", "Ms", "}", " Moe"], "Dear Ms Moe"),
        (["{", "{", "{", "|", "a", "}", "|", "b", "}", "|", "c ", "{", "d", "|", "e", "}", "}", " f"], "c e f"),
        (["{", "|", "One", "\n", "Two {", "x", "|", "2", "}", "\n", "Three", "}", "."], "One\n\nTwo 2\n\nThree."),
        (["No {", "x", "}", "result"], "No result"),
        (["Broken {", "kept ", "{", "|", "all", "}"], "Broken kept all"),
        (["Broken ", "}", "|", "kept"], "Broken kept"),
        (["{" + BOX.format('<w:checked w:val="1"/>'), "|", "}", " Employed"], "☒ Employed"),
        (["{" + BOX.format('<w:default w:val="1"/><w:checked w:val="0"/>'), "|", "}", " Retired"], "☐ Retired"),
        (["{" + BOX.format("<w:default/>"), "}", " Student"], "☒ Student"),
        (["{" + BOX.format(""), "|", "☐", "}", " Other"], "☐ Other"),
        (["From {" + LIST.format('<w:result w:val="1"/>'), "|", "}", "."], "From Iceland."),
        (["From {" + LIST.format(""), "|", "Norway", "}", "."], "From Norway."),
        (["From {" + LIST.format('<w:result w:val="7"/>'), "|", "Faroes", "}", "."], "From Faroes."),
        (["To {", "{" + LIST.format(""), "|", "}", "|", "Oslo", "}"], "To Oslo"),
    ],
)
def test_fields_of_word(tmp_path: Path, parts: list[str], text: str) -> None:
    """`{`, `|` and `}` are the begin of a field, of its result, and its end."""
    docx = pytest.importorskip("docx")
    from docx.oxml import parse_xml
    from docx.oxml.ns import nsdecls

    file = docx.Document()
    paragraph = file.add_paragraph()
    for part in parts:
        said, begun, form = part.partition("{")
        kind = "begin" if begun else {"|": "separate", "}": "end"}.get(part, "")
        if part == "\n":
            paragraph = file.add_paragraph()
            continue
        run = paragraph.add_run("" if kind in ("separate", "end") else said)
        if kind:
            data = f"<w:ffData>{form}</w:ffData>" if form else ""
            run._r.append(parse_xml(f'<w:fldChar {nsdecls("w")} w:fldCharType="{kind}">{data}</w:fldChar>'))
        if begun:
            run._r.append(parse_xml(f"<w:instrText {nsdecls('w')}> IF </w:instrText>"))
    file.save(tmp_path / "a.docx")
    assert text_of(tmp_path / "a.docx") == text


@pytest.mark.parametrize(
    ("font", "code", "sign"),
    [
        ("Symbol", "F061", "\u03b1"),
        ("Symbol", "F0A3", "\u2264"),
        ("Arial", "2192", "\u2192"),
        ("Wingdings", "F0FC", "\u2713"),
    ],
)
def test_symbols_of_word(tmp_path: Path, font: str, code: str, sign: str) -> None:
    docx = pytest.importorskip("docx")
    from docx.oxml import parse_xml
    from docx.oxml.ns import nsdecls

    file = docx.Document()
    paragraph = file.add_paragraph("Sign: ")
    paragraph._p.append(parse_xml(f'<w:r {nsdecls("w")}><w:sym w:font="{font}" w:char="{code}"/></w:r>'))
    paragraph.add_run(" end")
    file.save(tmp_path / "a.docx")
    assert text_of(tmp_path / "a.docx") == f"Sign: {sign} end"


def numbered(file: Any, shapes: list[tuple[str, str]], rest: str = "") -> Any:
    """Add a list to a document: for each level, the format of its number and the text around it."""
    from docx.oxml import parse_xml
    from docx.oxml.ns import nsdecls

    numbering = file.part.numbering_part.element
    levels = "".join(
        f'<w:lvl w:ilvl="{level}"><w:start w:val="1"/><w:numFmt w:val="{form}"/>'
        f'<w:lvlText w:val="{shape}"/></w:lvl>'
        for level, (form, shape) in enumerate(shapes)
    )
    numbering.insert(0, parse_xml(f'<w:abstractNum {nsdecls("w")} w:abstractNumId="90">{levels}</w:abstractNum>'))
    for name, own in [("91", ""), ("92", rest)]:
        given = f'<w:num {nsdecls("w")} w:numId="{name}"><w:abstractNumId w:val="90"/>{own}</w:num>'
        numbering.append(parse_xml(given))

    def put(paragraph: Any, level: int, num: str = "91") -> None:
        properties = f'<w:numPr {nsdecls("w")}><w:ilvl w:val="{level}"/><w:numId w:val="{num}"/></w:numPr>'
        paragraph._p.get_or_add_pPr().append(parse_xml(properties))

    return put


def test_numbers_that_word_counts(tmp_path: Path) -> None:
    docx = pytest.importorskip("docx")
    file = docx.Document()
    again = '<w:lvlOverride w:ilvl="0"><w:startOverride w:val="5"/></w:lvlOverride>'
    put = numbered(file, [("upperRoman", "\u00a7 %1"), ("decimal", "%1.%2"), ("lowerLetter", "%3)")], again)
    for said, level in [("Scope", 0), ("parties", 1), ("goods", 2), ("price", 2), ("days", 1), ("ships", 2)]:
        put(file.add_paragraph(said), level)
    file.add_paragraph("Between.")
    put(file.add_heading("End", 2), 0)
    put(file.add_paragraph("leave"), 1)
    for said, num in [("fifth", "92"), ("sixth", "92"), ("seventh", "91")]:
        put(file.add_paragraph(said), 0, num)
    for said, style in [
        ("Close", "List Number"),
        ("", "List Number"),
        ("Open", "List Number"),
        ("Lamp", "List Bullet"),
    ]:
        file.add_paragraph(said, style=style)
    table = file.add_table(2, 2)
    for cell, said in zip(table._cells, ["No.", "Port", "", "Odda"], strict=True):
        cell.text = said
    put(table.cell(1, 0).paragraphs[0], 0)
    file.save(tmp_path / "a.docx")
    (text, made), unread = found(tmp_path / "a.docx")
    assert isinstance(text, TextDocument) and isinstance(made, Table) and not unread
    assert text.text.split("\n\n")[:-1] == [
        "\u00a7 I Scope", "I.1 parties", "a) goods", "b) price", "I.2 days", "a) ships", "Between.",
        "\u00a7 II End", "II.1 leave", "\u00a7 V fifth", "\u00a7 VI sixth", "\u00a7 VII seventh", "1. Close",
        "3. Open", "Lamp",
    ]  # fmt: skip
    assert [it.text for it in text.outline.headings or ()] == ["\u00a7 II End"]
    assert list(made.rows)[-1] == ("\u00a7 VIII", "Odda")


def test_headings_by_their_level(tmp_path: Path) -> None:
    docx = pytest.importorskip("docx")
    from docx.oxml import parse_xml
    from docx.oxml.ns import nsdecls

    file = docx.Document()
    style = file.styles.add_style("Kapitel", 1)
    style.base_style = file.styles["Heading 2"]
    file.add_paragraph("Warranty", style="Kapitel")
    level = parse_xml(f'<w:outlineLvl {nsdecls("w")} w:val="2"/>')
    file.add_paragraph("Parts")._p.get_or_add_pPr().append(level)
    none = parse_xml(f'<w:outlineLvl {nsdecls("w")} w:val="9"/>')
    file.add_paragraph("Two years.", style="Kapitel")._p.get_or_add_pPr().append(none)
    file.save(tmp_path / "a.docx")
    (text,), _ = found(tmp_path / "a.docx")
    assert isinstance(text, TextDocument)
    assert [(it.depth, it.text) for it in text.outline.headings or ()] == [(2, "Warranty"), (3, "Parts")]


def test_numbers_of_headings_by_their_styles(tmp_path: Path) -> None:
    docx = pytest.importorskip("docx")
    from docx.oxml import parse_xml
    from docx.oxml.ns import nsdecls

    file = docx.Document()
    put = numbered(file, [("upperRoman", "%1"), ("decimal", "%1.%2"), ("decimal", "(%3)")])
    second, third = file.part.numbering_part.element[0][1:]
    second.insert(1, parse_xml(f"<w:isLgl {nsdecls('w')}/>"))
    second.insert(1, parse_xml(f'<w:pStyle {nsdecls("w")} w:val="Heading2"/>'))
    third.insert(1, parse_xml(f'<w:lvlRestart {nsdecls("w")} w:val="0"/>'))
    for name in ("Heading 1", "Heading 2"):  # The level of the second one is that which names its style.
        number = parse_xml(f'<w:numPr {nsdecls("w")}><w:numId w:val="91"/></w:numPr>')
        file.styles[name].element.get_or_add_pPr().append(number)
    for said, level in [("Pumps", 1), ("Oil", 2), ("Water", 2), ("Valves", 1), ("Steam", 2)]:
        file.add_heading(said, level)
        put(file.add_paragraph("A note."), 2)
    put(file.add_heading("Index", 1), 0, "0")
    file.save(tmp_path / "a.docx")
    (text,), unread = found(tmp_path / "a.docx")
    assert isinstance(text, TextDocument) and not unread
    headings = ["I Pumps", "1.1 Oil", "1.2 Water", "II Valves", "2.1 Steam", "Index"]
    assert [it.text for it in text.outline.headings or ()] == headings
    assert [it[:3] for it in text.text.split("\n\n") if "note" in it] == ["(1)", "(2)", "(3)", "(4)", "(5)"]


def test_numbers_of_word_in_an_unknown_form(tmp_path: Path) -> None:
    docx = pytest.importorskip("docx")
    file = docx.Document()
    put = numbered(file, [("hebrew1", "%1.")])
    for said in ("One", "Two"):
        put(file.add_paragraph(said), 0)
    file.save(tmp_path / "a.docx")
    (text,), (unread,) = found(tmp_path / "a.docx")
    assert isinstance(text, TextDocument) and text.text == "One\n\nTwo\n\n"
    assert not unread.missing and "hebrew1" in unread.reason


@pytest.mark.parametrize(
    ("number", "form", "said"),
    [
        (4, "upperRoman", "IV"),
        (1949, "lowerRoman", "mcmxlix"),
        (26, "lowerLetter", "z"),
        (28, "upperLetter", "BB"),
        (28, "upperAlpha", "AB"),
        (702, "lowerAlpha", "zz"),
        (0, "lowerLetter", "0"),
        (7, "decimalZero", "07"),
        (7, "chosung", ""),
    ],
)
def test_forms_of_numbers(number: int, form: str, said: str) -> None:
    assert written(number, form) == said


def test_slides_without_a_title(tmp_path: Path) -> None:
    pptx = pytest.importorskip("pptx")
    file = pptx.Presentation()
    for title, said in [("Results", "Grew."), ("", "Osprey."), ("", ""), ("Hidden", "Wren."), (" ", "Heron.")]:
        slide = file.slides.add_slide(file.slide_layouts[5])
        slide.shapes.title.text = title
        if not title:
            slide.shapes.title._element.getparent().remove(slide.shapes.title._element)
        if said:
            slide.shapes.add_textbox(0, 0, 9, 9).text_frame.text = said
        if title == "Hidden":
            slide._element.set("show", "0")
    sheet = file.slides.add_slide(file.slide_layouts[6]).shapes.add_table(2, 2, 0, 0, 9, 9).table
    for cell, text in zip(sheet.iter_cells(), ["Region", "Sold", "North", "5"], strict=True):
        cell.text = text
    file.save(tmp_path / "a.pptx")
    (text, table), (unread,) = found(tmp_path / "a.pptx")
    assert isinstance(text, TextDocument) and isinstance(table, Table) and not unread.missing
    headings = ["Results", "Slide 2", "Hidden", "Slide 5", "Slide 6"]
    assert [it.text for it in text.outline.headings or ()] == headings and table.section == "Slide 6"
    assert text.text.split() == [
        "Results",
        "Grew.",
        "Slide",
        "2",
        "Osprey.",
        "Hidden",
        "Wren.",
        "Slide",
        "5",
        "Heron.",
        "Slide",
        "6",
    ]


def test_charts_of_slides(tmp_path: Path) -> None:
    pptx = pytest.importorskip("pptx")
    from pptx.chart.data import CategoryChartData, XyChartData
    from pptx.enum.chart import XL_CHART_TYPE

    file = pptx.Presentation()
    slide = file.slides.add_slide(file.slide_layouts[5])
    slide.shapes.title.text = "Sales"
    bars = CategoryChartData()
    bars.categories = ["North", "South"]
    bars.add_series("Units sold", (17, 29.5))
    chart = slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, 0, 0, 9999, 9999, bars).chart
    chart.has_title = True
    chart.chart_title.text_frame.text = "Turnover"
    chart.value_axis.axis_title.text_frame.text = "Million NOK"
    points = XyChartData()
    points.add_series("xy").add_data_point(1, 2)
    slide.shapes.add_chart(XL_CHART_TYPE.XY_SCATTER, 0, 0, 9999, 9999, points)
    file.save(tmp_path / "a.pptx")
    (_, table), (unread,) = found(tmp_path / "a.pptx")
    assert isinstance(table, Table) and table.section == "Sales > Turnover (Million NOK)"
    assert [table.header, *table.rows] == [("", "Units sold"), ("North", "17"), ("South", "29.5")]
    assert unread.missing and unread.reason.startswith("slide 1: a chart")


def test_charts_with_dates_and_formats(tmp_path: Path) -> None:
    pptx = pytest.importorskip("pptx")
    from pptx.chart.data import CategoryChartData
    from pptx.enum.chart import XL_CHART_TYPE

    file = pptx.Presentation()

    def chart(categories: list[Any], *values: float | None, of_values: str = "General") -> Any:
        data = CategoryChartData()
        data.categories = categories
        data.add_series("Share", values, number_format=of_values)
        slide = file.slides.add_slide(file.slide_layouts[6])
        return slide.shapes.add_chart(XL_CHART_TYPE.LINE, 0, 0, 9999, 9999, data).chart._chartSpace

    chart([date(2025, 1, 1), date(2025, 2, 1)], 0.88, None, of_values="0%")
    chart([datetime(2025, 1, 1), datetime(2025, 1, 2)], 1234.5, -0.5, of_values="#,##0.00")
    chart([2024, 2025], 17, 29.5)
    old = chart([date(2025, 1, 1)], 1)
    old.xpath("c:date1904")[0].set("val", "1")
    odd = chart([date(2025, 1, 1), date(2025, 1, 2), date(2025, 1, 3)], 1, 2, 0.5)
    for point, said in zip(odd.xpath(".//c:cat//c:pt"), ("#N/A", "1e9", "45658.75"), strict=True):
        point.v.text = said
    odd.xpath(".//c:val//c:pt")[2].set("formatCode", "0%")
    file.save(tmp_path / "a.pptx")
    documents, unread = found(tmp_path / "a.pptx")
    assert unread == [] and [one.rows for one in documents if isinstance(one, Table)] == [
        (("2025-01-01", "88%"), ("2025-02-01",)),
        (("2025-01-01", "1,234.50"), ("2025-01-02", "-0.50")),
        (("2024", "17"), ("2025", "29.5")),
        (("2029-01-02", "1"),),
        (("#N/A", "1"), ("1000000000", "2"), ("2025-01-01T18:00:00", "50%")),
    ]


def test_cells_and_hyphens_of_pdf(tmp_path: Path) -> None:
    fpdf = pytest.importorskip("fpdf")
    file = fpdf.FPDF()
    file.set_font("helvetica", size=11)
    file.add_page()
    with file.table() as table:
        for cells in [("Item", "Qty", "Price"), ("Bolt M8", "5", "1.10")]:
            row = table.row()
            for cell in cells:
                row.cell(cell)
    file.add_page()
    lines = "state-of-|the-art, AB-|CD-12, https://example.com/long-|path/file, govern-|ment"
    for line in lines.split("|"):
        file.cell(0, 6, line, new_x="LMARGIN", new_y="NEXT")
    file.output(str(tmp_path / "a.pdf"))
    said = " ".join(text_of(tmp_path / "a.pdf").split())
    assert said.startswith("Item Qty Price Bolt M8 5 1.10 state-of-the-art, AB-CD-12, ")
    assert said.endswith(" https://example.com/long-path/file, government")


@pytest.mark.parametrize("footer", ["Page {} of 3", "page {}", "{}"])
@pytest.mark.parametrize(("size", "down"), [(11, -15), (7, 250)])
def test_a_word_divided_at_the_end_of_a_page(tmp_path: Path, footer: str, size: int, down: int) -> None:
    fpdf = pytest.importorskip("fpdf")
    file = fpdf.FPDF()
    file.set_auto_page_break(False)
    bodies = [["a new light-"], ["house, they say, for the pre-"], ["and post-war years and Jean-"], ["Luc."]]
    for number, lines in enumerate(bodies, start=1):
        file.add_page()
        file.set_font("helvetica", size=8)
        file.cell(0, 6, "Annual report", new_x="LMARGIN", new_y="NEXT")
        file.set_y(244 if down > 0 else 30)
        file.set_font("helvetica", size=11)
        for line in lines:
            file.cell(0, 6, line, new_x="LMARGIN", new_y="NEXT")
        file.set_y(down)
        file.set_font("helvetica", size=size)
        file.cell(0, 6, footer.format(number), align="C")
    file.output(str(tmp_path / "a.pdf"))
    said = [line for line in text_of(tmp_path / "a.pdf").split("\n") if line]
    assert [line for line in said if line == "Annual report"] == ["Annual report"] * 4
    assert [footer.format(number) for number in (1, 2, 3, 4)] == [it for it in said if any(map(str.isdigit, it))]
    body = [line for line in said if line != "Annual report" and not any(map(str.isdigit, line))]
    assert body == ["a new lighthouse,", "they say, for the pre- and", "post-war years and Jean-", "Luc."]


def test_a_word_divided_above_a_footnote(tmp_path: Path) -> None:
    fpdf = pytest.importorskip("fpdf")
    file = fpdf.FPDF()
    file.add_page()
    for size, line in [(11, "a new light-"), (7, "see the note of the board")]:
        file.set_font("helvetica", size=size)
        file.cell(0, 6, line, new_x="LMARGIN", new_y="NEXT")
    file.output(str(tmp_path / "a.pdf"))
    assert text_of(tmp_path / "a.pdf").split("\n\n") == ["a new light-", "see the note of the board"]


def test_an_updated_file_loses_what_it_no_longer_has(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")

    def write(**sheets: list[tuple[object, ...]]) -> None:
        book = openpyxl.Workbook()
        book.remove(book.active)
        for name, rows in sheets.items():
            sheet = book.create_sheet(name)
            for row in rows:
                sheet.append(row)
        book.save(folder / "b.xlsx")

    folder, index = tmp_path / "c", tmp_path / "IDX"
    folder.mkdir()
    write(A=[("Item", "Price"), ("Bolt", 111)])
    page = folder / "C#.html"
    page.write_text("<p>x</p><table><tr><th>a</th><th>b</th></tr><tr><td>old</td><td>1</td></tr></table>")
    (folder / "b.xlsx.txt").write_text("A neighbour.")
    (folder / "d.jsonl").write_text('{"text": "One."}\n{"text": "Two."}\n')
    pyfast.build_index([folder, {"id": "note", "text": "A note."}], index)

    def uris() -> set[str]:
        corpus = pyfast.open_index(index).corpus
        return {corpus.uri(document) for document in range(corpus.documents)}

    others = {"C#.html", "C#.html#table-1", "b.xlsx.txt", "note"}
    assert uris() == {"b.xlsx", "d.jsonl#1", "d.jsonl#2", *others}
    write(A=[("Item", "Price"), ("Bolt", 222)], B=[("k", "v"), ("zeta", 9)])
    page.write_text("<p>y</p>")
    change = pyfast.update_documents(index, folder)
    assert (change.added, change.replaced, change.deleted, change.unchanged) == (2, 1, 2, 3)
    assert uris() == {"b.xlsx#A", "b.xlsx#B", "C#.html", "b.xlsx.txt", "d.jsonl#1", "d.jsonl#2", "note"}
    # What cannot be read stays as it was.
    (folder / "d.jsonl").write_text('{"text": "One."}\n{"text": \n')
    unread: list[Unread] = []
    change = pyfast.update_documents(index, folder, on_unread=unread.append)
    assert not change.deleted and [it.missing for it in unread] == [True] and "d.jsonl#2" in uris()
    (folder / "d.jsonl").write_text('{"text": "One."}\n')
    change = pyfast.update_documents(index, folder)
    assert change.deleted == 1 and not change.added and "d.jsonl#2" not in uris()


def test_a_word_below_its_reading(tmp_path: Path) -> None:
    docx = pytest.importorskip("docx")
    from docx.oxml import parse_xml
    from docx.oxml.ns import nsdecls

    file = docx.Document()
    paragraph = file.add_paragraph("In ")
    run = (
        f"<w:r {nsdecls('w')}><w:ruby><w:rt><w:r><w:t>reading</w:t></w:r></w:rt>"
        "<w:rubyBase><w:r><w:t>\u6771\u4eac</w:t></w:r></w:rubyBase></w:ruby></w:r>"
    )
    paragraph._p.append(parse_xml(run))
    paragraph.add_run(" now")
    file.save(tmp_path / "a.docx")
    assert text_of(tmp_path / "a.docx") == "In \u6771\u4eac\uff08reading\uff09 now"


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("<ruby>東京<rt>とうきょう</rt></ruby>へ", "東京（とうきょう）へ"),
        ("<ruby>東<rt>とう</rt>京<rt><b>きょう</b></rt></ruby>", "東（とう）京（きょう）"),
        ("<ruby>東京<rp>(</rp><rt>とうきょう</rt><rp>)</rp></ruby>", "東京(とうきょう)"),
        ("<ruby>東京<rt></rt></ruby>", "東京"),
        ("He said <q>the <q>old</q> mill</q>.", "He said “the ‘old’ mill”."),
    ],
)
def test_readings_and_quotation_marks_of_a_page(page: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(f"<meta charset=utf-8><p>{page}</p>", encoding="utf-8")
    assert text_of(tmp_path / "a.html") == said


def test_escaped_line_ends_of_a_sheet(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in [("k", "v"), ("a_x000D_\nb", "x_xyz")]:
        book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    (table,), _ = found(tmp_path / "a.xlsx")
    assert isinstance(table, Table) and list(table.rows) == [("a\nb", "x_xyz")]


def test_lines_of_json_in_a_file_of_json(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"n": "a", "v": 1}\n{"n": "b", "v": 2}\n{"n": \n')
    (table,), unread = found(tmp_path / "a.json")
    assert isinstance(table, Table) and list(table.rows) == [("a", "1"), ("b", "2")]
    assert [it.missing for it in unread] == [True] and "line 3" in unread[0].reason


def test_an_old_feather_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "a.feather").write_bytes(b"FEA1" + bytes(40))
    _, (unread,) = found(tmp_path / "a.feather")
    assert unread.missing and "Feather version 1" in unread.reason


def lines_of(path: Path) -> list[str]:
    corpus = encode(read([path]))
    return [corpus.render(int(i)) for i in corpus.passages()]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", '{"kind": "text", "id": "6", "title": "Lemur habits", "text": ""}\n'),
        ("a.jsonl", '{"_id": "6", "title": "Lemur habits", "text": " ", "metadata": {"year": 1999}}\n'),
        ("a.md", "---\ntitle: Lemur habits\n---\n"),
    ],
)
def test_a_title_without_a_text_is_found(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    _, unread = found(tmp_path / name)
    assert lines_of(tmp_path / name) == ["Lemur habits"] and not unread
    (tmp_path / "b.txt").write_text("Owls hunt at night.")
    index = pyfast.build_index(tmp_path, tmp_path / "IDX")
    assert [index.text(int(it)) for it in index.search("lemur", 3)[0].passages] == ["Lemur habits"]


def test_the_name_of_an_empty_file_is_no_passage(tmp_path: Path) -> None:
    for name in ("a.txt", "b.md"):
        (tmp_path / name).write_text("\n")
        assert lines_of(tmp_path / name) == []


def test_a_title_has_no_passage_of_its_own_beside_a_text_or_a_table(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("---\ntitle: Lakes\n---\n| lake | km2 |\n|---|---|\n| Mjosa | 365 |\n")
    assert lines_of(tmp_path / "a.md") == ["Lakes | lake: Mjosa | km2: 365"]
    large = TextDocument("b", "Large", "word " * 300_000 + "\n\n" + " " * 600_000 + "\n\nend")
    assert "Large" not in {encode([large]).render(int(i)) for i in encode([large]).passages()}


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("index", [["region"], ["region", "product"]])
@pytest.mark.parametrize("suffix", ["xlsx", "csv", "html"])
def test_a_pivot_table_of_pandas(tmp_path: Path, named: bool, index: list[str], suffix: str) -> None:
    pandas = pytest.importorskip("pandas")
    years = {"region": ["North", "North", "South", "South"], "year": [2023, 2024, 2023, 2024]}
    frame = pandas.DataFrame(
        years | {"product": ["a", "a", "b", "b"], "cost": [1, 2, 3, 4], "sales": [5, 6, 7, 8]}
    )
    pivot = frame.pivot_table(index=index, columns="year", values=["sales", "cost"], aggfunc="max")
    pivot.columns.names = ["measure", "year"] if named else [None, None]
    getattr(pivot, {"xlsx": "to_excel"}.get(suffix, f"to_{suffix}"))(tmp_path / f"a.{suffix}")
    first = "region: North" + (" | product: a" if len(index) > 1 else "")
    assert lines_of(tmp_path / f"a.{suffix}")[0] == (
        f"a | {first} | cost 2023: 1 | cost 2024: 2 | sales 2023: 5 | sales 2024: 6"
    )


@pytest.mark.parametrize(
    "rows",
    [
        [("Name", "Q1", "Q2"), ("Bob", "3", "3"), ("Total", "", ""), ("Ann", "4", "5")],
        [("Name", "Q1", "Q2"), ("Bob", "x", "y"), ("Note", "", ""), ("Ann", "z", "z")],
    ],
)
def test_a_row_with_a_single_cell_is_no_header(tmp_path: Path, rows: list[tuple[str, ...]]) -> None:
    (tmp_path / "a.csv").write_text("".join(",".join(row) + "\n" for row in rows))
    (table,), _ = found(tmp_path / "a.csv")
    assert isinstance(table, Table) and table.header == rows[0] and list(table.rows) == rows[1:]


@pytest.mark.parametrize(
    ("content", "beside"),
    [
        ('{"data": [{"a": 1}, {"a": 2}], "meta": {"page": 1}}', "meta"),
        ('{"type": "FeatureCollection", "crs": {"n": 1}, "features": [{"a": 1}, {"a": 2}]}', "crs, type"),
        ('{"schema": {"fields": [{"name": "a"}], "v": "1"}, "data": [{"a": 1}, {"a": 2}]}', "schema"),
        ('{"lakes": [{"a": 1}, {"a": 2}], "pagination": {"next": null}}', "pagination"),
    ],
)
def test_objects_beside_a_list_of_records(tmp_path: Path, content: str, beside: str) -> None:
    (tmp_path / "a.json").write_text(content)
    (table,), (told,) = found(tmp_path / "a.json")
    assert isinstance(table, Table) and list(table.rows) == [("1",), ("2",)]
    assert not told.missing and told.reason.endswith(f"other keys of the file: {beside}")


def test_a_record_with_an_object_and_a_list_is_one_record(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"name": "Holm", "address": {"city": "Odda"}, "orders": [{"n": 1}]}')
    (table,), unread = found(tmp_path / "a.json")
    assert isinstance(table, Table) and not unread
    assert list(table.rows) == [("Holm", '{"city":"Odda"}', '[{"n":1}]')]


ISSUE = {
    "number": 17,
    "title": "Crash",
    "body": "The editor crashes.",
    "labels": [{"name": "bug"}],
    "state": "OPEN",
}


@pytest.mark.parametrize(
    "record",
    [ISSUE, ISSUE | {"body": "Fixed."}, {"title": "Order", "content": "Use the back door.", "items": [{"n": 1}]}],
)
def test_a_record_with_a_text_and_a_list_is_read_as_its_line(tmp_path: Path, record: dict[str, Any]) -> None:
    (tmp_path / "a.json").write_text(json.dumps(record, indent=2))
    (tmp_path / "a.jsonl").write_text(json.dumps(record) + "\n")
    (table,), unread = found(tmp_path / "a.json")
    (line,), _ = found(tmp_path / "a.jsonl")
    assert isinstance(table, Table) and isinstance(line, Table) and not unread
    assert (table.header, table.rows) == (line.header, line.rows)


@pytest.mark.parametrize(
    ("beside", "missing"),
    [
        ({"title": "Shopping", "textContent": "Milk and bread"}, True),
        ({"steps": ["Mix", "Bake it slowly"]}, True),
        ({"content": "json", "next": "http://a/b?page=2"}, False),
        ({"created": "2025-03-14 08:05:00", "meta": {"note": "All of them"}}, False),
        ({"message": "Request was successful", "name": "All homes"}, False),
    ],
)
def test_texts_beside_a_list_of_records_are_missing(tmp_path: Path, beside: dict[str, Any], missing: bool) -> None:
    (tmp_path / "a.json").write_text(json.dumps(beside | {"data": [{"name": "home"}]}))
    (table,), (told,) = found(tmp_path / "a.json")
    assert isinstance(table, Table) and list(table.rows) == [("home",)] and told.missing == missing
    if missing:
        with pytest.raises(InputError, match="only the list"):
            pyfast.build_index(tmp_path / "a.json", tmp_path / "I", strict=True)


def test_a_text_with_its_questions_does_not_bring_answers_into_an_index(tmp_path: Path) -> None:
    asked = [{"id": "q1", "question": "How deep?", "answers": ["9 m"]}]
    (tmp_path / "a.json").write_text(json.dumps({"passage": "Lake Varn is deep.", "questions": asked}))
    documents, unread = found(tmp_path / "a.json")
    assert not documents and all(it.missing for it in unread) and len(unread) == 2


def test_numbers_without_blanks_are_cut_between_them() -> None:
    numbers = [f"{k}.{k:03d}" for k in range(2000)]
    corpus = encode([TextDocument("a", "", ",".join(numbers))])
    pieces = [corpus.content(int(i)) for i in corpus.passages()]
    assert len(pieces) > 2 and [it for piece in pieces for it in piece.rstrip(",").split(",")] == numbers


def test_some_triples_have_a_time(tmp_path: Path) -> None:
    (tmp_path / "a.triples.tsv").write_text("Bell\tborn in\tOslo\nBell\tlives in\tOdda\t1990\nOdda\tin\tNorway\n")
    (graph,), unread = found(tmp_path / "a.triples.tsv")
    assert isinstance(graph, KnowledgeGraph) and not unread
    assert [it.time for it in graph.triples] == [None, "1990", None]


@pytest.mark.parametrize("merged", [True, False])
def test_tables_side_by_side_with_titles(tmp_path: Path, merged: bool) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in [
        ("Sales", None, None, None, "Staff"),
        ("Region", "Units", "Price", None, "Name", "Age"),
        ("North", 1, 2, None, "Ann", 30),
        ("South", 3, 4),
    ]:
        book.active.append(row)
    if merged:
        book.active.merge_cells("A1:C1")
        book.active.merge_cells("E1:F1")
    book.save(tmp_path / "a.xlsx")
    assert lines_of(tmp_path / "a.xlsx") == [
        "a | Sales | Region: North | Units: 1 | Price: 2",
        "a | Sales | Region: South | Units: 3 | Price: 4",
        "a | Staff | Name: Ann | Age: 30",
    ]


def test_an_empty_column_within_a_table(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in [("Region", "2023", None, "2024"), ("North", 1, None, 2), ("South", 3, None, 4)]:
        book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    assert lines_of(tmp_path / "a.xlsx")[0] == "a | Region: North | 2023: 1 | 2024: 2"


def test_a_table_of_html_in_markdown(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(
        "# Lakes\n\nDeep ones.\n\n## Norway\n\n<table>\n<caption>By area</caption>\n"
        "<tr><th>lake</th><th>km2</th></tr>\n\n<tr><td>Mj&oslash;sa</td><td>365</td></tr>\n</table>\n\n"
        "Between.\n\n| lake | m |\n|---|---|\n| Tinn | 460 |\n\n<p>A paragraph.</p>\n"
    )
    assert lines_of(tmp_path / "a.md") == [
        "Lakes. Deep ones.",
        "Lakes > Norway. Between.",
        "Lakes > Norway. <p>A paragraph.</p>",
        "Lakes | Norway > By area | lake: Mj\u00f8sa | km2: 365",
        "Lakes | Norway | lake: Tinn | m: 460",
    ]


@pytest.mark.parametrize(
    ("rows", "header"),
    [
        (["| HTTP | 8080 |", "| gRPC | 9090<br>9091 |"], ()),
        (["| Ada | London |", "| Bell | Oslo |"], ()),
        (["| name | port |", "| HTTP | 8080 |"], ("name", "port")),
    ],
)
def test_a_markdown_table_with_an_empty_header(tmp_path: Path, rows: list[str], header: tuple[str, ...]) -> None:
    (tmp_path / "a.md").write_text("\n".join(["# Ports", "", "|   |   |", "|---|---|", *rows]) + "\n")
    (_, table), _ = found(tmp_path / "a.md")
    assert isinstance(table, Table) and table.header == header and len(table.rows) == len(rows) - len(header) // 2


def test_a_quoted_word_in_a_cell_of_tabs(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text('id\tname\n1\t"Gorilla" glue, 250 ml\n2\t"Tape, red"\n')
    (table,), unread = found(tmp_path / "a.tsv")
    assert isinstance(table, Table) and not unread
    assert list(table.rows) == [("1", '"Gorilla" glue, 250 ml'), ("2", "Tape, red")]


def test_a_bad_quote_is_named_in_words(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('id,name\n1,"Gorilla" glue\n2,Tape\n3,Nail\n')
    (table,), (unread,) = found(tmp_path / "a.csv")
    assert isinstance(table, Table) and [*map(tuple, table.rows)] == [("2", "Tape"), ("3", "Nail")]
    assert unread.reason == "line 2: text after the closing quote of a cell; this line is left out"


@pytest.mark.parametrize("name", ["a.txt", "a.md"])
def test_lines_that_end_with_carriage_returns(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"Made in 1994.\rNine boxes.\r\rThe key hangs.\r")
    first, second = lines_of(tmp_path / name)
    assert first.endswith("Made in 1994. Nine boxes.") and second.endswith("The key hangs.")


def test_a_page_in_another_encoding_than_it_says(tmp_path: Path) -> None:
    page = '<html><head><meta charset="utf-8"></head><p>Gr\u00f8nn lampe: 5 \u20ac hos Bj\u00f8rn.</p></html>'
    (tmp_path / "a.html").write_bytes(page.encode("cp1252"))
    (document,), (unread,) = found(tmp_path / "a.html")
    assert (
        isinstance(document, TextDocument)
        and document.text.strip() == "Gr\u00f8nn lampe: 5 \u20ac hos Bj\u00f8rn."
    )
    assert not unread.missing and unread.reason == "read as cp1252, because the page is not utf-8"
    (tmp_path / "b.html").write_bytes(page.encode() * 3 + b"<p>\xff</p>")
    _, (unread,) = found(tmp_path / "b.html")
    assert unread.missing and "some characters are not valid utf-8" in unread.reason


def test_numbers_beside_a_text_keep_their_digits(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        '{"id": "a", "text": "June notes", "version": 1.1}\n'
        '{"id": "b", "text": "July notes", "version": 1.10, "size": 12345678901234567890123}\n'
        '{"id": 98765432109876543210987, "text": "Lamp for sale"}\n'
    )
    documents, unread = found(tmp_path / "a.jsonl")
    assert not unread and [it.uri for it in documents] == ["a", "b", "98765432109876543210987"]
    for value, uris in (("1.1", {"a"}), ("1.10", {"b"})):
        folder = tmp_path / f"I{value}"
        pyfast.build_index(tmp_path / "a.jsonl", folder)
        index = pyfast.open_index(folder, filter=f"meta.version={value}")
        assert {index.uri(number) for number in range(len(index.passages))} == uris
    index = pyfast.open_index(folder, filter=["meta.version>=1.05", "meta.size=12345678901234567890123"])
    assert {index.uri(number) for number in range(len(index.passages))} == {"b"}


def test_an_order_in_a_filter_sees_no_case_and_no_accents(tmp_path: Path) -> None:
    cities = ["Malm\u00f6", "G\u00f6teborg", "M\u00dcNCHEN", "\u00c5rhus"]
    lines = [f'{{"id": "{city}", "text": "x", "city": "{city}"}}\n' for city in cities]
    (tmp_path / "a.jsonl").write_text("".join(lines))
    pyfast.build_index(tmp_path / "a.jsonl", tmp_path / "I")
    for condition, right in (("meta.city>=m", {"Malm\u00f6", "M\u00dcNCHEN"}), ("meta.city<B", {"\u00c5rhus"})):
        index = pyfast.open_index(tmp_path / "I", filter=condition)
        assert {index.uri(number) for number in range(len(index.passages))} == right


def test_the_lock_of_an_open_document_is_no_document(tmp_path: Path) -> None:
    """So that `sync` may delete what is gone while someone has a workbook open."""
    (tmp_path / "corpus").mkdir()
    for name, content in (("a.md", "Titan is a moon."), ("b.md", "Io is one, too."), ("~$staff.xlsx", "")):
        (tmp_path / "corpus" / name).write_text(content)
    unread: list[Unread] = []
    pyfast.build_index(tmp_path / "corpus", tmp_path / "IDX", on_unread=unread.append)
    (tmp_path / "corpus" / "b.md").unlink()
    change = pyfast.sync_documents(tmp_path / "IDX", tmp_path / "corpus", on_unread=unread.append)
    assert unread == [] and change.deleted == 1


def test_sync_names_what_it_keeps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The documents of a file that can no longer be read are still found, and are counted."""
    openpyxl = pytest.importorskip("openpyxl")
    (tmp_path / "corpus").mkdir()
    book = openpyxl.Workbook()
    book.active.append(["Name", "Moons"])
    book.active.append(["Saturn", 274])
    book.create_sheet("Later")
    book.save(path := tmp_path / "corpus" / "a.xlsx")
    (tmp_path / "corpus" / "b.md").write_text("Io is one, too.")
    unread: list[Unread] = []
    pyfast.build_index(tmp_path / "corpus", tmp_path / "IDX", on_unread=unread.append)
    assert [one.told for one in unread] == [f"{path}: 1 sheet is empty: Later"]
    path.write_bytes(b"no archive")
    for dry_run in (True, False):
        change = pyfast.sync_documents(
            tmp_path / "IDX", tmp_path / "corpus", on_unread=unread.append, dry_run=dry_run
        )
        assert (change.kept, change.uris["kept"], change.unchanged) == (1, ["a.xlsx"], 1)
        assert unread[-1].whole and unread[-1].told.startswith(f"left out {path}: ")
    done = processes.pyfast("corpus", "sync", tmp_path / "IDX", tmp_path / "corpus")
    assert "kept: a.xlsx\n" in done.stdout and "1 unchanged, 1 kept" in done.stdout
    book["Later"]["A1"], book["Later"]["A2"], book["Later"]["B1"] = "Sum", "=1+1", "x"
    book.save(path)
    pyfast.sync_documents(tmp_path / "IDX", tmp_path / "corpus", on_unread=unread.append)
    assert unread[-1].told.startswith(f"left out a part of {path}: sheet Later: 1 cell is a formula")
    openpyxl.Workbook().save(path)
    told = ["1 sheet is empty: Sheet", "the file has no passages"]
    assert [one.told for one in found(path)[1]] == [f"{path}: {what}" for what in told]


@pytest.mark.parametrize("kind", ["csv", "xlsx"])
def test_a_source_belongs_to_the_table_above_it(kind: str, tmp_path: Path) -> None:
    rows = [["Account", "2024", "2025"], ["Revenue", "1", "2"], ["Cost", "3", "4"], []]
    rows += [["Source: controlling"], [], ["Headcount"], ["Site", "FTE"], ["Kiel", "120"], ["Graz", "64"]]
    path = tmp_path / f"a.{kind}"
    if kind == "csv":
        path.write_text("".join(",".join(row) + "\n" for row in rows))
    else:
        openpyxl = pytest.importorskip("openpyxl")
        book = openpyxl.Workbook()
        for row in rows:
            book.active.append([float(cell) if cell.isdigit() else cell for cell in row])
        book.save(path)
    first, second = (one for one in found(path)[0] if isinstance(one, Table))
    assert (second.section, second.header) == ("Headcount", ("Site", "FTE"))
    assert first.rows[-1][0] == "Source: controlling" and first.section == ""


def test_powers_in_sheets(tmp_path: Path) -> None:
    """Runs of a cell with fonts of their own: a raised number behind a number is a power, behind a word a note."""
    openpyxl = pytest.importorskip("openpyxl")
    from openpyxl.cell.rich_text import CellRichText, TextBlock
    from openpyxl.cell.text import InlineFont

    book = openpyxl.Workbook()
    raised, lowered = (TextBlock(InlineFont(vertAlign=how), "6") for how in ("superscript", "subscript"))
    bold = TextBlock(InlineFont(b=True), "CO")
    book.active.append(["Lake", "Volume", "Gas"])
    book.active.append(
        ["Aa", CellRichText("2 × 10", raised, " m"), CellRichText(bold, lowered, " in note", raised)]
    )
    book.active.append(["Bb", CellRichText("2 × 10", lowered), "10"])
    book.save(tmp_path / "a.xlsx")
    (table,) = read([tmp_path / "a.xlsx"])
    assert isinstance(table, Table) and list(table.rows) == [
        ("Aa", "2 × 10^6 m", "CO6 in note^6"),
        ("Bb", "2 × 10_6", "10"),
    ]


@pytest.mark.parametrize("mark", [",", ";", "\t"])
@pytest.mark.parametrize("plain", [1, 40, 2000])
@pytest.mark.parametrize("said", [r"He said \"no\" twice", r"\"No\"", 'Two\nlines of \\"it\\"'])
def test_quotes_with_backslashes(tmp_path: Path, mark: str, plain: int, said: str) -> None:
    """Whichever records come before the first of them, and without a delimiter in any cell."""
    path = tmp_path / ("a.tsv" if mark == "\t" else "a.csv")
    lines = [
        f"id{mark}text",
        *(f"{k}{mark}plain" for k in range(plain)),
        *(f'{k}{mark}"{said}"' for k in range(40)),
    ]
    path.write_text("\n".join([*lines, f"9{mark}plain"]) + "\n")
    (table,), faults = found(path)
    assert isinstance(table, Table) and table.header == ("id", "text") and not faults
    assert list(table.rows[plain:]) == [(str(k), said.replace("\\", "")) for k in range(40)] + [("9", "plain")]


def test_backslashes_outside_of_quotes_stay(tmp_path: Path) -> None:
    """Also where backslashes escape quotes within quotes, as in the dumps of databases."""
    written = [
        ("1", '"12\\" pipe"', "C:\\new\\table", "\\N"),
        ("2", '"a\\\\b, \\"c\\""', "\\\\server\\x", "5"),
        ("3", '"two\nlines \\"x\\""', "plain", "\\N"),
    ]
    (tmp_path / "a.csv").write_text("\n".join(["id,name,path,born", *map(",".join, written)]) + "\n")
    (table,), faults = found(tmp_path / "a.csv")
    assert isinstance(table, Table) and not faults
    names = ['12" pipe', 'a\\b, "c"', 'two\nlines "x"']
    assert list(table.rows) == [(row[0], name, *row[2:]) for row, name in zip(written, names, strict=True)]


def test_a_record_with_the_uri_of_a_file_is_left_out(tmp_path: Path) -> None:
    """The build goes on, whichever of the two is read first."""
    for folder, records in (("first", "a.jsonl"), ("last", "z.jsonl")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "note.txt").write_text("The text of the file.")
        (tmp_path / folder / records).write_text(
            '{"id": "note.txt", "text": "A record."}\n{"id": "b", "text": "B."}\n'
        )
        documents, faults = found(tmp_path / folder)
        assert sorted(one.uri for one in documents) == ["b", "note.txt"]
        (fault,) = faults
        assert "'note.txt' is left out, because it has the id of document 1 of " in fault.reason and fault.missing


def test_a_backslash_at_the_end_of_a_cell(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('place,note\n"C:\\temp\\","x"\n"D:\\","y \\" z"\n"E:\\",w\n')
    (table,), faults = found(tmp_path / "a.csv")
    assert isinstance(table, Table) and list(table.rows) == [("C:\\temp\\", "x"), ("E:\\", "w")]
    assert len(faults) == 1 and "line 3" in faults[0].reason


def test_escapes_in_sheets_are_read_once(tmp_path: Path) -> None:
    """`_x005F_` stands for an underscore, in the texts that cells share and in texts within cells."""
    xlsxwriter = pytest.importorskip("xlsxwriter")
    rows = [("Order_x0020_ID", "n"), ("a_x000D_b", "1"), ("_x005F_", "2"), ("plain_x", "3")]
    for shared in (False, True):
        with xlsxwriter.Workbook(tmp_path / "a.xlsx", {"constant_memory": not shared}) as book:
            sheet = book.add_worksheet()
            for number, row in enumerate(rows):
                sheet.write_row(number, 0, row)
        (table,), _ = found(tmp_path / "a.xlsx")
        assert isinstance(table, Table) and [table.header, *table.rows] == rows


def test_footnotes_of_a_paragraph_are_in_order(tmp_path: Path) -> None:
    docx = pytest.importorskip("docx")
    from docx.opc.constants import RELATIONSHIP_TYPE
    from docx.opc.packuri import PackURI
    from docx.opc.part import Part
    from docx.oxml import parse_xml
    from docx.oxml.ns import nsdecls

    file = docx.Document()
    notes = "".join(
        f"<w:footnote w:id='{k}'><w:p><w:r><w:t>Note {k}.</w:t></w:r></w:p></w:footnote>" for k in (2, 3, 4)
    )
    paragraph = file.add_paragraph("Text")
    for k in (2, 3, 4):
        paragraph._p.append(parse_xml(f"<w:r {nsdecls('w')}><w:footnoteReference w:id='{k}'/></w:r>"))
    sign = "<w:sym w:font='Webdings' w:char='F0AB'/>"
    paragraph._p.append(parse_xml(f"<w:r {nsdecls('w')}>{sign}</w:r>"))
    kind = "application/vnd.openxmlformats-officedocument.wordprocessingml.footnotes+xml"
    xml = f"<w:footnotes {nsdecls('w')}>{notes}</w:footnotes>".encode()
    part = Part(PackURI("/word/footnotes.xml"), kind, xml, file.part.package)
    file.part.relate_to(part, RELATIONSHIP_TYPE.FOOTNOTES)
    file.save(tmp_path / "a.docx")
    (text,), (told,) = found(tmp_path / "a.docx")
    assert isinstance(text, TextDocument)
    assert text.text.split("\n\n")[:-1] == ["Text\ufffd", "Note 2.", "Note 3.", "Note 4."]
    assert not told.missing and "Webdings F0AB" in told.reason


@pytest.mark.parametrize("title", ["untitled", "(anonymous)", "Untitled Document", " ", "PowerPoint Presentation"])
def test_titles_that_programs_put_in_are_no_titles(tmp_path: Path, title: str) -> None:
    fpdf, docx, pptx, openpyxl = map(pytest.importorskip, ("fpdf", "docx", "pptx", "openpyxl"))
    pdf = fpdf.FPDF()
    pdf.set_title(title)
    pdf.add_page()
    pdf.set_font("helvetica", size=12)
    pdf.write(10, "A text.")
    pdf.output(str(tmp_path / "my_file.pdf"))
    word, slides, book = docx.Document(), pptx.Presentation(), openpyxl.Workbook()
    word.add_paragraph("A text.")
    slides.slides.add_slide(slides.slide_layouts[5]).shapes.title.text = "A text"
    book.active.append(["a", "b"])
    word.core_properties.title = slides.core_properties.title = book.properties.title = title
    for file, kind in ((word, "docx"), (slides, "pptx"), (book, "xlsx")):
        file.save(tmp_path / f"my_file.{kind}")
    for kind in ("pdf", "docx", "pptx", "xlsx"):
        (document, *_), _ = found(tmp_path / f"my_file.{kind}")
        assert document.title == "my file"


@pytest.mark.parametrize(
    ("line", "lacks"), [("\tis in\tOdda", "head"), ("Odda\t \tNorway", "relation"), ("a\tb\t", "tail")]
)
def test_a_triple_lacks_a_part(tmp_path: Path, line: str, lacks: str) -> None:
    (tmp_path / "triples.tsv").write_text(f"Odda\tis in\tNorway\n{line}\n")
    (graph,), (fault,) = found(tmp_path / "triples.tsv")
    assert len(graph.triples) == 1 and fault.missing and f"line 2: this triple has no {lacks}" in fault.reason


def test_files_without_passages_are_named_and_counted(tmp_path: Path) -> None:
    """Exactly those of which the index has no passage; nothing is missing, so the exit code is 0."""
    folder = tmp_path / "c"
    folder.mkdir()
    pytest.importorskip("docx").Document().save(folder / "a.docx")
    pytest.importorskip("pptx").Presentation().save(folder / "b.pptx")
    for name, text in (
        ("c.html", "<p></p>"),
        ("d.md", "\n"),
        ("e.csv", "x,y\n"),
        ("f.jsonl", "\n"),
        ("g.nt", "# no"),
    ):
        (folder / name).write_text(text)
    (folder / "h.jsonl").write_text('{"id": "h", "text": ""}\n')
    (folder / "i.txt").touch()
    (folder / "full.txt").write_text("Rain.")
    (folder / "full.csv").write_text("x,y\n1,2\n")
    done = processes.pyfast("index", folder, "--out", tmp_path / "IDX")
    assert done.returncode == 0 and "; no passages from 9 files\n" in done.stdout
    full = {one.uri for one in pyfast.list_documents(tmp_path / "IDX") if one.passages}
    told = {line.split(": ")[1].rpartition("/")[2] for line in done.stderr.splitlines() if ": the file " in line}
    assert told == {path.name for path in folder.iterdir()} - full and full == {"full.txt", "full.csv"}
    for path in folder.glob("full.*"):
        path.unlink()
    alone = processes.pyfast("index", folder / "a.docx", "--out", tmp_path / "NONE")
    assert alone.returncode == 1 and alone.stderr == f"pyfast: {folder / 'a.docx'}: the file has no passages\n"
