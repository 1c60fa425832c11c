"""Read files that are compressed with gzip or Zstandard."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from pyfast.corpus.formats.limits import check_growth
from pyfast.errors import InputError

SUFFIXES = (".gz", ".zst")
_BLOCK = 1 << 20


def inner(path: Path) -> Path:
    """Return the path of a file without the suffix of its compression, such as `.gz`."""
    return path.with_suffix("") if path.suffix.lower() in SUFFIXES else path


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Unpack a compressed file while a `with` block runs. Yields the path of the unpacked file. If the file
    is not compressed, yields its own path.

    Raises InputError if the file is damaged, or if its unpacked content is far larger than the file.
    """
    if inner(path) == path:
        yield path
        return
    with TemporaryDirectory(prefix="pyfast-") as folder:
        target = Path(folder, inner(path).name)
        packed, written = path.stat().st_size, 0
        try:
            with path.open("rb") as raw, _opened(path, raw) as source, target.open("wb") as out:
                while block := source.read(_BLOCK):
                    written += out.write(block)
                    check_growth(path, packed, written)
        except (EOFError, gzip.BadGzipFile, ValueError, OSError) as error:
            raise InputError(f"{path}: cannot be unpacked: {error}; copy or download it again") from error
        yield target


def _opened(path: Path, raw: IO[bytes]) -> IO[bytes]:
    if path.suffix.lower() == ".gz":
        return gzip.GzipFile(fileobj=raw)  # type: ignore[return-value]
    import zstandard

    return zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
