"""The example corpus's knowledge, with vectors that take no time; each test may change a copy of its own."""

import shutil
from pathlib import Path

import pytest
from word_vectors import WordVectors

from pyfast.knowledge import Knowledge, add_extracts, extract_by_rules
from pyfast.retrieval import Index


@pytest.fixture
def index(small: Index, tmp_path: Path) -> Index:
    """The example index, without knowledge."""
    return Index(shutil.copytree(small.folder, tmp_path / "index"))


@pytest.fixture
def store(index: Index) -> Knowledge:
    """What rules extract from it."""
    return add_extracts(index, WordVectors(), extract_by_rules(index))
