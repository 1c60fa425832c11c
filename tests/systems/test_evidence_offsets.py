"""Evidence is found where it says: the snippet at its offsets in the source file."""

import csv
import json
from pathlib import Path

import docx
import openpyxl
import pptx
import pyarrow as pa
import pyarrow.parquet as pq
from scripted import run

import pyfast
from pyfast.corpus import Table
from pyfast.engine import Evidence
from pyfast.llm import open_llm
from pyfast.reports.passages import Part, content_of
from pyfast.retrieval import Index
from pyfast.systems.graph_convqa.entities import names_in


def test_snippets_are_in_their_sources(
    small: Index, examples: Path, example_questions: list[dict[str, str]]
) -> None:
    kinds = set()
    for record in run(small, open_llm("instant"), [q["question"] for q in example_questions]):
        assert record.evidence
        for piece in record.evidence:
            path = examples / "corpus" / piece["uri"]
            start, end = piece["offsets"]
            kinds.add(path.suffix)
            if path.suffix == ".md":
                assert path.read_bytes().decode()[start:end] == piece["snippet"]
            elif path.suffix == ".csv":
                with path.open(encoding="utf-8", newline="") as file:
                    rows = list(csv.reader(file))
                assert rows[start + 1] == piece["snippet"].split("\t") and end == -1
                assert piece["header"] == rows[0] and piece["title"] == path.stem.replace("-", " ")
                named = zip(rows[0], rows[start + 1], strict=True)
                line = " | ".join(f"{name}: {cell}" for name, cell in named if cell)
                assert Evidence.read(piece).line == line
            else:
                triples = path.read_text(encoding="utf-8").splitlines()
                assert {fact.strip() for fact in piece["snippet"].split(";")} <= {
                    triple.replace("\t", " ") for triple in triples
                }
    assert kinds == {".md", ".csv", ".tsv"}


HEADER, ROWS = ("Part", "Note", "Stock"), (("Bolt", "M8\tzinc\nplated", "10"), ("Nut", "plain", "20"))


def write_tables(folder: Path) -> None:
    """The table in each kind of file that has tables."""
    records, lines = [dict(zip(HEADER, row, strict=True)) for row in ROWS], (HEADER, *ROWS)
    for name, delimiter in (("a.csv", ","), ("b.tsv", "\t")):
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows(lines)
    book, text, slides = openpyxl.Workbook(), docx.Document(), pptx.Presentation()
    shape = slides.slides.add_slide(slides.slide_layouts[6]).shapes.add_table(3, 3, 0, 0, 9999, 9999)
    for table in (text.add_table(3, 3), shape.table):
        for at, row in enumerate(lines):
            for column, cell in enumerate(row):
                table.cell(at, column).text = cell
    for row in lines:
        book.active.append(row)
    book.save(folder / "c.xlsx")
    text.save(str(folder / "d.docx"))
    slides.save(str(folder / "e.pptx"))
    (folder / "f.json").write_text(json.dumps(records))
    (folder / "g.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    whole = {"kind": "table", "uri": "h", "title": "h", "header": HEADER, "rows": ROWS}
    (folder / "h.jsonl").write_text(json.dumps(whole) + "\n")
    pq.write_table(pa.Table.from_pylist(records), folder / "i.parquet")
    marked = [" | ".join(row).replace("\n", "<br>") for row in (HEADER, ("---",) * 3, *ROWS)]
    (folder / "j.md").write_text("".join(f"| {line} |\n" for line in marked))


def test_a_tab_in_a_cell_moves_no_column(tmp_path: Path) -> None:
    """Tabs join the cells of a row. One inside of a cell is a space wherever the row is shown or split again."""
    (tmp_path / "files").mkdir()
    write_tables(tmp_path / "files")
    index = pyfast.build_index(tmp_path / "files", tmp_path / "index")
    tables = [one.uri for one in pyfast.list_documents(tmp_path / "index") if one.kind == "table"]
    assert [uri[0] for uri in tables] == list("abcdefghij")
    shown = ["Bolt", "M8 zinc\nplated", "10"]
    given = {"llm": "instant", "system": "rag", "settings": {"k": 30}}
    asked = pyfast.answer(["bolt"], index=index, run=tmp_path / "run", **given)
    found = {piece.uri: piece for piece in asked.records[0].evidence if "Bolt" in piece.snippet}
    assert sorted(found) == tables
    pyfast.export([asked], tmp_path / "sources.parquet", sources=True)
    lines = pq.read_table(tmp_path / "sources.parquet")["snippet"].to_pylist()
    assert {line for line in lines if "Bolt" in line} == {"Part: Bolt | Note: M8 zinc plated | Stock: 10"}
    for uri, piece in found.items():
        source = index.corpus.find(uri)
        assert source is not None
        document = index.corpus.document(source)
        assert isinstance(document, Table) and document.rows[piece.offsets[0]] == ROWS[0]  # stored as it was
        assert piece.snippet.split("\t") == shown
        assert piece.line == "Part: Bolt | Note: M8 zinc plated | Stock: 10"
        assert names_in(index, [[piece.snippet]])[0][-3:] == ("Bolt", "M8 zinc\nplated", "10")
        assert content_of(index.corpus, Part(source, 0))["rows"] == [shown, list(ROWS[1])]
    root = int(index.corpus.roots[0])
    assert index.corpus.content(root) == "Bolt\tM8 zinc plated\t10\nNut\tplain\t20"
    assert index.corpus.content(root + 3) == ROWS[0][1]  # the cell
