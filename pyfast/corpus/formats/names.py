"""Titles from file names."""

from pathlib import Path


def title_of(path: Path) -> str:
    """The name of a file as words."""
    return path.stem.replace("-", " ").replace("_", " ")
