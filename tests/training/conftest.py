"""A tiny model, and conversations over the example corpus."""

from pathlib import Path

import pytest
from tiny import tiny_model

from pyfast.engine import Question

TALKS = {
    "titan": [("Who discovered Titan?", "Christiaan Huygens"), ("Which planet does it circle?", "Saturn")],
    "apollo": [("Who commanded Apollo 11?", "Neil Armstrong")],
    "pluto": [("Who discovered Pluto?", "Clyde Tombaugh"), ("Which probe flew past it?", "New Horizons")],
}


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="session")
def turns() -> list[Question]:
    return [
        Question(f"{name}-{number}", asked, name, (answer,))
        for name, talk in TALKS.items()
        for number, (asked, answer) in enumerate(talk)
    ]
