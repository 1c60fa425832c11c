"""`pyfast upgrade`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def upgrade(paths: Annotated[list[Path], typer.Argument(help="Folders of indexes and runs.")]) -> None:
    """Convert indexes and runs of older formats to the current format."""
    from pyfast.api.upgrading import upgrade as convert

    for path in paths:
        print(convert(path))
