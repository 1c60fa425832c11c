"""The line of each passage, as the LLM reads it: rendered once, when the index is built."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pyfast.ops.arrays import Int64

FOLDER = "rendered_passages"
"""In an index"""
RenderedPassages = tuple[Int64, npt.NDArray[np.uint8]]
"""(offsets [passages + 1], UTF-8)"""


def save_rendered(folder: Path, lines: Iterable[str]) -> None:
    """Write the lines one after the other, and where each starts."""
    folder.mkdir()
    offsets = [0]
    with (folder / "text.bin").open("wb") as file:
        for line in lines:
            offsets.append(offsets[-1] + file.write(line.encode()))
    np.save(folder / "offsets.npy", np.array(offsets, dtype=np.int64))


def open_rendered(folder: Path) -> RenderedPassages:
    """Map the lines."""
    offsets = np.load(folder / "offsets.npy", mmap_mode="r", allow_pickle=False)
    return offsets, np.memmap(folder / "text.bin", np.uint8, mode="r")
