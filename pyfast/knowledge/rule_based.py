"""Extract triples by rules, without an LLM.

Triples of knowledge graphs stay unchanged. In a row of a table, the first cell with a name is the head, and
each other cell is a tail. In texts, a name is a sequence of capitalised words, or a year. The text between
two names in a sentence becomes their relation. These rules are fast and often wrong. For extraction by an
LLM, see the module `extraction`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from itertools import chain, groupby

import pyfast.utils.stop_words as stop_words
from pyfast.corpus import Corpus, KnowledgeGraph, Table
from pyfast.corpus.rendering import fold
from pyfast.knowledge.extracts import RULE_BASED, Extract, Mention, Statement
from pyfast.knowledge.names import name_key, tidy
from pyfast.retrieval import Index

_DIGEST_PREFIX = "straight"  # the method's first name: another prefix would make every chunk of a store look new
MAX_WORDS = 8  # the maximum number of words between two names of a relation
MAX_LENGTH = 120  # the maximum number of characters of a name
_WORD = re.compile(r"\w[\w'’.&-]*\w|\w")
_ARTICLE = re.compile(r"(?:\s+|^)(?:the|a|an)$", re.IGNORECASE)
_NUMBER = re.compile(r"[\d\W_]+")
_YEAR = re.compile(r"\d{4}")
# An address, which names nothing. Of a link in Markdown, only the text remains.
_ADDRESS = re.compile(r"!?\[([^\[\]]*)\]\((?:[^()]|\([^()]*\))*\)|<?\bhttps?://[^\s<>)\]]+>?")
# small words that occur inside names
_WITHIN = frozenset(("of", "the", "de", "von", "van", "da", "del", "la", "al"))
_JOINER = re.compile(r"^(?:(?:and|or|the|a|an|his|her|its|their)\b\s*|[\W_]+)+", re.IGNORECASE)


# Words such as "the", which are capitalised at the beginning of many sentences, but are usually not names
_OPENERS = stop_words.ENGLISH | {"hundreds", "thousands", "millions"}


def extract_by_rules(index: Index, text: bool = True) -> Iterator[Extract]:
    """Extract triples from documents by rules, without an LLM.

    Args:
        index: The index.
        text: Whether to read texts too. False: read only tables and knowledge graphs.

    Yields:
        One extract for each document that has passages and is read.
    """
    corpus = index.corpus
    titles = {corpus.uri(source): fold(corpus.title(source)) for source in range(corpus.documents)}
    for source, places in groupby(index.passages.tolist(), key=lambda place: int(corpus.source[place])):
        document, passages = corpus.document(source), list(places)
        exact = isinstance(document, KnowledgeGraph)
        statements: Iterable[Statement]
        if exact:
            statements = chain.from_iterable(_of_subgraph(corpus, place) for place in passages)
        elif isinstance(document, Table):
            statements = _of_table(corpus, document, passages, titles.get)
        elif text:
            statements = chain.from_iterable(_of_paragraph(corpus, place) for place in passages)
        else:
            continue
        title, first = titles[corpus.uri(source)], int(corpus.ids[passages[0]])
        mentions = (Mention(title, first),) if title and not exact else ()
        yield Extract(_digest(corpus, source, passages), RULE_BASED, tuple(statements), mentions, exact=exact)


def _digest(corpus: Corpus, source: int, places: list[int]) -> str:
    """Compute a digest of a document from its uri, and from the text and the id of each passage. `places` are the
    positions of the passages in the corpus."""
    made = blake2b(f"{_DIGEST_PREFIX}\n{corpus.uri(source)}".encode(errors="replace"), digest_size=16)
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
    """Extract the triples of a table. In each row, the first cell with a name (not a number) is the head. Each
    other cell of the row is a tail, and the header of its column is the relation.

    For a cell with a link, there is also the triple (cell, is described in, title of the target). If the table
    has a title, there is also the triple (head, is listed in, title) for each head. `places` are the segment
    numbers of the rows to read. `title_of` returns the title of the document with a given uri.
    """
    links = {(row, column): title_of(uri) for row, column, uri in table.links}
    for place in places:
        segment, row = int(corpus.ids[place]), int(corpus.start[place])
        cells = [tidy(cell) for cell in table.rows[row]]
        about = next((i for i, cell in enumerate(cells) if _is_name(cell)), None)
        if about is None:
            continue
        for i, cell in enumerate(cells):
            if i != about and cell and len(cell) <= MAX_LENGTH:
                name = tidy(table.header[i]) if i < len(table.header) else ""
                yield Statement(cells[about], name or "has", cell, segment)
            linked = links.get((row, i))
            if linked and cell and len(cell) <= MAX_LENGTH and name_key(linked) != name_key(cell):
                yield Statement(cell, "is described in", linked, segment)
        title = fold(table.title)
        if title and name_key(title) != name_key(cells[about]):
            yield Statement(cells[about], "is listed in", title, segment)


def _is_name(cell: str) -> bool:
    return bool(cell) and len(cell) <= MAX_LENGTH and not _NUMBER.fullmatch(cell)


def _of_paragraph(corpus: Corpus, place: int) -> Iterator[Statement]:
    segment, title = int(corpus.ids[place]), fold(corpus.title(corpus.source[place]))
    for i in range(place + 1, int(corpus.subtree_end[place])) or [place]:
        sentence = _ADDRESS.sub(r"\1", fold(corpus.without_marks(i, corpus.content(i))))
        for subject, relation, name in triples_of_sentence(sentence, title):
            yield Statement(subject, relation, name, segment)


def triples_of_sentence(sentence: str, title: str) -> Iterator[tuple[str, str, str]]:
    """Extract the triples of a sentence.

    The head is the name with which the sentence begins, or the title if it does not begin with a name.
    Each later name is a tail. The relation is the text between the tail and the name before it. In an
    enumeration, all tails have the same relation: "Huygens discovered Titan and Iapetus" gives (Huygens,
    discovered, Titan) and (Huygens, discovered, Iapetus). If the text before a tail has more than `MAX_WORDS`
    words, there is no triple.
    """
    subject, relation, end = title, "", 0
    for begin, stop in name_spans(sentence):
        name = sentence[begin:stop]
        between = _ARTICLE.sub("", _JOINER.sub("", tidy(sentence[end:begin])).rstrip(" ,;:.(\"'“"))
        if begin == 0:
            subject = name
        elif subject and name_key(name) != name_key(subject):
            if between:
                relation = between.lower() if len(between.split()) <= MAX_WORDS else ""
            if relation:
                yield subject, relation, name
        end = stop


def name_spans(sentence: str) -> list[tuple[int, int]]:
    """Return (start, end) in characters of each name and year in a sentence."""
    spans: list[tuple[int, int]] = []
    run: list[tuple[int, int]] = []
    for word in [*_WORD.finditer(sentence), None]:
        text = word[0] if word else ""
        capital = text[:1].isupper() and not (not run and text.lower() in _OPENERS)
        joins = bool(run) and word is not None and sentence[run[-1][1] : word.start()] == " "
        if word and joins and (capital or text in _WITHIN or text.isdigit()):
            run.append(word.span())
            continue
        while run and sentence[slice(*run[-1])] in _WITHIN:
            run.pop()
        if run and run[-1][1] - run[0][0] <= MAX_LENGTH:
            spans.append((run[0][0], run[-1][1]))
        run = [word.span()] if word and (capital or _YEAR.fullmatch(text)) else []
    return spans
