"""Turn texts into segments: document > section? > paragraph > sentence."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pyfast.corpus.documents import Document, TextDocument
from pyfast.corpus.levels import Level
from pyfast.corpus.schema import Columns
from pyfast.corpus.sections import Heading
from pyfast.corpus.sections import headings as find_headings
from pyfast.corpus.text_buffer import Integers, append_text, lengths
from pyfast.corpus.text_splitting import Bounds, bounded, codes_of, paragraphs, sentence_breaks, sentences

# The buffer has a blank line between texts, so that no paragraph or sentence spans two of them.
_SEPARATOR = "\n\n"


def encode_texts(
    documents: Sequence[TextDocument],
    headings: Sequence[Sequence[Heading]],
    source: NDArray[np.int32],
    buffer: bytearray,
    length_of_paragraph: int,
) -> Columns:
    """Make the segments of text documents, depth first. `headings` has the headings of each document, and `source`
    its number."""
    text = _SEPARATOR + _SEPARATOR.join(document.text for document in documents)
    length = lengths(document.text for document in documents)
    first = np.cumsum(length + len(_SEPARATOR)) - length
    sections, headed, headlines = _sections(documents, headings, first, length)

    codes = codes_of(text)
    breaks = sentence_breaks(text, codes)
    blocks = paragraphs(text, codes, headed)
    if headlines:
        blocks = _with_headlines(text, blocks, headlines, sections, headed)
    blocks = bounded(text, blocks, breaks, length_of_paragraph)
    levels = {
        Level.DOCUMENT: (first, first + length),
        Level.SECTION: sections,
        Level.PARAGRAPH: blocks,
        Level.SENTENCE: sentences(blocks, breaks),
    }
    start, end = (np.concatenate([bounds[side] for bounds in levels.values()]) for side in (0, 1))
    level = np.repeat(np.array(list(levels), dtype=np.uint8), [bounds[0].size for bounds in levels.values()])
    order = np.argsort(start * 4 + level, kind="stable")  # depth first; the stable sort merges four sorted runs
    start, end, level = start[order], end[order], level[order]

    in_buffer = append_text(text, buffer)
    number = np.searchsorted(first, start, side="right") - 1
    origin = first[number]
    return {
        "level": level,
        "source": source[number],
        "start": start - origin,
        "end": end - origin,
        "byte_start": in_buffer(start),
        "byte_end": in_buffer(end),
        "passage": (level == Level.PARAGRAPH).astype(np.uint8),
    }


def _sections(
    documents: Sequence[TextDocument],
    headings: Sequence[Sequence[Heading]],
    first: Integers,
    length: Integers,
) -> tuple[Bounds, Bounds, list[tuple[int, int, int]]]:
    """Find the sections of texts, and the parts of texts that are in no passage: headings and asides.

    Returns two pairs (starts, ends): one of the sections, one of the headings and asides. Returns also the
    headings that have no deeper heading directly below: (number of the section, start, end). All places are
    positions in the joined text of all documents. `first` has the position of each document in the joined text,
    and `length` the length of each document.
    """
    rows: list[tuple[int, int, int]] = []
    aside: list[tuple[int, int]] = []
    lowest: list[tuple[int, int, int]] = []
    for document, own, origin, size in zip(documents, headings, first.tolist(), length.tolist(), strict=True):
        if own:
            ends = [*(heading.start for heading in own[1:]), size]
            depths = [*(heading.depth for heading in own[1:]), 0]
            for heading, end, depth in zip(own, ends, depths, strict=True):
                if depth <= heading.depth:
                    lowest.append((len(rows), origin + heading.start, origin + heading.end))
                rows.append((origin + heading.start, origin + end, origin + heading.end))
        if document.outline.aside:
            aside += [(origin + start, origin + end) for start, end in document.outline.aside]
    start, end, heading_end = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    out = np.array(aside, dtype=np.int64).reshape(-1, 2).T
    headed = (np.concatenate([start, out[0]]), np.concatenate([heading_end, out[1]]))
    return (start, end), headed, lowest


def _with_headlines(
    text: str, blocks: Bounds, lowest: list[tuple[int, int, int]], sections: Bounds, headed: Bounds
) -> Bounds:
    """Add the headings of empty sections to the paragraphs, for no passage below carries them. A section with an
    aside is not empty: the aside is a table with its own passages."""
    filled = np.sort(np.concatenate([blocks[0], headed[0][len(sections[0]) :]]))
    found = np.searchsorted(filled, sections[1]) - np.searchsorted(filled, sections[0])
    added = []
    for section, start, end in lowest:
        line = text[start:end]
        if not found[section] and (stripped := line.strip()):
            begin = start + line.index(stripped)
            added.append((begin, begin + len(stripped)))
    starts, ends = np.array(added, dtype=np.int64).reshape(-1, 2).T
    return np.sort(np.concatenate([blocks[0], starts])), np.sort(np.concatenate([blocks[1], ends]))


def headings_of(document: Document) -> Sequence[Heading]:
    """Return the headings of a document. Tables and graphs have none.

    They are the `headings` of the text's outline. If these are None, the function finds the headings of a Markdown
    text, and a text that is not Markdown has no headings.
    """
    if not isinstance(document, TextDocument):
        return ()
    if document.outline.headings is not None:
        return document.outline.headings
    return find_headings(document.text) if document.markdown else ()
