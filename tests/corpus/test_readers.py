"""Files into documents, and bad files into one line that says where and why."""

from pathlib import Path
from typing import Any

import pytest

from pyfast.corpus import (
    Heading,
    KnowledgeGraph,
    Outline,
    Reader,
    Table,
    TextDocument,
    Triple,
    Unread,
    encode,
    read,
)
from pyfast.corpus.formats.files import read_text
from pyfast.corpus.readers import TRIPLES
from pyfast.errors import InputError


def write(folder: Path, **files: str | bytes) -> None:
    for name, data in files.items():
        path = folder / name.replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())


def one(path: Path, data: str | bytes, **options: Any) -> list[Any]:
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return list(read([path], **options))


def test_a_folder(tmp_path: Path) -> None:
    write(tmp_path, b__txt="text\r\n", a__md="intro\n\n# The *title*\nbody", c__PNG=b"\x89")
    write(tmp_path / "sub", my_table__csv="x,y\n1,2\n", triples_all__tsv="h\tr\tt\n")
    unread: list[Unread] = []
    title = Outline(headings=(Heading(7, 21, 1, "The title"),))
    assert list(read([tmp_path], unread)) == [
        TextDocument("a.md", "The title", "intro\n\n# The *title*\nbody", markdown=True, outline=title),
        TextDocument("b.txt", "b", "text\r\n"),
        Table("sub/my_table.csv", "my table", "", ("x", "y"), (("1", "2"),), numbers=((0, 2),)),
        KnowledgeGraph("sub/triples_all.tsv", "triples all", (Triple("h", "r", "t"),)),
    ]
    reason = "there is no reader for this kind of file; convert the file, or name a reader with --reader"
    assert unread == [Unread(tmp_path / "c.PNG", reason, whole=True)]


def test_uris_that_would_clash_get_the_folder_before_them(tmp_path: Path) -> None:
    write(tmp_path / "one", a__txt="1", b__txt="2")
    write(tmp_path / "two", a__txt="3")
    write(tmp_path / "three", c__txt="4")
    sources = [tmp_path / "one", tmp_path / "two" / "a.txt", tmp_path / "three"]
    assert [d.uri for d in read(sources)] == ["one/a.txt", "one/b.txt", "two/a.txt", "c.txt"]
    with pytest.raises(InputError, match=r"one/a\.txt"):
        list(read([tmp_path / "one", tmp_path / "one"]))


@pytest.mark.parametrize("name", ["x.txt", "x.md"])
def test_texts(tmp_path: Path, name: str) -> None:
    markdown = name == "x.md"
    for data, text in [(b"", ""), (b"\xef\xbb\xbfhi\n", "hi\n"), (b"a\r\n\x00\xe2\x82\xac", "a\r\n\0€")]:
        outline = Outline(headings=()) if markdown else Outline()
        assert one(tmp_path / name, data) == [TextDocument(name, "x" if text else "", text, markdown, outline)]


def test_comma_separated(tmp_path: Path) -> None:
    data = '\ufeffa,a,\r\n1,"x\r\n""y""",é,more\r\n\r\n2\r\n'
    assert one(tmp_path / "x.csv", data) == [
        Table("x.csv", "x", "", ("a", "a", ""), (("1", 'x\r\n"y"', "é", "more"), ("2",)), numbers=((0, 2), (1, 5)))
    ]
    assert one(tmp_path / "x.csv", "") == [Table("x.csv", "x", "", (), ())]
    long = "x" * 500_000  # more than the csv module takes by default
    assert one(tmp_path / "x.csv", f"h\n{long}\n")[1].text == long  # too long for a row


def test_tab_separated(tmp_path: Path) -> None:
    assert one(tmp_path / "x.tsv", 'a\tb\n"1\t2"\t3\n')[0] == Table(
        "x.tsv", "x", "", ("a", "b"), (("1\t2", "3"),), numbers=((0, 2),)
    )
    for name in ("triples.tsv", "film.triples.tsv"):
        facts = one(tmp_path / name, 'The "A\tr\t"t"\t1999\nh\tr\tt\t\n')[0].triples
        assert facts == (Triple('The "A', "r", '"t"', "1999"), Triple("h", "r", "t"))
    facts = Reader(("*.tsv",), TRIPLES.read)
    assert one(tmp_path / "x.tsv", "h\tr\tt\n", readers=[facts])[0].triples == (Triple("h", "r", "t"),)


def test_records(tmp_path: Path) -> None:
    data = """\ufeff{"kind": "text", "id": "t", "title": "T", "text": "x", "more": 1}

{"text": "no id"}
{"kind": "table", "id": "tb", "header": ["a"], "rows": [["1", "2"], []], "links": {"0,1": ["t", "u"]}}
{"kind": "kg", "id": "g", "triples": [["h", "r", "t"], ["h", "r", "t", "1"], ["h", "r", "t", null]]}
{"name": "n", "size": 3, "tags": ["a"]}
{"size": null, "ok": true, "name": ""}
"""
    assert one(tmp_path / "some-data.jsonl", data) == [
        TextDocument("t", "T", "x"),
        TextDocument("some-data.jsonl#3", "", "no id"),
        Table("tb", "", "", ("a",), (("1", "2"), ()), ((0, 1, "t"), (0, 1, "u"))),
        KnowledgeGraph("g", "", (Triple("h", "r", "t"), Triple("h", "r", "t", "1"), Triple("h", "r", "t"))),
        Table("some-data.jsonl", "some data", "", ("name", "size", "tags", "ok"),
              (("n", "3", '["a"]', ""), ("", "", "", "true")), numbers=((0, 6),)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "data", "line", "says"),
    [
        ("x.txt", "éèüö\nçab".encode() + b"\xff", 2, "offset 13"),
        ("x.md", b"\xef\xbb\xbf\xff", 1, "offset 3"),
        ("x.csv", "é,à,ü\n1,2\n".encode() + b"\xe9,1\n", 3, "offset 13"),
        ("triples.tsv", b"h\tr\tt\nh\tr\n", 2, "3 columns"),
        ("triples.tsv", b"h\tr\tt\n\nh\tr\tt\t1\tx\n", 3, "got 5"),
        ("x.jsonl", b'{"text": "x"}\n{"text": \n', 2, "not JSON"),
        ("x.jsonl", b'{"text": "\xff"}\n', 1, "not UTF-8"),
        ("x.jsonl", b'{"text": "\\ud800"}\n', 1, "not JSON"),
        ("x.jsonl", b"[1]\n", 1, "not a JSON object"),
        ("x.jsonl", b'{"text": 3}\n', 1, '"text" is 3'),
        ("x.jsonl", b'{"text": "x", "id": 3.5}\n', 1, '"id" is 3.5'),
        ("x.jsonl", b'{"text": "x", "title": ["a\\nb"]}\n', 1, '"title" is'),
        ("x.jsonl", b'{"kind": "text", "id": "a"}\n', 1, 'no "text"'),
        ("x.jsonl", b'{"kind": "image"}\n', 1, '"kind" is "image"'),
        ("x.jsonl", b'{"kind": 3, "text": "x"}\n', 1, '"kind" is 3'),
        ("x.jsonl", b'{"kind": "table", "id": "a", "rows": [["1"], [2]]}\n', 1, "row 2"),
        ("x.jsonl", b'{"kind": "table", "id": "a", "rows": "x"}\n', 1, '"rows" is'),
        ("x.jsonl", b'{"kind": "table", "id": "a", "header": "x", "rows": []}\n', 1, '"header" is'),
        (
            "x.jsonl",
            b'{"kind": "table", "id": "a", "rows": [["1"]], "links": {"0,1": ["t"]}}\n',
            1,
            "points outside the table",
        ),
        (
            "x.jsonl",
            b'{"kind": "table", "id": "a", "rows": [["1"]], "links": {"a\\nb": ["t"]}}\n',
            1,
            "row,column",
        ),
        ("x.jsonl", b'{"kind": "kg", "id": "a", "triples": [["h", "r"]]}\n', 1, "triple 1"),
        ("x.jsonl", b'{"kind": "kg", "id": "a", "triples": [["h", "r", 1]]}\n', 1, "triple 1"),
        ("x.jsonl", b'{"kind": "kg", "id": "a", "triples": [["h", "r", "t", 1999]]}\n', 1, "triple 1"),
    ],
)
def test_bad_input(tmp_path: Path, name: str, data: bytes, line: int, says: str) -> None:
    with pytest.raises(InputError) as caught:
        one(tmp_path / name, data)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / name}, line {line}: ") and says in message and "\n" not in message


def test_sources_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        list(read([tmp_path / "missing"]))
    with pytest.raises(InputError, match=r"there is no reader for this kind of file; .+; pyfast reads \*\.arrow"):
        one(tmp_path / "x.xyz", "")


def test_what_is_read_can_be_encoded(tmp_path: Path) -> None:
    write(tmp_path, a__txt="One. Two.", b__csv="h\nx\n", triples__tsv="h\tr\tt\n")
    assert encode(read([tmp_path])).passages().size == 3


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1252", "Schiff;Hafen;Größe\nAurora;Turku;12,5\nBjörn;Malmö;9\n"),  # few letters: looks like hp_roman8
        ("cp1252", "id;año\n1;2\n"),  # too few for statistics
        ("cp1252", "El Niño is warm."),
        ("cp1252", "één"),
        ("cp1252", "5 €"),
        ("cp1250", "Příliš žluťoučký kůň úpěl ďábelské ódy."),
        ("cp437", "Grüße aus Köln, schöne Straße für alle, die müde sind."),
        ("koi8_r", "Привет мир, это длинный текст о кораблях и гаванях."),
    ],
)
def test_a_short_text_in_an_old_encoding(tmp_path: Path, encoding: str, text: str) -> None:
    (tmp_path / "a.txt").write_bytes(text.encode(encoding))
    assert read_text(tmp_path / "a.txt") == text
