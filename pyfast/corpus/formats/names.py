"""Make titles from file names."""

from pathlib import Path


def title_of(path: Path) -> str:
    """Make a title from a file name: its words, without the suffix."""
    return path.stem.replace("-", " ").replace("_", " ")
