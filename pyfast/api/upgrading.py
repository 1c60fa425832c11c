"""Convert an index or a run to the current format."""

from __future__ import annotations

from pathlib import Path

from pyfast.engine.configuration import CONFIGURATION, FORMAT
from pyfast.engine.upgrade import upgrade_run
from pyfast.errors import InputError
from pyfast.knowledge import upgrade_knowledge
from pyfast.retrieval.index import KNOWLEDGE
from pyfast.retrieval.manifest import VERSION, is_index
from pyfast.retrieval.upgrade import upgrade_index


def upgrade(path: str | Path) -> str:
    """Convert an index (with its knowledge graph) or a run from an older format to the current format.

    Args:
        path: The folder of an index or a run.

    Returns:
        One line that says what was converted.

    Raises:
        InputError: The folder is neither an index nor a run, or a process is working on the run.
        IndexFormatError: The index is damaged, or its format is too old or too new.

    Example:
        >>> from pyfast.api.upgrading import upgrade
        >>> upgrade("IDX")
        'IDX: index of format 7 already'
    """
    folder = Path(path)
    if is_index(folder):
        changed = upgrade_index(folder)
        changed = upgrade_knowledge(folder / KNOWLEDGE) or changed
        what, version = "index", VERSION["index"]
    elif (folder / CONFIGURATION).is_file():
        changed = upgrade_run(folder)
        what, version = "run", FORMAT
    else:
        raise InputError(f"{folder}: neither an index nor a run folder")
    return f"{folder}: {what} of format {version}{', upgraded' if changed else ' already'}"
