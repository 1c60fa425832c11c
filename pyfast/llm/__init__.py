"""Language models, all with the same small interface. Importing this package loads no model and no runtime."""

from __future__ import annotations

from typing import Any

import pyfast.llm.protocol as protocol
import pyfast.utils.plugins as plugins
from pyfast.errors import InputError
from pyfast.llm.protocol import DEFAULT_ROLE as DEFAULT_ROLE
from pyfast.llm.protocol import LLM as LLM
from pyfast.llm.protocol import ROLES as ROLES
from pyfast.llm.protocol import Completion as Completion
from pyfast.llm.protocol import FullLLM as FullLLM
from pyfast.llm.protocol import Message as Message
from pyfast.llm.protocol import Request as Request
from pyfast.llm.protocol import Role as Role
from pyfast.llm.protocol import by_role as by_role
from pyfast.llm.protocol import dialogue as dialogue
from pyfast.llm.protocol import with_defaults as with_defaults


def open_llm(spec: str, **options: Any) -> FullLLM:
    """Open the language model that `spec` names. The model is loaded when it is first used.

    Args:
        spec: `embedded`, `embedded:base`, `llamacpp:PATH.gguf`, `vllm:FOLDER_OR_NAME`, `transformers:FOLDER`,
            `openai:MODEL@URL` (`openai:MODEL@URL1,URL2` for several servers of one model), `batch:MODEL@URL`,
            or `instant` (for benchmarks). You can also give the name of a plug-in (an entry point of the
            group `pyfast.llms`), or `MODULE:NAME`. In the module, `NAME` is an LLM, or a function that takes
            the options and returns an LLM.
        **options: Options of the model. They depend on the kind of LLM. `embedded` and `llamacpp`: `slots`,
            `context_window`, `threads`, `adapter`. `vllm`: `slots`, `context_window`, `dtype`, `tensor_parallel`,
            `memory_fraction`, `lora` and more. `transformers`: `context_window`. `openai`: `concurrency`,
            `context_window`, `timeout_s`, `attempts`, `backoff_s`, `requests_per_minute`, `extra`, and
            `weights` for several servers. `batch`: `max_calls`, `online_calls`, `poll_s` and more.

    Returns:
        The model, for `pyfast.answer` and `pyfast.Engine`.

    Raises:
        InputError: No LLM has this name, or the LLM does not have one of the options.
        ModelNotFoundError: The model or its runtime is not on this machine. The message explains how to install
            it.

    Example:
        >>> import pyfast
        >>> llm = pyfast.open_llm("openai:qwen3-8b@http://127.0.0.1:8000", timeout_s=60)
        >>> llm.fingerprint
        'openai:qwen3-8b'
    """
    kind, _, rest = spec.partition(":")
    if kind in plugins.names("llms"):
        return _checked(spec, plugins.load("llms", kind)(rest, **options))
    # A server with an unknown prefix: the message leaves out its URL, which may hold a password.
    if "://" in spec:
        raise InputError(f"unknown LLM {kind!r}; known: {', '.join(plugins.names('llms'))}, or MODULE:NAME")
    opener = plugins.load("llms", spec)
    if not callable(opener):
        if options:
            raise InputError(f"{spec}: an LLM that is an object takes no options")
        return _checked(spec, opener)
    return _checked(spec, protocol.build_with(spec, opener, **options))


def _checked(spec: str, llm: Any) -> FullLLM:
    if not callable(getattr(llm, "complete", None)):
        raise InputError(f"{spec} is not an LLM, because it has no method `complete` (see pyfast.LLM)")
    return with_defaults(llm)
