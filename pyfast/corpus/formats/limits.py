"""Limits for files. A small compressed file with a huge content is refused before the content fills the memory."""

from pathlib import Path

from pyfast.errors import InputError

MOST_CELLS = 20_000_000
_ALWAYS = 1 << 28
_GROWTH = 200
_MOST = 1 << 32


def check_cells(path: Path, cells: int) -> None:
    """Raise InputError if a table has too many cells."""
    if cells > MOST_CELLS:
        raise InputError(f"{path}: a table of more than {MOST_CELLS:,} cells; cut it into several files")


def check_growth(path: Path, packed: int, unpacked: int) -> None:
    """Raise InputError if the unpacked content of a file is far larger than the file."""
    if unpacked > _MOST or unpacked > max(_ALWAYS, _GROWTH * packed):
        raise InputError(f"{path}: {packed:,} bytes unpack to {unpacked:,} or more, too many; unpack it yourself")
