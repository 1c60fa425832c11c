"""Find plug-ins by name: systems, LLMs, retrievers, rerankers, readers and metrics.

A package registers a plug-in as an entry point of the group `pyfast.KIND`, such as

    [project.entry-points."pyfast.systems"]
    my_system = "my_package.my_module:SYSTEM"

pyfast registers its own plug-ins in the same way. To name an object that no package registers, write
`MODULE:NAME`.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Literal

from pyfast.errors import InputError

Kind = Literal["systems", "llms", "retrievers", "rerankers", "readers", "metrics"]

_OWN_PACKAGE = "pyfast."


def names(kind: Kind) -> list[str]:
    """Return the names of the installed plug-ins of a kind. pyfast's own plug-ins come first.

    Args:
        kind: One of `systems`, `llms`, `retrievers`, `rerankers`, `readers` and `metrics`.

    Example:
        >>> from pyfast.utils import plugins
        >>> "n2n" in plugins.names("systems")
        True
    """
    return list(_registered(kind))


def load(kind: Kind, name: str) -> Any:
    """Load the plug-in with a name.

    Args:
        kind: The kind of the plug-in, such as `systems`.
        name: The name of an entry point, or `MODULE:NAME`.

    Returns:
        The object to which the entry point or `MODULE:NAME` refers.

    Raises:
        InputError: There is no such plug-in, or its module cannot be imported.
    """
    entry = _registered(kind).get(name)
    if entry is None and ":" not in name:
        what, file = kind.removesuffix("s"), Path(name)
        if file.suffix == ".py":
            raise InputError(
                f"{name}: for a file, use MODULE:NAME, such as {file.stem}:NAME, where NAME is the variable"
                f" that holds the {what}; run the command in that file's folder"
            )
        raise InputError(f"unknown {what} {name!r}; known: {', '.join(names(kind))}, or MODULE:NAME")
    module, _, attribute = (entry.value if entry is not None else name).partition(":")
    try:
        loaded: Any = import_module(module)
        for part in attribute.split("."):
            loaded = getattr(loaded, part)
    except ModuleNotFoundError as error:
        if entry is not None and module.startswith(_OWN_PACKAGE):
            raise  # An extra is missing. The caller says how to install it.
        hint = "; go to the folder of its file, or add the folder to PYTHONPATH" if error.name == module else ""
        raise InputError(f"{name} cannot be imported: {error}{hint}") from error
    except (AttributeError, ImportError, ValueError) as error:
        raise InputError(f"{name} cannot be imported: {error}") from error
    return loaded


@cache
def _registered(kind: Kind) -> dict[str, EntryPoint]:
    """Return the entry points of a kind, by name. pyfast's own entry points come first, and no other package
    can take their names."""
    every = sorted(entry_points(group=f"pyfast.{kind}"), key=lambda it: not it.value.startswith(_OWN_PACKAGE))
    entries: dict[str, EntryPoint] = {}
    for point in every:
        entries.setdefault(point.name, point)
    return entries
