"""Chunks: consecutive paragraphs of one text, which an LLM reads in one call. When a text is added to an
index, the LLM reads only the chunks of the new text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby

from pyfast.corpus import Corpus, Level
from pyfast.corpus.rendering import fold
from pyfast.retrieval import Index

TOKENS = 1200
"""The default for the maximum size of a chunk in tokens, as in MTQA's paper"""
_CHARACTERS_PER_TOKEN = 4  # the average of English; the size of a chunk need not be exact
_TITLE = 4  # A title takes at most a quarter of its chunk, even if it is long.


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk: consecutive paragraphs of one text, which an LLM reads in one call."""

    title: str
    passages: tuple[tuple[int, str], ...]
    """For each paragraph: (id of its segment, text). A paragraph that is too long is divided into several
    such pairs, which have the same id"""

    @property
    def text(self) -> str:
        """The text of the chunk with its title, in the form in which the LLM reads it."""
        return "\n\n".join(filter(None, (self.title, *(text for _, text in self.passages))))

    @property
    def digest(self) -> str:
        """A checksum of the chunk's text and of its segment ids.

        The checksum does not depend on the LLM. So if one LLM has read a chunk, another LLM does not read it
        again.
        """
        made = blake2b(f"chunk\n{self.text}".encode(errors="replace"), digest_size=16)
        for segment, _ in self.passages:
            made.update(segment.to_bytes(8, "little"))
        return made.hexdigest()


def split_into_chunks(index: Index, tokens: int = TOKENS) -> Iterator[Chunk]:
    """Split the texts of an index into chunks, in the order of the corpus. A chunk has at most about `tokens`
    tokens."""
    corpus, limit = index.corpus, tokens * _CHARACTERS_PER_TOKEN
    paragraphs = (place for place in index.passages.tolist() if corpus.level[place] == Level.PARAGRAPH)
    for source, places in groupby(paragraphs, key=lambda place: int(corpus.source[place])):
        title = fold(corpus.title(source))[: limit // _TITLE]
        run: list[tuple[int, str]] = []
        budget = limit - len(title)
        section = whole_title = fold(corpus.title(source))
        for place in places:
            above, is_heading = corpus.headline(place)
            above = fold(above)
            for text in [""] if is_heading else _fitting_texts(corpus, place, limit - len(title)):
                headed = f"{above}\n{text}".rstrip()
                shown = text if above == section else headed
                if run and len(shown) > budget:
                    yield Chunk(title, tuple(run))
                    run, budget = [], limit - len(title)
                    shown = text if above == whole_title else headed  # The LLM does not see the chunk before.
                section = above
                run.append((int(corpus.ids[place]), shown))
                budget -= len(shown)
        yield Chunk(title, tuple(run))


def pack(chunks: Iterable[Chunk], tokens: int) -> Iterator[tuple[Chunk, ...]]:
    """Group consecutive chunks, so that the LLM reads a group in one call. A group has at most about `tokens`
    tokens."""
    run: list[Chunk] = []
    for chunk in chunks:
        if run and sum(len(each.text) for each in (*run, chunk)) > tokens * _CHARACTERS_PER_TOKEN:
            yield tuple(run)
            run = []
        run.append(chunk)
    if run:
        yield tuple(run)


def _fitting_texts(corpus: Corpus, place: int, limit: int) -> Iterator[str]:
    """Divide a paragraph into texts of at most `limit` characters. `place` is the position of the paragraph
    in the corpus. A longer paragraph becomes groups of its sentences. A longer sentence is cut."""
    text = corpus.content(place)
    if len(text) <= limit:
        yield text
        return
    sentences = range(place + 2, int(corpus.subtree_end[place]))
    ends = [int(corpus.start[i] - corpus.start[place]) for i in sentences] + [len(text)]
    begin = 0
    while begin < len(text):
        furthest = begin + max(limit, 1)
        end = max((end for end in ends if begin < end <= furthest), default=min(furthest, len(text)))
        yield text[begin:end]
        begin = end
