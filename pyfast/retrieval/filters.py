"""Filters: choose which documents of an index are searched, by source, level, time or metadata."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import ge, gt, le, lt
from typing import Any

import numpy as np
import orjson

from pyfast.corpus import Corpus, Document, KnowledgeGraph
from pyfast.corpus.levels import PASSAGE_LEVELS
from pyfast.errors import InputError
from pyfast.retrieval.part_files import Mask
from pyfast.text_forms import compared

_CONDITION = re.compile(r"(source|title|level|time|meta\.[^=!<>]+?)\s*(!=|<=|>=|=|<|>)(.*)", re.DOTALL)
_LEVELS = tuple(level.name.lower() for level in PASSAGE_LEVELS)
_ORDER: dict[str, Callable[[Any, Any], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition on a document, such as `source=reports/*` or `meta.year>=2020`."""

    key: str
    operator: str
    values: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.key}{self.operator}{'|'.join(self.values)}"

    def fits(self, values: Sequence[str]) -> bool:
        """Return whether a document meets the condition. `values` are the document's values for `key`. At
        least one of them must fit, such as 2021 for `>=2020`. For `!=`, none of them may equal a value of the
        condition. Values are equal as words are, without regard to case, accents and Unicode form. For `source`,
        only the Unicode form does not matter.
        """
        if self.operator in _ORDER:
            return any(_compared(self.operator, value, self.values[0]) for value in values)
        form = _composed if self.key == "source" else compared
        equal = any(_pattern(form(one)).fullmatch(form(value)) for one in self.values for value in values)
        return equal == (self.operator == "=")


def parse_filter(given: str | Sequence[str]) -> tuple[Condition, ...]:
    """Read the conditions of a filter. A document must meet all of them.

    A condition is `KEY OPERATOR VALUE`. Keys: `source` (the uri), `title`, `level` (paragraph, table_row or
    subgraph), `time` (of a triple), `meta.NAME` (an entry of the document's metadata). The operators are `=`,
    `!=`, `<`, `<=`, `>` and `>=`. After `=` and `!=`, `*` stands for any text, `?` for any character, and `|`
    separates alternatives. `<`, `<=`, `>` and `>=` compare numbers as numbers and everything else as text. So
    they can compare dates such as 2024-05-01.

    Raises `InputError` if a condition cannot be read.
    """
    return tuple(map(_condition, [given] if isinstance(given, str) else given))


def _condition(text: str) -> Condition:
    match = _CONDITION.fullmatch(text.strip())
    if match is None:
        raise InputError(
            f"filter {text!r}: expected KEY=VALUE, with source, title, level, time or meta.NAME as the key and"
            " =, !=, <, <=, > or >= between"
        )
    key, operator, value = match[1], match[2], match[3].strip()
    if operator in _ORDER:
        if key == "level":
            raise InputError(f"filter {text!r}: a level has no order; use = or !=")
        return Condition(key, operator, (value,))
    values = tuple(part.strip() for part in value.split("|"))
    if key == "level" and not set(values) <= set(_LEVELS):
        raise InputError(f"filter {text!r}: the levels of passages are {', '.join(_LEVELS)}")
    return Condition(key, operator, values)


def _compared(operator: str, one: str, other: str) -> bool:
    try:
        return _ORDER[operator](float(one), float(other))
    except ValueError:
        return _ORDER[operator](one, other)


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _pattern(text: str) -> re.Pattern[str]:
    """Compile a value of a condition to a regular expression. In the value, `*` stands for any text, and `?`
    for any character."""
    return re.compile(re.escape(text).replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL)


def fitting_documents(corpus: Corpus, conditions: Sequence[Condition], live: Mask) -> Mask:
    """Return a bool for each document: True if the document is not deleted and meets all conditions. For a
    condition on `time`, the values of a document are the times of its triples.
    """
    fits = live.copy()
    for condition in conditions:
        for source in np.flatnonzero(fits).tolist():
            fits[source] = condition.fits(_values(corpus, source, condition.key))
    return fits


def with_fitting_triples(document: Document, conditions: Sequence[Condition]) -> Document:
    """Return a knowledge graph with only the triples whose time meets all conditions on `time`. Return any
    other document unchanged.
    """
    timed = [condition for condition in conditions if condition.key == "time"]
    if not timed or not isinstance(document, KnowledgeGraph):
        return document
    fitting = (one for one in document.triples if all(it.fits([one.time] if one.time else []) for it in timed))
    return replace(document, triples=tuple(fitting))


def _values(corpus: Corpus, source: int, key: str) -> list[str]:
    """Return the values that a document has for `key`, the key of a condition. `source` is the number of the
    document."""
    if key == "source":
        return [corpus.uri(source)]
    if key == "title":
        return [corpus.title(source)]
    root = int(corpus.roots[source])
    if key == "level":
        return ["table_row" if corpus.is_table(root) else "subgraph" if corpus.is_graph(root) else "paragraph"]
    if key == "time":
        return [one.time for one in corpus.triples(root) if one.time] if corpus.is_graph(root) else []
    value = corpus.metadata(root).get(key.removeprefix("meta."))
    return [] if value is None else [_text(one) for one in (value if isinstance(value, list) else [value])]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()
