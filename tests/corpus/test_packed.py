"""Rows in little memory are the rows that were given."""

from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import orjson
import pytest

from pyfast.corpus import Table, decode, encode, read
from pyfast.corpus.encode import digest_of
from pyfast.corpus.grids import Packed, pack

ROWS = tuple((str(k), 'say "rows":[]' if k % 7 else "", "漢字é" * (k % 3)) for k in range(3000))


def table(rows: object) -> Table:
    return Table("moons", 'A "rows":[] title', "", ("id", "name", "rows"), rows, ((2, 1, "titan"),))  # type: ignore[arg-type]


def test_a_few_rows_stay_a_tuple() -> None:
    assert pack(iter(ROWS[:1024])) == ROWS[:1024] and isinstance(pack(ROWS[:1024]), tuple)
    assert isinstance(pack(ROWS), Packed) and pack(ROWS) == ROWS and tuple(pack(ROWS)) == ROWS


@pytest.mark.parametrize("size", [0, 1, 1023, 1024, 1025, 2048, 3000])
def test_items_and_slices_are_those_of_a_tuple(size: int) -> None:
    rows = ROWS[:size]
    packed = Packed(rows)
    assert len(packed) == size and packed == rows and rows == packed and hash(packed) == hash(rows)
    assert packed != rows[1:] or not size
    for first, stop, step in (
        (0, 5, 1),
        (1000, 1100, 1),
        (2000, None, 1),
        (5, 2, 1),
        (-9, -1, 1),
        (None, None, -7),
    ):
        assert packed[first:stop:step] == rows[first:stop:step]
    for k in {0, 1022, 1023, 1024, size - 1} & set(range(size)):
        assert packed[k] == rows[k] and packed[k - size] == rows[k]
    with pytest.raises(IndexError):
        packed[size]


def test_a_table_keeps_its_digest_its_segments_and_its_rows() -> None:
    plain, packed = table(ROWS), table(Packed(ROWS))
    written = orjson.dumps(plain).replace(b',"about":""', b"")  # as before tables had metadata
    assert digest_of(packed) == digest_of(plain) == blake2b(written, digest_size=16).digest()
    told = replace(packed, about='{"author":"Sagan"}')
    assert digest_of(told) == blake2b(orjson.dumps(replace(plain, about=told.about)), digest_size=16).digest()
    assert digest_of(packed) != digest_of(replace(packed, rows=Packed(ROWS[1:])))
    corpus = encode([packed])
    assert corpus.fingerprint() == encode([plain]).fingerprint()
    assert all(corpus._parts[k] == encode([plain])._parts[k] for k in range(4))
    assert decode(corpus) == [plain] == [packed]


def test_a_lone_surrogate_stays_and_is_refused_by_name() -> None:
    rows = (*ROWS[:1500], ("\ud800", "", ""), *ROWS[1500:])
    assert Packed(rows) == rows
    assert digest_of(table(Packed(rows))) == digest_of(table(rows)) != bytes(16)
    with pytest.raises(Exception, match="lone surrogate U\\+D800"):
        encode([table(Packed(rows))])


def test_records_of_a_file_are_rows(tmp_path: Path) -> None:
    lines = [{"id": k, "name": f"é{k}", **({"late": None} if k == 2500 else {})} for k in range(3000)]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(map(orjson.dumps, lines)))
    (found,) = read([tmp_path / "a.jsonl"])
    assert isinstance(found, Table) and found.header == ("id", "name", "late")
    assert found.rows == tuple((str(k), f"é{k}", "") for k in range(3000))
