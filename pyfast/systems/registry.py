"""The systems by name: pyfast's own, those of other packages, and any `MODULE:NAME`."""

from __future__ import annotations

from pyfast import plugins
from pyfast.errors import InputError
from pyfast.systems.system import System


def names() -> list[str]:
    """The names of all installed systems.

    Example:
        >>> from pyfast import systems
        >>> "n2n" in systems.names()
        True
    """
    return plugins.names("systems")


def load_system(name: str) -> System:
    """The system of that name, or `MODULE:NAME`. Raises `InputError` for an unknown one."""
    found = plugins.load("systems", name)
    if not isinstance(found, System):
        raise InputError(f"{name}: expected a pyfast.systems.System, got {type(found).__name__}")
    return found
