"""Find retrievers and rerankers by name. A registered plug-in is `NAME` or `NAME:PARAMETERS`. Any other is
`MODULE:NAME`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pyfast import plugins

if TYPE_CHECKING:
    from pyfast.retrieval.index import Index


def open_plug_in(kind: Literal["retrievers", "rerankers"], name: str, index: Index) -> Any:
    """Open a retriever or reranker for an index. For example, `cross:MODEL` passes `MODEL` to `cross`. Raises
    `InputError`.
    """
    registered, colon, rest = name.partition(":")
    if colon and registered in plugins.names(kind):
        return plugins.load(kind, registered)(index, rest)
    return plugins.load(kind, name)(index)
