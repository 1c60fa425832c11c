"""Functions for LLMs that run on this machine: processor cores, hashes of model files, and schemas for
constrained decoding."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from pyfast.errors import ModelNotFoundError
from pyfast.llm.chat import closed
from pyfast.llm.protocol import Schema

LOG_VARIABLE = "PYFAST_LLM_LOG"
"""If this environment variable is set, the log of llama.cpp or vLLM appears on stderr."""


def compact(schema: Schema) -> Mapping[str, Any]:
    """Adapt a schema for llguidance (constrained decoding): answers have no additional fields, and their JSON
    is on one line.

    If JSON may have line breaks, a small model may spend all its tokens on white space.
    """
    form = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
    return {**closed(schema), "x-guidance": form}


def usable_cores() -> list[int]:
    """Return the numbers of the cores that this process may use, ascending."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


# All files of a model. Other files, such as a README, do not change the fingerprint.
_PARTS = ("*.json", "*.jinja", "*.model", "*.txt", "*.safetensors", "*.bin", "*.pt")


def folder_hash(folder: Path) -> str:
    """Return `NAME:DIGEST`: the name of a model's folder, and its `folder_digest`. Raises
    `ModelNotFoundError` if a file cannot be read."""
    return f"{folder.name}:{folder_digest(folder)}"


def folder_digest(folder: Path) -> str:
    """Compute a hash of parts of the files in a model's folder. Raises `ModelNotFoundError` if a file cannot be
    read."""
    files = sorted({file for pattern in _PARTS for file in folder.glob(pattern)})
    return digest([f"{file.name}:{sample_hash(file)}" for file in files])


def digest(value: Any) -> str:
    """Compute a hash of a value of JSON types, as 16 hexadecimal digits."""
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS, default=str)
    return hashlib.blake2b(text, digest_size=8).hexdigest()


def sample_hash(path: Path) -> str:
    """Return `SIZE:HASH`: the size of a file, and a hash of its first MiB and of 64 other parts of 4 KiB.

    In a model's file, these parts contain the header, the vocabulary and some of the weights. Raises
    `ModelNotFoundError` if the file cannot be read.
    """
    try:
        size = path.stat().st_size
        digest = hashlib.blake2b(digest_size=16)
        with path.open("rb") as file:
            digest.update(file.read(1 << 20))
            for part in range(1, 65):
                file.seek(max(0, size * part // 64 - 4096))
                digest.update(file.read(4096))
    except OSError as error:
        raise ModelNotFoundError(f"cannot read {path}: {error.strerror}") from None
    return f"{size}:{digest.hexdigest()}"
