"""Read Parquet and Arrow files. A row of such a file is read like a line of a JSON Lines file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyfast.corpus.documents import Document, Unread
from pyfast.corpus.formats.limits import check_cells
from pyfast.corpus.formats.names import title_of
from pyfast.corpus.jsonl_documents import documents_of_records
from pyfast.errors import InputError


def read_columnar(uri: str, path: Path) -> Iterator[Document | Unread]:
    """Read the documents of a file. If the rows of the file are not documents, the whole file is one table."""
    placed = ((f"{path}, row {number}", row, b"") for number, row in enumerate(records(path), start=1))
    return documents_of_records(uri, path, title_of(path), placed)


def records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet or Arrow file (file format, stream format or Feather).

    Raises `InputError` if the file is damaged or too large.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        if path.suffix.lower() == ".parquet":
            with parquet.ParquetFile(path) as file:
                check_cells(path, file.metadata.num_rows * file.metadata.num_columns)
                for batch in file.iter_batches(batch_size=4096):
                    yield from batch.to_pylist()
            return
        with pa.memory_map(str(path)) as source:
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
                yield from batch.to_pylist()
    except pa.ArrowException as error:
        raise InputError(f"{path}: {' '.join(str(error).split())}") from error
