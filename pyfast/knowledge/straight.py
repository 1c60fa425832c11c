"""Knowledge without a language model: triples as they stand, tables and links cell by cell, texts by their shape.

Names in texts are runs of capitalised words, and years; what stands between two of them in a sentence is taken for
what relates them. That is often wrong and always fast; `extraction` asks a language model instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from hashlib import blake2b
from itertools import groupby

from pyfast.corpus import Corpus, KnowledgeGraph, Table
from pyfast.corpus.rendering import fold
from pyfast.knowledge.records import Extract, Mention, Statement, key_of, tidy
from pyfast.retrieval import Index

METHOD = "straight"
MOST_WORDS = 8  # between two names: more is no relation
LONGEST = 120  # characters of a name
_WORD = re.compile(r"\w[\w'’.&-]*\w|\w")
_ARTICLE = re.compile(r"(?:\s+|^)(?:the|a|an)$", re.IGNORECASE)
_NUMBER = re.compile(r"[\d\W_]+")
_YEAR = re.compile(r"\d{4}")
_WITHIN = frozenset(("of", "the", "de", "von", "van", "da", "del", "la", "al"))  # small words inside names
_JOINER = re.compile(r"^(?:(?:and|or|the|a|an|his|her|its|their)\b\s*|[\W_]+)+", re.IGNORECASE)


@cache
def _openers() -> frozenset[str]:
    """Words that are capitalised for where they stand, not for what they mean."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return frozenset(ENGLISH_STOP_WORDS) | {"hundreds", "thousands", "millions"}


def read_straight(index: Index, text: bool = True) -> Iterator[Extract]:
    """One extract for each document that has units; `text` False leaves texts to others."""
    corpus = index.corpus
    titles = {corpus.uri(source): fold(corpus.title(source)) for source in range(corpus.documents)}
    for source, places in groupby(index.units.tolist(), key=lambda place: int(corpus.source[place])):
        document, units = corpus.document(source), list(places)
        if isinstance(document, KnowledgeGraph):
            found, exact = [said for place in units for said in _of_subgraph(corpus, place)], True
        elif isinstance(document, Table):
            found, exact = list(_of_table(corpus, document, units, titles.get)), False
        elif text:
            found, exact = [said for place in units for said in _of_paragraph(corpus, place)], False
        else:
            continue
        title, first = titles[corpus.uri(source)], int(corpus.ids[units[0]])
        mentions = (Mention(title, first),) if title and not exact else ()
        yield Extract(digest(corpus, source, units), METHOD, tuple(found), mentions, exact=exact)


def digest(corpus: Corpus, source: int, places: list[int], method: str = METHOD) -> str:
    """Of a run of units, where they stand and how they are read."""
    made = blake2b(f"{method}\n{corpus.uri(source)}".encode(errors="replace"), digest_size=16)
    for place in places:
        made.update(f"\n{corpus.ids[place]:016x} {corpus.render(place)}".encode(errors="replace"))
    return made.hexdigest()


def _of_subgraph(corpus: Corpus, place: int) -> Iterator[Statement]:
    segment = int(corpus.ids[place])
    for triple in corpus.triples(place):
        if triple.head.strip() and triple.tail.strip():
            yield Statement(triple.head, triple.relation, triple.tail, segment, triple.time or "")


def _of_table(
    corpus: Corpus, table: Table, places: list[int], title_of: Callable[[str], str | None]
) -> Iterator[Statement]:
    """A row's entity is its first cell that is not a number; every other cell is a value of it."""
    links = {(row, column): title_of(uri) for row, column, uri in table.links}
    for place in places:
        segment, row = int(corpus.ids[place]), int(corpus.start[place])
        cells = [tidy(cell) for cell in table.rows[row]]
        about = next((i for i, cell in enumerate(cells) if _is_name(cell)), None)
        if about is None:
            continue
        for i, cell in enumerate(cells):
            if i != about and cell and len(cell) <= LONGEST:
                name = tidy(table.header[i]) if i < len(table.header) else ""
                yield Statement(cells[about], name or "has", cell, segment)
            linked = links.get((row, i))
            if linked and cell and len(cell) <= LONGEST and key_of(linked) != key_of(cell):
                yield Statement(cell, "is described in", linked, segment)
        title = fold(table.title)
        if title and key_of(title) != key_of(cells[about]):
            yield Statement(cells[about], "is listed in", title, segment)


def _is_name(cell: str) -> bool:
    return bool(cell) and len(cell) <= LONGEST and not _NUMBER.fullmatch(cell)


def _of_paragraph(corpus: Corpus, place: int) -> Iterator[Statement]:
    segment, title = int(corpus.ids[place]), fold(corpus.title(corpus.source[place]))
    inside = range(place + 1, int(corpus.subtree_end[place]))
    for sentence in [corpus.content(i) for i in inside] or [corpus.content(place)]:
        for subject, relation, name in of_sentence(fold(sentence), title):
            yield Statement(subject, relation, name, segment)


def of_sentence(sentence: str, title: str) -> Iterator[tuple[str, str, str]]:
    """The sentence's first name, if it begins with one, or the title; what follows it; each name after it.

    Enumerations keep the relation of their first member.
    """
    subject, relation, end = title, "", 0
    for begin, stop in names(sentence):
        name = sentence[begin:stop]
        between = _ARTICLE.sub("", _JOINER.sub("", tidy(sentence[end:begin])).rstrip(" ,;:.(\"'“"))
        if begin == 0:
            subject = name
        elif subject and key_of(name) != key_of(subject):
            if between:
                relation = between.lower() if len(between.split()) <= MOST_WORDS else ""
            if relation:
                yield subject, relation, name
        end = stop


def names(sentence: str) -> list[tuple[int, int]]:
    """Where the names and years of a sentence stand: (begin, end) in it."""
    found: list[tuple[int, int]] = []
    run: list[tuple[int, int]] = []
    for word in [*_WORD.finditer(sentence), None]:
        text = word[0] if word else ""
        capital = text[:1].isupper() and not (not run and text.lower() in _openers())
        joins = bool(run) and word is not None and sentence[run[-1][1] : word.start()] == " "
        if word and joins and (capital or text in _WITHIN or text.isdigit()):
            run.append(word.span())
            continue
        while run and sentence[slice(*run[-1])] in _WITHIN:
            run.pop()
        if run and run[-1][1] - run[0][0] <= LONGEST:
            found.append((run[0][0], run[-1][1]))
        run = [word.span()] if word and (capital or _YEAR.fullmatch(text)) else []
    return found
