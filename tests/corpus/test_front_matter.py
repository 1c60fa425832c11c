"""Front matter of Markdown: values as they are written, and files that are not quite YAML."""

import json
from pathlib import Path
from typing import Any

import pytest

import pyfast
from pyfast.corpus import Document, Outline, Reader, Table, TextDocument, Unread, read

WRITTEN = {
    "opens": "12:30", "country": "NO", "zip": "01234", "lap": "1:30:00", "code": "12_500", "hex": "0x1F",
    "octal": "0o17",
    "final": "yes", "day": "2024-05-01", "at": "2024-05-01T00:30:00+02:00", "spaced": "2024-05-01 00:30:00 +0200",
    "plus": "+5", "dot": ".5", "infinite": ".inf", "version": "1.10",
    "big": "12345678901234567890123", "level": "-5",
    "share": "1e3", "open": "true",
}  # fmt: skip


def document(path: Path, front: str) -> tuple[TextDocument, list[Unread]]:
    path.write_text(f"---\n{front}\n---\nThe text.\n", encoding="utf-8")
    unread: list[Unread] = []
    (text,) = read([path], unread)
    assert isinstance(text, TextDocument)
    return text, unread


def test_filters_find_what_is_written(tmp_path: Path) -> None:
    document(tmp_path / "a.md", "\n".join(f"{key}: {value}" for key, value in WRITTEN.items()))
    built = pyfast.build_index(tmp_path / "a.md", tmp_path / "I")
    metadata = built.corpus.metadata(0)
    kinds: dict[str, Any] = {"version": 1.1, "level": -5, "share": 1000.0, "open": True}
    assert {key: metadata[key] for key in WRITTEN} == WRITTEN | kinds
    for key, value in WRITTEN.items():
        assert len(pyfast.open_index(tmp_path / "I", filter=f"meta.{key}={value}").passages) == 1, key
    assert len(pyfast.open_index(tmp_path / "I", filter=["meta.level<-4", "meta.day<2024-05-02"]).passages) == 1


@pytest.mark.parametrize(
    ("written", "title"),
    [
        ("1984", "1984"), ("1.10", "1.10"), ("12:30", "12:30"), ("NO", "NO"), ("true", "true"), ("1_000", "1_000"),
        ("2024-05-01", "2024-05-01"), ('"quoted"', "quoted"), ("null", "a"), ("", "a"), ("[x, y]", "a"),
    ],
)  # fmt: skip
def test_titles_are_as_they_are_written(tmp_path: Path, written: str, title: str) -> None:
    text, unread = document(tmp_path / "a.md", f"title: {written}")
    assert (text.title, unread) == (title, [])


@pytest.mark.parametrize(
    ("front", "about", "keys"),
    [
        ("title: Varn: the lake\nstatus: final", {"title": "Varn: the lake", "status": "final"}, "title"),
        ("title: @home\r\nyear: 2019", {"title": "@home", "year": 2019}, "title"),
        ("# made by hand\ntags:\n\t- a\nyear: 2019", {"tags": "- a", "year": 2019}, "tags"),
        ("list:\n  - a\n  - b\nnote: see: there", {"list": ["a", "b"], "note": "see: there"}, "note"),
        ("a: &a [x, x]\nb: [*a, *a]", {"a": ["x", "x"], "b": "[*a, *a]"}, "b"),
    ],
)
def test_front_matter_that_is_not_yaml_is_read_by_lines(
    tmp_path: Path, front: str, about: dict[str, Any], keys: str
) -> None:
    text, (told,) = document(tmp_path / "a.md", front)
    assert json.loads(text.outline.about) == about and text.outline.headings == ()
    assert not told.missing
    assert told.reason == f"the front matter is not YAML; values are read as written: {keys}"
    index = pyfast.build_index([text], tmp_path / "I")
    assert [index.corpus.content(int(segment)) for segment in index.passages] == ["The text."]


def test_what_no_filter_can_read_is_told(tmp_path: Path) -> None:
    text, (told,) = document(tmp_path / "a.md", "author: {name: Ada}\nyear: 2019\npeople:\n  - name: Bo\nend:")
    assert json.loads(text.outline.about) == {"year": 2019}
    assert not told.missing and told.reason.endswith("of the front matter are not read: author, people")


def test_the_parts_of_a_file_have_its_metadata(tmp_path: Path) -> None:
    corpus, folder = tmp_path / "corpus", tmp_path / "I"
    corpus.mkdir()
    table = f"| disk | size |\n|---|---|\n| A1 | {'word ' * 900} |\n"
    (corpus / "wiki backup.md").write_text(f"---\ndepartment: IT\n---\n# Backup\n\nOn tape.\n\n{table}")
    records: list[dict[str, Any]] = [
        {"kind": "table", "id": "t", "header": ["a"], "rows": [["1"]], "metadata": {"department": "Sales"}},
        {"kind": "kg", "id": "g", "triples": [["Titan", "orbits", "Saturn"]], "meta": {"department": "Sales"}},
    ]
    (corpus / "data.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (corpus / "other.note").write_text("own")

    def notes(uri: str, path: Path) -> list[Document]:
        own = Table(f"{uri}#own", "", "", ("a",), (("1",),), about='{"department":"own"}')
        text = TextDocument(uri, "Note", path.read_text(), outline=Outline(about='{"department":"HR"}'))
        return [text, Table(f"{uri}#table-1", "", "", ("a",), (("1",),)), own]

    def found(*conditions: str) -> set[str]:
        index = pyfast.open_index(folder, filter=conditions)
        return {index.uri(passage) for passage in range(len(index.passages))}

    parts = [f"wiki backup.md{part}" for part in ("", "#table-1", "#table-1#row-1-column-2")]
    pyfast.build_index(corpus, folder, readers=[Reader(("*.note",), notes)])
    assert found("meta.department=IT") == {*parts}
    assert found("meta.department=Sales") == {"t", "g"}
    assert found("meta.department=HR") == {"other.note", "other.note#table-1"}
    assert found("meta.department=own") == {"other.note#own"}
    assert not found("meta.department!=IT") & {*parts}
    assert pyfast.verify(folder).passed
    (corpus / "wiki backup.md").write_text(f"---\ndepartment: HR\n---\n# Backup\n\nOn tape.\n\n{table}")
    change = pyfast.sync_documents(folder, corpus, readers=[Reader(("*.note",), notes)])
    assert sorted(change.uris["replaced"]) == sorted(parts)
    assert found("meta.department=HR") == {*parts, "other.note", "other.note#table-1"}
