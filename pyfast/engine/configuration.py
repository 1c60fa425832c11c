"""What a run depends on, written down so that nobody resumes it with something else."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tomli_w

import pyfast
from pyfast.engine.prompt import Prompt
from pyfast.errors import InputError
from pyfast.llm import Backend
from pyfast.retrieval import Index

Configuration = dict[str, dict[str, Any]]
"""Tables of run.toml"""

CONFIGURATION = "run.toml"
_PLACES = "places"  # where things were: may differ from one session to the next


def configuration(
    *,
    system: str,
    settings: Mapping[str, Any],
    prompts: Iterable[Prompt[Any]],
    llm: Backend,
    index: Index | None,
    budget: Mapping[str, Any],
    questions: Mapping[str, Any],
    places: Mapping[str, str],
    knowledge: Mapping[str, Any] | None = None,
) -> Configuration:
    """All that an answer depends on. `questions` are their `count` and `digest`, `places` paths and specs;
    `knowledge` is what a system works with beside the index.
    """
    described: Configuration = {
        "questions": dict(questions),
        "system": {"name": system, **{f"set_{name}": value for name, value in settings.items()}},
        "prompts": {prompt.name: _prompt_digest(prompt) for prompt in prompts},
        "llm": {"fingerprint": llm.fingerprint(), "context_window": llm.context_window},
        "budget": dict(budget),
        "code": {"version": pyfast.__version__, "digest": _code_digest()},
        _PLACES: dict(places),
    }
    if index is not None:
        manifest = index.manifest
        contents = json.dumps(manifest["files"], sort_keys=True).encode()
        described["index"] = {
            "corpus": manifest["corpus"],
            "parameters": json.dumps(manifest["parameters"], sort_keys=True),
            "contents": blake2b(contents, digest_size=16).hexdigest(),
        }
    if knowledge is not None:
        described["knowledge"] = dict(knowledge)
    return described


def known_of(run: Path, table: str, name: str) -> Any:
    """A value of a run that was begun; None where there is no run yet, or no such value."""
    path = run / CONFIGURATION
    return read_configuration(path).get(table, {}).get(name) if path.exists() else None


def differences(recorded: Configuration, now: Configuration, unknown: Iterable[str] = ()) -> list[str]:
    """What each value was and is, where that is not the same; nothing of `places` and of what is not known yet."""
    before, after = dict(_flat(recorded)), dict(_flat(now))
    names = sorted((before.keys() | after.keys()) - set(unknown))
    if before.get("system.name") != after.get("system.name"):  # its settings and prompts say nothing more
        names = [name for name in names if not name.startswith(("system.set_", "prompts."))]
    return [
        f"{name} was {before.get(name, 'not set')}, is {after.get(name, 'not set')}"
        for name in names
        if before.get(name) != after.get(name)
    ]


def write_configuration(path: Path, described: Configuration) -> None:
    """Write run.toml, whole or not at all."""
    aside = path.with_suffix(".toml.new")
    aside.write_text(tomli_w.dumps(described), encoding="utf-8")
    aside.rename(path)


def read_configuration(path: Path) -> Configuration:
    """Read run.toml. Raises `InputError` where it is not one."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: damaged: {error}; --restart begins anew") from None
    if not all(isinstance(table, dict) for table in found.values()):
        raise InputError(f"{path}: not the configuration of a run; --restart begins anew")
    return found


def _flat(described: Configuration) -> Iterator[tuple[str, Any]]:
    for table, values in described.items():
        if table != _PLACES:
            yield from ((f"{table}.{name}", value) for name, value in values.items())


def _prompt_digest(prompt: Prompt[Any]) -> str:
    said = json.dumps([prompt.system, prompt.user, prompt.schema, prompt.max_tokens], sort_keys=True)
    return blake2b(said.encode(), digest_size=8).hexdigest()


@cache
def _code_digest() -> str:
    """Of pyfast's own code, and of the libraries whose results an answer depends on: their versions."""
    digest = blake2b(digest_size=8)
    root = Path(pyfast.__file__).parent
    for path in sorted([*root.rglob("*.py"), *root.glob("_native*")]):
        digest.update(f"{path.relative_to(root)}\n".encode())
        digest.update(path.read_bytes())
    digest.update("".join(version(name) for name in ("bm25s", "numpy", "scipy")).encode())
    return digest.hexdigest()
