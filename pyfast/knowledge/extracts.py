"""Extracts: the triples, descriptions and themes from one chunk. The LLM and the rules both return extracts."""

from __future__ import annotations

from dataclasses import dataclass

RULE_BASED, BY_LLM, LEARNED, MERGED = "rule_based", "llm", "learned", "merged"
"""The values of `Extract.method`: the extract comes from rules, from an LLM, from a run that answered questions,
or from another index"""


@dataclass(frozen=True, slots=True)
class Statement:
    """A triple, with the segment that states it."""

    head: str
    relation: str
    tail: str
    segment: int
    """The id of the segment in the corpus"""
    time: str = ""
    description: str = ""
    keys: tuple[str, ...] = ()
    """Additional phrases by which a search can find the relation"""
    strength: int = 0
    """How closely the text connects head and tail, from 1 to 10. 0 if this is not known"""


@dataclass(frozen=True, slots=True)
class Mention:
    """A description of an entity, with the segment that gives it."""

    entity: str
    segment: int
    kind: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True)
class Theme:
    """A theme, with the segment that is about it."""

    key: str
    segment: int


@dataclass(frozen=True, slots=True)
class Extract:
    """The result of extracting one chunk, or the reason why it failed."""

    digest: str
    """The digest of the chunk. An extract that the store already has is not added again"""
    method: str
    statements: tuple[Statement, ...] = ()
    mentions: tuple[Mention, ...] = ()
    themes: tuple[Theme, ...] = ()
    failed: str | None = None
    exact: bool = False
    """Whether equal names must have the same spelling, as in a knowledge graph.

    Otherwise names with the same key are one entity
    """
