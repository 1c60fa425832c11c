"""Extracts. An extract contains the triples, descriptions and themes from one chunk. Both extraction by an LLM and
extraction by rules produce extracts."""

from __future__ import annotations

from dataclasses import dataclass

RULE_BASED, BY_LLM, LEARNED, MERGED = "rule_based", "llm", "learned", "merged"
"""The values of `Extract.method`, which says where an extract comes from: from rules, from an LLM, from a run
that answered questions, or from another index"""


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
    """Phrases by which a search can find the relation, in addition to its name"""
    strength: int = 0
    """An LLM's estimate of how closely the text connects head and tail: from 1 (mentioned in passing) to 10 (the
    topic of the text). 0: no LLM has given a number"""


@dataclass(frozen=True, slots=True)
class Mention:
    """A description of an entity, with the segment from which it comes."""

    entity: str
    segment: int
    kind: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True)
class Theme:
    """A theme (what a text is about, in a few words), with a segment that is about it."""

    key: str
    segment: int


@dataclass(frozen=True, slots=True)
class Extract:
    """The result of extracting one chunk. If the extraction failed, `failed` is the reason."""

    digest: str
    """The digest of the chunk. In the store, a successful extract replaces a failed one with the same digest, and
    later extracts with the digest of a successful one are skipped"""
    method: str
    statements: tuple[Statement, ...] = ()
    mentions: tuple[Mention, ...] = ()
    themes: tuple[Theme, ...] = ()
    failed: str | None = None
    exact: bool = False
    """When two names are the same entity. True: only if they are spelled the same, as for triples from a knowledge
    graph or another index. False: also if they differ only in case or spaces
    """
