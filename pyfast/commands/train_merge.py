"""`pyfast train merge`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def merge(
    model: Annotated[Path, typer.Argument(help="The folder of the model that was trained.")],
    adapter: Annotated[Path, typer.Argument(help="The folder of the trained adapter, in peft's format.")],
    out: Annotated[Path, typer.Argument(help="The folder to write.")],
) -> None:
    """Merge a trained adapter into its model, for programs that cannot load an adapter next to a model."""
    from pyfast.api.training import merge_adapter

    print(merge_adapter(model, adapter, out))
