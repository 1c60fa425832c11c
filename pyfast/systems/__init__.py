"""The systems: methods that answer questions. Each system has its own file or folder, and searches and calls
LLMs only through the `engine.Context` of its question.

To add a system, register an entry point of `pyfast.systems`, or name the system `MODULE:NAME`. See
`pyfast.utils.plugins`.
"""

from pyfast.systems.combinations import Inert, Preset
from pyfast.systems.describe import (
    PresetDescription,
    SettingDescription,
    SystemDescription,
    describe_settings,
    describe_system,
    describe_systems,
    settings_table,
)
from pyfast.systems.registry import load_system, names
from pyfast.systems.system import PassageCount, Settings, System

__all__ = [
    "Inert",
    "PassageCount",
    "Preset",
    "PresetDescription",
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
