"""Optional packages: which extra of `pyfast-qa` installs each package, and the error if it is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyfast.errors import MissingPackageError

EXTRAS = {
    "qa": (
        "Stemmer",
        *("ahocorasick_rs", "aiohttp", "charset_normalizer", "clevercsv", "isal", "json_repair", "markdown_it"),
        *("orjson", "pyarrow", "pydantic", "rapidfuzz", "rich", "tenacity", "tomli_w", "typer", "yaml"),
        *("xxhash", "yarl", "zstandard"),
    ),
    "embedded": ("xllamacpp",),
    "formats": ("bs4", "docx", "lxml", "openpyxl", "pptx", "pyoxigraph", "pypdfium2"),
    # If several extras contain a module, messages name the last one.
    "dense": ("faiss", "safetensors", "sentence_transformers", "tokenizers"),
    "rerank": ("onnxruntime", "tokenizers"),
    "knowledge": (
        *("faiss", "graspologic_native", "huggingface_hub", "networkx", "rdflib", "sentence_transformers"),
        "tokenizers",
    ),
    "experiments": ("matplotlib", "pandas", "tabulate"),
    "langchain": ("langchain_core",),
    "llamaindex": ("llama_index",),
    "mcp": ("mcp",),
    "metrics": ("bert_score", "rouge_score"),
    "ray": ("ray",),
    "server": ("fastapi", "httptools", "multipart", "prometheus_client", "starlette", "uvicorn"),
    "train": ("accelerate", "gguf", "peft", "safetensors", "torch", "transformers"),
}
"""The modules of each extra, by their names in `import`"""
_EXTRA = {module: extra for extra, modules in EXTRAS.items() for module in modules}


def install(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install 'pyfast-qa[{extra}]'"


@contextmanager
def explained() -> Iterator[None]:
    """A context manager and decorator. If an optional package cannot be imported inside it, a one-line error
    names the extra to install.

    Raises:
        MissingPackageError: In place of the `ModuleNotFoundError` of such a package.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in _EXTRA:
            raise
        raise MissingPackageError(
            f"{module} is not installed: {install(_EXTRA[module])}", name=error.name, path=error.path
        ) from None
