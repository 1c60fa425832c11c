"""The real tokenizer of the small model, and a tiny model that speaks it."""

from pathlib import Path
from typing import Any

import pytest
from models import converted_model
from tiny import tiny_model


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    transformers = pytest.importorskip("transformers")
    return transformers.AutoTokenizer.from_pretrained(converted_model())


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("tiny") / "model")
