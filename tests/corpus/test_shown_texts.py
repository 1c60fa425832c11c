"""Hidden text, struck text, comments, and texts of images, in each format that has them."""

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import openpyxl
import pytest

import pyfast
from pyfast.corpus import Table, Unread, read
from pyfast.corpus.documents import Document, TextDocument


def found(path: Path) -> tuple[list[Document], list[str]]:
    unread: list[Unread] = []
    return list(read([path], unread)), [it.reason for it in unread if not it.missing]


def lines(path: Path, folder: Path) -> list[str]:
    index = pyfast.build_index(path, folder)
    return [index.corpus.render(int(segment)) for segment in index.passages]


def word() -> Any:
    docx = pytest.importorskip("docx")
    from docx.enum.style import WD_STYLE_TYPE

    file = docx.Document()
    for name, kind in (("Secret", WD_STYLE_TYPE.CHARACTER), ("Aside", WD_STYLE_TYPE.PARAGRAPH)):
        file.styles.add_style(name, kind).font.hidden = True
    below = file.styles.add_style("Below", WD_STYLE_TYPE.PARAGRAPH)
    below.base_style = file.styles["Aside"]
    return file


def image() -> BytesIO:
    picture = BytesIO()
    pytest.importorskip("PIL.Image").new("RGB", (2, 2)).save(picture, "PNG")
    return picture


def test_hidden_text_of_word(tmp_path: Path) -> None:
    file = word()
    from docx.oxml import OxmlElement

    said = file.add_paragraph("The buyer pays")
    said.add_run(" 99").font.hidden = True
    said.add_run(" again", "Secret")
    said.add_run(" 42 crowns.").font.hidden = False
    file.add_paragraph("Gone by style.", "Aside")
    file.add_paragraph("Gone by the style below.", "Below")
    file.add_paragraph("", "Aside").add_run("Shown again.").font.hidden = False
    file.add_paragraph("Shown on pages.").runs[0].font.web_hidden = True
    mark = OxmlElement("w:rPr")
    mark.append(OxmlElement("w:vanish"))
    file.add_paragraph("Two lines")._p.get_or_add_pPr().append(mark)
    file.add_paragraph(" as one.")
    table = file.add_table(3, 2)
    for place, text in enumerate(("Item", "Price", "Lamp", "42", "Draft", "7")):
        table.cell(place // 2, place % 2).text = text
    table.rows[2]._tr.get_or_add_trPr().append(OxmlElement("w:hidden"))
    file.save(tmp_path / "a.docx")
    (text, priced), told = found(tmp_path / "a.docx")
    assert text.text == "The buyer pays 42 crowns.\n\nShown again.\n\nShown on pages.\n\nTwo lines as one.\n\n"  # type: ignore[union-attr]
    assert isinstance(priced, Table) and priced.rows == (("Lamp", "42"),)
    assert told == ["hidden text was left out: 5 paragraphs, in whole or in part"]


def test_struck_text_and_texts_of_images_in_word(tmp_path: Path) -> None:
    file, picture = word(), image()
    said = file.add_paragraph()
    said.add_run("99 ").font.strike = True
    said.add_run("€").font.double_strike = True
    said.add_run("89 €")
    for alt in ("Yes", "tick.png", "A dog\n\nDescription automatically generated"):
        shown = file.add_paragraph("Insured:").add_run()
        shown.add_picture(picture)
        shown._r.xpath(".//wp:docPr")[0].set("descr", alt)
    file.save(tmp_path / "a.docx")
    (text,), told = found(tmp_path / "a.docx")
    assert text.text == "~~99 €~~ 89 €\n\nInsured: Yes\n\nInsured:\n\nInsured:\n\n"  # type: ignore[union-attr]
    assert told == []


def test_hidden_shapes_and_struck_text_of_slides(tmp_path: Path) -> None:
    pptx = pytest.importorskip("pptx")
    file = pptx.Presentation()
    slide = file.slides.add_slide(file.slide_layouts[5])
    slide.shapes.title.text = "Plan"
    slide.shapes.title._element.nvSpPr.cNvPr.set("hidden", "1")
    boxes = [slide.shapes.add_textbox(0, 0, 9, 9) for _ in range(2)]
    boxes[0].text_frame.text = "Draft budget of 900."
    boxes[0]._element.nvSpPr.cNvPr.set("hidden", "1")
    runs = [boxes[1].text_frame.paragraphs[0].add_run() for _ in range(2)]
    runs[0].text, runs[1].text = "900", "700"
    runs[0]._r.get_or_add_rPr().set("strike", "sngStrike")
    picture = image()
    for alt in ("Approved", "stamp.png"):
        slide.shapes.add_picture(picture, 0, 0)._element.nvPicPr.cNvPr.set("descr", alt)
    file.save(tmp_path / "a.pptx")
    (text,), told = found(tmp_path / "a.pptx")
    assert text.text == "Plan\n\n~~900~~ 700\n\nApproved\n\n"  # type: ignore[union-attr]
    assert told == ["hidden shapes were left out, on slides 1"]


def test_hidden_rows_and_columns_of_sheets_are_read_and_told(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    for row in (["Name", "Cost", "Price"], ["Lamp", 30, 42], ["Rope", 5, 7]):
        book.active.append(row)
    book.active.row_dimensions[3].hidden = True
    book.active.column_dimensions["B"].hidden = True
    book.active.column_dimensions["F"].hidden = True
    book.save(tmp_path / "a.xlsx")
    (table,), told = found(tmp_path / "a.xlsx")
    assert isinstance(table, Table) and table.rows == (("Lamp", "30", "42"), ("Rope", "5", "7"))
    assert told == ["sheet Sheet: hidden rows 3 and columns B were read"]


PAGE = """<h2>Plans</h2><p>Insured: <img src="y.png" alt="Yes"> <img alt="y.png"> <img alt=""> <img alt="Logo"></p>
<p><img alt="Open daily from nine"></p><p><del>49 €</del> <ins>39 €</ins>, <s>99 €</s>89 €,
<strike>1<b>0</b><sup>6</sup></strike>x, <span style="text-decoration: line-through">old</span>new</p>
<del><p>First.</p><p>Second.</p></del>
<p>A <svg aria-label="Tick"></svg> <svg><title>Cross</title></svg> <i role="img" aria-label="Warning"></i>
<svg aria-hidden="true"><title>gone</title></svg><img alt="gone" hidden></p>
<figure><img alt="A map"><figcaption>A map</figcaption></figure>
<table><tr><th>Feature</th><th>Basic</th></tr><tr><td>Backup</td><td><img alt="No"></td></tr>
<tr style="text-decoration:line-through"><td>Tape</td><td><a href="x"><img alt="See plan"></a></td></tr>
<tr><td>Price</td><td><s>99 €</s>89 €</td></tr></table>"""


def test_images_and_struck_text_of_pages(tmp_path: Path) -> None:
    (tmp_path / "plans.html").write_text(PAGE, encoding="utf-8")
    assert lines(tmp_path / "plans.html", tmp_path / "I") == [
        "plans > Plans. Insured: Yes",
        "plans > Plans. Open daily from nine",
        "plans > Plans. ~~49 €~~ 39 €, ~~99 €~~ 89 €, ~~10^6~~ x, ~~old~~ new",
        "plans > Plans. ~~First.~~",
        "plans > Plans. ~~Second.~~",
        "plans > Plans. A Tick Cross Warning",
        "plans > Plans. A map",
        "plans | Plans | Feature: Backup | Basic: No",
        "plans | Plans | Feature: ~~Tape~~ | Basic: ~~See plan~~",
        "plans | Plans | Feature: Price | Basic: ~~99 €~~ 89 €",
    ]


NOTES = """# Guide

## Old

<!-- gone 1

| A | B |
|---|---|
| gone | 2 |

gone 2 -->

## Prices

It costs 42 <!-- gone 3 --> crowns. Write `<!-- kept -->` here.

```html
<p>One</p> <!-- kept too -->
```

<!-- gone 4 --> Beside a comment.

- first <!-- gone 5 -->

[//]: # (gone 6)

    [//]: # (kept in code)

| Item <!-- gone 7 --> | Price |
|---|---|
| ![Lamp](a.png) | ~~99~~89 € |
| <img src=x alt="Rope"> | <s>7</s>5 |
"""


def test_comments_of_markdown_are_in_no_passage(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text(NOTES, encoding="utf-8")
    said = lines(tmp_path / "notes.md", tmp_path / "I")
    assert said == [
        "Guide > Old",
        "Guide > Prices. It costs 42 crowns. Write `<!-- kept -->` here.",
        "Guide > Prices. ```html <p>One</p> <!-- kept too --> ```",
        "Guide > Prices. Beside a comment.",
        "Guide > Prices. - first",
        "Guide > Prices. [//]: # (kept in code)",
        "Guide | Prices | Item: Lamp | Price: ~~99~~ 89 €",
        "Guide | Prices | Item: Rope | Price: ~~7~~ 5",
    ]
    (document, *_), _ = found(tmp_path / "notes.md")
    assert document.text == NOTES  # type: ignore[union-attr]


@pytest.mark.parametrize("text", ["<!-- open" * 30_000, "<!-- " * 50_000 + "-->", "[//]: # (x)\n\n" * 9000])
def test_many_comments_take_no_long_time(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.md").write_text(f"# A\n\n{text}\n")
    documents, _ = found(tmp_path / "a.md")
    assert documents[0].title == "A"


def test_struck_runs_of_a_cell(tmp_path: Path) -> None:
    from openpyxl.cell.rich_text import CellRichText, TextBlock
    from openpyxl.cell.text import InlineFont

    book = openpyxl.Workbook()
    book.active.append(["Item", "Price"])
    book.active.append(["Lamp", CellRichText(TextBlock(InlineFont(strike=True), "99"), "89")])
    book.save(tmp_path / "a.xlsx")
    (table,), _ = found(tmp_path / "a.xlsx")
    assert isinstance(table, Table) and table.rows == (("Lamp", "~~99~~ 89"),)


A = "http://schemas.openxmlformats.org/drawingml/2006/main"


def test_the_automatic_numbers_of_slides_are_read(tmp_path: Path) -> None:
    """Each list counts for itself, and so does each level below a number."""
    pptx = pytest.importorskip("pptx")
    file = pptx.Presentation()
    slide = file.slides.add_slide(file.slide_layouts[1])
    slide.shapes.title.text = "Drill"
    frame = slide.placeholders[1].text_frame
    lines = [
        ("Ring the bell.", 0, {"type": "arabicPeriod"}),
        ("Twice.", 1, {"type": "alphaLcParenR"}),
        ("Loudly.", 1, {"type": "alphaLcParenR"}),
        ("Close the doors.", 0, {"type": "arabicPeriod"}),
        ("Again twice.", 1, {"type": "alphaLcParenR"}),
        ("A note.", 0, None),
        ("Fourth.", 0, {"type": "romanUcParenBoth", "startAt": "4"}),
        ("Fifth.", 0, {"type": "romanUcParenBoth", "startAt": "4"}),
        ("Circled.", 0, {"type": "circleNumDbPlain"}),
    ]
    for place, (said, level, numbered) in enumerate(lines):
        paragraph = frame.paragraphs[0] if place == 0 else frame.add_paragraph()
        paragraph.text, paragraph.level = said, level
        if numbered is not None:
            properties = paragraph._p.get_or_add_pPr()
            properties.append(properties.makeelement(f"{{{A}}}buAutoNum", numbered))
    file.save(tmp_path / "a.pptx")
    (text,), told = found(tmp_path / "a.pptx")
    assert told == ["list numbers were left out, because their format is circleNumDbPlain"]
    assert [line for line in text.text.split("\n") if line] == [  # type: ignore[union-attr]
        "Drill",
        "1. Ring the bell.",
        "a) Twice.",
        "b) Loudly.",
        "2. Close the doors.",
        "a) Again twice.",
        "A note.",
        "(IV) Fourth.",
        "(V) Fifth.",
        "Circled.",
    ]


def test_the_numbers_of_a_slide_can_be_those_of_its_layout(tmp_path: Path) -> None:
    pptx = pytest.importorskip("pptx")
    file = pptx.Presentation()
    layout = file.slide_layouts[1]
    style = layout.placeholders[1]._element.find(f"{{*}}txBody/{{{A}}}lstStyle")
    level = style.makeelement(f"{{{A}}}lvl1pPr", {})
    level.append(level.makeelement(f"{{{A}}}buAutoNum", {"type": "arabicPeriod"}))
    style.append(level)
    slide = file.slides.add_slide(layout)
    slide.placeholders[1].text_frame.text = "Ring the bell.\nA note.\nClose the doors."
    properties = slide.placeholders[1].text_frame.paragraphs[1]._p.get_or_add_pPr()
    properties.append(properties.makeelement(f"{{{A}}}buNone", {}))
    file.save(tmp_path / "a.pptx")
    (text,), told = found(tmp_path / "a.pptx")
    assert told == [] and isinstance(text, TextDocument)
    assert text.text.split("\n")[-5:] == ["1. Ring the bell.", "A note.", "1. Close the doors.", "", ""]


STYLE = """
/* .c1{display:none} */ @import url("a.css"); @media print{.c1{display:none}} .c1{vertical-align:super}
.c2, p.c9{text-decoration:line-through} .c3{color:red;display:none !important}
.c4{display:none} .c4.open{display:block} .c5{display:none} .c5{display:inline} .c6{display:none}
.c7,#i1{visibility:hidden} #i2,#i3{display:none} #i4{display:inline} .c8{display:none}
#i5{display:none} #i5:target{display:block}
"""


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("10<span class='x c1'>6</span> cells", "10^6 cells"),
        ("Price <span class=c2>99 €</span> 89 €.", "Price ~~99 €~~ 89 €."),
        ("a <span class=c9>b</span> c", "a b c"),
        ("a <b class=c3>hidden</b> c", "a c"),
        ("a <b class=c3 style='display:inline'>b</b> c", "a b c"),
        ("a <b class=c4>a tab</b> c <b class=c5>d</b>", "a a tab c d"),
        ("a <b class=c6>answer</b> c<script>show('c6')</script>", "a answer c"),
        ("a <b class=c7>b</b> <b id=i1>c</b> <b id=i2>d</b> <textarea>e</textarea> f", "a f"),
        ("a <b id=i3>b</b> <b id=i4 class=c8>c</b> <b id=i5>d</b><script>show('i3')</script>", "a b c d"),
    ],
)
def test_styles_of_classes(body: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(f"<meta charset=utf-8><style>{STYLE}</style><p>{body}</p>")
    (text,), _ = found(tmp_path / "a.html")
    assert isinstance(text, TextDocument) and text.text == f"{said}\n\n"


MATH = "<math><msup><mi>c</mi><mn>2</mn></msup><annotation encoding='application/x-tex'>c^{2}</annotation></math>"


@pytest.mark.parametrize("tag", ["span", "div"])
@pytest.mark.parametrize("aside", ["", "aria-hidden=true"])
def test_an_equation_beside_its_image(tag: str, aside: str, tmp_path: Path) -> None:
    hidden = f"<{tag} style='display: none;'>{MATH}</{tag}>"
    page = f"Einstein: E=m{hidden} <img {aside} alt='c^{{2}}' src='a.svg'> is famous."
    (tmp_path / "a.html").write_text(f"<body><section>{page} Not shown: {hidden}</section>")
    (text,), _ = found(tmp_path / "a.html")
    assert isinstance(text, TextDocument)
    assert " ".join(text.text.split()) == "Einstein: E=mc^2 is famous. Not shown:"


def test_a_table_of_a_notebook_in_markdown(tmp_path: Path) -> None:
    style = "<style scoped>\n    .dataframe th {\n  color: red;\n    }\n\n    .dataframe td {\n    }\n</style>\n"
    table = "<table>\n<tr><th></th><th>city</th></tr>\n<tr><th>0</th><td>Oslo</td></tr>\n</table>\n"
    inside = table.replace("<tr>", "<style>.a {}</style>\n<tr>", 1).replace("Oslo", "Rome")
    code = "```html\n<div>\n<style>b {}</style>\n</div>\n```\n"
    page = f"# A\n\n<div>B</div>\n\n<div>\n{style}{table}<p>1 row</p>\n</div>\n\n{inside}\n"
    page += f"<div>\n\nText.\n\n</div>\n\n{code}"
    (tmp_path / "a.md").write_text(page)
    assert lines(tmp_path / "a.md", tmp_path / "I") == [
        "A. <div>B</div>",
        "A. <p>1 row</p>",
        "A. Text.",
        "A. ```html <div> <style>b {}</style> </div> ```",
        "A | 0 | city: Oslo",
        "A | 0 | city: Rome",
    ]


def test_headings_and_lone_tags_of_html_in_markdown(tmp_path: Path) -> None:
    top = '<h1 align="center">\n  <img src="l.svg" alt="logo"><br>fast<b>grid</b> &amp; co\n</h1>\n\n'
    box = "<details>\n<summary>Times</summary>\n\nTwo seconds.\n\n</details>\n\n"
    below = '<div align="center">\n  <h2>Use</h2>\n  <p>\n    Call it.\n  </p></div>\n\n## Empty\n\n<br>\n\n'
    code = "```html\n<h1>Code</h1>\n</details>\n```\n\n`<h1>x</h1>` is code.\n"
    (tmp_path / "a.md").write_text(f"{top}Grids.\n\n{box}{below}## Code\n\n{code}")
    assert lines(tmp_path / "a.md", tmp_path / "I") == [
        "fastgrid & co. Grids.",
        "fastgrid & co > Times. Two seconds.",
        "fastgrid & co > Use. Call it.",
        "fastgrid & co > Empty",
        "fastgrid & co > Code. ```html <h1>Code</h1> </details> ```",
        "fastgrid & co > Code. `<h1>x</h1>` is code.",
    ]


def test_a_summary_is_the_heading_of_its_details_and_of_nothing_else(tmp_path: Path) -> None:
    opened = (
        "<details>\n<summary><b>Fast</b> start</summary>\n\nRun it.\n\n<details><summary>On a Mac</summary>\n\n"
    )
    table = (
        "<details>\n<summary>Limits</summary>\n\n<table><tr><th>Kind</th></tr><tr><td>files</td></tr></table>\n"
    )
    below = "</details>\n\n| A | B |\n|---|---|\n| 1 | 2 |\n\nLast.\n\n<details><p>No summary.</p></details>\n"
    (tmp_path / "a.md").write_text(
        f"# Tool\n\n{opened}Use brew.\n\n</details>\n\nThen wait.\n\n</details>\n{table}{below}"
    )
    assert lines(tmp_path / "a.md", tmp_path / "I") == [
        "Tool > Fast start. Run it.",
        "Tool > Fast start > On a Mac. Use brew.",
        "Tool > Fast start. Then wait.",
        "Tool. Last.",
        "Tool. <details><p>No summary.</p></details>",
        "Tool | Limits | Kind: files",
        "Tool | A: 1 | B: 2",
    ]
    inside = "<summary>Cards?</summary><p>Visa.</p><ul><li>gold</li></ul>{}"
    page = f"<h2>Pay</h2><details>{inside}</details>{{}}<p>After.</p>"
    grids = (f"<table><tr><th>{name}</th></tr><tr><td>1</td></tr></table>" for name in "KV")
    nested = "<details><summary><h3>Out</h3></summary><details><summary>In</summary>x</details>y</details>"
    (tmp_path / "n.html").write_text(
        page.format(*grids) + nested + "<h3>Sub</h3>z<details><summary>Empty</summary>"
    )
    assert lines(tmp_path / "n.html", tmp_path / "J") == [
        "n > Pay > Cards?. Visa.",
        "n > Pay > Cards?. - gold",
        "n > Pay. After.",
        "n > Pay > Out > In. x",
        "n > Pay > Out. y",
        "n > Pay > Sub. z",
        "n > Pay > Sub > Empty",
        "n | Pay > Cards? | K: 1",
        "n | Pay | V: 1",
    ]


def test_rules_are_no_passages(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(
        "# A\n\n## Fees\n\nTen euros.\n\n---\n\n## None\n\n* * *\n\n___\n\n> ---\n\n- a\n"
    )
    assert lines(tmp_path / "a.md", tmp_path / "I") == ["A > Fees. Ten euros.", "A > None. > ---", "A > None. - a"]
    (tmp_path / "b.md").write_text("One.\n\n***\n\nTwo.\n\n***not a rule***\n\n## Only\n\n- - -\n")
    assert lines(tmp_path / "b.md", tmp_path / "J") == ["b. One.", "b. Two.", "b. not a rule", "b > Only"]


def test_characters_that_nobody_sees_divide_no_word(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("The infor\u00admation desk of sta\ufefftion Wi\u2060Fi, می\u200cخواهم.")
    (tmp_path / "b.csv").write_text("Na\u00adme,City\nHan\u00adna,Odda\n")
    assert lines(tmp_path / "a.txt", tmp_path / "I") == ["a. The information desk of station WiFi, می\u200cخواهم."]
    assert lines(tmp_path / "b.csv", tmp_path / "J") == ["b | Name: Hanna | City: Odda"]


def test_searches_find_the_words_that_the_llm_reads(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# Menu\n\nThe caf&eacute; sells H<sub>2</sub>O to R&amp;D.<!-- secret -->\n")
    words = "be\0ta de\u200blta th\x7feta \x1b[31merror\x1b[0m E\u0301\u200bpsilon \u0e44\u200b\u0e14"
    (tmp_path / "b.jsonl").write_text(json.dumps({"id": "b", "text": words}))
    index = pyfast.build_index(tmp_path, tmp_path / "IDX")
    assert index.text(1) == "beta delta theta error E\u0301psilon \u0e44\u200b\u0e14"

    def found(query: str) -> list[str]:
        return [index.uri(int(passage)) for passage in index.search([query], 5)[0].passages]

    assert all(found(query) == ["a.md"] for query in ("caf\u00e9", "H2O"))
    assert not found("eacute") and not found("secret") and not found("31merror")
    queries = ("beta", "delta", "de\u200blta", "theta", "error", "\u00e9psilon", "\u0e44", "\u0e14")
    assert all(found(query) == ["b"] for query in queries)


def test_data_of_images_in_markdown(tmp_path: Path) -> None:
    data = "data:image/png;base64," + "iVBORw0KGgo/+A==" * 1000
    (tmp_path / "a.md").write_text(
        f"Lake ![a pier]({data}) north ![image]({data} 'x') and ![][image1] south ![Bay][] ![map](a.png).\n\n"
        f"<img alt='x' src='{data}'>\n\n[image1]: <{data}>\n\n[bay]: {data}\n"
    )
    assert lines(tmp_path / "a.md", tmp_path / "I") == [
        "a. Lake a pier north  and  south Bay ![map](a.png).",
        "a. <img alt='x' src=''>",
    ]
