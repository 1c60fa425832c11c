"""Describe a system and its settings in words, for `pyfast systems` and the tables in the documentation."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from pyfast.errors import PyfastError
from pyfast.llm import Role
from pyfast.systems.combinations import Inert, as_text
from pyfast.systems.registry import load_system, names
from pyfast.systems.system import System

OWN = "pyfast's own"
"""The value of `SettingDescription.paper` for a setting of one of pyfast's own systems that no paper describes"""

_PLAIN_TYPES = {bool: "on/off", int: "whole number", float: "number", str: "text", NoneType: "none"}


@dataclass(frozen=True, slots=True)
class SystemDescription:
    """The description of a system."""

    name: str
    summary: str
    needs_index: bool
    paper: str
    """The title of the system's paper. Empty if the system has no paper"""
    prompts: tuple[str, ...]
    """The names of the system's prompts"""
    roles: Mapping[Role, tuple[str, ...]]
    """The roles of the system, each with the names of the prompts that its LLM answers"""
    presets: tuple[PresetDescription, ...] = ()
    replies: Mapping[str, str] = field(default_factory=dict)
    """For each prompt, the structure of the LLM's reply in JSON. Words stand for values, as in `{"entity":
    text}`"""


@dataclass(frozen=True, slots=True)
class PresetDescription:
    """One preset. All fields are text."""

    name: str
    settings: str
    """The settings as on the command line, such as `k=2 steps=4`"""
    meaning: str


@dataclass(frozen=True, slots=True)
class SettingDescription:
    """One setting. All fields are text, with values as on the command line."""

    name: str
    type: str
    """The type of the values in plain words, such as `on/off` or `one of: a, b`"""
    default: str
    """The default value. Empty if the setting is required"""
    range: str
    """The bounds, such as `1 to 20`. Empty if there are none"""
    meaning: str
    paper: str
    """The section, equation or table of the paper. If no paper describes the setting: `OWN`, or `none` for a
    system that is not pyfast's"""


def describe_system(system: str | System) -> SystemDescription:
    """Describe a system.

    Args:
        system: A system, its name, or `MODULE:NAME`. If the system has no `summary`, the summary is the first line
            of the docstring of its `answer`.

    Returns:
        The system's name, summary, paper, prompts, roles, presets and reply structures, and whether it needs
        an index.

    Raises:
        InputError: There is no such system.

    Example:
        >>> from pyfast.systems import describe_system
        >>> describe_system("rag").prompts
        ('answer', 'long_answer')
        >>> describe_system("hseq").roles
        {'plan': ('guide',), 'pick': ('select',), 'answer': ('head',), 'judge': ('verify',)}
    """
    loaded = load_system(system) if isinstance(system, str) else system
    summary = loaded.summary or (inspect.getdoc(loaded.answer) or "").partition("\n")[0]
    replies = {prompt.name: _in_json(prompt.schema, prompt.schema.get("$defs", {})) for prompt in loaded.prompts}
    presets = tuple(
        PresetDescription(
            name,
            " ".join(f"{setting}={as_text(value)}" for setting, value in preset.values.items()),
            preset.meaning,
        )
        for name, preset in loaded.presets.items()
    )
    return SystemDescription(
        *(loaded.name, summary, loaded.needs_index, loaded.paper, tuple(replies), loaded.roles, presets, replies)
    )


def _in_json(schema: Mapping[str, Any], parts: Mapping[str, Any]) -> str:
    """Describe the JSON replies that match a schema, such as `{"hops": number from 1 to 3, "query": text}`.

    `parts` contains the schemas to which a `$ref` in the schema refers, by name.
    """
    if "$ref" in schema:
        return _in_json(parts[schema["$ref"].rpartition("/")[2]], parts)
    if "enum" in schema or "const" in schema:
        return " or ".join(map(json.dumps, schema.get("enum", [schema.get("const")])))
    if "anyOf" in schema:
        return " or ".join(_in_json(one, parts) for one in schema["anyOf"])
    kind = schema.get("type")
    if kind == "object":
        fields = schema.get("properties", {}).items()
        return f"{{{', '.join(f'{json.dumps(name)}: {_in_json(one, parts)}' for name, one in fields)}}}"
    if kind == "array":
        most = f", at most {schema['maxItems']}" if "maxItems" in schema else ""
        return f"[{_in_json(schema.get('items', {}), parts)}, ...{most}]"
    if kind == "string" and "examples" in schema:
        return f"text such as {json.dumps(schema['examples'][0])}"
    if kind == "string":
        return f"text of at most {schema['maxLength']} characters" if "maxLength" in schema else "text"
    if "minimum" in schema and "maximum" in schema:
        return f"number from {schema['minimum']} to {schema['maximum']}"
    return {"boolean": "true or false", "null": "null"}.get(str(kind), "number")


def describe_systems() -> list[SystemDescription]:
    """Describe all installed systems.

    Returns:
        The descriptions, sorted by system name. If a system cannot be loaded, its summary gives the reason.

    Example:
        >>> from pyfast.systems import describe_systems
        >>> [system.name for system in describe_systems() if not system.needs_index]
        ['cot', 'direct', 'self_consistency']
    """
    return [_described_if_it_loads(name) for name in names()]


def describe_settings(system: str | System) -> list[SettingDescription]:
    """Describe the settings of a system.

    Args:
        system: A system, its name, or `MODULE:NAME`.

    Returns:
        The settings of the system, in the order of its settings class, without those that have only one value.

    Raises:
        InputError: There is no such system.

    Example:
        >>> from pyfast.systems import describe_settings
        >>> k = describe_settings("rag")[-1]
        >>> k.name, k.type, k.default, k.range
        ('k', 'whole number', '10', '1 to 10000')
    """
    loaded = load_system(system) if isinstance(system, str) else system
    settings = loaded.settings
    otherwise = OWN if settings.__module__.startswith("pyfast.") else "none"
    return [_described(name, field, settings.inert, otherwise) for name, field in settings.offered().items()]


def settings_table(system: str | System) -> str:
    """Write the settings and presets of a system as Markdown tables.

    Args:
        system: A system, its name, or `MODULE:NAME`.

    Returns:
        A table of the settings, followed by a table of the presets if there are any. For a system without
        settings, the result is a sentence that says so.

    Raises:
        InputError: There is no such system.

    Example:
        >>> from pyfast.systems import settings_table
        >>> print(settings_table("direct").splitlines()[0])
        | setting | values | default | meaning | paper |
    """
    rows: list[tuple[str, ...]] = [("setting", "values", "default", "meaning", "paper"), ("---",) * 5]
    for setting in describe_settings(system):
        values = f"{setting.type}, {setting.range}" if setting.range else setting.type
        default = f"`{setting.default}`" if setting.default else ""
        rows.append((f"`{setting.name}`", values, default, setting.meaning, setting.paper))
    if len(rows) == 2:
        return "It has no settings."
    tables = [_table(rows)]
    if presets := describe_system(system).presets:
        head = [("`preset`", "settings", "what it is"), ("---",) * 3]
        tables.append(_table([*head, *((f"`{it.name}`", f"`{it.settings}`", it.meaning) for it in presets)]))
    return "\n\n".join(tables)


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)


def _described_if_it_loads(name: str) -> SystemDescription:
    try:
        return describe_system(name)
    except (PyfastError, ImportError) as error:
        return SystemDescription(name, f"cannot be loaded: {error}", True, "", (), {})


def _described(name: str, field: FieldInfo, table: Sequence[Inert], otherwise: str) -> SettingDescription:
    extra = field.json_schema_extra
    paper = extra.get("paper") if isinstance(extra, dict) else None
    default = "" if field.is_required() else as_text(field.get_default(call_default_factory=True))
    return SettingDescription(
        name,
        _in_words(field.annotation),
        default,
        _bounds(field),
        f"{field.description or ''}{_refused(name, table)}",
        str(paper or otherwise),
    )


def _refused(name: str, table: Sequence[Inert]) -> str:
    """Return a sentence that names the values of other settings with which the setting `name` has no effect, such
    as "Not with `graph=off`.", or an empty string if it always has an effect."""
    beside = [f"`{row.where}={as_text(value)}`" for row in table if name in row.names for value in row.values]
    return f" Not with {' or '.join(beside)}." if beside else ""


def _in_words(annotation: Any) -> str:
    """Describe a setting's type in plain words, such as "whole number". For an unknown type, return its name."""
    if annotation in _PLAIN_TYPES:
        return _PLAIN_TYPES[annotation]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return _one_of([as_text(value) for value in arguments])
    if origin in (Union, UnionType):
        return " or ".join(map(_in_words, arguments))
    if origin in (list, tuple) and arguments:
        return f"list, each {_in_words(arguments[0])}"
    if isinstance(annotation, type):
        return (
            _one_of([it.name.lower() for it in annotation])
            if issubclass(annotation, Enum)
            else annotation.__name__
        )
    return str(annotation)


def _one_of(values: list[str]) -> str:
    return f"one of: {', '.join(values)}"


def _bounds(field: FieldInfo) -> str:
    """Describe a setting's bounds in words, such as "1 to 20". Without bounds, the result is empty."""
    bounds = dict(_each_bound(field))
    low, high = bounds.get("ge"), bounds.get("le")
    if low is not None and high is not None:
        return f"{low} to {high}"
    words = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
    return ", ".join(f"{words[name]} {bound}" for name, bound in bounds.items())


def _each_bound(field: FieldInfo) -> Iterator[tuple[str, Any]]:
    for name in ("ge", "gt", "le", "lt"):
        for constraint in field.metadata:
            if (bound := getattr(constraint, name, None)) is not None:
                yield name, bound
