"""Presets (several settings under one name), and settings that have no effect if another setting has a
certain value."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

PRESET = "preset"
"""The name of the setting that chooses a preset"""


@dataclass(frozen=True, slots=True)
class Inert:
    """Settings that have no effect if another setting has a certain value. The settings `names` have no
    effect if the setting `where` has one of the `values`. If a user sets one of `names` in this case, pyfast
    raises an error.

    Example:
        >>> from pyfast.systems import Inert
        >>> Inert(("beta",), "graph", (False,))  # beta needs a graph
        Inert(names=('beta',), where='graph', values=(False,))
    """

    names: tuple[str, ...]
    where: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Preset:
    """Several settings under one name, such as those of one row in a paper's table. They replace the defaults.

    Example:
        >>> from pyfast.systems import Preset
        >>> Preset({"k": 8}, "table 2, row 1").values["k"]
        8
    """

    values: Mapping[str, Any]
    meaning: str
    """The meaning of the preset, in a few words"""


def inert_fault(settings: BaseModel, given: Collection[str], table: Sequence[Inert]) -> str | None:
    """Return an error message if a setting given by the user has no effect, and otherwise None.

    `given` contains the names of the settings that the user gave. No other settings are checked.
    """
    for row in table:
        value = getattr(settings, row.where)
        name = next((name for name in row.names if name in given), None)
        if name is not None and value in row.values:
            others = " or ".join(_others(row, type(settings).model_fields[row.where].annotation))
            return f"{name} has no effect with {row.where}={as_text(value)}: leave it out, or use {others}"
    return None


def as_text(value: Any) -> str:
    """Format a setting's value as on the command line."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, list | tuple):
        return ",".join(map(as_text, value))
    return "none" if value is None else str(value)


def _others(row: Inert, annotation: Any) -> list[str]:
    """Return the values of the setting `row.where` with which the settings of `row` have an effect, as on the
    command line, such as `graph=on`.

    `annotation` is the type of the setting `row.where`. If the values of this type cannot be listed, the
    result is a single string, such as `another graph`.
    """
    if annotation is bool:
        choices: Sequence[Any] = (True, False)
    elif get_origin(annotation) is Literal:
        choices = get_args(annotation)
    else:
        return [f"another {row.where}"]
    return [f"{row.where}={as_text(choice)}" for choice in choices if choice not in row.values]
