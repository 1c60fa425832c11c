"""One real vLLM engine for all tests of this folder, with the small model of the embedded backend."""

import importlib.util
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from models import converted_model

from pyfast.llm import LLM, open_llm


@pytest.fixture(scope="session")
def model() -> Path:
    """The folder of the model; skips where vLLM is not installed."""
    package = importlib.util.find_spec("vllm")
    if package is None or package.origin is None:  # without an origin it is this very folder
        pytest.skip("not installed: vllm")
    return converted_model()


@pytest.fixture(scope="session")
def options() -> dict[str, Any]:
    """Those of every engine here. float32 says the same alone as in any batch."""
    return {"slots": 32, "context_window": 1024, "dtype": "float32", "kv_cache_gib": 1}


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def backend(model: Path, options: dict[str, Any]) -> AsyncIterator[LLM]:
    """Not started: `llm` is."""
    backend = open_llm(f"vllm:{model}", **options)
    yield backend
    await backend.close()


@pytest_asyncio.fixture(loop_scope="session")
async def llm(backend: LLM) -> LLM:
    """Started, if an earlier test has not done so: some half a minute."""
    await backend.start()
    return backend
