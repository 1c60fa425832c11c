"""Find systems by name: systems of pyfast, systems that other packages install, and any object
`MODULE:NAME`."""

from __future__ import annotations

import pyfast.utils.plugins as plugins
from pyfast.errors import InputError
from pyfast.systems.system import System


def names() -> list[str]:
    """List the names of all installed systems.

    Returns:
        The names, sorted.

    Example:
        >>> from pyfast import systems
        >>> "n2n" in systems.names()
        True
    """
    return plugins.names("systems")


def load_system(name: str) -> System:
    """Load a system.

    Args:
        name: The name of an installed system, or `MODULE:NAME`.

    Returns:
        The system.

    Raises:
        InputError: There is no such system, or the object is not a `System`.

    Example:
        >>> from pyfast.systems import load_system
        >>> load_system("n2n").roles
        {'plan': ('plan',), 'extract': ('extract',), 'answer': ('answer',)}
    """
    system = plugins.load("systems", name)
    if not isinstance(system, System):
        raise InputError(f"{name}: expected a pyfast.systems.System, got {type(system).__name__}")
    return system
