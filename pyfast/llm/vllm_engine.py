"""Start and stop vLLM's engine, and handle the signals and logs of its processes.

vLLM runs the model in child processes. This module makes sure that Ctrl-C does not end these processes before
their running calls are finished, that they end when this process ends, and that they print nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import json
import logging
import multiprocessing
import os
import re
import signal
import threading
import weakref
from collections.abc import Iterator, Mapping
from multiprocessing import connection, resource_tracker
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from pyfast.errors import InputError, LLMUnavailableError, ModelNotFoundError, first_fault
from pyfast.llm.chat import one_line
from pyfast.llm.local import LOG_VARIABLE
from pyfast.utils.processes import available_cores, scratch_folder

# the environment variable that tells an engine's processes the id of the process that started the engine
STARTER = "PYFAST_VLLM_STARTER"
FEW_CORES = 8
_WATCHER = "pyfast-parent"


class Setup(NamedTuple):
    """An engine's model and options. Models with equal setups can share an engine."""

    model: str
    options: Mapping[str, Any]
    """Fields of vLLM's `AsyncEngineArgs`. Where a value is None, vLLM uses its default"""
    extra: Mapping[str, Any]
    """More such fields, which take precedence"""
    batch_invariant: bool


def start_engine(engines: list[Any], setup: Setup) -> None:
    """Start vLLM's engine (`AsyncLLM`), and append it to `engines` once the model is loaded. Call this function in
    a thread, because it blocks until then. Raises `LLMUnavailableError`, `ModelNotFoundError` or `InputError` with
    a message of one line.
    """
    # The engine is not returned through the thread's future, which would keep it alive until the interpreter
    # exits.
    with scratch_folder() as scratch, _surroundings(scratch, setup.batch_invariant):
        try:
            engines.append(_engine(setup))
        except (LLMUnavailableError, InputError):
            raise
        except Exception as error:
            reason = _first_error(scratch) or _reason(error)
            raise LLMUnavailableError(
                f"vLLM cannot start {setup.model}: {reason}; set {LOG_VARIABLE}=1 to see its log"
            ) from None


def _engine(setup: Setup) -> Any:
    import torch
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.platforms import current_platform
    from vllm.v1.engine.async_llm import AsyncLLM

    if setup.batch_invariant and not current_platform.has_device_capability(90):
        raise LLMUnavailableError(
            "batch_invariant needs an NVIDIA GPU of compute capability 9.0 (Hopper) or newer"
        )
    chosen = {name: value for name, value in setup.options.items() if value is not None}
    if current_platform.is_cpu():
        # Compiling takes minutes and saves only a fifth of the time. With vLLM's default block size, prompts share
        # prefixes only in steps of 128 tokens, and its default cache takes nine tenths of the memory.
        chosen = {"enforce_eager": True, "block_size": 32, "kv_cache_memory_bytes": 4 << 30, **chosen}
        if chosen["dtype"] == "auto" and not torch.cpu.get_capabilities().get("avx512_bf16"):
            chosen["dtype"] = "float32"  # CPUs emulate bfloat16, which takes ten times as long.
    if not Path(setup.model).is_dir():
        _look_up(setup.model, chosen.get("revision"))
    fixed = {
        "model": setup.model,
        "enable_prefix_caching": True,
        "enable_prompt_embeds": True,
        # llguidance, as in `llamacpp`, so that a schema gives the same form of JSON in both.
        "structured_outputs_config": {"backend": "guidance", "disable_any_whitespace": True},
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
    }
    try:
        arguments = AsyncEngineArgs(**{**fixed, **chosen, **setup.extra})
    except TypeError as error:
        raise InputError(f"vLLM does not accept an option: {error}") from None
    return AsyncLLM.from_engine_args(arguments)


def _look_up(name: str, revision: str | None) -> None:
    """Raise `ModelNotFoundError` if the model is not in the local cache and the Hugging Face hub does not
    have it.

    Without this check, vLLM would try for half a minute and print many lines.
    """
    from huggingface_hub import HfApi, try_to_load_from_cache

    plain = re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name)  # vLLM itself reads other forms, such as s3://.
    if not plain or isinstance(try_to_load_from_cache(name, "config.json", revision=revision), str):
        return
    try:
        HfApi().model_info(name, revision=revision, timeout=10)
    except Exception as error:
        raise ModelNotFoundError(
            f"{name!r} is neither a folder nor a model on the hub: {_reason(error)}"
        ) from None


@contextlib.contextmanager
def _surroundings(scratch: Path, batch_invariant: bool) -> Iterator[None]:
    """Set environment variables and signals while vLLM is imported and its processes start.

    vLLM offers no other way: it reads some variables when it is imported, and all its processes inherit them.
    Variables that the user has set keep their values. After the `with` block, the environment is as before.
    """
    ours = {
        STARTER: str(os.getpid()),
        # This process has threads, so a fork of it could hang.
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "VLLM_NO_USAGE_STATS": "1",  # Otherwise, vLLM sends usage statistics to its developers.
    }
    if batch_invariant:
        ours["VLLM_BATCH_INVARIANT"] = "1"
    if available_cores() < FEW_CORES:
        # On a CPU, vLLM reserves one core for its scheduler, and binds spinning threads to the others. With two
        # cores, only one would compute, and a thread on a core that is busy with something else halves the speed
        # of all threads.
        ours |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_WAIT_POLICY": "passive"}
    if not os.environ.get(LOG_VARIABLE):
        ours |= {
            "VLLM_LOGGING_CONFIG_PATH": str(_quiet(scratch)),
            "TRANSFORMERS_VERBOSITY": "error",
            "TORCH_LOGS": "-all",
            "TORCH_CPP_LOG_LEVEL": "ERROR",
            "PYTHONWARNINGS": "ignore",
        }
    before = dict(os.environ)
    os.environ.update({name: value for name, value in ours.items() if name not in before})
    # Ctrl-C reaches each process of the terminal's group, and vLLM's processes would end at once, before their
    # calls. So this thread, alone in this process, blocks the signal, and its children inherit that. The tracker
    # must start first, because Python unblocks the signal when it starts the tracker.
    resource_tracker.ensure_running()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def _quiet(scratch: Path) -> Path:
    """Write a logging configuration for all of vLLM's processes, and return its path. Errors go to a file,
    and all other messages are dropped."""
    handler = {"class": "logging.FileHandler", "filename": str(scratch / "errors.log"), "level": "ERROR"}
    # vLLM loads plugins only after its processes have connected, and a process whose parent is killed before that
    # waits for five minutes. This configuration, however, vLLM reads when it is imported.
    early = {"()": f"{__name__}.{settle_early.__name__}"}
    logger = {"handlers": ["file"], "level": "ERROR", "propagate": False}
    configuration = {
        "version": 1,
        "disable_existing_loggers": False,
        "handlers": {"file": handler, "early": early},
        "loggers": {"vllm": logger},
    }
    path = scratch / "logging.json"
    path.write_text(json.dumps(configuration))
    return path


def _first_error(scratch: Path) -> str:
    """Return the first exception in the log of vLLM's processes, because it causes the later ones, or an empty
    string if there is none."""
    with contextlib.suppress(OSError):
        log = (scratch / "errors.log").read_text(errors="replace")
        if match := re.search(r"^[\w.]*(?:Error|Exception): .+", log, re.MULTILINE):
            return one_line(match[0])
    return ""


def _reason(error: Exception) -> str:
    from pydantic import ValidationError

    return one_line(first_fault(error)[1] if isinstance(error, ValidationError) else error)


def stop_engines(engines: list[Any]) -> None:
    """Shut down the engines in the list, and empty the list."""
    while engines:
        engines.pop().shutdown()
    gc.collect()  # The engine's objects refer to each other in cycles.


def adapter_rank(adapter: Path) -> int:
    """Return the LoRA rank for which vLLM must reserve memory to load an adapter. Raises `InputError` if the
    adapter's configuration has no rank."""
    try:
        rank: int = orjson.loads((adapter / "adapter_config.json").read_bytes())["r"]
        return max(8, 1 << (rank - 1).bit_length())
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        raise InputError(f"{adapter}: adapter_config.json does not contain a rank") from None


class SharedEngine:
    """A vLLM engine that runs while at least one `Vllm` object uses it. The list `engines` contains it while it
    runs, and is otherwise empty."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.adapters: dict[Path, int] = {}
        """The rank of each adapter that the engine loads in addition to the model, by folder. No adapter is added
        after the engine has started"""
        # The only reference to the engine. `leave`, the garbage collector or the interpreter's exit removes it.
        self.engines: list[Any] = []
        self.numbers = itertools.count()
        """Numbers the requests to the engine"""
        self._users = 0
        self._changing = asyncio.Lock()
        weakref.finalize(self, stop_engines, self.engines)

    @property
    def is_idle(self) -> bool:
        """Whether the engine is unused: no `Vllm` object uses it, and none waits for it."""
        return not self._users and not self._changing.locked()

    @property
    def window(self) -> int:
        """The size of the engine's context window, in tokens."""
        return self.engines[0].vllm_config.model_config.max_model_len

    def number_of(self, adapter: Path) -> int:
        """Return the number by which the engine knows an adapter, from 1."""
        return list(self.adapters).index(adapter) + 1

    async def enter(self) -> None:
        """Start using the engine. If it is not running, load the model in a thread. Raises the errors of
        `start_engine`."""
        async with self._changing:
            if not self.engines:
                await self._load()
            self._users += 1

    async def leave(self) -> None:
        """Stop using the engine. If no other `Vllm` object uses it, the engine stops."""
        async with self._changing:
            self._users -= 1
            if not self._users:
                engines = self.engines.copy()
                self.engines.clear()
                await asyncio.to_thread(stop_engines, engines)

    async def _load(self) -> None:
        setup = self.setup
        if ranks := self.adapters.values():
            loras = {"enable_lora": True, "max_loras": len(ranks), "max_lora_rank": max(ranks)}
            setup = setup._replace(options={**loras, **setup.options})
        others = set(multiprocessing.active_children())
        made: list[Any] = []
        loading = asyncio.ensure_future(asyncio.to_thread(start_engine, made, setup))
        try:
            await asyncio.shield(loading)
        except asyncio.CancelledError:
            # A thread cannot be cancelled, but this one ends when its engine's processes are killed.
            while not loading.done():
                for child in set(multiprocessing.active_children()) - others:
                    child.kill()
                await asyncio.wait([loading], timeout=0.1)
            loading.exception()  # Read the exception, so that asyncio does not report it.
            await asyncio.to_thread(stop_engines, made)
            raise
        self.engines.append(made.pop())


def settle_in() -> None:
    """The plugin that vLLM calls early in each of its processes. In a process that `start_engine` did not start,
    it does nothing.

    The plugin ends the process when its parent ends; otherwise, a process whose parent is killed would keep the
    GPU's memory. The plugin also keeps vLLM from printing. Errors still reach the user, in the log or because the
    parent process raises them.
    """
    parent = multiprocessing.parent_process()
    if parent is None or os.environ.get(STARTER, str(os.getpid())) == str(os.getpid()):
        return
    if any(thread.name == _WATCHER for thread in threading.enumerate()):
        return
    if not os.environ.get(LOG_VARIABLE):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name=_WATCHER).start()


def settle_early() -> logging.Handler:
    """Call `settle_in` while a process imports vLLM, before vLLM loads plugins. vLLM calls this function to make a
    log handler. Returns a log handler that does nothing."""
    settle_in()
    return logging.NullHandler()
