"""`Answer`, which a system returns for a question, and `Record`, which a run stores for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from hashlib import blake2b
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np
import orjson

from pyfast.corpus.rendering import fold, row_line
from pyfast.engine.traces import details_of
from pyfast.errors import InputError
from pyfast.llm.protocol import AT_ONCE
from pyfast.ops.arrays import ends
from pyfast.ops.cite import list_segments
from pyfast.retrieval.evidence import ScoredSegments
from pyfast.retrieval.evidence import cite as cite_segments
from pyfast.retrieval.index.index import Index
from pyfast.retrieval.rerank import PassageList, write_lists

State = Literal["answered", "abstained", "failed"]
STATES = get_args(State)
# All other fields of a piece of evidence are metadata.
_KNOWN = frozenset({"uri", "snippet", "offsets", "segment", "score", "id"})


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a system for one question.

    Example:
        >>> from pyfast.engine import Answer
        >>> Answer("Paris")
        Answer(text='Paris', evidence=None, trace={})
        >>> Answer(None).text is None  # it searched, and abstains
        True
    """

    text: str | None
    evidence: ScoredSegments | bytes | None = None
    """The segments that support the answer, or a system's own evidence as a JSON array of objects with `uri` and
    `snippet`"""
    trace: Mapping[str, Any] = field(default_factory=dict)
    """How the system reached the answer, as JSON types. Parts of it can be an `orjson.Fragment` (JSON as bytes),
    or a list of passages made by `pyfast.retrieval.pool_ids` or `traced`
    """


@dataclass(frozen=True, slots=True)
class Evidence:
    """One segment that supports an answer, or that a search found."""

    uri: str
    """The uri of the document that contains the segment"""
    snippet: str
    """The content of the segment"""
    offsets: tuple[int, int] = (-1, -1)
    """In a text: half-open character offsets, from 0. In a table: (row, column), where -1 means all rows or all
    columns. In a knowledge graph: (-1, -1)"""
    segment: str = ""
    """The segment's id, 16 hexadecimal digits"""
    score: float | None = None
    """The score that the segment is ranked by, or None if the system does not rank its evidence"""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """More about the segment: for a table row, the table's `title`, `section` and `header`; for `hseq`, `level`,
    `source_type` and `meta`
    """

    @property
    def line(self) -> str:
        """The snippet on one line. A table row becomes `header: cell | header: cell | ...`."""
        header, in_row = self.metadata.get("header"), self.offsets[0] >= 0 > self.offsets[1]
        return row_line("", "", header, self.snippet.split("\t")) if header and in_row else fold(self.snippet)

    @property
    def heading(self) -> str:
        """The title and the section of the table that the segment is in: `Exhibitors > Hall B`. For other
        segments, the `title` in the metadata, or an empty string if there is none."""
        names = ("title", "section") if "header" in self.metadata else ("title",)
        return " > ".join(str(self.metadata[name]) for name in names if self.metadata.get(name))

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Self:
        """Read evidence from an object of answers.jsonl or of a trace."""
        first, last = fields.get("offsets", (-1, -1))
        return cls(
            fields["uri"],
            fields.get("snippet", ""),
            (first, last),
            fields.get("segment") or fields.get("id", ""),
            fields.get("score"),
            {} if fields.keys() <= _KNOWN else {name: fields[name] for name in fields if name not in _KNOWN},
        )


@dataclass(frozen=True, slots=True)
class Usage:
    """The LLM calls and tokens used for one answer.

    If a run is interrupted and resumed, the counts stay the same.
    """

    llm_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


REPLY_BEGINS = "; the reply begins "
"""If a question failed because of the LLM's reply, its `reason` ends with this text and the beginning of the
reply. The same failure has the same reason up to this text"""
_BEGINNING = 100  # characters

_USAGE = tuple(field.name for field in fields(Usage))
_NAMES = ("segment", "id", "uri")  # the fields of a piece of evidence that answers.jsonl has


def reply_begins(text: str) -> str:
    """Return the end of an error message about an unusable reply: `REPLY_BEGINS` and the beginning of the reply as
    a JSON string, or an empty string for an empty reply.
    """
    shown = text[:_BEGINNING].encode("utf-8", "replace").decode()
    return f"{REPLY_BEGINS}{json.dumps(shown, ensure_ascii=False)}" if text.strip() else ""


def digest(line: bytes) -> str:
    """Compute a hash of a line, as 16 hexadecimal digits."""
    made = blake2b(digest_size=8)
    for start in range(0, len(line), AT_ONCE):
        made.update(line[start : start + AT_ONCE])
    return made.hexdigest()


@dataclass(frozen=True, eq=False)
class Record:
    """The result of one question, stored by a run as a line in answers.jsonl and a line in traces.jsonl.zst.

    `evidence` and `trace` are read from disk when you first access them.
    """

    id: str
    state: State
    """`answered`, `abstained` (the system found no answer in the evidence) or `failed`"""
    answer: str | None = None
    reason: str | None = None
    """Why the question failed. None: it did not fail"""
    evidence_json: bytes = field(default=b"[]", repr=False)
    """The evidence as a JSON array. For a record read from a file, it contains only the ids and uris that
    answers.jsonl stores"""
    trace_json: bytes = field(default=b"{}", repr=False)
    usage: Usage = Usage()
    error: str | None = None
    """The kind of a failure, for programs: `question`, `budget`, `reply`, `call` or `internal` (see
    `pyfast.errors.kind_of`)
    """
    beside: Callable[[], bytes] | None = field(default=None, repr=False)
    """A function that reads the record's line in traces.jsonl.zst, with evidence and trace"""
    _names: bytes | None = field(default=None, init=False, repr=False)
    """Only the ids and uris of the evidence, as a JSON array. None: `line` finds them in `evidence_json`"""

    @property
    def uris(self) -> list[str]:
        """The uris of the evidence, in the order of the evidence. They come from answers.jsonl, so the traces file
        is not read."""
        try:
            return [item["uri"] for item in orjson.loads(self.evidence_json)]
        except (ValueError, KeyError, TypeError):
            raise self._changed() from None

    @cached_property
    def evidence(self) -> tuple[Evidence, ...]:
        """The evidence of the answer. If the system ranks evidence, the best comes first."""
        try:
            here = self.beside is None or self.evidence_json == b"[]"
            items = orjson.loads(self.evidence_json) if here else self._details["evidence"]
            return tuple(map(Evidence.read, items))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise self._changed() from None

    def _changed(self) -> InputError:
        return InputError(f"the evidence of {self.id!r} has changed since it was written")

    @cached_property
    def trace(self) -> dict[str, Any]:
        """How the system found the answer, as JSON types. docs/systems.md explains the traces of the systems."""
        trace: dict[str, Any] = self._details["trace"]
        return trace

    @cached_property
    def _details(self) -> dict[str, Any]:
        return details_of(self.details(), self.id, "the traces")

    def line(self) -> bytes:
        """Return the record's line in answers.jsonl, with only the ids and uris of the evidence."""
        reason = {} if self.reason is None else {"reason": self.reason, "error": self.error}
        names = _named(self.evidence_json) if self._names is None else orjson.Fragment(self._names)
        ended = {"id": self.id, "state": self.state, "answer": self.answer, **reason}
        record = {**ended, "evidence": names, "usage": self.usage}
        return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)

    def details(self) -> bytes:
        """Return the record's line in traces.jsonl.zst: all evidence, and the trace.

        If the record comes from a run's folder, the line is read from there. Raises `InputError` if the traces
        file no longer exists.
        """
        if self.beside is not None:
            return self.beside()
        evidence, trace = orjson.Fragment(self.evidence_json), orjson.Fragment(self.trace_json)
        details = {"id": self.id, "evidence": evidence, "trace": trace}
        return orjson.dumps(details, option=orjson.OPT_APPEND_NEWLINE)

    @classmethod
    def read(cls, line: bytes, beside: Callable[[], bytes] | None = None) -> Self:
        """Read a record from what the method `line` returned. `beside` is a function that reads what `details`
        returned. Raises `InputError` if the line is not a record.
        """
        try:
            fields = orjson.loads(line)
            counts = [fields["usage"][name] for name in _USAGE]
            texts = fields["answer"], fields.get("reason")
            error = fields.get("error")
            if (
                fields["state"] in STATES
                and isinstance(fields["id"], str)
                and set(map(type, (*texts, error))) <= {str, type(None)}
                and set(map(type, counts)) == {int}
                and isinstance(fields["evidence"], list)
                and set(map(type, fields["evidence"])) <= {dict}
            ):
                # A copy, because orjson's result keeps the memory of the larger buffer that it was written to.
                evidence = bytes(memoryview(orjson.dumps(fields["evidence"])))
                used = Usage(*counts)
                return cls(fields["id"], fields["state"], *texts, evidence, usage=used, error=error, beside=beside)
        except (ValueError, KeyError, TypeError):
            pass
        raise InputError(f"this line is not a run's record: {line[:80]!r}")

    def as_json(self) -> dict[str, Any]:
        """Return the record as JSON types, with the whole evidence and the trace."""
        fields: dict[str, Any] = orjson.loads(self.line())
        usage = fields.pop("usage")
        return {**fields, **self._details, "usage": usage}

    def __eq__(self, other: object) -> bool:
        return self.as_json() == other.as_json() if isinstance(other, Record) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)


def with_names(record: Record, names: bytes | None) -> Record:
    """Store the ids and uris of the evidence, as JSON, in a newly made record, so that its `line` need not read
    the evidence again. Returns the same record, not a copy."""
    object.__setattr__(record, "_names", names)
    return record


def _named(evidence: bytes) -> list[dict[str, Any]]:
    """Return the id and uri of each piece of evidence."""
    if evidence == b"[]":
        return []
    items = orjson.loads(evidence)
    try:
        # A fast path, because most systems' evidence has both fields.
        return [{"segment": one["segment"], "uri": one["uri"]} for one in items]
    except KeyError:
        return [{name: one[name] for name in _NAMES if name in one} for one in items]


class Cited(NamedTuple):
    """The evidence of an answer as JSON arrays."""

    whole: bytes
    names: bytes | None
    """Only the id and the uri of each segment. None: not known"""


def cite(index: Index, items: Sequence[tuple[ScoredSegments, Sequence[PassageList]]]) -> list[Cited]:
    """Write the evidence of answers, and the lists of passages in their traces.

    Evidence is returned in two forms: as `pyfast.retrieval.cite` returns it, and as JSON with only the ids and
    uris of the segments. The `segments` of each list of passages are set.
    """
    evidence = [segments for segments, _ in items]
    whole = cite_segments(index, evidence)
    listed = np.concatenate([np.empty(0, np.int64), *[one.segments for one in evidence]])
    names = list_segments(index.corpus.columns, ends(evidence), listed, {})
    write_lists(index, [one for _, lists in items for one in lists])
    return [Cited(*each) for each in zip(whole, names, strict=True)]
