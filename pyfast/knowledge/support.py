"""Check which of an LLM's triples a text supports. The text must contain head and tail. The head must be a name,
and the tail a name, a value or a description, but not a pronoun.

All other triples, such as those that an LLM invents, are dropped, and counted by reason. Pronouns are not allowed,
because in a graph, the entity "he" would stand for many people.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import NamedTuple

from pyfast.knowledge.extraction_prompts import EntityFields, TripleFields
from pyfast.knowledge.extracts import Mention, Statement, Theme
from pyfast.knowledge.names import is_named_in, name_key, tidy

PRONOUN, NOT_IN_TEXT, EMPTY, SAME_ENDS = "pronoun", "not in the text", "empty", "both ends are the same"
"""The reasons why a triple is dropped"""

_WORD = re.compile(r"\w+")
_PRONOUNS = frozenset(
    _WORD.findall(
        "he she it they him them his hers its their theirs himself herself itself themselves i me we us you who"
        " whom whose which that this these those here there someone somebody one former latter"
    )
)
_DESCRIPTION = re.compile(
    r"[Tt]he (?:film|movie|book|novel|song|album|band|group|team|club|company|city|town|village|country|state"
    r"|school|university|author|writer|actor|actress|director|singer|series|show|game|player|man|woman|couple|family)"
    r"|(?:[Tt]h(?:is|at|ese|ose)|[Hh](?:is|er)|[Ii]ts|[Tt]heir)(?: [^\W\d_A-Z]+)+"
)
_MONTHS = _WORD.findall("january february march april may june july august september october november december")
_MONTH = "|".join(f"{name[:3]}(?:{name[3:]})?" for name in _MONTHS)
_DATES = (
    re.compile(rf"\b(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? (?P<month>{_MONTH})\b[.,]* (?P<year>\d{{4}})\b"),
    re.compile(rf"\b(?P<month>{_MONTH})\b\.? (?P<day>\d{{1,2}})(?:st|nd|rd|th)? ?,? (?P<year>\d{{4}})\b"),
    re.compile(r"\b(?P<year>\d{4})-(?P<month>\d{2})-(?P<day>\d{2})\b"),
    re.compile(rf"\b(?P<month>{_MONTH})\b[.,]* (?P<year>\d{{4}})\b"),
)
_UNSAID = frozenset(("the", "a", "an", "jr", "sr"))  # words of a name that a text may leave out
_BETWEEN = 2  # the maximum number of other words inside a name, such as middle names
_COUNTRY, _FROM_THERE = (
    ("", "a", "e", "o", "y", "ia", "en", "land"),
    ("", "n", "an", "ian", "ean", "ese", "ish", "i", "er"),
)
_STEM = 4  # the minimum number of letters that a country's name shares with its adjective


class Dropped(NamedTuple):
    """A triple that was dropped, and the reason."""

    reason: str
    triple: str
    """``head | relation | tail``"""


@dataclass(slots=True)
class Supported:
    """The triples of an LLM, divided into supported triples and dropped triples."""

    statements: list[Statement] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)


def supported_statements(triples: Iterable[TripleFields], *texts: Sequence[tuple[int, str]]) -> Supported:
    """Find the triples that a text supports, without duplicates. One text alone must contain both names of a
    triple.

    Args:
        triples: The triples of an LLM.
        texts: Each text as a list of segments, (id, text). The source of a triple is the first segment that names
            both head and tail or, if none names both, the first one that names the head.
    """
    read = [[(segment, _Text(text)) for segment, text in segments] for segments in texts]
    supported, seen = Supported(), set()
    for triple in triples:
        head, relation, tail = map(tidy, (triple.head, triple.relation, triple.tail))
        named = next((names for segments in read if (names := _naming(head, tail, segments)) is not None), None)
        keys = (name_key(head), name_key(relation), name_key(tail))
        faults = {
            EMPTY: not all(map(_WORD.search, keys)),
            PRONOUN: is_pronoun(head) or _is_bare(tail),
            SAME_ENDS: keys[0] == keys[2],
            NOT_IN_TEXT: named is None,
        }
        reason = next((reason for reason, is_so in faults.items() if is_so), None)
        if reason is not None:
            supported.dropped.append(Dropped(reason, f"{head} | {relation} | {tail}"))
        elif keys not in seen and named is not None:
            seen.add(keys)
            description, strength = tidy(getattr(triple, "description", "")), getattr(triple, "strength", 0)
            phrases = tuple(dict.fromkeys(filter(None, map(tidy, getattr(triple, "keys", ())))))
            said = Statement(head, relation, tail, named, "", description, phrases, strength)
            supported.statements.append(said)
    return supported


def _naming(head: str, tail: str, segments: Sequence[tuple[int, _Text]]) -> int | None:
    heads, tails = ([segment for segment, text in segments if text.names(end)] for end in (head, tail))
    both = [segment for segment in heads if segment in tails]
    return (both or heads)[0] if heads and tails else None


def supported_mentions(entities: Iterable[EntityFields], segments: Sequence[tuple[int, str]]) -> list[Mention]:
    """Find the entities that a text names, without duplicates. `segments` are the segments of the text, as (id,
    text). The source of an entity is the first segment that names it."""
    texts = [(segment, _Text(text)) for segment, text in segments]
    mentions: dict[str, Mention] = {}
    for entity in entities:
        name = tidy(entity.name)
        named = [segment for segment, text in texts if text.names(name)]
        if named and not is_pronoun(name):
            mention = Mention(name, named[0], tidy(entity.kind), tidy(entity.description))
            mentions.setdefault(name_key(name), mention)
    return list(mentions.values())


def themes_of(keys: Iterable[str], segments: Sequence[tuple[int, str]], only: bool) -> list[Theme]:
    """Find for each theme of a text the first segment of the text that names the theme. `keys` are the
    themes: phrases that say what the text is about.

    A theme that no segment names is left out, unless `only` is True, which means that the themes come from this
    text alone; then it gets the text's first segment.
    """
    texts = [(segment, _Text(text)) for segment, text in segments]
    themes: dict[str, Theme] = {}
    for key in filter(None, map(tidy, keys)):
        named = [segment for segment, text in texts if text.names(key)]
        for segment in (named or [segments[0][0]] * only)[:1]:
            themes.setdefault(key, Theme(key, segment))
    return list(themes.values())


def is_pronoun(name: str) -> bool:
    """Return whether a text is a pronoun, or a description such as "the film" or "his wife", and not a
    name."""
    return _is_bare(name) or bool(_DESCRIPTION.fullmatch(name))


def _is_bare(name: str) -> bool:
    return name_key(name) in _PRONOUNS and (len(name) == 1 or not name.isupper())  # US and WHO are no pronouns.


class _Text:
    """A text, prepared so that names can be found in it."""

    def __init__(self, text: str) -> None:
        self._key = name_key(text)

    @cached_property
    def _words(self) -> list[str]:
        return _WORD.findall(_without_accents(self._key))

    @cached_property
    def _dates(self) -> set[tuple[int, int, int]]:
        return set(_dates(self._key))

    def names(self, name: str) -> bool:
        """Return whether the text contains the name itself, or another form of it. If the name is a date, the text
        must contain the same date in any form, and otherwise the main words of the name.

        In the text, accents, articles and middle names may be missing, and first names may be initials. A
        nationality may stand for its country. If the name contains commas, the text must contain each part.
        """
        key = name_key(name)
        if not key:
            return False
        if is_named_in(key, self._key):
            return True
        if dates := _dates(key, whole=True):
            year, month, day = dates[0]
            return any(date[:2] == (year, month) and day in (0, date[2]) for date in self._dates)
        parts = [words for part in key.split(",") if (words := _words_of(part))]
        return bool(parts) and all(self._has(words) for words in parts)

    def _has(self, wanted: list[str]) -> bool:
        if len(wanted) == 1:
            return any(_same_place(wanted[0], word) for word in self._words)
        shortened = [wanted[0], wanted[-1]] if len(wanted) > 2 and not wanted[-1].isdigit() else wanted
        starts = [at for at, word in enumerate(self._words) if _same_word(wanted[0], word)]
        return any(self._follow(words, at) for words in (wanted, shortened) for at in starts)

    def _follow(self, wanted: list[str], at: int) -> bool:
        for word in wanted[1:]:
            near = range(at + 1, min(at + 2 + _BETWEEN, len(self._words)))
            match = next((place for place in near if _same_word(word, self._words[place])), None)
            if match is None:
                return False
            at = match
        return True


def _words_of(name: str) -> list[str]:
    """Return the main words of a name, without articles, `jr`, `sr` and text in brackets."""
    words = _WORD.findall(_without_accents(re.sub(r"\(.*?\)", " ", name)))
    return [word for word in words if word not in _UNSAID]


def _same_word(one: str, other: str) -> bool:
    return one == other or (one[0] == other[0] and 1 in (len(one), len(other)) and not other.isdigit())


def _same_place(one: str, other: str) -> bool:
    """Return whether two words are equal, or one is a country and the other its nationality."""
    return one == other or any(
        not _stems(country, _COUNTRY).isdisjoint(_stems(people, _FROM_THERE))
        for country, people in ((one, other), (other, one))
        if country[:_STEM] == people[:_STEM]
    )


def _stems(word: str, endings: Iterable[str]) -> set[str]:
    return {stem for end in endings if len(stem := word.removesuffix(end)) >= _STEM and word.endswith(end)}


def _without_accents(text: str) -> str:
    plain = re.sub("[\u0300-\u036f]", "", unicodedata.normalize("NFD", text))
    return unicodedata.normalize("NFC", plain)


def _dates(text: str, whole: bool = False) -> list[tuple[int, int, int]]:
    """Return (year, month, day) of each date in a text. If a date has no day, the day is 0. If `whole` is
    True, the whole text must be one date."""
    matches = chain.from_iterable(pattern.finditer(text) for pattern in _DATES)
    dates = [match.groupdict() for match in matches if not whole or match[0] == text]
    return [(int(date["year"]), _month(date["month"]), int(date.get("day") or 0)) for date in dates]


def _month(text: str) -> int:
    return int(text) if text.isdigit() else next(i for i, name in enumerate(_MONTHS, 1) if name[:3] == text[:3])
