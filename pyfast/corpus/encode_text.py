"""Turn texts into segments: document > section? > paragraph > sentence."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pyfast.corpus.documents import TextDocument
from pyfast.corpus.levels import Level
from pyfast.corpus.schema import Columns
from pyfast.corpus.sections import Heading, headings
from pyfast.corpus.text_buffer import Integers, append_text, lengths
from pyfast.corpus.text_splitting import bounded, codes_of, paragraphs, sentence_breaks, sentences

# The buffer has a blank line between texts, so that no paragraph or sentence spans two of them.
SEPARATOR = "\n\n"


def encode_texts(
    documents: Sequence[TextDocument],
    source: NDArray[np.int32],
    buffer: bytearray,
    length_of_paragraph: int,
) -> Columns:
    """Make the segments of text documents, depth first. `source` has the number of each document."""
    text = SEPARATOR + SEPARATOR.join(document.text for document in documents)
    length = lengths(document.text for document in documents)
    first = np.cumsum(length + len(SEPARATOR)) - length
    sections, headed = _sections(documents, first, length)

    codes = codes_of(text)
    breaks = sentence_breaks(text, codes)
    blocks = bounded(text, paragraphs(text, codes, headed), breaks, length_of_paragraph)
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
    documents: Sequence[TextDocument], first: Integers, length: Integers
) -> tuple[tuple[Integers, Integers], tuple[Integers, Integers]]:
    """Find the sections of texts, and the parts of texts that are in no passage: headings and asides.

    Returns two pairs (starts, ends): one of the sections, one of the headings and asides. They are positions in
    the joined text of all documents. `first` has the position of each document in the joined text, and `length`
    the length of each document.
    """
    rows: list[tuple[int, int, int]] = []
    aside: list[tuple[int, int]] = []
    for document, origin, size in zip(documents, first.tolist(), length.tolist(), strict=True):
        if headings := headings_of(document):
            ends = [*(heading.start for heading in headings[1:]), size]
            placed = zip(headings, ends, strict=True)
            rows += [(origin + h.start, origin + end, origin + h.end) for h, end in placed]
        if document.outline.aside:
            aside += [(origin + start, origin + end) for start, end in document.outline.aside]
    start, end, heading_end = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    out = np.array(aside, dtype=np.int64).reshape(-1, 2).T
    return (start, end), (np.concatenate([start, out[0]]), np.concatenate([heading_end, out[1]]))


def headings_of(document: TextDocument) -> Sequence[Heading]:
    """Return the headings of a text.

    They are the `headings` of the text's outline. If these are None, the function finds the headings of a Markdown
    text, and a text that is not Markdown has no headings.
    """
    if document.outline.headings is not None:
        return document.outline.headings
    return headings(document.text) if document.markdown else ()
