"""The interface of retrievers, and how to open one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from pyfast.errors import InputError
from pyfast.retrieval.plug_ins import open_plug_in
from pyfast.retrieval.pools import Pool

if TYPE_CHECKING:
    from pyfast.retrieval.index import Index


class Retriever(Protocol):
    """The interface of a retriever. It finds passages for many queries in one call.

    An entry point of the group `pyfast.retrievers`, or `MODULE:NAME`, names a function `open(index)` that
    returns a retriever. If the user writes `ENTRY_POINT:PARAMETERS`, pyfast calls `open(index, PARAMETERS)`.
    The result of a query must not depend on the other queries of the call.
    """

    @property
    def fingerprint(self) -> str:
        """A text that identifies the retriever and its parameters. A run resumes only with the same
        fingerprint.
        """
        ...

    def search(self, queries: Sequence[str], k: int) -> list[Pool]:
        """Find at most the `k` best passages of the index for each query, best first.

        Several threads can call this method at the same time.
        """
        ...


def open_retriever(name: str, index: Index) -> Retriever:
    """Open a retriever for an index, by its name or `MODULE:NAME`. Raises `InputError` if there is no such
    retriever, or it does not have the interface `Retriever`.
    """
    retriever: Retriever = open_plug_in("retrievers", name, index)
    if not hasattr(retriever, "search") or not hasattr(retriever, "fingerprint"):
        raise InputError(f"{name}: no retriever: it needs a method `search` and a `fingerprint` (see Retriever)")
    return retriever
