"""Questions with the documents that contain their answers, from JSON lines."""

from __future__ import annotations

from pydantic import ConfigDict

from pyfast.evaluation.jsonl_records import Named


class RetrievalQuestion(Named):
    """A question with its gold documents, from a line of a file. Other keys of this line are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    question: str = ""
    supporting: tuple[str, ...] | None = None
    """The uris of the gold documents"""
    table_id: str | None = None
    """For a HybridQA question: the uri of its table, which is then the only gold document. `supporting` is
    ignored, because its documents were found only by matching strings
    """
    type: str | None = None

    @property
    def gold(self) -> frozenset[str]:
        """The uris of the gold documents."""
        return frozenset([self.table_id] if self.table_id else self.supporting or ())
