"""Find retrievers and rerankers by name. The name of a registered plug-in is `NAME` or `NAME:PARAMETERS`.
The name of any other plug-in is `MODULE:NAME`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import pyfast.plugins as plugins

if TYPE_CHECKING:
    from pyfast.retrieval.index import Index


def open_plug_in(kind: Literal["retrievers", "rerankers"], name: str, index: Index) -> Any:
    """Open a retriever or reranker for an index. For example, `cross:MODEL` opens `cross` with `MODEL` as its
    second argument.

    Raises `InputError` if there is no such plug-in, or its module cannot be imported.
    """
    registered, colon, rest = name.partition(":")
    if colon and registered in plugins.names(kind):
        return plugins.load(kind, registered)(index, rest)
    return plugins.load(kind, name)(index)
