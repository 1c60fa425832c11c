"""A file has the same uri, whether it is given alone, in its folder or with the whole corpus."""

import gzip
import json
import os
import shutil
from pathlib import Path

import openpyxl
import pytest
from typer.testing import CliRunner

import pyfast
from pyfast.commands.cli import app
from pyfast.corpus import Reader, TextDocument, Unread
from pyfast.corpus.formats.files import tell_encoding
from pyfast.errors import InputError


def write(folder: Path, *names: str, says: str = "The old heron nests here.") -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        header = "bird,says\n" if name.endswith(".csv") else ""
        (folder / name).write_text(f"{header}heron,{says}\n" if header else says, encoding="utf-8")


def uris(index: Path) -> list[str]:
    opened = pyfast.open_index(index)
    return sorted({opened.uri(passage) for passage in range(len(opened.passages))})


def update(index: Path, *sources: Path) -> tuple[int, int, int]:
    change = pyfast.update_documents(index, list(sources))
    assert pyfast.verify(index).passed
    return change.added, change.replaced, change.unchanged


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    write(tmp_path / "d", "finance/w.csv", "finance/deep/v.txt", "readme.txt")
    pyfast.build_index(tmp_path / "d", tmp_path / "IDX")
    return tmp_path / "d"


def test_one_file_of_a_folder_is_replaced(corpus: Path) -> None:
    index = corpus.parent / "IDX"
    before = uris(index)
    write(corpus, "finance/w.csv", says="The new egret.")
    done = CliRunner().invoke(app, ["corpus", "update", str(index), str(corpus / "finance" / "w.csv")])
    assert done.exit_code == 0 and "1 replaced" in done.output
    assert uris(index) == before == ["finance/deep/v.txt", "finance/w.csv", "readme.txt"]
    opened = pyfast.open_index(index)
    assert opened.search(["egret"], 5)[0].passages.size == 1
    assert {opened.uri(int(passage)) for passage in opened.search(["old"], 9)[0].passages} == {
        "finance/deep/v.txt",
        "readme.txt",
    }


def test_a_folder_in_a_folder_and_a_new_file(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = corpus.parent / "IDX"
    assert update(index, corpus / "finance" / "deep") == (0, 0, 1)
    write(corpus, "finance/deep/new.txt")
    assert update(index, corpus / "finance") == (1, 0, 2)
    assert "finance/deep/new.txt" in uris(index)
    monkeypatch.chdir(corpus / "finance" / "deep")
    write(corpus, "finance/deep/new.txt", says="Egrets.")
    assert update(index, Path("new.txt")) == (0, 1, 0)
    assert update(index, Path("../../readme.txt"), corpus) == (0, 0, 4)


def test_a_file_elsewhere_has_its_name(corpus: Path) -> None:
    index = corpus.parent / "IDX"
    write(corpus.parent / "e", "sub/other.txt", "w.csv")
    assert update(index, corpus.parent / "e") == (2, 0, 0)
    assert update(index, corpus.parent / "e" / "sub" / "other.txt") == (0, 0, 1)
    assert {"sub/other.txt", "w.csv", "finance/w.csv"} <= set(uris(index))


def test_folders_whose_files_have_the_same_names(tmp_path: Path) -> None:
    write(tmp_path, "one/w.txt", "one/only.txt", "two/w.txt")
    pyfast.build_index([tmp_path / "one", tmp_path / "two"], tmp_path / "IDX")
    before = uris(tmp_path / "IDX")
    assert before == ["one/only.txt", "one/w.txt", "two/w.txt"]
    write(tmp_path, "two/w.txt", says="Egrets.")
    assert update(tmp_path / "IDX", tmp_path / "two" / "w.txt") == (0, 1, 0)
    assert update(tmp_path / "IDX", tmp_path / "one") == (0, 0, 2)
    assert uris(tmp_path / "IDX") == before


def test_files_that_were_given_by_themselves(tmp_path: Path) -> None:
    write(tmp_path, "one/w.txt", "two/w.txt", "three/x.txt")
    pyfast.build_index([tmp_path / name for name in ("one/w.txt", "two/w.txt", "three/x.txt")], tmp_path / "IDX")
    before = uris(tmp_path / "IDX")
    assert before == ["one/w.txt", "two/w.txt", "x.txt"]
    assert update(tmp_path / "IDX", tmp_path / "one" / "w.txt") == (0, 0, 1)
    assert update(tmp_path / "IDX", tmp_path / "three") == (0, 0, 1)
    assert update(tmp_path / "IDX", *(tmp_path / name for name in ("one", "two", "three"))) == (0, 0, 3)


def test_the_folder_around_a_folder(tmp_path: Path) -> None:
    write(tmp_path / "d", "finance/w.txt", "w.txt")
    pyfast.build_index(tmp_path / "d" / "finance", tmp_path / "IDX")
    assert uris(tmp_path / "IDX") == ["w.txt"]
    assert update(tmp_path / "IDX", tmp_path / "d") == (1, 0, 1)
    assert uris(tmp_path / "IDX") == ["d/w.txt", "w.txt"]
    assert update(tmp_path / "IDX", tmp_path / "d" / "w.txt") == (0, 0, 1)


def test_a_corpus_that_moved(corpus: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere" / "deeper"
    moved.mkdir(parents=True)
    shutil.copytree(corpus, moved / "d")
    shutil.move(tmp_path / "IDX", moved / "IDX")
    assert update(moved / "IDX", moved / "d" / "finance" / "w.csv") == (0, 0, 1)
    assert update(moved / "IDX", corpus / "finance" / "w.csv") == (0, 0, 1)
    shutil.rmtree(corpus)
    assert update(moved / "IDX", moved / "d" / "finance" / "deep") == (0, 0, 1)


def test_a_folder_behind_a_link(corpus: Path, tmp_path: Path) -> None:
    os.symlink(corpus, tmp_path / "link")
    assert update(tmp_path / "IDX", tmp_path / "link" / "finance" / "w.csv") == (0, 0, 1)


def test_add_refuses_what_is_there(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(pyfast.errors.InputError, match=r"finance/w\.csv"):
        pyfast.add_documents(tmp_path / "IDX", corpus / "finance" / "w.csv")
    write(corpus, "finance/z.txt")
    assert pyfast.add_documents(tmp_path / "IDX", corpus / "finance" / "z.txt").added == 1
    assert "finance/z.txt" in uris(tmp_path / "IDX")


def test_roots_stay_in_later_commits(corpus: Path, tmp_path: Path) -> None:
    pyfast.delete_documents(tmp_path / "IDX", "readme.txt")
    pyfast.compact_index(tmp_path / "IDX", erase=True)
    assert update(tmp_path / "IDX", corpus / "finance" / "w.csv") == (0, 0, 1)
    assert update(tmp_path / "IDX", corpus / "readme.txt") == (1, 0, 0)


def test_the_uri_of_a_file_deletes_its_parts(tmp_path: Path) -> None:
    table = "\n\n|bird|says|\n|-|-|\n|heron|old|\n\n"
    write(tmp_path / "d", "drafts/plan.md", says=f"# Plan\n\nHerons.{table}More.{table}")
    write(tmp_path / "d", "drafts/plan.md2.txt", "other.md", says="The old heron.")
    long = ",".join(f"c{k}" for k in range(70)) + "\n" + ",".join(["x"] * 70) + "\n"
    (tmp_path / "d" / "wide.csv").write_text(long)
    index = tmp_path / "IDX"
    pyfast.build_index(tmp_path / "d", index)
    parts = ["drafts/plan.md#table-1", "drafts/plan.md#table-2"]
    wide = [one for one in uris(index) if one.startswith("wide.csv#")]
    assert len(wide) == 2 and "wide.csv" not in uris(index)
    pyfast.add_documents(index, [{"id": f"{parts[0]}#row-1-column-1", "text": "A long cell."}])
    delete = lambda *named: CliRunner().invoke(app, ["corpus", "delete", str(index), *named])  # noqa: E731
    assert "2 deleted" in delete(parts[0]).output
    assert uris(index) == sorted(["drafts/plan.md", "drafts/plan.md2.txt", "other.md", parts[1], *wide])
    assert "4 deleted" in delete("drafts/plan.md", "wide.csv").output
    assert uris(index) == ["drafts/plan.md2.txt", "other.md"] and pyfast.verify(index).passed
    for gone in ("drafts/plan.md", "drafts/plan.md#table-2", "drafts", "wide.csv"):
        with pytest.raises(pyfast.errors.InputError, match="has no document"):
            pyfast.delete_documents(index, ["other.md", gone])
    assert len(uris(index)) == 2


def test_an_index_gets_what_a_folder_has(corpus: Path) -> None:
    """Against an index that is built from the folder. A dry run tells the same and changes nothing."""
    index = corpus.parent / "IDX"
    write(corpus, "table.csv", "finance/w.csv", says="The new egret.")
    shutil.move(corpus / "readme.txt", corpus / "finance" / "moved.txt")
    write(corpus, "gone.txt", says="An owl.")
    pyfast.update_documents(index, [corpus / "gone.txt"])
    (corpus / "gone.txt").unlink()
    info = pyfast.describe_index(index)
    shown = CliRunner().invoke(app, ["corpus", "sync", str(index), str(corpus), "--dry-run"]).output
    lines = ["added: table.csv", "replaced: finance/w.csv", "deleted: gone.txt"]
    lines += ["renamed: readme.txt -> finance/moved.txt"]
    assert shown.splitlines()[:4] == lines and "1 added, 1 replaced, 1 deleted, 1 unchanged, 1 renamed" in shown
    assert pyfast.describe_index(index) == info
    change = pyfast.sync_documents(index, corpus)
    assert (change.added, change.replaced, change.deleted, change.unchanged) == (1, 1, 1, 1)
    assert change.renamed == (("readme.txt", "finance/moved.txt"),)
    pyfast.build_index(corpus, corpus.parent / "fresh")
    assert uris(index) == uris(corpus.parent / "fresh") and pyfast.verify(index).passed
    again = pyfast.sync_documents(index, corpus)
    assert again == pyfast.api.index.Change(change.commit, unchanged=4)


def test_a_folder_in_a_folder_deletes_only_its_own(corpus: Path) -> None:
    index = corpus.parent / "IDX"
    for name in ("finance/deep/v.txt", "readme.txt"):
        (corpus / name).unlink()
    assert pyfast.sync_documents(index, corpus / "finance").uris["deleted"] == ["finance/deep/v.txt"]
    assert uris(index) == ["finance/w.csv", "readme.txt"]


def test_nothing_is_deleted_that_may_be_there(corpus: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file that cannot be read may have the documents; so may another folder, or one that is not mounted."""
    index = corpus.parent / "IDX"
    (corpus / "readme.txt").unlink()
    (corpus / "broken.jsonl").write_bytes(b'{"id": ')
    change = pyfast.sync_documents(index, corpus)
    assert change.deleted == 0 and change.uris["kept"] == ["readme.txt"]
    assert (
        f"the documents of missing files are kept, because {corpus / 'broken.jsonl'} cannot be read" in caplog.text
    )
    (corpus / "broken.jsonl").unlink()
    write(corpus.parent / "e", "other.txt")
    pyfast.update_documents(index, corpus.parent / "e")
    with pytest.raises(InputError, match="e: documents from this path have uris that begin like"):
        pyfast.sync_documents(index, corpus)
    assert pyfast.sync_documents(index, [corpus, corpus.parent / "e"]).uris["deleted"] == ["readme.txt"]
    for path in (corpus.parent / "e").iterdir():
        path.unlink()
    with pytest.raises(InputError, match="e contains no files"):
        pyfast.sync_documents(index, [corpus, corpus.parent / "e"])


def test_an_update_names_the_same_stale_documents_as_a_sync(tmp_path: Path) -> None:
    folder, index = tmp_path / "d", tmp_path / "IDX"
    write(folder, "a.csv", "gone.txt")
    (folder / "r.jsonl").write_text('{"id": "x", "text": "Rain fell."}\n{"id": "y", "text": "Snow fell."}\n')
    pyfast.build_index(folder, index)
    shutil.copytree(index, tmp_path / "COPY")
    (folder / "a.csv").write_bytes(b"PK\x03\x04" + bytes(40))
    (folder / "r.jsonl").write_text('{"id": "x", "text": "Hail fell."}\n{"id": "y", "te\n')
    (folder / "gone.txt").unlink()
    shown = {}
    for name, made in (("update", index), ("sync", tmp_path / "COPY")):
        done = CliRunner().invoke(app, ["corpus", name, str(made), str(folder)])
        shown[name] = {line for line in done.stdout.splitlines() if line.startswith("kept: ")}
        assert done.exit_code == 2 and "1 replaced, 3 kept" in done.stdout
    assert shown["update"] == shown["sync"] == {"kept: a.csv", "kept: gone.txt", "kept: y"}
    # Without the broken records, only the broken file's documents are known to be stale.
    assert pyfast.update_documents(index, folder / "a.csv").uris["kept"] == ["a.csv"]
    write(tmp_path / "e", "other.txt")
    pyfast.update_documents(index, tmp_path / "e")
    assert pyfast.update_documents(index, folder).uris["kept"] == ["a.csv"]  # "y" may now come from "e".


@pytest.mark.parametrize("broken", [b"PK", None])
def test_only_documents_of_a_file_that_cannot_be_read_stay(corpus: Path, broken: bytes | None) -> None:
    """Also of a part of it, here a formula without a value. What they are called, its own name says."""
    index, path = corpus.parent / "IDX", corpus / "sales.xlsx"
    book = openpyxl.Workbook()
    for row in (["Moon", "Year"], ["Titan", 1655], ["Rhea", 1672]):
        book.active.append(row)
    book.save(path)
    pyfast.update_documents(index, path)
    assert "sales.xlsx" in uris(index)
    book.active.append(["Io", "=A1+B2"])
    book.save(path)
    if broken is not None:
        path.write_bytes(broken)
    (corpus / "readme.txt").unlink()
    unread = list[Unread]()
    change = pyfast.sync_documents(index, corpus, on_unread=unread.append)
    assert change.uris["deleted"] == ["readme.txt"] and "sales.xlsx" in uris(index) and unread[0].missing


def test_a_file_without_a_reader_keeps_nothing_but_itself(corpus: Path) -> None:
    """It was never indexed; or with a reader of the user, and then its documents stay."""
    index = corpus.parent / "IDX"
    write(corpus, "egret.bird")
    reader = Reader(("*.bird",), lambda uri, path: [TextDocument(f"{uri}#1", "", path.read_text())])
    pyfast.update_documents(index, corpus / "egret.bird", readers=[reader])
    (corpus / "photo.png").write_bytes(b"\x89PNG")
    (corpus / "readme.txt").unlink()
    unread = list[Unread]()
    change = pyfast.sync_documents(index, corpus, on_unread=unread.append)
    assert change.uris["deleted"] == ["readme.txt"] and "egret.bird#1" in uris(index)
    assert sorted(one.path.name for one in unread) == ["egret.bird", "photo.png"]
    (corpus / "egret.bird").unlink()
    assert pyfast.sync_documents(index, corpus).uris["deleted"] == ["egret.bird#1"]


def test_a_broken_file_that_no_given_reader_reads_keeps_only_its_own_documents(
    corpus: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that such a reader reads may contain any document; `--ignore` leaves it out."""
    index = corpus.parent / "IDX"
    (corpus / "egret.bird").write_text("An egret wades.")
    readers = [Reader(("*.BIRD",), lambda uri, path: [TextDocument("egret", "", path.read_text())])]
    (corpus / "memo.docx").write_bytes(b"PK\x03\x04cut off")
    (corpus / "readme.txt").rename(corpus / "guide.txt")
    change = pyfast.sync_documents(index, corpus, readers=(it for it in readers))
    assert change.renamed == (("readme.txt", "guide.txt"),) and change.kept == 0
    assert "may contain" not in caplog.text
    (corpus / "guide.txt").unlink()
    (corpus / "egret.bird").write_bytes(b"\xff\xfe\x00")
    assert sorted(pyfast.sync_documents(index, corpus, readers=readers).uris["kept"]) == ["egret", "guide.txt"]
    assert "or leave the file and its documents out with --ignore egret.bird" in caplog.text
    change = pyfast.sync_documents(index, corpus, readers=readers, ignore="egret.bird")
    assert sorted(change.uris["deleted"]) == ["egret", "guide.txt"]


def test_a_sync_tells_the_encoding_of_new_and_changed_files_only(
    corpus: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="pyfast")
    table, texts = corpus / "x.csv", corpus / "r.txt.gz"
    index = corpus.parent / "IDX"

    def told() -> list[str]:
        caplog.clear()
        tell_encoding.cache_clear()  # as in a process of its own
        pyfast.sync_documents(index, corpus)
        return sorted(message for message in caplog.messages if "read as cp1252" in message)

    table.write_bytes("Ort,Fluß\nKöln,Rhein\nMünchen,Isar\n".encode("cp1252"))
    texts.write_bytes(gzip.compress("Der Fluß fließt durch Köln.\n".encode("cp1252")))
    assert told() == [f"{texts}: read as cp1252", f"{table}: read as cp1252"]
    assert told() == []
    table.write_bytes("Ort,Fluß\nKöln,Rhein\nWürzburg,Main\n".encode("cp1252"))
    assert told() == [f"{table}: read as cp1252"]


def test_a_moved_folder_is_synced(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "moved").mkdir()
    for name in ("d", "IDX"):
        shutil.move(tmp_path / name, tmp_path / "moved" / name)
    assert pyfast.sync_documents(tmp_path / "moved/IDX", tmp_path / "moved/d").unchanged == 3


def test_only_parts_of_a_file_go_with_it(tmp_path: Path) -> None:
    """The names of files and the ids of records can have a `#` too."""
    folder, index = tmp_path / "in", tmp_path / "I"
    folder.mkdir()
    (folder / "C.csv").write_text("Lamp,Watt\nArden,12\n")
    (folder / "C.csv#old.csv").write_text("Lamp,Watt\nBrisk,9\n")
    (folder / "C#.md").write_text("# C sharp\n\nA language.\n")
    (folder / "logs.jsonl").write_text("".join(f'{{"text": "Lamp {number}"}}\n' for number in range(3)))
    records = [
        {"id": id, "text": f"Passage {id}."} for id in ("D12", "D12#0", "D12#1", "St. Louis", "St. Louis#0")
    ]
    (folder / "ids.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    pyfast.build_index(folder, index)
    left = {it.uri for it in pyfast.list_documents(index)}
    (folder / "C.csv").write_text("Lamp,Watt\nArden,15\n")
    assert pyfast.update_documents(index, folder / "C.csv").uris["deleted"] == []
    for uri, parts in [("D12", 1), ("St. Louis", 1), ("C.csv", 1), ("logs.jsonl", 3)]:
        assert pyfast.delete_documents(index, uri).deleted == parts
    left -= {"D12", "St. Louis", "C.csv", *(f"logs.jsonl#{number}" for number in (1, 2, 3))}
    assert {it.uri for it in pyfast.list_documents(index)} == left
    with pytest.raises(InputError, match="no document 'C'"):
        pyfast.delete_documents(index, "C")


def test_files_that_are_ignored_are_no_loss(corpus: Path, tmp_path: Path) -> None:
    write(corpus, "Logo.PNG", "finance/deep/mail.eml", "drafts/a.txt")
    (corpus / "drafts/gone.txt").symlink_to("nowhere")
    for ignore, left in (("*.png", 2), (["*.png", "finance/deep"], 1), (["*.PNG", "*.eml", "drafts/*"], 0)):
        unread: list[Unread] = []
        pyfast.build_index(corpus, tmp_path / "I", ignore=ignore, on_unread=unread.append, overwrite=True)
        assert len(unread) == left, unread
    assert uris(tmp_path / "I") == ["finance/deep/v.txt", "finance/w.csv", "readme.txt"]
    command = ["corpus", "sync", str(tmp_path / "I"), str(corpus)]
    assert CliRunner().invoke(app, command).exit_code == 2
    ignore = [f"--ignore={one}" for one in ("*.png", "*.eml", "drafts/*", "W.csv")]
    done = CliRunner().invoke(app, [*command, *ignore])
    assert done.exit_code == 0 and uris(tmp_path / "I") == ["finance/deep/v.txt", "readme.txt"]
    assert pyfast.add_documents(tmp_path / "I", corpus / "finance", ignore="deep/*").added == 1
    change = pyfast.update_documents(tmp_path / "I", [corpus / "readme.txt", corpus], ignore=["drafts", "*.[ep]*"])
    assert change.unchanged == 3


def test_records_that_a_file_named_alone_no_longer_has_are_kept_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    records = [{"id": name, "title": name, "text": f"{name} is a moon."} for name in ("Titan", "Rhea")]
    file = corpus / "moons.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    pyfast.build_index(file, tmp_path / "IDX")
    file.write_text(json.dumps(records[0]) + "\n")
    assert pyfast.sync_documents(tmp_path / "IDX", file).deleted == 0
    assert "sync its folder" in caplog.text
    caplog.clear()
    for sources in ([corpus], [file, corpus]):
        assert pyfast.sync_documents(tmp_path / "IDX", sources).uris["deleted"] == ["Rhea"]
        file.write_text("".join(json.dumps(record) + "\n" for record in records))
        assert pyfast.sync_documents(tmp_path / "IDX", corpus).added == 1
        file.write_text(json.dumps(records[0]) + "\n")
    assert "sync its folder" not in caplog.text


def test_a_sync_with_a_repeated_id_deletes_what_is_gone(tmp_path: Path) -> None:
    corpus, left_out = tmp_path / "corpus", list[Unread]()
    corpus.mkdir()
    (corpus / "gone.txt").write_text("Io is a moon.")
    records = [{"id": name, "text": f"{name} is a moon, {k}."} for k, name in enumerate(["Rhea", *["Titan"] * 12])]
    (corpus / "moons.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    pyfast.build_index(corpus, tmp_path / "IDX", on_unread=left_out.append)
    assert len(left_out) == 11 and all(one.missing and one.repeated for one in left_out)
    (corpus / "gone.txt").unlink()
    (corpus / "moons.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records[1:]))
    change = pyfast.sync_documents(tmp_path / "IDX", corpus, on_unread=left_out.append)
    assert sorted(change.uris["deleted"]) == ["Rhea", "gone.txt"] and not change.kept
