"""A run leaves its index as it found it."""

from hashlib import sha256
from pathlib import Path

import pytest
from scripted import run

from pyfast.engine import Question
from pyfast.llm.instant import Instant
from pyfast.retrieval import Index

QUESTIONS = [Question(str(i), f"Which moon did mission {i} visit?") for i in range(5)]


def checksums(folder: Path) -> dict[str, str]:
    return {str(path): sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.guarantee("G10")
@pytest.mark.parametrize("system", ["rag", "decompose", "n2n", "hseq"])
def test_no_file_of_the_index_changes(small: Index, system: str) -> None:
    before = checksums(small.folder)
    run(small, Instant(), QUESTIONS, system=system)
    assert checksums(small.folder) == before
