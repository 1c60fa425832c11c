"""The systems, one file or folder each, written against `engine.Context` and nothing else.

A system of your own is registered as the entry point `pyfast.systems`, or named `MODULE:NAME`; see
`pyfast.plugins`.
"""

from pyfast.systems.describe import (
    SettingDescription,
    SystemDescription,
    describe_settings,
    describe_system,
    describe_systems,
    settings_table,
)
from pyfast.systems.registry import load_system, names
from pyfast.systems.system import Settings, System

__all__ = [
    "SettingDescription",
    "Settings",
    "System",
    "SystemDescription",
    "describe_settings",
    "describe_system",
    "describe_systems",
    "load_system",
    "names",
    "settings_table",
]
