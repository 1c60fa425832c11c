"""Turn texts into segments: document > section? > paragraph > sentence."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pyfast.corpus.documents import Document, TextDocument
from pyfast.corpus.levels import Level
from pyfast.corpus.outlines import LONGEST, Headlines
from pyfast.corpus.schema import Columns
from pyfast.corpus.sections import Heading
from pyfast.corpus.sections import headings as find_headings
from pyfast.corpus.text_buffer import Integers, append_text, lengths
from pyfast.corpus.text_splitting import Bounds, bounded, codes_of, paragraphs, sentence_breaks, sentences

# The buffer has a blank line between texts, so that no paragraph or sentence spans two of them.
SEPARATOR = "\n\n"


def encode_texts(
    documents: Sequence[TextDocument],
    headings: Sequence[Sequence[Heading]],
    source: NDArray[np.int32],
    buffer: bytearray,
    length_of_paragraph: int,
) -> Columns:
    """Make the segments of text documents, depth first. `headings` has the headings of each document, and `source`
    its number."""
    text = SEPARATOR + SEPARATOR.join(document.text for document in documents)
    length = lengths(document.text for document in documents)
    first = np.cumsum(length + len(SEPARATOR)) - length
    sections, headed = _sections(documents, headings, first, length)

    codes = codes_of(text)
    breaks = sentence_breaks(text, codes)
    blocks = paragraphs(text, codes, headed)
    if sections[0].size:
        blocks = _with_headings(text, documents, headings, first, blocks, sections, headed)
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
) -> tuple[Bounds, Bounds]:
    """Find the sections of texts, and the parts of texts that are in no passage: headings and asides.

    Returns two pairs (starts, ends): one of the sections, one of the headings and asides. They are positions in
    the joined text of all documents. `first` has the position of each document in the joined text, and `length`
    the length of each document.
    """
    rows: list[tuple[int, int, int]] = []
    aside: list[tuple[int, int]] = []
    for document, own, origin, size in zip(documents, headings, first.tolist(), length.tolist(), strict=True):
        if own:
            ends = [*(heading.start for heading in own[1:]), size]
            rows += [(origin + h.start, origin + end, origin + h.end) for h, end in zip(own, ends, strict=True)]
        if document.outline.aside:
            aside += [(origin + start, origin + end) for start, end in document.outline.aside]
    start, end, heading_end = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    out = np.array(aside, dtype=np.int64).reshape(-1, 2).T
    return (start, end), (np.concatenate([start, out[0]]), np.concatenate([heading_end, out[1]]))


def _with_headings(
    text: str,
    documents: Sequence[TextDocument],
    headings: Sequence[Sequence[Heading]],
    first: Integers,
    blocks: Bounds,
    sections: Bounds,
    headed: Bounds,
) -> Bounds:
    """Add headings to the paragraphs: those that no passage below carries.

    These are the headings above no paragraph, and those that are left out of a passage's line. A heading
    directly above an aside needs no passage of its own: the aside is a table, and its rows carry the heading.
    """
    has_text, has_aside = (
        np.diff(np.searchsorted(starts, np.stack(sections, axis=1))).ravel().tolist()
        for starts in (blocks[0], np.sort(headed[0][sections[0].size :]))
    )
    added: list[tuple[int, int]] = []
    section = 0
    for document, own, origin in zip(documents, headings, first.tolist(), strict=True):
        if not own:
            continue
        longest: dict[int, int] = {}
        for heading in own:
            if len(heading.text) > longest.get(heading.depth, 0):
                longest[heading.depth] = len(heading.text)
        may_be_long = len(document.title) + sum(longest.values()) > LONGEST // 2
        left_out = Headlines(document.title, own).left_out if may_be_long else set()
        depths = 0  # those of the following headings that a passage carries, as bits
        asides = 0
        for number in range(len(own) - 1, -1, -1):
            heading, k = own[number], section + number
            bit = 1 << heading.depth
            carried = bool(has_text[k] or depths >> heading.depth + 1)
            depths = (depths & bit - 1) | bit * carried
            asides += has_aside[k]
            in_rows = has_aside[k] or (asides and heading.text == document.title)
            if (carried or in_rows) and number not in left_out:
                continue
            begin, line = origin + heading.start, text[origin + heading.start : origin + heading.end]
            shown = heading.text if heading.text in line else line.strip()
            if shown:
                begin += line.index(shown)
                added.append((begin, begin + len(shown)))
                depths |= bit
        section += len(own)
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
