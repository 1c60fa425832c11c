"""The systems, one file each, written against `engine.Context` and nothing else."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

from pydantic import BaseModel, ValidationError

from pyfast.engine.run import System
from pyfast.errors import InputError

NAMES = ("n2n", "rag", "decompose", "cot", "direct")


def load_system(name: str, settings: dict[str, str]) -> tuple[System, BaseModel]:
    """The system called `name` with its settings, and all of these as they were resolved.

    `settings` overrides defaults, by name, with values as text. Raises `InputError` for an unknown system, name
    or value.
    """
    if name not in NAMES:
        raise InputError(f"unknown system {name!r}; there are: {', '.join(NAMES)}")
    module: Any = import_module(f"pyfast.systems.{name}")
    known = module.Settings.model_fields
    for key in settings:
        if key not in known:
            raise InputError(f"{name} has no setting {key!r}; it has: {', '.join(known)}")
    try:
        resolved: BaseModel = module.Settings.model_validate(settings)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise InputError(f"{name}: setting {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    return partial(module.answer, settings=resolved), resolved
