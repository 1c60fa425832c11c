"""The text of each passage, as the LLM reads it. The texts are written once, when the index is built."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from pyfast.blocks import MappedFolder, check_lists, checked, raw
from pyfast.ops.arrays import Int64
from pyfast.retrieval.forward_index import fit_together

FOLDER = "rendered_passages"
"""The name of the folder with these texts, in the folder of a part"""
RenderedPassages = tuple[Int64, npt.NDArray[np.uint8]]
"""(offsets [passages + 1], the texts in UTF-8)"""


def save_rendered(folder: Path, rendered: RenderedPassages) -> None:
    """Write the texts into one file, and their offsets into another file."""
    folder.mkdir()
    offsets, text = rendered
    text.tofile(folder / "text.bin")
    np.save(folder / "offsets.npy", offsets)


def open_rendered(files: MappedFolder, passages: int) -> RenderedPassages:
    """Memory-map the files of the texts. The files are checked when they are read."""
    offsets = files.file(f"{FOLDER}/offsets.npy").checked(np.int64)
    file = files.file(f"{FOLDER}/text.bin")
    fit_together(files, FOLDER, offsets, passages, file.data)
    return cast(RenderedPassages, (offsets, checked(file.data, file)))


def lines_of(rendered: RenderedPassages, passages: npt.NDArray[Any]) -> RenderedPassages:
    """Return the texts of all passages in the form that ops read. Only the texts of `passages` are checked."""
    check_lists(rendered[0], passages, rendered[1])
    return cast(RenderedPassages, (raw(rendered[0]), raw(rendered[1])))
