"""Mixed files, made by the libraries that people make them with: what can be read is found, the rest is named."""

import csv
import gzip
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docx
import numpy as np
import openpyxl
import pptx
import pyarrow as pa
import pytest
import zstandard
from fpdf import FPDF
from pyarrow import feather, parquet

import pyfast
from pyfast.corpus import Table, TextDocument, Unread, read
from pyfast.errors import InputError

FACT = "The {name} heron nests at lake {lake}"


def fact(name: str) -> str:
    return FACT.format(name=name, lake=f"{name}see")


def pdf(path: Path, name: str) -> None:
    made = FPDF()
    made.set_font("helvetica", size=12)
    for number in (1, 2, 3):
        made.add_page()
        made.start_section(f"Part {number}")
        made.multi_cell(0, text=f"Part {number}", new_x="LMARGIN", new_y="NEXT")
        made.multi_cell(0, text=fact(name) if number == 2 else "Nothing.", new_x="LMARGIN", new_y="NEXT")
    made.output(str(path))


def word(path: Path, name: str) -> None:
    made = docx.Document()
    made.add_heading("Birds", 1)
    made.add_heading("Herons", 2)
    made.add_paragraph(fact(name))
    table = made.add_table(rows=2, cols=2)
    for cell, said in zip([*table.rows[0].cells, *table.rows[1].cells], ["bird", "lake", name, "x"], strict=True):
        cell.text = said
    made.save(str(path))


def slides(path: Path, name: str) -> None:
    made = pptx.Presentation()
    for number in (1, 2):
        slide = made.slides.add_slide(made.slide_layouts[1])
        slide.shapes.title.text = f"Slide {number}"
        slide.placeholders[1].text = fact(name) if number == 2 else "Welcome"
    made.save(str(path))


def sheet(path: Path, name: str) -> None:
    made = openpyxl.Workbook()
    made.active.append(["bird", "what", "count"])
    made.active.append([f"{name} heron", fact(name), 3.0])
    made.save(path)


def table(path: Path, name: str, delimiter: str, encoding: str) -> None:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter).writerows(
        [["Vogel", "Größe, in cm", "Satz"], ["Möwe", "40,5", "x"], [f"{name} heron", "90,1", fact(name)]]
    )
    path.write_bytes(text.getvalue().encode(encoding))


def rows(name: str) -> pa.Table:
    return pa.table({"bird": [f"{name} heron", "owl"], "count": [3, 4], "said": [fact(name), None]})


def arrow(path: Path, name: str, stream: bool) -> None:
    found = rows(name)
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(str(path), found.schema) as sink:
        sink.write_table(found)


def html(name: str) -> str:
    head = "<html><head><title>Birds</title><style>b {}</style></head><body><nav>menu</nav><h1>Birds</h1>"
    said = (
        f"<h2>Herons</h2><p>{fact(name)} <a href='x'>with_others</a></p><table><tr><th>bird</th><th>eggs</th></tr>"
    )
    return f"{head}{said}<tr><td>{name}</td><td>5</td></tr></table><script>alert(1)</script></body></html>"


Maker = Callable[[Path, str], Any]
text = lambda encoding, before="": lambda path, name: path.write_bytes((before + fact(name)).encode(encoding))  # noqa: E731
packed = lambda pack, inner: lambda path, name: path.write_bytes(pack(inner(name).encode()))  # noqa: E731
in_json = lambda form: lambda path, name: path.write_text(json.dumps(form(name)), encoding="utf-8")  # noqa: E731
record = lambda name: {"bird": f"{name} heron", "said": fact(name)}  # noqa: E731
turtle = lambda name: (  # noqa: E731
    f'@prefix e: <http://e.org/> . e:heron rdfs:label "{name} heron" ; e:nests_at e:{name}see .'
).replace("@prefix e:", "@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . @prefix e:")

READABLE: dict[str, Maker] = {
    "alpha.md": text("utf-8", "---\ntitle: Alpha\n---\n\n# Birds\n\n"),
    "bravo.markdown": text("utf-8", "# Birds\n\n| a | b |\n|---|---|\n| x | y |\n\n"),
    "charlie.txt": text("utf-8"),
    "delta.txt": text("utf-16", "Größe. "),
    "echo.txt": text("utf-16-le"),
    "foxtrot.txt": text("utf-8-sig"),
    "golf.txt": text(
        "cp1252", "Die Größe der Vögel – wie man weiß – ist sehr verschieden, für jeden überprüfbar. "
    ),
    "hotel.csv": lambda path, name: table(path, name, ",", "utf-8"),
    "india.csv": lambda path, name: table(path, name, ";", "latin-1"),
    "juliett.csv": lambda path, name: table(path, name, "\t", "utf-8"),
    "kilo.csv": lambda path, name: table(path, name, "|", "utf-16"),
    "lima.tsv": lambda path, name: table(path, name, "\t", "utf-8"),
    "mike.xlsx": sheet,
    "november.pdf": pdf,
    "oscar.docx": word,
    "papa.pptx": slides,
    "quebec.html": lambda path, name: path.write_text(html(name), encoding="utf-8"),
    "romeo.htm": lambda path, name: path.write_bytes(html(name).encode("latin-1")),
    "sierra.parquet": lambda path, name: parquet.write_table(rows(name), path),
    "tango.arrow": lambda path, name: arrow(path, name, stream=False),
    "uniform.arrow": lambda path, name: arrow(path, name, stream=True),
    "victor.feather": lambda path, name: feather.write_feather(rows(name), str(path)),
    "whiskey.json": in_json(lambda name: [record(name), {"bird": "owl"}]),
    "xray.json": in_json(lambda name: {"items": [record(name)]}),
    "yankee.jsonl": in_json(lambda name: {"text": fact(name), "title": "Birds"}),
    "zulu.ttl": lambda path, name: path.write_text(turtle(name), encoding="utf-8"),
    "amber.nt": lambda path, name: path.write_text(
        f"<http://e.org/{name}_heron> <http://e.org/nests_at> <http://e.org/{name}see> .\n", encoding="utf-8"
    ),
    "triples-blue.tsv": lambda path, name: path.write_text(
        f"{name} heron\tnests at\t{name}see\n", encoding="utf-8"
    ),
    "coral.txt.gz": packed(gzip.compress, fact),
    "denim.md.zst": packed(zstandard.compress, fact),
    "ebony.csv.gz": packed(gzip.compress, lambda name: f"bird;said\n{name} heron;{fact(name)}\nowl;no\n"),
    "deep/down/flax.txt": text("utf-8"),
}


def bomb(path: Path) -> None:
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("word/document.xml", "w") as part,
    ):
        for _ in range(300):
            part.write(bytes(1 << 20))


OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
UNREADABLE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "photo.png": (lambda path: path.write_bytes(b"\x89PNG\r\n"), "there is no reader for this kind of file"),
    "noise.txt": (
        lambda path: path.write_bytes(np.random.default_rng(0).bytes(5000)),
        "if it is not a binary file",
    ),
    "damaged.pdf": (lambda path: path.write_bytes(b"%PDF-1.7\nnothing"), "cannot be read: PdfiumError"),
    "cut.docx": (lambda path: path.write_bytes(b"PK\x03\x04cut"), "cannot be read: BadZipFile"),
    "locked.xlsx": (lambda path: path.write_bytes(OLE + bytes(2000)), "save it again as .xlsx without a password"),
    "bomb.docx": (bomb, "bytes unpack to"),
    "bad.json": (lambda path: path.write_text('{"a": ', encoding="utf-8"), "not JSON"),
    "bad.ttl": (lambda path: path.write_text("this is no turtle", encoding="utf-8"), ""),
    "cut.txt.gz": (lambda path: path.write_bytes(gzip.compress(b"text" * 999)[:30]), "cannot be unpacked"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("mixed")
    for name, write in READABLE.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        write(made / name, word_of(name))
    for name, (write_bad, _) in UNREADABLE.items():
        write_bad(made / name)
    (made / ".hidden").write_text("not for anybody")
    return made


def word_of(name: str) -> str:
    """The word that only one file has."""
    return "blue" if "blue" in name else Path(name).name.partition(".")[0]


@pytest.fixture(scope="module")
def built(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[pyfast.Index, list[Unread]]:
    unread: list[Unread] = []
    index = pyfast.build_index(str(folder), tmp_path_factory.mktemp("out") / "IDX", on_unread=unread.append)
    return index, unread


def test_there_are_41_files() -> None:
    assert len(READABLE) + len(UNREADABLE) == 41 and len(UNREADABLE) == 9


@pytest.mark.parametrize("name", READABLE)
def test_what_can_be_read_is_found(built: tuple[pyfast.Index, list[Unread]], name: str) -> None:
    index, _ = built
    (pool,) = index.search([f"Where does the {word_of(name)} heron nest?"], 1)
    found = index.corpus.segment(int(index.passages[pool.passages[0]]))
    assert found["uri"].partition("#")[0] == name


@pytest.mark.parametrize("name", READABLE)
def test_an_edited_file_is_seen_as_changed(tmp_path: Path, name: str) -> None:
    folder, index = tmp_path / "d", tmp_path / "IDX"
    (folder / name).parent.mkdir(parents=True)
    READABLE[name](folder / name, "first")
    pyfast.build_index(folder, index)
    assert pyfast.update_documents(index, folder).replaced == 0
    READABLE[name](folder / name, "second")
    changed = pyfast.update_documents(index, folder)
    assert changed.replaced >= 1 and not changed.added, changed
    edited = pyfast.Index(index)
    assert edited.search(["secondsee second heron"], 1)[0].passages.size == 1
    assert edited.search(["firstsee first"], 1)[0].passages.size == 0
    assert pyfast.verify(index).passed


@pytest.mark.parametrize("name", ["hotel.csv", "india.csv", "juliett.csv", "kilo.csv", "lima.tsv"])
def test_decimal_commas_divide_no_cell(folder: Path, name: str) -> None:
    (found,) = read([folder / name])
    assert isinstance(found, Table) and found.header == ("Vogel", "Größe, in cm", "Satz")
    assert found.rows[0] == ("Möwe", "40,5", "x") and {len(row) for row in found.rows} == {3}


def test_a_comma_stays_the_delimiter_where_others_are_in_cells(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,tags,n\n1,a;b,2\n2,c|d,3\n3,e;f;g;h,4\n")
    (found,) = read([tmp_path / "a.csv"])
    assert isinstance(found, Table) and found.rows == (("1", "a;b", "2"), ("2", "c|d", "3"), ("3", "e;f;g;h", "4"))


def test_what_cannot_be_read_is_named_once_with_its_reason(
    built: tuple[pyfast.Index, list[Unread]], folder: Path
) -> None:
    said = {it.path.relative_to(folder).as_posix(): it.reason for it in built[1]}
    assert len(built[1]) == len(UNREADABLE) and said.keys() == UNREADABLE.keys()
    for name, (_, reason) in UNREADABLE.items():
        assert reason in said[name] and "\n" not in said[name] and "/tmp/pyfast-" not in said[name], said[name]


def test_strict_stops_at_the_first(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"bad\.json: not JSON"):
        pyfast.build_index(folder, tmp_path / "IDX", strict=True)
    assert not (tmp_path / "IDX").exists()


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("alpha.md", {"title": "Alpha", "headings": ["Birds"]}),
        ("november.pdf", {"page": 2, "headings": ["Part 2"]}),
        ("oscar.docx", {"headings": ["Birds", "Herons"]}),
        ("papa.pptx", {"page": 2, "headings": ["Slide 2"]}),
        ("quebec.html", {"headings": ["Birds", "Herons"]}),
    ],
)
def test_segments_have_their_pages_and_headings(
    built: tuple[pyfast.Index, list[Unread]], name: str, known: dict[str, Any]
) -> None:
    index, _ = built
    (pool,) = index.search([fact(word_of(name))], 1)
    assert index.corpus.metadata(int(index.passages[pool.passages[0]])) == known


def documents(path: Path, data: str) -> list[Any]:
    path.write_text(data, encoding="utf-8")
    return list(read([path]))


def test_markdown_properly(tmp_path: Path) -> None:
    front = "---\ntitle: The moons\ntags: [a, b]\n---\n"
    rows = "| moon | year |\n|:--|--:|\n| Titan | 1655 |\n| Rhea | 1672 |\n"
    body = f"# Moons\n\nOf planets.\n\n## Of Saturn\n\n{rows}\nEnd.\n"
    text, moons = documents(tmp_path / "m.md", front + body)
    assert isinstance(text, TextDocument) and text.title == "The moons" and text.text == front + body
    assert json.loads(text.outline.about) == {"title": "The moons", "tags": ["a", "b"]}
    assert moons == Table(
        "m.md#table-1",
        "The moons",
        "Moons > Of Saturn",
        ("moon", "year"),
        (("Titan", "1655"), ("Rhea", "1672")),
        numbers=((0, 2),),
        about=text.outline.about,
    )
    index = pyfast.build_index([text, moons], tmp_path / "IDX")
    said = [index.corpus.content(int(i)) for i in index.passages]
    assert said == ["Of planets.", "End.", "Titan\t1655", "Rhea\t1672"]
    assert index.corpus.document(0) == text


def test_front_matter_that_is_none_stays_text(tmp_path: Path) -> None:
    for data in ("---\nno mapping\n---\nText.\n", "---\nTitle: open\nText.\n"):
        (text,) = documents(tmp_path / "m.md", data)
        assert text.outline.about == "" and text.outline.aside == ((0, 4),)  # The first line is a rule.


def test_a_wide_table_is_cut_by_columns(tmp_path: Path) -> None:
    header = [f"c{k}" for k in range(150)]
    path = tmp_path / "wide.csv"
    path.write_text("\n".join([",".join(header), ",".join(f"v{k}" for k in range(150))]), encoding="utf-8")
    cut = list(read([path], columns=64))
    assert [len(part.header) for part in cut if isinstance(part, Table)] == [64, 64, 24]
    assert all(isinstance(part, Table) and part.header[0] == "c0" and part.rows[0][0] == "v0" for part in cut)
    names = [name for part in cut if isinstance(part, Table) for name in part.header[1:]]
    assert names == header[1:]


def test_labels_are_the_names_of_what_they_label(tmp_path: Path) -> None:
    (graph,) = documents(tmp_path / "g.ttl", turtle("grey"))
    assert [(fact.head, fact.relation, fact.tail) for fact in graph.triples] == [
        ("grey heron", "nests at", "greysee")
    ]
