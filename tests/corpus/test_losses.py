"""Nothing is left out without a word, and a bad part falls alone: records, lines, links, folders and ids."""

import csv
import json
import os
import random
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from processes import pyfast as run
from pyarrow import parquet

import pyfast
from pyfast.corpus import KnowledgeGraph, Table, TextDocument, Unread, read
from pyfast.corpus.rendering import paragraph_line
from pyfast.errors import InputError

Found = tuple[list[object], list[str]]


def found(path: Path) -> Found:
    unread: list[Unread] = []
    documents = list(read([path], unread))
    return documents, [("" if one.missing else "remark: ") + str(one) for one in unread]


def lines(*records: object) -> str:
    return "".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in records)


def test_a_bad_line_falls_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        lines(
            {"id": "1", "text": "One."},
            '{"id": "2", "text": "Two." ',
            {"id": "3", "title": None, "text": "Three."},
            {"id": "4", "text": ["Four.", "More."]},
            {"id": "5", "text": None},
            "[1]",
            '{"id": "7", "text": "Seven.", "score": NaN}',
        )
    )
    documents, said = found(path)
    assert documents == [
        TextDocument("1", "", "One."),
        TextDocument("3", "", "Three."),
        TextDocument("4", "", "Four.\n\nMore."),
        TextDocument("7", "", "Seven."),
    ]
    assert [one.removeprefix(f"{path}: ")[:6] for one in said] == ["line 2", "line 5", "line 6"]
    with pytest.raises(InputError, match="line 2"):
        list(read([path]))


def test_many_bad_lines_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(lines({"text": "x"}, *["no"] * 25))
    documents, said = found(tmp_path / "a.jsonl")
    assert len(documents) == 1 and len(said) == 11 and "and 15 more" in said[-1] and "line 26" in said[-1]


def test_the_return_code_says_that_parts_are_missing(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(lines({"id": "1", "text": "Herons nest."}, "no"))
    index = str(tmp_path / "IDX")
    done = run("index", "a.jsonl", "--out", index, cwd=tmp_path)
    assert done.returncode == 2 and "1 document," in done.stdout and "line 2: not JSON" in done.stderr
    (tmp_path / "b.jsonl").write_text(lines({"id": "2", "text": "Owls nest."}, "no"))
    assert run("corpus", "add", index, "b.jsonl", cwd=tmp_path).returncode == 2
    assert run("corpus", "update", index, "b.jsonl", cwd=tmp_path).returncode == 2
    (tmp_path / "c.jsonl").write_text(lines({"id": "3", "text": "Gulls nest."}))
    assert run("corpus", "add", index, "c.jsonl", cwd=tmp_path).returncode == 0
    strict = run("index", "a.jsonl", "--out", "no", "--strict", cwd=tmp_path)
    assert strict.returncode == 1 and not (tmp_path / "no").exists()


def test_numbers_keep_their_digits(tmp_path: Path) -> None:
    written = (
        '{"account": 12345678901234567890123, "n": 18446744073709551616, "price": 1.10, "big": 2e19, "k": 7}\n'
    )
    (tmp_path / "a.jsonl").write_text(written)
    (table,), said = found(tmp_path / "a.jsonl")
    assert isinstance(table, Table) and not said
    assert table.rows[0] == ("12345678901234567890123", "18446744073709551616", "1.10", "2e19", "7")
    (tmp_path / "b.json").write_text(f'{{"total": 1, "items": [{written}]}}')
    (table,), said = found(tmp_path / "b.json")
    assert isinstance(table, Table) and table.rows[0][:3] == (
        "12345678901234567890123",
        "18446744073709551616",
        "1.10",
    )
    assert "remark" in said[0] and "total" in said[0]


@pytest.mark.parametrize("key", ["contents", "content", "body", "passage"])
def test_corpora_of_other_tools(tmp_path: Path, key: str) -> None:
    record = {"id": 7, key: '"Varn"\nLake Varn is deep.'}
    (tmp_path / "wiki.jsonl").write_text(lines(record, {"_id": "8", "title": "Mjosa", "text": "A lake."}))
    documents, said = found(tmp_path / "wiki.jsonl")
    assert documents == [TextDocument("7", "Varn", "Lake Varn is deep."), TextDocument("8", "Mjosa", "A lake.")]
    assert len(said) == 1 and said[0].startswith("remark") and f'"{key}"' in said[0]


def test_a_column_named_content_is_a_column(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(lines({"name": "Lamp", "content": "steel", "price": 3}))
    (table,), said = found(tmp_path / "a.jsonl")
    assert isinstance(table, Table) and table.header == ("name", "content", "price") and not said


def test_questions_in_a_folder_are_left_out(tmp_path: Path) -> None:
    corpus, index = tmp_path / "corpus", tmp_path / "IDX"
    corpus.mkdir()
    (corpus / "lake.txt").write_text("Lake Varn is deep.")
    faq = corpus / "faq.jsonl"
    asked = [
        {"question": q, "answer": a} for q, a in (("What is the warranty?", "Two years."), ("Where?", "Odda."))
    ]
    faq.write_text(lines(*asked, {"id": "d", "text": "Rain falls."}))
    unread: list[Unread] = []
    built = pyfast.build_index(corpus, index, on_unread=unread.append)
    assert built.corpus.documents == 2 and not built.search(["warranty"], 1)[0].passages.size
    (one,) = unread
    assert one.path == faq and one.missing and not one.whole and one.reason.startswith("line 1: ")
    assert "2 such in the file" in one.reason and '{"kind": "text", "title": ..., "text": ...}' in one.reason
    faq.write_text(lines(*asked))
    built = run("index", corpus, "--out", tmp_path / "OTHER")
    assert built.returncode == 2 and "no passages from 1 file" in built.stdout
    with pytest.raises(InputError, match="line 1: this looks like"):
        pyfast.build_index(corpus, tmp_path / "STRICT", strict=True)
    faq.write_text(lines(*({"kind": "text", "title": it["question"], "text": it["answer"]} for it in asked)))
    pyfast.sync_documents(index, corpus)
    newest = pyfast.open_index(index)
    assert "Two years." in newest.text(int(newest.search(["warranty"], 1)[0].passages[0]))


def test_a_file_of_bad_lines_only_is_counted_once(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text(lines("no", "nor this"))
    unread: list[Unread] = []
    assert not list(read([tmp_path], unread)) and [(it.missing, it.whole) for it in unread] == [(True, True)] * 2


def test_questions_beside_judgements_are_refused(tmp_path: Path) -> None:
    (tmp_path / "qrels").mkdir()
    (tmp_path / "corpus.jsonl").write_text(lines({"_id": "d1", "title": "T", "text": "Text."}))
    (tmp_path / "queries.jsonl").write_text(lines({"_id": "q1", "text": "Who?"}))
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    documents, said = found(tmp_path)
    assert documents == [TextDocument("d1", "T", "Text.")]
    assert len(said) == 2 and all("data convert beir" in one for one in said)


def test_bad_triples_and_a_header_line(tmp_path: Path) -> None:
    (tmp_path / "triples.tsv").write_text("head\trelation\ttail\na\tr\tb\nonly two\there\nc\tr\td\n")
    (graph,), said = found(tmp_path / "triples.tsv")
    assert isinstance(graph, KnowledgeGraph) and [it.head for it in graph.triples] == ["a", "c"]
    assert said[0].startswith("remark") and "line 1" in said[0] and "line 3" in said[1]


def test_rows_of_parquet_fall_alone(tmp_path: Path) -> None:
    table = pa.table({"id": ["1", "2"], "title": [None, "T"], "text": ["One.", None]})
    parquet.write_table(table, tmp_path / "a.parquet")
    documents, said = found(tmp_path / "a.parquet")
    assert documents == [TextDocument("1", "", "One.")] and "row 2" in said[0]


def test_dates_of_parquet_have_no_quotes(tmp_path: Path) -> None:
    when = datetime(2025, 3, 14, 12, 30, tzinfo=UTC)
    rows = {"day": [date(2025, 3, 14)], "at": [when], "at_noon": [time(12)], "price": [Decimal("1.10")]}
    parquet.write_table(pa.table(rows), tmp_path / "a.parquet")
    (table,), said = found(tmp_path / "a.parquet")
    assert isinstance(table, Table) and not said
    assert table.rows[0] == ("2025-03-14", "2025-03-14T12:30:00+00:00", "12:00:00", "1.10")


def test_ids_that_repeat(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    (folder / "a.jsonl").write_text(lines({"id": "x1", "text": "One."}, {"id": "x2", "text": "Two."}))
    (folder / "b.jsonl").write_text(
        lines({"id": "x1", "text": "Other."}, {"id": "x2", "text": "Two."}, {"id": "x3", "text": "Three."})
    )
    unread: list[Unread] = []
    index = pyfast.build_index(folder, tmp_path / "IDX", on_unread=unread.append)
    assert [index.corpus.uri(k) for k in range(index.corpus.documents)] == ["x1", "x2", "x3"]
    other, same = unread
    assert (
        other.missing and "'x1'" in str(other) and "b.jsonl: document 1" in str(other) and "a.jsonl" in str(other)
    )
    assert not same.missing and "'x2'" in str(same)
    with pytest.raises(InputError, match="'x1'"):
        pyfast.build_index(folder, tmp_path / "no", strict=True)


@pytest.mark.parametrize("key", ["id", "_id"])
def test_an_empty_id_is_none(key: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(lines({key: "", "text": "One."}, {key: "", "text": "Two."}))
    documents, told = found(tmp_path / "a.jsonl")
    assert [(it.uri, it.text) for it in documents] == [("a.jsonl#1", "One."), ("a.jsonl#2", "Two.")]  # type: ignore[attr-defined]
    assert told == []


def test_thousands_of_ids(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(lines(*({"id": k % 4000, "text": f"{k}"} for k in range(4100))))
    documents, said = found(tmp_path / "a.jsonl")
    assert len(documents) == 4000 and len(said) == 11 and "and 90 more" in said[-1]


def test_links_in_a_folder(tmp_path: Path) -> None:
    folder, outside = tmp_path / "d", tmp_path / "outside"
    (folder / "sub").mkdir(parents=True)
    outside.mkdir()
    (outside / "far.txt").write_text("Far away.")
    (folder / "sub" / "near.txt").write_text("Near.")
    (folder / "linked").symlink_to(outside)
    (folder / "loop").symlink_to(folder)
    (folder / "again").symlink_to(folder / "sub")
    (folder / "gone.txt").symlink_to(tmp_path / "nowhere")
    documents, said = found(folder)
    assert [it.uri for it in documents] == ["linked/far.txt", "sub/near.txt"]  # type: ignore[attr-defined]
    assert sorted(one.partition(": ")[2].partition(str(folder))[2] or one for one in said)
    assert [one for one in said if "gone.txt" in one and "remark" not in one]
    assert len([one for one in said if "remark" in one and ("loop" in one or "again" in one)]) == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_closed_folder_is_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    (folder / "closed").mkdir(parents=True)
    (folder / "a.txt").write_text("Open.")
    (folder / "closed").chmod(0)
    for one in (*folder.parents, folder):
        if one.stat().st_uid == os.getuid() and one != one.parent and one.name not in ("tmp",):
            one.chmod(one.stat().st_mode | 0o055)
    child = os.fork()
    if not child:  # not as root, who may read everything
        code = 1
        try:
            if os.getuid() == 0:
                os.setuid(65534)
            documents, said = found(folder)
            code = 0 if len(documents) == 1 and "closed: Permission denied" in said[0] else 1
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


PROSE = [
    'The harbour froze; nobody left, and the old men said it had "always" been so.\nThen came spring.',
    "Bread, salt; wine | oil. Each had its price, each its tax: 3,5 percent.\n\nNo one paid.",
    "A short cell",
    "",
    "12,50",
    'She wrote:\n"Come home; the roof leaks, the cow is ill."\n\nHe did not answer.',
]


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize(("name", "delimiter"), [("a.csv", ","), ("a.csv", ";"), ("a.tsv", "\t")])
def test_quoted_cells_are_never_torn(tmp_path: Path, seed: int, name: str, delimiter: str) -> None:
    chance = random.Random(seed)
    header = ["id", "title", "review", "stars"][: chance.randint(2, 4)]
    rows = [
        [chance.choice(PROSE) * chance.choice([1, 1, 3, 40]) for _ in header] for _ in range(chance.randint(2, 30))
    ]
    rows = [row if any(row) else ["x", *row[1:]] for row in rows]
    with (tmp_path / name).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=delimiter).writerows([header, *rows])
    (table,), said = found(tmp_path / name)
    assert isinstance(table, Table) and list(table.header) == header and not said
    assert [list(row) for row in table.rows] == rows


@pytest.mark.parametrize(
    ("text", "rows", "place"),
    [
        ('a,b\n1,2\n"x,1\ny,2\nz,3\n', [("1", "2"), ("y", "2"), ("z", "3")], "line 3"),
        ('a,b\n"x,1\ny,2\n"w",4\n', [("y", "2"), ("w", "4")], "line 2"),
        ("a,b\n1,2,3\n4,5\n", [("1", "2", "3"), ("4", "5")], "remark"),
    ],
)
def test_bad_lines_of_a_csv(tmp_path: Path, text: str, rows: list[tuple[str, ...]], place: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    (table,), (said,) = found(tmp_path / "a.csv")
    assert isinstance(table, Table) and list(table.rows) == rows and place in said


@pytest.mark.parametrize(
    ("name", "rows", "delimiter"),
    [
        ("a.tsv", [["freq,unit,geo\\TIME", "2023 "], ["A,PC,AT", "5.1 "], ["A,PC,DE", "3.0 p"]], "\t"),
        ("a.tsv", [["id", "text, cleaned, lower"], ["1", "hello, dear, world"], ["2", "yes, no, maybe"]], "\t"),
        ("a.csv", [["id", "tags;kind;use"], ["1", "a;b;c"], ["2", "d;e;f"]], '"'),
    ],
)
def test_the_named_delimiter_divides_evenly(
    tmp_path: Path, name: str, rows: list[list[str]], delimiter: str
) -> None:
    with open(tmp_path / name, "w") as file:
        if delimiter == '"':
            csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)
        else:
            file.writelines(delimiter.join(row) + "\n" for row in rows)
    (table,), said = found(tmp_path / name)
    assert isinstance(table, Table) and not said
    assert [list(row) for row in (table.header, *table.rows)] == rows


def test_a_caption_above_the_header(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("Suppliers 2025,,\n,,\nName,City,Since\nHolm,Odda,1999\n")
    (table,), _ = found(tmp_path / "a.csv")
    assert isinstance(table, Table) and table.section == "Suppliers 2025"
    assert table.header == ("Name", "City", "Since") and table.rows == (("Holm", "Odda", "1999"),)
    (tmp_path / "b.csv").write_text("Name,,\nBob,12,3\n")
    (table,), _ = found(tmp_path / "b.csv")
    assert isinstance(table, Table) and table.header == ("Name", "", "") and len(table.rows) == 1


@pytest.mark.parametrize("mark", [",", ";", "\t"])
@pytest.mark.parametrize(
    "above", ["Suppliers 2025\n\n", "# Suppliers 2025\n", "Suppliers 2025\n", "Suppliers\n\n"]
)
def test_a_caption_without_delimiters(tmp_path: Path, mark: str, above: str) -> None:
    body = "\n".join(
        mark.join(row) for row in [("Name", "City", "Price"), ("Holm", "Odda", "9"), ("Ek", "Mell", "8")]
    )
    (tmp_path / "a.csv").write_text(above + body)
    (table,), said = found(tmp_path / "a.csv")
    assert isinstance(table, Table) and table.section == above.strip("# \n") and not said
    assert table.header == ("Name", "City", "Price") and table.rows[0] == ("Holm", "Odda", "9")


def test_a_caption_above_decimal_commas(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("Prices of 2025\nName;Price\nLamp;1,5\nCord;2,5\n")
    (table,), said = found(tmp_path / "a.csv")
    assert isinstance(table, Table) and table.section == "Prices of 2025" and not said
    assert table.header == ("Name", "Price") and table.rows[0] == ("Lamp", "1,5")


def test_a_column_of_sentences_has_no_caption(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text\nHello, you\nBye, all\n")
    (table,), (said,) = found(tmp_path / "a.csv")
    assert isinstance(table, Table) and table.header == ("text",) and len(table.rows) == 2 and "remark" in said
    (tmp_path / "b.csv").write_text("note\nfirst; second\nthird; fourth\n")
    (table,), said_of_b = found(tmp_path / "b.csv")
    assert isinstance(table, Table) and table.rows == (("first; second",), ("third; fourth",)) and not said_of_b


def test_a_long_cell_is_cut_into_passages(tmp_path: Path) -> None:
    body = " ".join(f"Sentence {k} tells of harbour number {k}." for k in range(20_000))
    with (tmp_path / "a.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["id", "name", "body"], ["7", "Odda", body], ["8", "Mell", "short"]])
    unread: list[Unread] = []
    index = pyfast.build_index(tmp_path / "a.csv", tmp_path / "IDX", on_unread=unread.append)
    (pool,) = index.search(["harbour number 15000"], 1)
    found = index.text(int(pool.passages[0]))
    assert "harbour number 15000." in found and len(found) < 5000 and "Odda" in found
    assert max(len(index.text(i)) for i in range(len(index.passages))) < 5000
    table = index.corpus.document(0)
    assert isinstance(table, Table) and table.rows[1] == ("8", "Mell", "short")
    assert (
        table.rows[0][:2] == ("7", "Odda") and table.rows[0][2].startswith("Sentence 0") and len(table.links) == 1
    )
    assert [one.missing for one in unread] == [False]
    assert index.corpus.document(1) == TextDocument("a.csv#row-1-column-3", "a: 7; Odda, body", body)


def test_a_title_is_left_out_only_where_the_text_begins_with_it() -> None:
    assert paragraph_line("Age", "Agents are here.") == "Age. Agents are here."
    assert paragraph_line("Age", "Age is a number.") == "Age is a number."
    assert paragraph_line("C++", "C++ is a language.") == "C++ is a language."
