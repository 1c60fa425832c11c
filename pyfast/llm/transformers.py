"""Run a model in this process with the library transformers, one request at a time. Tests compare vLLM with it."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import pyfast.llm.local as local
from pyfast.errors import LLMUnavailableError, ModelNotFoundError
from pyfast.llm.chat import one_line
from pyfast.llm.protocol import Completion, Request, take_options


def open_folder(rest: str, **options: Any) -> Transformers:
    """Open `transformers:FOLDER`. Raises `ModelNotFoundError` if the folder has no model."""
    return take_options("transformers", Transformers, f"transformers:{rest}", local.find_folder(rest), **options)


def open_model(folder: Path, precision: str = "float32") -> tuple[Any, Any]:
    """Open a model from a folder with safetensors, and return (the model, its tokenizer). `precision` is a dtype
    of torch. Raises `ModelNotFoundError` if the folder has no model, or the model cannot be opened.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # type: ignore[no-untyped-call]
    local.find_folder(str(folder))
    source: dict[str, Any] = {"pretrained_model_name_or_path": folder, "local_files_only": True}
    try:
        tokenizer = AutoTokenizer.from_pretrained(**source)
        kind = getattr(torch, precision)
        return AutoModelForCausalLM.from_pretrained(**source, dtype=kind, use_safetensors=True), tokenizer
    except (OSError, ValueError) as error:
        raise ModelNotFoundError(f"{folder}: {one_line(error)}") from None


class Transformers:
    """A model in float32, which runs in a thread and accepts both messages and embeddings as prompts.

    It is simple and slow, and serves to check the results of vLLM and of training. It has no constrained decoding,
    so an answer may not match the schema of its request, in which case pyfast asks again.
    """

    def __init__(self, spec: str, folder: Path, *, context_window: int | None = None) -> None:
        self.spec = spec
        self.slots = 1
        self.context_window = context_window or 8192
        self._wanted = context_window
        self._folder = folder
        self._thread: ThreadPoolExecutor | None = None
        self._model: Any = None
        self._tokenizer: Any = None

    @property
    def fingerprint(self) -> str:
        """A text that identifies the model. The same model has a different fingerprint in vLLM, which computes
        slightly different numbers."""
        return f"transformers:{local.folder_hash(self._folder)}:float32"

    @cached_property
    def weights(self) -> str:
        """A checksum of the model's folder."""
        return local.folder_digest(self._folder)

    async def start(self) -> None:
        """Load the model. Raises `ModelNotFoundError` if the model cannot be loaded."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "pyfast-transformers")
            await asyncio.get_running_loop().run_in_executor(self._thread, self._load)

    def _load(self) -> None:
        try:
            model, self._tokenizer = open_model(self._folder)
        except ImportError as error:
            raise ModelNotFoundError(f"not installed: {error.name}; pip install 'pyfast-qa[train]'") from None
        self._model = model.eval()
        self.context_window = self._wanted or model.config.max_position_embeddings

    async def complete(self, request: Request) -> Completion:
        """Answer one request. Raises `CallError` if only this call failed, and `LLMUnavailableError` if the model
        no longer answers.
        """
        if self._thread is None or self._model is None:
            raise LLMUnavailableError(f"{self.spec} is not running: it was closed or never started")
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._answer, request)

    def _answer(self, request: Request) -> Completion:
        import torch

        prompt = self._prompt(request)
        (size,) = {tensor.shape[1] for tensor in prompt.values()}
        local.check_window(size, request, self.context_window)
        hot = {"do_sample": True, "temperature": request.temperature, "top_k": 0, "top_p": 1.0}
        torch.manual_seed(request.seed)
        with torch.inference_mode():
            generated = self._model.generate(
                **prompt,
                max_new_tokens=request.max_tokens,
                **({"stop_strings": list(request.stop), "tokenizer": self._tokenizer} if request.stop else {}),
                **(hot if request.temperature else {"do_sample": False, "temperature": None, "top_p": None}),
            )[0]
        # The output repeats a prompt of tokens, but not a prompt of embeddings.
        tokens = generated[size:] if "input_ids" in prompt else generated
        ends = self._model.generation_config.eos_token_id
        ended = len(tokens) > 0 and int(tokens[-1]) in (ends if isinstance(ends, list) else [ends])
        text = self._tokenizer.decode(tokens, skip_special_tokens=True)
        return Completion(text, "stop" if ended else "length", size, 0, len(tokens))

    def _prompt(self, request: Request) -> dict[str, Any]:
        import torch

        if request.embeds is not None:
            embeds = local.checked_embeds(request, self._model.config.hidden_size)
            prompt = {"inputs_embeds": torch.tensor(embeds)[None]}
        else:
            prompt = {"input_ids": torch.tensor([local.prompt_tokens(self._tokenizer, request)])}
        (given,) = prompt.values()
        return {**prompt, "attention_mask": torch.ones(given.shape[:2], dtype=torch.int64)}

    async def close(self) -> None:
        """Wait until the running call has ended, and release the model."""
        thread, self._thread, self._model = self._thread, None, None
        if thread is not None:
            await asyncio.to_thread(thread.shutdown)
