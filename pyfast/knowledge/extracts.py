"""Extracts: the results of one chunk, as plain values. Every extraction method returns them."""

from __future__ import annotations

from dataclasses import dataclass

RULE_BASED, BY_LLM, LEARNED, MERGED = "rule_based", "llm", "learned", "merged"
"""Values of `Extract.method`: by rules, by an LLM, by a run that answered questions, from another index"""


@dataclass(frozen=True, slots=True)
class Statement:
    """A triple that a segment states."""

    head: str
    relation: str
    tail: str
    segment: int
    """id of the segment in the corpus"""
    time: str = ""
    description: str = ""
    keys: tuple[str, ...] = ()
    """Phrases that the relation is found by, beside its own name"""
    strength: int = 0
    """How closely the text ties the two, from 1 to 10; 0 if that is not known"""


@dataclass(frozen=True, slots=True)
class Mention:
    """An entity that a segment describes."""

    entity: str
    segment: int
    kind: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True)
class Theme:
    """A theme of a segment."""

    key: str
    segment: int


@dataclass(frozen=True, slots=True)
class Extract:
    """The result of extracting one chunk, or the reason why it failed."""

    digest: str
    """Of the chunk: what is in the store already is not added again"""
    method: str
    statements: tuple[Statement, ...] = ()
    mentions: tuple[Mention, ...] = ()
    themes: tuple[Theme, ...] = ()
    failed: str | None = None
    exact: bool = False
    """Names are taken as they stand (a knowledge graph's); else an entity known by the same key is meant"""
