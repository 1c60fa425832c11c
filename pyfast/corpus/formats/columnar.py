"""Read Parquet and Arrow files. A row of such a file is read like a line of a JSON Lines file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pyfast.corpus.documents import Document, Unread
from pyfast.corpus.formats.limits import check_cells
from pyfast.corpus.jsonl_documents import documents_of_records
from pyfast.errors import InputError


def read_columnar(uri: str, path: Path) -> Iterator[Document | Unread]:
    """Read the documents of a file. If the rows of the file are not documents, the whole file is one table."""
    no_text: Counter[str] = Counter()
    placed = ((f"{path}, row {number}", row, b"") for number, row in enumerate(records(path, no_text), start=1))
    yield from documents_of_records(uri, path, placed)
    for column, times in no_text.items():
        yield Unread(path, f"column {column}: {times} values are bytes that are no UTF-8, and are left out")


def records(path: Path, no_text: Counter[str] | None = None) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet or Arrow file (file format, stream format or Feather).

    Values of bytes become texts, and numbers of less than 64 bits have no more digits than they were written
    with. `no_text` counts the values of each column that are bytes and no UTF-8: they become None.

    Raises `InputError` if the file is damaged or too large.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        if path.suffix.lower() == ".parquet":
            with parquet.ParquetFile(path) as file:
                check_cells(path, file.metadata.num_rows * file.metadata.num_columns)
                for batch in file.iter_batches(batch_size=4096):
                    yield from _rows(batch, no_text)
            return
        with pa.memory_map(str(path)) as source:
            if source.read(4) == b"FEA1":
                raise InputError(f"{path}: version 1 of Feather is not read; write it in version 2")
            source.seek(0)
            try:
                file = pa.ipc.open_file(source)
                batches = (file.get_batch(number) for number in range(file.num_record_batches))
            except pa.ArrowInvalid:
                source.seek(0)
                batches = iter(pa.ipc.open_stream(source))
            cells = 0
            for batch in batches:
                cells += batch.num_rows * batch.num_columns
                check_cells(path, cells)
                yield from _rows(batch, no_text)
    except pa.ArrowException as error:
        raise InputError(f"{path}: {' '.join(str(error).split())}") from error


def _rows(batch: Any, no_text: Counter[str] | None) -> list[dict[str, Any]]:
    import pyarrow.types as kinds

    rows: list[dict[str, Any]] = batch.to_pylist()
    for field in batch.schema:
        name, kind = field.name, field.type
        if kinds.is_float32(kind) or kinds.is_float16(kind):
            written = np.float32 if kinds.is_float32(kind) else np.float16
            for row in rows:
                if row[name] is not None:
                    row[name] = float(str(written(row[name])))
        elif kinds.is_binary(kind) or kinds.is_large_binary(kind) or kinds.is_fixed_size_binary(kind):
            for row in rows:
                try:
                    row[name] = None if row[name] is None else row[name].decode()
                except UnicodeDecodeError:
                    row[name] = None
                    if no_text is not None:
                        no_text[name] += 1
    return rows
