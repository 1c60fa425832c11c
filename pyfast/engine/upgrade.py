"""A run of an older format, made one of today's."""

from __future__ import annotations

import json
from pathlib import Path

from pyfast.engine.configuration import (
    CONFIGURATION,
    FORMAT,
    Configuration,
    read_with_format,
    write_configuration,
)
from pyfast.engine.run_folder import locked

# The settings that had another name in format 1; mtqa's `units` are knowledge units, and still called so.
_SETTINGS = {
    "rank": "ranking",
    "hop_least": "hop_min",
    "hop_most": "hop_max",
    "final_least": "final_min",
    "final_most": "final_max",
    "least_steps": "min_steps",
}
_SETTINGS_OF = {"graph_convqa": {"units": "passages"}}


def upgrade_run(folder: Path) -> bool:
    """Convert a run's run.toml; False where its format is today's. Its answers and journal stay as they are.

    Raises `InputError` where another process works on the run, or its format is a newer one.
    """
    path = folder / CONFIGURATION
    if read_with_format(path)[0] == FORMAT:
        return False
    with locked(folder):
        version, described = read_with_format(path)
        if version == FORMAT:  # upgraded by another process meanwhile
            return False
        write_configuration(path, _from_1(described))
    return True


def _from_1(described: Configuration) -> Configuration:
    system = described.get("system", {})
    names = _SETTINGS | _SETTINGS_OF.get(str(system.get("name")), {})
    renamed = {f"set_{before}": f"set_{now}" for before, now in names.items()}
    new = dict(described)
    if system:
        new["system"] = {renamed.get(name, name): value for name, value in system.items()}
    if "parameters" in described.get("index", {}):
        new["index"] = {**described["index"], "parameters": _parameters(described["index"]["parameters"])}
    return new


def _parameters(written: str) -> str:
    """An index's parameters, as `configuration` writes them."""
    try:
        parameters = {"bm25" if name == "lexical" else name: value for name, value in json.loads(written).items()}
    except (ValueError, TypeError, AttributeError):  # nobody's but a hand's: nothing depends on it
        return written
    return json.dumps(parameters, sort_keys=True)
