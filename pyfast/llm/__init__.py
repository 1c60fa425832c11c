"""Language models behind one small protocol. Importing this package loads no backend."""

from __future__ import annotations

from typing import Any

from pyfast.errors import InputError
from pyfast.llm.protocol import Backend, Completion, Message, Request, dialogue
from pyfast.llm.remembered import Remembered

__all__ = ["Backend", "Completion", "Message", "Remembered", "Request", "dialogue", "open_llm"]

ACCEPTED = (
    "embedded, llamacpp:PATH.gguf, vllm:FOLDER_OR_NAME, transformers:FOLDER, openai:MODEL@URL, instant (benchmarks"
    " only)"
)


def open_llm(spec: str, **options: Any) -> Backend:
    """The backend that `spec` names; `start` it before use.

    `options` go to the backend: `slots`, `context_window`, `threads` for `embedded` and `llamacpp`; `slots`,
    `context_window`, `dtype`, `tensor_parallel`, `memory_fraction`, `lora` and more for `vllm` (see `Vllm`);
    `context_window` for `transformers`;
    `concurrency`, `context_window`, `timeout_s`, `attempts`, `backoff_s`, `extra` for `openai`.
    Raises `InputError` for a spec or an option that no backend knows and `ModelNotFoundError` where a model
    is missing on this machine.
    """
    for name, value in options.items():
        if isinstance(value, int | float) and not isinstance(value, bool) and value <= 0:
            raise InputError(f"{name} must be more than 0, not {value}")
    kind, _, rest = spec.partition(":")
    try:
        # Each backend is imported only when it is asked for: aiohttp, llama.cpp and vLLM are slow to load.
        if spec == "embedded":
            from pyfast.llm.llamacpp import LlamaCpp, embedded_model

            return LlamaCpp(spec, embedded_model(), **{"context_window": 2048, **options})
        if kind == "llamacpp" and rest:
            from pyfast.llm.llamacpp import LlamaCpp, model_file

            return LlamaCpp(spec, model_file(rest), **options)
        if kind == "vllm" and rest:
            from pyfast.llm.vllm import Vllm, find_model

            return Vllm(spec, *find_model(rest), **options)
        if kind == "transformers" and rest:
            from pyfast.llm.transformers import Transformers, find_folder

            return Transformers(spec, find_folder(rest), **options)
        if kind == "openai":
            from pyfast.llm.openai import OpenAI, parse_spec

            return OpenAI(spec, *parse_spec(spec), **options)
        if spec == "instant":
            from pyfast.llm.instant import Instant

            return Instant(**options)
    except TypeError as error:  # an unknown keyword: Python's own message names it
        raise InputError(f"option not known to the LLM backend {kind!r}: {error}") from None
    raise InputError(f"unknown LLM {spec!r}; accepted are: {ACCEPTED}")
