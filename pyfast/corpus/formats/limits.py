"""How much a file may hold: one that stands for far more than its size is refused before it fills the memory."""

from pathlib import Path

from pyfast.errors import InputError

MOST_CELLS = 20_000_000
_ALWAYS = 1 << 28
_GROWTH = 200
_MOST = 1 << 32


def check_cells(path: Path, cells: int) -> None:
    """Raises InputError for a table of more cells than one table may have."""
    if cells > MOST_CELLS:
        raise InputError(f"{path}: a table of more than {MOST_CELLS:,} cells; cut it into several files")


def check_growth(path: Path, packed: int, unpacked: int) -> None:
    """Raises InputError where so many bytes unpack to far more."""
    if unpacked > _MOST or unpacked > max(_ALWAYS, _GROWTH * packed):
        raise InputError(f"{path}: {packed:,} bytes unpack to {unpacked:,} or more, too many; unpack it yourself")
