"""The interfaces of retrievers and rerankers, and how to open one by its name.

The name of a registered plug-in is `NAME` or `NAME:PARAMETERS`. The name of any other plug-in is `MODULE:NAME`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import pyfast.plugins as plugins
from pyfast.errors import InputError
from pyfast.ops.arrays import Float32, Int32
from pyfast.retrieval.pools import Pool

OFF, BOTH = "off", "both"


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


class Reranker(Protocol):
    """The interface of a reranker. It scores the passages of many queries in one call.

    An entry point of the group `pyfast.rerankers`, or `MODULE:NAME`, names a function `open(index)` that
    returns a reranker. If the user writes `ENTRY_POINT:PARAMETERS`, pyfast calls `open(index, PARAMETERS)`.
    The score of a passage must not depend on the other passages, because pyfast caches scores.
    """

    @property
    def fingerprint(self) -> str:
        """A text that identifies the reranker and its parameters. A run resumes only with the same fingerprint."""
        ...

    def score(self, queries: Sequence[str], passages: Sequence[Int32]) -> list[Float32]:
        """For each query, compute the scores of its passages. Higher is better.

        Several threads can call this method at the same time.
        """
        ...


def open_retriever(name: str, index: object) -> Retriever:
    """Open a retriever for an index, by its name or `MODULE:NAME`. Raises `InputError` if there is no such
    retriever, or it does not have the interface `Retriever`.
    """
    retriever: Retriever = _opened("retrievers", name, index, "search", name)
    return retriever


def open_rerankers(name: str, index: object) -> tuple[Reranker, ...]:
    """Open the rerankers that `name` stands for. `off` stands for none, and `both` for `late` and `cross`.
    Every other name stands for one reranker, such as `cross:MODEL` or `MODULE:NAME`.

    Raises `InputError` if there is no such reranker, or it does not have the interface `Reranker`.
    """
    if name == OFF:
        return ()
    names = ("late", "cross") if name == BOTH else (name,)
    return tuple(_opened("rerankers", each, index, "score", name) for each in names)


def _opened(kind: Literal["retrievers", "rerankers"], name: str, index: object, method: str, given: str) -> Any:
    """Open a plug-in for an index. For example, `cross:MODEL` opens `cross` with `MODEL` as its second argument.

    Raises `InputError` if there is no such plug-in, its module cannot be imported, or it lacks `method`. Such an
    error names it as the user did (`given`).
    """
    registered, colon, rest = name.partition(":")
    with_parameters = colon and registered in plugins.names(kind)
    opened = plugins.load(kind, registered)(index, rest) if with_parameters else plugins.load(kind, name)(index)
    if not hasattr(opened, method) or not hasattr(opened, "fingerprint"):
        what = kind.removesuffix("s")
        raise InputError(
            f"{given}: no {what}: it needs a method `{method}` and a `fingerprint` (see {what.capitalize()})"
        )
    return opened
