"""Files of text whose content is binary: each is left out, with one clear reason."""

import gzip
import io
import zipfile
from pathlib import Path

import pytest

from pyfast.corpus import Unread, read

PAGE = b"<html><head><meta charset='utf-8'></head><body><p>The lake is 44 m deep.</p></body></html>"
TEXTS = ("html", "htm", "xhtml", "txt", "md", "csv", "tsv", "json", "jsonl", "ndjson", "nt", "ttl")


def zipped() -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("a.html", PAGE)
    return data.getvalue()


KINDS = {
    "gzip": gzip.compress(PAGE),
    "ZIP or Office": zipped(),
    "PDF": b"%PDF-1.4\n1 0 obj\n<< /Type /Catalog >>\nendobj\n",
    "PNG": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
    "JPEG": b"\xff\xd8\xff\xe0\0\x10JFIF",
}


@pytest.mark.parametrize("ending", TEXTS)
@pytest.mark.parametrize("kind", KINDS)
def test_binary_files_with_the_name_of_a_text(tmp_path: Path, kind: str, ending: str) -> None:
    (tmp_path / f"a.{ending}").write_bytes(KINDS[kind])
    unread: list[Unread] = []
    assert list(read([tmp_path], unread)) == []
    assert [it.reason for it in unread] == [
        f"this is a {kind} file, not text; give it the extension of its format"
    ]


@pytest.mark.parametrize("ending", ["html", "txt", "csv", "md"])
def test_zero_bytes_and_unknown_bytes(tmp_path: Path, ending: str) -> None:
    (tmp_path / f"a.{ending}").write_bytes(bytes(1000))
    (tmp_path / f"b.{ending}").write_bytes(bytes(range(256)) * 9 + PAGE)
    unread: list[Unread] = []
    assert list(read([tmp_path], unread)) == []
    assert [it.missing for it in unread] == [True, True]
    assert unread[0].reason.startswith("this file contains only zero bytes")
    assert unread[1].reason.startswith("this is not text in an encoding that pyfast knows")


@pytest.mark.parametrize("data", [PAGE.decode().encode("utf-16"), PAGE, PAGE.replace(b"44", b"44\0")])
def test_pages_with_zero_bytes_of_their_encoding_are_read(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.html").write_bytes(data)
    (text,) = read([tmp_path])
    assert "44" in text.text  # type: ignore[union-attr]
