"""Limits for files. A small compressed file with a huge content is refused before the content fills the memory."""

from pathlib import Path

from pyfast.errors import InputError

MOST_CELLS = 20_000_000
_ALWAYS = 1 << 28
_GROWTH = 200
_MOST = 1 << 32
_BASE = 220_000_000
_TIMES = 3
_WHOLE = {".txt", ".text", ".md", ".markdown", ".csv", ".tsv", ".json", ".html", ".htm", ".xhtml"}
_WHOLE |= {".nt", ".ttl", ".turtle"}


def check_cells(path: Path, cells: int) -> None:
    """Raise InputError if a table has too many cells."""
    if cells > MOST_CELLS:
        raise InputError(f"{path}: a table of more than {MOST_CELLS:,} cells; cut it into several files")


def check_growth(path: Path, packed: int, unpacked: int) -> None:
    """Raise InputError if the unpacked content of a file is far larger than the file."""
    if unpacked > _MOST or unpacked > max(_ALWAYS, _GROWTH * packed):
        raise InputError(f"{path}: {packed:,} bytes unpack to {unpacked:,} or more, too many; unpack it yourself")


def check_memory(path: Path, size: int, memory: int) -> None:
    """Raise InputError if a file of `size` bytes cannot be read in `memory` MB.

    Text, tables, JSON and RDF are in memory as a whole: as bytes, as characters and as the content of the index.
    So they take at least three times their size, beside the program itself.
    """
    needed = (_BASE + _TIMES * size) // 1_000_000 + 1
    if path.suffix.lower() in _WHOLE and needed > memory:
        raise InputError(
            f"{path}: one file of {size // 1_000_000:,} MB needs at least {needed:,} MB of memory, and the limit "
            f"is {memory:,} MB; divide the file, or give more memory (--memory)"
        )
